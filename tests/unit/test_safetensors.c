/* SPDX-License-Identifier: Apache-2.0 */
/* test_safetensors.c -- tensors are read back as they were written. A damaged file is refused, and
 * the message states the position of the damage. */
#include "directory.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cgpipe/checkpoint.h>

/* Write a file with a header and `data_bytes` bytes of data: 0, 1, 2 ... */
static const char *write_safetensors_of(const char *header, const void *data, int data_bytes) {
    const char *path = test_path_of("t.safetensors");
    const uint64_t length = strlen(header);
    char *bytes = malloc(8 + length + (size_t)data_bytes);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, length);
    memcpy(bytes + 8 + length, data, (size_t)data_bytes);
    test_write_file(path, bytes, 8 + length + (size_t)data_bytes);
    free(bytes);
    return path;
}

static const char *write_safetensors(const char *header, int data_bytes) {
    char *data = calloc((size_t)data_bytes + 1, 1);
    for (int i = 0; i < data_bytes; i++)
        data[i] = (char)i;
    const char *path = write_safetensors_of(header, data, data_bytes);
    free(data);
    return path;
}

static cgp_shape shape_of(int rank, int64_t a, int64_t b) {
    const int64_t dims[] = {a, b};
    return cgp_shape_make(rank, dims);
}

/* --- writing and reading --- */

TEST_CASE(a_small_file_is_this_to_the_byte) {
    const char *path = test_path_of("small.safetensors"), *names[] = {"w", "n"};
    const cgp_dtype types[] = {CGP_F32, CGP_I32};
    const cgp_shape shapes[] = {shape_of(2, 1, 2), shape_of(0, 0, 0)};
    const char *metadata[] = {"step", "3"};
    cgp_safetensors_writer *writer = NULL;
    assert_ok(cgp_safetensors_create(&writer, path, 2, names, types, shapes, metadata, 1));
    assert_ok(cgp_safetensors_append(writer, "abcdefgh", 8));
    assert_ok(cgp_safetensors_append(writer, "ijkl", 4));
    assert_ok(cgp_safetensors_commit(writer));
    const char expected[] = "\x90\0\0\0\0\0\0\0"
                            "{\"__metadata__\":{\"step\":\"3\"},"
                            "\"w\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]},"
                            "\"n\":{\"dtype\":\"I32\",\"shape\":[],\"data_offsets\":[8,12]}}"
                            "       "
                            "abcdefghijkl";
    char bytes[4096];
    assert_int_equal(test_read_file(path, bytes), sizeof expected - 1);
    assert_memory_equal(bytes, expected, sizeof expected - 1);
    assert_int_equal(test_empty_directory(), 1);
}

enum { MOST = 12 };

/* Up to MOST tensors with random types, shapes (including sizes of 0) and bits (including NaNs). */
typedef struct tensors {
    int count;
    char text[MOST][32];
    const char *names[MOST];
    cgp_dtype types[MOST];
    cgp_shape shapes[MOST];
    size_t bytes[MOST];
    uint64_t *data[MOST];
} tensors;

static void make_tensors(tensors *made, uint64_t *random) {
    static const char *const kinds[] = {"h.%d.weight", "\xc3\xa9t\xc3\xa9 %d", "\"%d\\\n", "%d",
                                        " / %d"};
    made->count = test_between(random, 0, MOST);
    for (int i = 0; i < made->count; i++) {
        cgp_shape *shape = &made->shapes[i];
        *shape = (cgp_shape){.rank = test_between(random, 0, CGP_MAX_RANK)};
        for (int d = 0; d < shape->rank; d++)
            shape->dims[d] = test_between(random, 0, 9) ? test_between(random, 1, 4) : 0;
        snprintf(made->text[i], sizeof made->text[i], kinds[i % 5], i);
        made->names[i] = made->text[i];
        made->types[i] = test_between(random, 0, 1) ? CGP_F32 : CGP_I32;
        made->bytes[i] = (size_t)cgp_shape_count(shape) * 4;
        made->data[i] = malloc(made->bytes[i] + 8);
        for (size_t k = 0; k < made->bytes[i] / 8 + 1; k++)
            made->data[i][k] = test_random(random);
    }
}

