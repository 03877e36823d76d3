/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.c -- reads damaged safetensors files. The reader never crashes. The tensors of an
 * accepted file agree with the file's bytes. */
#include "fuzz.h"

#include <cgpipe/checkpoint.h>

/* --- the property --- */

static bool readable(const cgp_safetensors *file, int i) {
    const char *type = cgp_safetensors_type(file, i);
    return strcmp(type, "F32") == 0 || strcmp(type, "I32") == 0;
}

/* Check that no product of sizes overflows, even if another size is 0. (The undefined-behaviour
 * sanitizer detects an overflow.) */
static void check_strides(const cgp_shape *shape) {
    int64_t stride = 1;
    REQUIRE(shape->rank >= 0 && shape->rank <= CGP_MAX_RANK);
    for (int d = shape->rank - 1; d >= 0; d--) {
        REQUIRE(shape->dims[d] >= 0);
        stride *= shape->dims[d] > 0 ? shape->dims[d] : 1;
    }
    REQUIRE(stride > 0);
}

/* Check that a 16-bit tensor is read with the expected number of values. The values themselves are
 * not checked. */
static void check_halves(cgp_safetensors *file, int i) {
    const char *type = cgp_safetensors_type(file, i);
    if (strcmp(type, "F16") != 0 && strcmp(type, "BF16") != 0) return;
    float *data = malloc((size_t)cgp_shape_count(cgp_safetensors_shape(file, i)) * 4);
    REQUIRE(cgp_safetensors_read_f32(file, i, data) == CGP_OK);
    free(data);
}

/* Check that the readable tensors of an accepted file lie in its data section, in order, and equal
 * the bytes there. */
static void check_accepted(cgp_safetensors *file, const uint8_t *bytes, size_t size) {
    uint64_t header = 0;
    memcpy(&header, bytes, 8);
    size_t at = 8 + (size_t)header;
    bool exact = true; /* offset `at` is exact while all tensors are readable */
    REQUIRE(at <= size);
    for (int i = 0; i < cgp_safetensors_count(file); i++) {
        const char *name = cgp_safetensors_name(file, i);
        REQUIRE(cgp_safetensors_find(file, name) == i);
        check_strides(cgp_safetensors_shape(file, i));
        exact = exact && readable(file, i);
        check_halves(file, i);
        if (!readable(file, i)) continue;
        const size_t need = (size_t)cgp_shape_count(cgp_safetensors_shape(file, i)) * 4;
        REQUIRE(need <= size);
        /* allocate the exact size, so that the address sanitizer detects a write past the end */
        uint8_t *data = malloc(need);
        REQUIRE(cgp_safetensors_read(file, i, data) == CGP_OK);
        if (exact) REQUIRE(at + need <= size && memcmp(data, bytes + at, need) == 0);
        at += need;
        free(data);
    }
    if (exact) REQUIRE(at == size);
    REQUIRE(at <= size);
    (void)cgp_safetensors_metadata(file, "format");
}

/* Open the bytes as a file; return true if it was accepted. */
static bool try_input(const uint8_t *bytes, size_t size) {
    cgp_safetensors *file = NULL;
    fuzz_write("f.safetensors", bytes, size);
    const cgp_status status = cgp_safetensors_open(&file, fuzz_path("f.safetensors"));
    if (status == CGP_OK) {
        check_accepted(file, bytes, size);
        cgp_safetensors_close(file);
        return true;
    }
    REQUIRE(status == CGP_EFORMAT && !file && strstr(cgp_message(), ": at byte "));
    return false;
}

/* --- mutations --- */

static const char *const headers[] = {
    "{\"__metadata__\":{\"format\":\"pt\",\"step\":\"100\"},"
    "\"wte.weight\":{\"dtype\":\"F32\",\"shape\":[4,3],\"data_offsets\":[0,48]},"
    "\"h.0.bias\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[48,60]},"
    "\"step\":{\"dtype\":\"I32\",\"shape\":[],\"data_offsets\":[60,64]}}  ",
    "{\"b\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,2],\"data_offsets\":[8,16]},"
    "\"none\":{\"dtype\":\"I32\",\"shape\":[5,0],\"data_offsets\":[8,8]},"
    "\"a\":{\"data_offsets\":[0,8],\"shape\":[2],\"dtype\":\"I32\"}}",
    "{\"half\":{\"dtype\":\"BF16\",\"shape\":[6],\"data_offsets\":[0,12]},"
    "\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[12,16]},"
    "\"mask\":{\"dtype\":\"BOOL\",\"shape\":[2,2],\"data_offsets\":[16,20]}}",
    "{}      ",
};
static const int data_bytes[] = {64, 16, 20, 0};
enum { SEEDS = 4 };

static const char *const *const words =
    FUZZ_WORDS("{", "}", "[", "]", ",", ":", "\"", "\\", "0", "-1", "4", "8", "16", "48", "1e3",
               "2.0", "null", "true", "[]", "{}", "\"F32\"", "\"I32\"", "\"F64\"", "\"F4\"",
               "F6_E2M3", "[0,0]", "[0,4]", "[4611686018427387904,4]", "9223372036854775807",
               "9223372036854775808", "-9223372036854775808", "18446744073709551616",
               "\"dtype\":", "\"shape\":", "\"data_offsets\":", "\"__metadata__\":{\"a\":\"b\"},",
               "\\u0000", "\xff", "\xc3\xa9", "[[[[[[[[", "1,1,1,1,1,1,1,",
               "\"a\":{\"dtype\":\"I32\",\"shape\":[0],\"data_offsets\":[0,0]},");

