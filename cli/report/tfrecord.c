/* SPDX-License-Identifier: Apache-2.0 */
/* tfrecord.c -- see tfrecord.h. A record is
 *
 *     length u64 | masked CRC32C of the length u32 | event | masked CRC32C of the event u32
 *
 * and an event is a protobuf message of these fields (number, type):
 *
 *     wall_time 1 double, step 2 varint, file_version 3 text, summary 5 message, session_log 7
 *     summary: value 1 message, repeated. value: tag 1 text, simple_value 2 float
 *
 * All numbers are little-endian. A key in protobuf is 8 number + type; the types are 0: varint,
 * 1: 8 bytes, 2: length and bytes, 5: 4 bytes.
 *
 * Source: TensorFlow's record_writer.h and event.proto; CRC32C: Castagnoli et al. 1993,
 * "Optimization of Cyclic Redundancy-Check Codes with 24 and 32 Parity Bits". */
#include "report/tfrecord.h"

#include "text.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LENGTH = 8, CRC = 4, HEAD = LENGTH + CRC, LARGEST = 1 << 20 };

/* --- checksums --- */

/* Compute CRC32C: reflected polynomial, initial value and final XOR of all ones. */
static uint32_t crc32c(const unsigned char *bytes, size_t size) {
    uint32_t crc = ~UINT32_C(0);
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0x82F63B78) : 0);
    }
    return ~crc;
}

/* The mask keeps the checksum of data with embedded checksums from being trivial. */
static uint32_t masked(const unsigned char *bytes, size_t size) {
    const uint32_t crc = crc32c(bytes, size);
    return (crc >> 15 | crc << 17) + UINT32_C(0xA282EAD8);
}

static void store(unsigned char *to, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++)
        to[i] = (unsigned char)(value >> 8 * i);
}

static uint64_t load(const unsigned char *from, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)from[i] << 8 * i;
    return value;
}

/* --- writing --- */

static unsigned char *append(cli_event *event, size_t bytes) {
    if (event->size + bytes > event->capacity) {
        event->capacity = 2 * (event->size + bytes) + 256;
        unsigned char *larger = cli_calloc(1, event->capacity);
        if (event->size > 0) memcpy(larger, event->bytes, event->size);
        free(event->bytes);
        event->bytes = larger;
    }
    event->size += bytes;
    return event->bytes + event->size - bytes;
}

static void put_varint(cli_event *event, uint64_t value) {
    for (; value >= 0x80; value >>= 7)
        *append(event, 1) = (unsigned char)(value | 0x80);
    *append(event, 1) = (unsigned char)value;
}

/* Append the field `number` of the type 2: a length and so many bytes. */
static void put_bytes(cli_event *event, int number, const void *bytes, size_t size) {
    put_varint(event, (uint64_t)number << 3 | 2);
    put_varint(event, size);
    memcpy(append(event, size), bytes, size);
}

void cli_event_begin(cli_event *event, int64_t step) {
    struct timespec now;
    uint64_t bits;
    clock_gettime(CLOCK_REALTIME, &now);
    const double seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    memcpy(&bits, &seconds, sizeof bits);
    *event = (cli_event){NULL, 0, 0};
    (void)append(event, HEAD);
    put_varint(event, 1 << 3 | 1);
    store(append(event, 8), bits, 8);
    if (step == 0) return; /* 0 is the default */
    put_varint(event, 2 << 3 | 0);
    put_varint(event, (uint64_t)step);
}

void cli_event_version(cli_event *event) {
    static const char version[] = "brain.Event:2";
    put_bytes(event, 3, version, sizeof version - 1);
}

void cli_event_start(cli_event *event) {
    static const unsigned char status_start[] = {1 << 3 | 0, 1};
    put_bytes(event, 7, status_start, sizeof status_start);
}

/* A summary in several fields of an event is merged by readers of protobuf, so that each scalar is
 * a field of its own. */
void cli_event_scalar(cli_event *event, const char *tag, double value) {
    unsigned char text[128];
    const float rounded = (float)value;
    const size_t length = strlen(tag) > 64 ? 64 : strlen(tag), inner = 2 + length + 5;
    uint32_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    text[0] = 1 << 3 | 2, text[1] = (unsigned char)inner;  /* value */
    text[2] = 1 << 3 | 2, text[3] = (unsigned char)length; /* tag */
    memcpy(text + 4, tag, length);
    text[4 + length] = 2 << 3 | 5; /* simple_value */
    store(text + 5 + length, bits, 4);
    put_bytes(event, 5, text, 2 + inner);
}

void cli_event_end(cli_event *event) {
    const size_t size = event->size - HEAD;
    store(append(event, CRC), masked(event->bytes + HEAD, size), CRC);
    store(event->bytes, size, LENGTH);
    store(event->bytes + LENGTH, masked(event->bytes, LENGTH), CRC);
}

void cli_event_release(cli_event *event) {
    free(event->bytes);
    *event = (cli_event){NULL, 0, 0};
}

/* --- reading --- */

/* Read a varint at *at, and advance *at past it. False: the bytes end first. */
static bool take_varint(const unsigned char *bytes, size_t size, size_t *at, uint64_t *value) {
    *value = 0;
    for (int shift = 0; *at < size && shift < 64; shift += 7) {
        const unsigned char byte = bytes[(*at)++];
        *value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) return true;
    }
    return false;
}

/* Return the step of an event; 0 if it has none, INT64_MAX if the event is not a message. */
static int64_t step_of(const unsigned char *bytes, size_t size) {
    for (size_t at = 0; at < size;) {
        uint64_t key, value = 0;
        if (!take_varint(bytes, size, &at, &key)) return INT64_MAX;
        const int type = key & 7;
        if (type == 0 || type == 2) {
            if (!take_varint(bytes, size, &at, &value)) return INT64_MAX;
        } else if (type != 1 && type != 5) {
            return INT64_MAX;
        }
        if (key == (2 << 3 | 0)) return value < INT64_MAX ? (int64_t)value : INT64_MAX;
        const uint64_t skipped = type == 2 ? value : type == 1 ? 8 : type == 5 ? 4 : 0;
        if (skipped > size - at) return INT64_MAX;
        at += skipped;
    }
    return 0;
}

int64_t cli_events_kept(FILE *file, int64_t step) {
    unsigned char head[HEAD], *bytes = NULL;
    int64_t end = 0;
    while (fread(head, 1, HEAD, file) == HEAD && load(head + LENGTH, CRC) == masked(head, LENGTH)) {
        const uint64_t size = load(head, LENGTH);
        if (size > LARGEST) break;
        free(bytes);
        bytes = cli_calloc(1, size + CRC);
        if (fread(bytes, 1, size + CRC, file) != size + CRC) break;
        if (load(bytes + size, CRC) != masked(bytes, size) || step_of(bytes, size) > step) break;
        end += HEAD + (int64_t)size + CRC;
    }
    free(bytes);
    return end;
}