static void write_tensors(const tensors *made, const char *path) {
    const char *metadata[] = {"format", "pt", "", "\xe2\x82\xac \"quoted\""};
    cgp_safetensors_writer *writer = NULL;
    assert_ok(cgp_safetensors_create(&writer, path, made->count, made->names, made->types,
                                     made->shapes, metadata, 2));
    for (int i = 0; i < made->count; i++) {
        const size_t half = made->bytes[i] / 3; /* write in two pieces */
        assert_ok(cgp_safetensors_append(writer, made->data[i], half));
        assert_ok(
            cgp_safetensors_append(writer, (char *)made->data[i] + half, made->bytes[i] - half));
    }
    assert_ok(cgp_safetensors_commit(writer));
}

static void assert_same_tensors(const tensors *made, const char *path) {
    cgp_safetensors *file = NULL;
    assert_ok(cgp_safetensors_open(&file, path));
    assert_int_equal(cgp_safetensors_count(file), made->count);
    assert_string_equal(cgp_safetensors_metadata(file, "format"), "pt");
    assert_string_equal(cgp_safetensors_metadata(file, ""), "\xe2\x82\xac \"quoted\"");
    assert_null(cgp_safetensors_metadata(file, "missing"));
    assert_int_equal(cgp_safetensors_find(file, "missing"), -1);
    assert_int_equal(cgp_safetensors_find(file, "__metadata__"), -1);
    for (int i = 0; i < made->count; i++) {
        const int found = cgp_safetensors_find(file, made->names[i]);
        assert_in_range(found, 0, made->count - 1);
        assert_string_equal(cgp_safetensors_name(file, found), made->names[i]);
        assert_string_equal(cgp_safetensors_type(file, found),
                            made->types[i] == CGP_F32 ? "F32" : "I32");
        assert_true(cgp_shape_equal(cgp_safetensors_shape(file, found), &made->shapes[i]));
        if (made->bytes[i] > 0 && i > 0 && made->bytes[i - 1] > 0) /* data are in header order */
            assert_int_equal(found, cgp_safetensors_find(file, made->names[i - 1]) + 1);
        /* allocate the exact size, so that the address sanitizer detects a write past the end */
        char *data = malloc(made->bytes[i]);
        assert_ok(cgp_safetensors_read(file, found, data));
        assert_memory_equal(data, made->data[i], made->bytes[i]);
        free(data);
    }
    cgp_safetensors_close(file);
}

TEST_CASE(what_is_written_comes_back) {
    uint64_t random = test_seed();
    const char *path = test_path_of("round.safetensors");
    for (int round = 0; round < 40; round++) {
        tensors made;
        char bytes[4096];
        make_tensors(&made, &random);
        write_tensors(&made, path);
        assert_same_tensors(&made, path);
        assert_true(test_read_file(path, bytes) >= 16);
        assert_int_equal(bytes[0] % 8, 0); /* data begin at a multiple of 8 */
        for (int i = 0; i < made.count; i++)
            free(made.data[i]);
    }
    assert_int_equal(test_empty_directory(), 1);
}

/* A bf16 tensor is written and listed, but not read. */
TEST_CASE(bf16_takes_two_bytes_an_element) {
    const char *path = test_path_of("half.safetensors"), *names[] = {"half"};
    const cgp_dtype types[] = {CGP_BF16};
    const cgp_shape shapes[] = {{2, {3, 5}}};
    const uint16_t data[15] = {0x3F80};
    cgp_safetensors_writer *writer = NULL;
    cgp_safetensors *file = NULL;
    assert_ok(cgp_safetensors_create(&writer, path, 1, names, types, shapes, NULL, 0));
    assert_ok(cgp_safetensors_append(writer, data, sizeof data));
    assert_ok(cgp_safetensors_commit(writer));
    assert_ok(cgp_safetensors_open(&file, path));
    assert_string_equal(cgp_safetensors_type(file, 0), "BF16");
    assert_true(cgp_shape_equal(cgp_safetensors_shape(file, 0), &shapes[0]));
    cgp_safetensors_close(file);
    assert_int_equal(test_empty_directory(), 1);
}