static void start_from(fuzz_input *in, int seed) {
    const uint64_t length = strlen(headers[seed]);
    memcpy(in->bytes, &length, 8);
    memcpy(in->bytes + 8, headers[seed], length);
    in->size = 8 + (size_t)length;
    for (int i = 0; i < data_bytes[seed]; i++)
        in->bytes[in->size++] = (uint8_t)(i * 37);
}

/* Mutate the header's JSON and correct the stated length, so that the JSON reader is reached. */
static void splice_header(fuzz_input *in, uint64_t *random) {
    uint64_t length = 0;
    if (in->size < 8) return;
    memcpy(&length, in->bytes, 8);
    if (length > in->size - 8) return;
    const char *word = fuzz_word(words, random);
    size_t at = 8 + fuzz_below(random, (size_t)length + 1);
    size_t out = fuzz_below(random, 2) ? 0 : fuzz_below(random, 8);
    if (fuzz_below(random, 4) == 0) { /* insert at the start of a list */
        while (at < 8 + length && in->bytes[at - 1] != '[')
            at++;
        out = 0;
    } else if (fuzz_below(random, 2)) { /* replace a whole number */
        while (at < 8 + length && (in->bytes[at] < '0' || in->bytes[at] > '9'))
            at++;
        for (out = 0;
             at + out < 8 + length && in->bytes[at + out] >= '0' && in->bytes[at + out] <= '9';)
            out++;
    }
    out = at + out > 8 + length ? 8 + (size_t)length - at : out;
    const size_t before = in->size;
    fuzz_replace(in, at, out, word, strlen(word));
    length += in->size - before; /* may wrap around 2^64 */
    memcpy(in->bytes, &length, 8);
}

/* Add the same number to both data_offsets of a tensor. Sometimes also move the end of the file.
 * Only the offsets of neighbouring tensors can reveal this damage. */
static void shift_offsets(fuzz_input *in, uint64_t *random) {
    static const char key[] = "data_offsets\":[";
    const int by = 4 * ((int)fuzz_below(random, 5) - 2);
    uint64_t length = 0;
    char old[64] = {0}, moved[64];
    long long begin = 0, end = 0;
    int used = 0;
    if (in->size < 8) return;
    memcpy(&length, in->bytes, 8);
    if (length > in->size - 8 || length < sizeof key) return;
    const size_t start = 8 + fuzz_below(random, (size_t)length);
    const uint8_t *found =
        memmem(in->bytes + start, 8 + (size_t)length - start, key, sizeof key - 1);
    if (!found) return;
    const size_t at = (size_t)(found - in->bytes) + sizeof key - 1;
    memcpy(old, in->bytes + at, in->size - at < 63 ? in->size - at : 63);
    if (sscanf(old, "%18lld,%18lld%n", &begin, &end, &used) != 2) return;
    const int count = snprintf(moved, sizeof moved, "%lld,%lld", begin + by, end + by);
    fuzz_replace(in, at, (size_t)used, moved, (size_t)count);
    length += (uint64_t)(count - used);
    memcpy(in->bytes, &length, 8);
    if (fuzz_below(random, 2) && by > 0) fuzz_replace(in, in->size, 0, "01234567", (size_t)by);
    if (fuzz_below(random, 2) && by < 0 && in->size > 16) in->size -= (size_t)-by;
}

static void mutate(fuzz_input *in, uint64_t *random) {
    fuzz_input other;
    switch (fuzz_below(random, 10)) {
    case 0:
        fuzz_flip_bit(in, fuzz_below(random, in->size), random);
        break;
    case 1: /* truncate */
        in->size =
            fuzz_below(random, 2) ? fuzz_below(random, in->size + 1) : in->size - (in->size > 0);
        break;
    case 2: /* append bytes */
        fuzz_replace(in, in->size, 0, "0123456789abcdef", 1 + fuzz_below(random, 16));
        break;
    case 3: /* change the header's length, to a value near it or to any value */
        if (in->size >= 8)
            in->bytes[fuzz_below(random, 3) ? 0 : fuzz_below(random, 8)] +=
                (uint8_t)(1 + fuzz_below(random, 255));
        break;
    case 4: { /* copy a part of another file */
        start_from(&other, (int)fuzz_below(random, SEEDS));
        const size_t from = fuzz_below(random, other.size),
                     count = fuzz_below(random, other.size - from);
        fuzz_replace(in, fuzz_below(random, in->size + 1), fuzz_below(random, 2) * count,
                     other.bytes + from, count);
        break;
    }
    case 5:
    case 6:
        shift_offsets(in, random);
        break;
    default:
        splice_header(in, random);
    }
}

static bool play(int times, uint64_t *random) {
    static fuzz_input in;
    start_from(&in, (int)fuzz_below(random, SEEDS));
    for (; times > 0; times--)
        mutate(&in, random);
    return fuzz_take_exact(try_input, in.bytes, in.size);
}

static void valid_files_are_accepted(void **state) {
    (void)state;
    for (int seed = 0; seed < SEEDS; seed++) {
        fuzz_input in;
        start_from(&in, seed);
        assert_true(try_input(in.bytes, in.size));
    }
}

static void bytes_at_random_are_refused(void **state) {
    (void)state;
    uint64_t random = test_seed();
    for (int i = 0; i < 1000; i++) {
        fuzz_input in;
        fuzz_draw_bytes(&in, 200, &random);
        if (in.size >= 8 && i % 2) memset(in.bytes + 1, 0, 7); /* header lengths that may fit */
        assert_false(try_input(in.bytes, in.size));
    }
}

const fuzz_reader fuzz_safetensors = {
    .take = try_input,
    .play = play,
    .mutations = 20000,
    .accepted_in = 100,
    .refused_in = 100,
    .tests = {cmocka_unit_test(valid_files_are_accepted),
              cmocka_unit_test(bytes_at_random_are_refused)},
};