TEST_CASE(tensors_are_listed_in_order_of_their_data) {
    const char *path = write_safetensors(
        "{\"last\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]},"
        "\"none\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[4,4]},"
        "\"first\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[0,4]},"
        "\"middle\":{\"dtype\":\"I32\",\"shape\":[1,1],\"data_offsets\":[4,8]}}  ",
        12);
    const char *expected[] = {"first", "none", "middle", "last"};
    cgp_safetensors *file = NULL;
    assert_ok(cgp_safetensors_open(&file, path));
    assert_int_equal(cgp_safetensors_count(file), 4);
    for (int i = 0; i < 4; i++)
        assert_string_equal(cgp_safetensors_name(file, i), expected[i]);
    char data[4];
    assert_ok(cgp_safetensors_read(file, 3, data));
    assert_memory_equal(data, "\x08\x09\x0a\x0b", 4);
    assert_null(cgp_safetensors_name(file, 4));
    assert_null(cgp_safetensors_type(file, -1));
    assert_null(cgp_safetensors_shape(file, 4));
    assert_null(cgp_safetensors_metadata(file, "format")); /* the file has no metadata */
    assert_status(cgp_safetensors_read(file, 4, data), CGP_EINVAL);
    assert_message("t.safetensors: has 4 tensors, got index 4");
    cgp_safetensors_close(file);
    cgp_safetensors_close(NULL);
}

TEST_CASE(types_without_use_are_listed_and_skipped_over) {
    const char *path =
        write_safetensors("{\"half\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[0,6]},"
                          "\"long\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[6,14]},"
                          "\"nibbles\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[14,15]},"
                          "\"mask\":{\"dtype\":\"BOOL\",\"shape\":[],\"data_offsets\":[15,16]},"
                          "\"x\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[16,20]}}",
                          20);
    cgp_safetensors *file = NULL;
    char data[8];
    assert_ok(cgp_safetensors_open(&file, path));
    assert_string_equal(cgp_safetensors_type(file, 0), "BF16");
    assert_int_equal(cgp_safetensors_shape(file, 0)->dims[0], 3);
    assert_ok(cgp_safetensors_read(file, 1, data));
    assert_memory_equal(data, "\x06\x07\x08\x09\x0a\x0b\x0c\x0d", 8);
    for (int i = 0; i < 4; i++)
        assert_status(cgp_safetensors_read(file, i == 1 ? 0 : i, data), CGP_EINVAL);
    assert_message("tensor \"mask\": only F32, I32 and I64 can be read, got BOOL");
    assert_ok(cgp_safetensors_read(file, cgp_safetensors_find(file, "x"), data));
    assert_memory_equal(data, "\x10\x11\x12\x13", 4);
    cgp_safetensors_close(file);
}

/* Return the value of an f16 by definition: sign * 2^(exponent - 15) * (1 + fraction / 1024). */
static double value_of_half(int half) {
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    const double sign = half >> 15 ? -1 : 1;
    if (exponent == 31) return fraction ? NAN : sign * INFINITY;
    return sign * (exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25));
}

TEST_CASE(halves_are_widened_exactly) {
    enum { ALL = 65536 };
    char header[160];
    cgp_safetensors *file = NULL;
    uint16_t *halves = malloc(2 * ALL * sizeof *halves);
    float *got = malloc(ALL * sizeof *got);
    for (int i = 0; i < 2 * ALL; i++)
        halves[i] = (uint16_t)i;
    snprintf(header, sizeof header,
             "{\"f\":{\"dtype\":\"F16\",\"shape\":[%d],\"data_offsets\":[0,%d]},"
             "\"b\":{\"dtype\":\"BF16\",\"shape\":[%d],\"data_offsets\":[%d,%d]}}",
             ALL, 2 * ALL, ALL, 2 * ALL, 4 * ALL);
    assert_ok(cgp_safetensors_open(&file, write_safetensors_of(header, halves, 4 * ALL)));
    assert_ok(cgp_safetensors_read_f32(file, 0, got));
    for (int i = 0; i < ALL; i++) {
        const double expected = value_of_half(i);
        const bool same =
            isnan(expected) ? isnan(got[i])
                            : (double)got[i] == expected && !signbit(got[i]) == !signbit(expected);
        if (!same) fail_msg("half %04x is %g, expected %g", (unsigned)i, (double)got[i], expected);
    }
    assert_ok(cgp_safetensors_read_f32(file, 1, got));
    for (int i = 0; i < ALL; i++) {
        uint32_t bits;
        memcpy(&bits, &got[i], sizeof bits);
        assert_int_equal(bits, (uint32_t)i << 16);
    }
    assert_status(cgp_safetensors_read_f32(file, 2, got), CGP_EINVAL);
    assert_message("t.safetensors: has 2 tensors, got index 2");
    cgp_safetensors_close(file);
    free(got);
    free(halves);
}

TEST_CASE(a_file_cut_after_it_was_opened_ends_early) {
    const char header[] = "{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
    const char *path = write_safetensors(header, 8);
    cgp_safetensors *file = NULL;
    float data[2];
    char expected[128];
    assert_ok(cgp_safetensors_open(&file, path));
    const long cut = (long)strlen(header) + 8 + 5;
    assert_int_equal(truncate(path, cut), 0);
    assert_status(cgp_safetensors_read(file, 0, data), CGP_EFORMAT);
    snprintf(expected, sizeof expected,
             "t.safetensors: at byte %ld: file ends early: 3 more bytes expected", cut);
    assert_message(expected);
    cgp_safetensors_close(file);
}

/* --- damage --- */

static void assert_refused(const char *path, const char *message) {
    cgp_safetensors *file = NULL;
    char expected[512];
    snprintf(expected, sizeof expected, "%s: %s", path, message);
    const cgp_status status = cgp_safetensors_open(&file, path);
    if (status != CGP_EFORMAT || strncmp(cgp_message(), expected, strlen(expected)) != 0) {
        print_error("%s: \"%s\", expected \"%s\"\n", cgp_status_name(status), cgp_message(),
                    expected);
        fail();
    }
    assert_null(file);
}

#define T(entry) "{\"x\":{" entry "}}"
#define F32 "\"dtype\":\"F32\","
#define SHAPE "\"shape\":[2],"
#define RANGE "\"data_offsets\":[0,8]"

/* Each case has a header, the number of data bytes, and the expected message. If `in_data` is true,
 * the byte offset in the message counts from the start of the data. */
static const struct {
    const char *header;
    int data_bytes, byte;
    bool in_data;
    const char *reason;
} damages[] = {
    {"", 0, 8, false, "header is not a JSON object"},
    {"[]", 0, 8, false, "header is not a JSON object"},
    {" {}", 0, 8, false, "header is not a JSON object"},
    {"{\"x\":", 0, 8, false, "header is not JSON (byte 13: "},
    {"{} {}", 0, 8, false, "header is not JSON (byte "},
    {"{\"\xff\":{}}", 0, 8, false, "header is not JSON (byte "},
    {"{\"a\\u0000b\":{}}", 0, 8, false, "header is not JSON (byte "},
    {"{\"x\":{},\"x\":{}}", 0, 8, false, "header is not JSON (byte 19: duplicate object key"},
    {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, 8, false, "header is not JSON (byte "},
    {"{\"__metadata__\":3}", 0, 8, false, "__metadata__ is not a JSON object"},
    {"{\"__metadata__\":{\"a\":1}}", 0, 8, false, "__metadata__ of key \"a\" is not a string"},
    {"{\"x\":3}", 0, 8, false, "tensor \"x\": is not a JSON object"},
    {T(SHAPE RANGE), 8, 8, false, "tensor \"x\": dtype is missing or not a string"},
    {T("\"dtype\":32," SHAPE RANGE), 8, 8, false, "tensor \"x\": dtype is missing or not a string"},
    {T("\"dtype\":\"F33\"," SHAPE RANGE), 8, 8, false,
     "tensor \"x\": no dtype of the format, got \"F33\""},
    {T("\"dtype\":\"f32\"," SHAPE RANGE), 8, 8, false,
     "tensor \"x\": no dtype of the format, got \"f32\""},
    {T(F32 RANGE), 8, 8, false, "tensor \"x\": shape is missing or not a list"},
    {T(F32 "\"shape\":2," RANGE), 8, 8, false, "tensor \"x\": shape is missing or not a list"},
    {T(F32 "\"shape\":{\"0\":2}," RANGE), 8, 8, false,
     "tensor \"x\": shape is missing or not a list"},
    {T(F32 "\"shape\":[2,-1]," RANGE), 8, 8, false,
     "tensor \"x\": size 1 of its shape is not an integer"},
    {T(F32 "\"shape\":[2.0]," RANGE), 8, 8, false,
     "tensor \"x\": size 0 of its shape is not an integer"},
    {T(F32 "\"shape\":[\"2\"]," RANGE), 8, 8, false,
     "tensor \"x\": size 0 of its shape is not an integer"},
    {T(F32 "\"shape\":[[2]]," RANGE), 8, 8, false,
     "tensor \"x\": size 0 of its shape is not an integer"},
    {T(F32 "\"shape\":[1,1,1,1,1,1,2]," RANGE), 8, 8, false,
     "tensor \"x\": rank is at most 6 here, got 7"},
    {T(F32 "\"shape\":[4611686018427387904,4611686018427387904]," RANGE), 8, 8, false,
     "tensor \"x\": shape overflows"},
    {T(F32 "\"shape\":[0,4611686018427387904,4]," RANGE), 8, 8, false,
     "tensor \"x\": shape overflows"},
    {T(F32 "\"shape\":[99999999999999999999]," RANGE), 8, 8, false, "header is not JSON (byte "},
    {T(F32 "\"shape\":[2]"), 8, 8, false,
     "tensor \"x\": data_offsets are missing or not two integers"},
    {T(F32 SHAPE "\"data_offsets\":[0]"), 8, 8, false,
     "tensor \"x\": data_offsets are missing or not two integers"},
    {T(F32 SHAPE "\"data_offsets\":[0,8,9]"), 8, 8, false,
     "tensor \"x\": data_offsets are missing or not two integers"},
    {T(F32 SHAPE "\"data_offsets\":[0,8.0]"), 8, 8, false,
     "tensor \"x\": data_offsets are missing or not two integers"},
    {T(F32 SHAPE "\"data_offsets\":8"), 8, 8, false,
     "tensor \"x\": data_offsets are missing or not two integers"},
    {T(F32 SHAPE "\"data_offsets\":[-8,0]"), 8, 8, false,
     "tensor \"x\": data_offsets are no range, got -8 to 0"},
    {T(F32 SHAPE "\"data_offsets\":[8,0]"), 8, 8, false,
     "tensor \"x\": data_offsets are no range, got 8 to 0"},
    {T("\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]"), 1, 8, false,
     "tensor \"x\": 12 bits are not whole bytes"},
    {T(F32 SHAPE "\"data_offsets\":[0,4]"), 4, 0, true,
     "tensor \"x\": type and shape need 8 bytes, data_offsets give 4"},
    {T(F32 SHAPE "\"data_offsets\":[2,8]"), 8, 2, true,
     "tensor \"x\": type and shape need 8 bytes, data_offsets give 6"},
    {T(F32 "\"shape\":[]," RANGE), 8, 0, true,
     "tensor \"x\": type and shape need 4 bytes, data_offsets give 8"},
    {T(F32 SHAPE RANGE), 5, 5, true, "file ends early: tensor \"x\" needs data to 8, got 5 bytes"},
    {T(F32 SHAPE RANGE), 9, 8, true, "1 bytes after the last tensor belong to none"},
    {"{}", 4, 0, true, "4 bytes after the last tensor belong to none"},
    {T(F32 SHAPE "\"data_offsets\":[3,11]"), 11, 0, true,
     "3 bytes before tensor \"x\" belong to none"},
    {"{\"a\":{" F32 SHAPE RANGE "},\"b\":{" F32 SHAPE "\"data_offsets\":[10,18]}}", 18, 8, true,
     "2 bytes before tensor \"b\" belong to none"},
    {"{\"a\":{" F32 SHAPE RANGE "},\"b\":{" F32 SHAPE "\"data_offsets\":[4,12]}}", 12, 4, true,
     "tensor \"b\" overlaps \"a\""},
    {"{\"a\":{" F32 SHAPE RANGE "},\"b\":{" F32 SHAPE RANGE "}}", 8, 0, true,
     "tensor \"b\" overlaps \"a\""},
    {"{\"a\":{" F32 SHAPE RANGE "},\"b\":{" F32 "\"shape\":[0],\"data_offsets\":[4,4]}}", 8, 4,
     true, "tensor \"b\" overlaps \"a\""},
};

TEST_CASE(every_damage_is_refused_with_its_byte) {
    assert_ok(cgp_file_replace(test_path_of("t.safetensors"), "x", 1));
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        const int start = damages[i].in_data ? 8 + (int)strlen(damages[i].header) : 0;
        char message[256];
        snprintf(message, sizeof message, "at byte %d: %s", start + damages[i].byte,
                 damages[i].reason);
        assert_refused(write_safetensors(damages[i].header, damages[i].data_bytes), message);
    }
}

TEST_CASE(a_header_length_that_does_not_fit_is_refused) {
    const char *path = test_path_of("length.safetensors");
    struct {
        uint64_t length;
        char rest[16];
    } file = {17, "{}              "};
    test_write_file(path, &file, 24);
    assert_refused(path, "at byte 0: file ends early: the header takes 17 bytes, got 16");
    file.length = 100000001;
    test_write_file(path, &file, 24);
    assert_refused(path, "at byte 0: header is at most 100000000 bytes, got 100000001");
    file.length = UINT64_MAX;
    test_write_file(path, &file, 24);
    assert_refused(path, "at byte 0: header is at most 100000000 bytes, got 18446744073709551615");
    test_write_file(path, &file, 7);
    assert_refused(path, "at byte 0: file ends early: the header's length takes 8 bytes, got 7");
    test_write_file(path, "", 0);
    assert_refused(path, "at byte 0: file ends early: the header's length takes 8 bytes, got 0");
    file.length = 16;
    test_write_file(path, &file, 24);
    cgp_safetensors *opened = NULL;
    assert_ok(cgp_safetensors_open(&opened, path)); /* the file is valid */
    assert_int_equal(cgp_safetensors_count(opened), 0);
    cgp_safetensors_close(opened);
}

TEST_CASE(deep_json_is_refused_and_does_not_overflow_the_stack) {
    char *header = calloc(1000001, 1);
    memcpy(header, "{\"x\":", 5);
    memset(header + 5, '[', 1000000 - 5);
    assert_refused(write_safetensors(header, 0),
                   "at byte 8: header: expected JSON nested at most 64 deep, got 999996");
    free(header);
}

TEST_CASE(what_is_no_file_is_not_opened) {
    cgp_safetensors *file = NULL;
    const char *missing = test_path_of("missing.safetensors"), *pipe_path = test_path_of("pipe");
    assert_status(cgp_safetensors_open(&file, missing), CGP_EIO);
    assert_message("missing.safetensors: no such file");
    assert_status(cgp_safetensors_open(&file, test_directory), CGP_EIO);
    assert_message("is a directory, expected a safetensors file");
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    assert_status(cgp_safetensors_open(&file, pipe_path),
                  CGP_EIO); /* opening does not wait for a writer */
    assert_message("is not a regular file");
    assert_null(file);
}

/* --- refused tensors --- */

static cgp_status create(cgp_safetensors_writer **writer, const char *path, int count,
                         const char *const *names, int64_t size) {
    const cgp_dtype types[2] = {CGP_F32, CGP_F32};
    const cgp_shape shapes[2] = {shape_of(1, size, 0), shape_of(1, size, 0)};
    return cgp_safetensors_create(writer, path, count, names, types, shapes, NULL, 0);
}

TEST_CASE(names_that_a_file_cannot_have_are_refused) {
    cgp_safetensors_writer *writer = NULL;
    const char *path = test_path_of("n.safetensors");
    const char *twice[] = {"w", "w"}, *reserved[] = {"__metadata__"}, *latin[] = {"\xe9"},
               *fine[] = {"w", "v"};
    const char *metadata[] = {"k", "1", "k", "2"}, *latin_metadata[] = {"k", "\xe9"};
    assert_status(create(&writer, path, 2, twice, 1), CGP_EINVAL);
    assert_message("n.safetensors: tensor \"w\" comes twice");
    assert_status(create(&writer, path, 1, reserved, 1), CGP_EINVAL);
    assert_message("a tensor cannot be called __metadata__");
    assert_status(create(&writer, path, 1, latin, 1), CGP_EINVAL);
    assert_message("is not UTF-8 text");
    assert_status(create(&writer, path, 1, fine, -1), CGP_EINVAL);
    assert_message("tensor \"w\": not a shape of a tensor, got [-1]");
    assert_status(create(&writer, path, 1, fine, INT64_MAX / 2), CGP_EINVAL);
    assert_status(create(&writer, path, 2, fine, INT64_MAX / 4), CGP_EINVAL);
    assert_message("tensor \"v\" ends above 9223372036854775807 bytes");
    assert_status(cgp_safetensors_create(&writer, path, 0, NULL, NULL, NULL, metadata, 2),
                  CGP_EINVAL);
    assert_message("metadata key \"k\" comes twice");
    assert_status(cgp_safetensors_create(&writer, path, 0, NULL, NULL, NULL, latin_metadata, 1),
                  CGP_EINVAL);
    assert_null(writer);
    assert_int_equal(test_empty_directory(), 0);
}

TEST_CASE(more_data_than_the_shapes_need_are_refused) {
    const char *path = test_path_of("m.safetensors"), *names[] = {"w"};
    cgp_safetensors_writer *writer = NULL;
    cgp_safetensors *file = NULL;
    float data[2] = {0};
    assert_ok(create(&writer, path, 1, names, 2));
    assert_ok(cgp_safetensors_append(writer, "abcd", 4));
    assert_status(cgp_safetensors_append(writer, "efghi", 5), CGP_EINVAL);
    assert_message("m.safetensors: 4 bytes of data are due, got 5");
    assert_ok(cgp_safetensors_append(writer, "EFGH", 4)); /* the refused piece left no bytes */
    assert_ok(cgp_safetensors_commit(writer));
    assert_ok(cgp_safetensors_open(&file, path));
    assert_ok(cgp_safetensors_read(file, 0, data));
    assert_memory_equal(data, "abcdEFGH", 8);
    cgp_safetensors_close(file);
}

/* --- atomic replacement --- */

TEST_GROUP(.set_up = test_make_directory, .tear_down = test_remove_directory,
           .before = test_empty_before);
