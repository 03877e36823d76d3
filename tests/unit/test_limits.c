/* SPDX-License-Identifier: Apache-2.0 */
/* test_limits.c -- a small file is refused if reading it would need much memory or time. The
 * message names the limit, which the environment variable CGP_LIMITS can raise. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT */
#endif
#include "directory.h"
#include "pictures.h"

#include <cgpipe/cgpipe.h>
#include <cgpipe/data.h>
#include <cgpipe/images.h>

#include "data/image.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <png.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void set_limits(const char *limits) {
    if (limits)
        setenv("CGP_LIMITS", limits, 1);
    else
        unsetenv("CGP_LIMITS");
}

/* --- headers and JSON --- */

/* Write a safetensors file without data. */
static const char *write_header(const char *text, size_t length) {
    static char path[128];
    const uint64_t number = length;
    snprintf(path, sizeof path, "%s", test_path_of("w.safetensors"));
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(&number, sizeof number, 1, file), 1);
    assert_int_equal(fwrite(text, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
    return path;
}

static cgp_status open_header(const char *text, size_t length) {
    cgp_safetensors *file = NULL;
    const cgp_status status = cgp_safetensors_open(&file, write_header(text, length));
    cgp_safetensors_close(file);
    return status;
}

/* Return the JSON text {"a":[UNIT,UNIT, ...]} with `n` units. */
static char *repeat(const char *unit, size_t n, size_t *length) {
    const size_t bytes = strlen(unit) + 1;
    char *text = malloc(n * bytes + 64);
    assert_non_null(text);
    size_t at = (size_t)sprintf(text, "{\"a\":[");
    for (size_t i = 0; i < n; i++) {
        memcpy(text + at, unit, bytes - 1);
        at += bytes - 1;
        text[at++] = ',';
    }
    text[at - 1] = ']';
    text[at++] = '}';
    *length = at;
    return text;
}

static long peak_kib(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

/* The header is 18 MB long. For this header, the JSON library jansson would need 1.6 GB, and 3 GB
 * in total because the header is read twice. The test opens the file in a child process, so that
 * its peak of memory can be measured separately. */
TEST_CASE(a_header_of_empty_objects_takes_no_memory) {
    size_t length = 0;
    int status = 0;
    char *text = repeat("{}", 6000000, &length);
    assert_in_range(length, 18000000, 18000100);
    const char *path = write_header(text, length);
    free(text);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        cgp_safetensors *file = NULL;
        const long before = peak_kib();
        const cgp_status opened = cgp_safetensors_open(&file, path);
        const long more = peak_kib() - before;
        fprintf(stderr, "%s, %ld MiB more: %s\n", cgp_status_name(opened), more / 1024,
                cgp_message());
        _exit(opened == CGP_EFORMAT && strstr(cgp_message(), "(CGP_LIMITS=json=N allows more)") &&
                      more < 100 * 1024
                  ? 0
                  : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST_CASE(the_memory_of_json_is_limited) {
    size_t length = 0;
    static const char *const units[] = {"1", "[]", "{}", "\"a\"", "[1]", "{\"a\":1}"};
    for (int i = 0; i < 6; i++) {
        char *text = repeat(units[i], 20000, &length);
        set_limits("json=1000000");
        assert_status(open_header(text, length), CGP_EFORMAT);
        assert_message("expected JSON that takes at most 0 MiB of memory, got one of");
        set_limits("json=100000000");
        assert_status(open_header(text, length), CGP_EFORMAT); /* within the limit, but invalid */
        assert_message("tensor \"a\": is not a JSON object");
        set_limits(NULL);
        free(text);
    }
}

TEST_CASE(published_headers_fit_with_capacity) {
    enum { TENSORS = 100000 };
    char *text = malloc((size_t)TENSORS * 160);
    size_t at = (size_t)sprintf(text, "{");
    for (int i = 0; i < TENSORS; i++)
        at += (size_t)sprintf(
            text + at,
            "%s\"model.layers.%d.mlp.experts.%d.down_proj.weight\":{\"dtype\":\"F32\","
            "\"shape\":[0,2048],\"data_offsets\":[0,0]}",
            i ? "," : "", i / 256, i);
    text[at++] = '}';
    print_message("%d tensors: a header of %zu bytes\n", TENSORS, at);
    assert_ok(open_header(text, at));
    set_limits("json=260000000"); /* half of the default limit */
    assert_ok(open_header(text, at));
    set_limits(NULL);
    free(text);
}

TEST_CASE(headers_have_a_length) {
    static const char text[] = "{\"__metadata__\":{\"a\":\"b\"}}";
    set_limits("header=20");
    assert_status(open_header(text, sizeof text - 1), CGP_EFORMAT);
    assert_message("w.safetensors: at byte 0: expected a header of at most 20 bytes, got 26 "
                   "(CGP_LIMITS=header=N allows more)");
    set_limits("pixels=5,header=26");
    assert_ok(open_header(text, sizeof text - 1));
    set_limits(NULL);
    const uint64_t number = 40000000; /* header bytes; a sparse file */
    test_write_file(test_path_of("w.safetensors"), &number, sizeof number);
    assert_int_equal(truncate(test_path_of("w.safetensors"), 40000008), 0);
    cgp_safetensors *file = NULL;
    assert_status(cgp_safetensors_open(&file, test_path_of("w.safetensors")), CGP_EFORMAT);
    assert_message("expected a header of at most 32000000 bytes, got 40000000");
}

TEST_CASE(nesting_is_limited) {
    char text[300];
    for (int depth = 64; depth <= 65; depth++) {
        int at = sprintf(text, "{\"a\":");
        for (int i = 1; i < depth; i++)
            text[at++] = '[';
        for (int i = 1; i < depth; i++)
            text[at++] = ']';
        text[at++] = '}';
        assert_status(open_header(text, (size_t)at), CGP_EFORMAT);
        assert_message(depth == 64 ? "tensor \"a\": is not a JSON object"
                                   : "expected JSON nested at most 64 deep, got 65");
    }
    /* Brackets in strings are not counted as JSON values. An escaped quote does not end a
     * string. */
    char strings[400] = "{\"__metadata__\":{\"a\":\"\\\"";
    for (int i = 0; i < 100; i++)
        strcat(strings, "[{");
    strcat(strings, "\\\\\"}}");
    assert_ok(open_header(strings, strlen(strings)));
}

TEST_CASE(the_variable_is_checked) {
    static const char *const wrong[][2] = {
        {"pixel=5", "CGP_LIMITS: expected header, json, pixels, image-memory, chunks or scans, got "
                    "\"pixel\" (did you mean pixels?)"},
        {"pixels", "CGP_LIMITS: expected name=number, got \"pixels\""},
        {"pixels=", "CGP_LIMITS: pixels: expected a whole number of 1 or more, got \"\""},
        {"scans=0", "CGP_LIMITS: scans: expected a whole number of 1 or more, got \"0\""},
        {"scans=1e9", "got \"1e9\""},
        {"scans=99999999999999999999", "got \"99999999999999999999\""},
        {"json=5,,scans=3", "CGP_LIMITS: expected name=number, got \"\""}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        set_limits(wrong[i][0]);
        assert_status(open_header("{}", 2), CGP_EINVAL);
        assert_message(wrong[i][1]);
    }
    set_limits(NULL);
    assert_ok(open_header("{}", 2));
}

/* --- PNG --- */

/* The bytes of a file in memory. */
typedef struct buffer {
    uint8_t *bytes;
    size_t size;
} buffer;

static void append(png_structp png, png_bytep data, png_size_t size) {
    buffer *b = png_get_io_ptr(png);
    b->bytes = realloc(b->bytes, b->size + size);
    assert_non_null(b->bytes);
    memcpy(b->bytes + b->size, data, size);
    b->size += size;
}

/* Make a PNG of one pixel, with `n` texts of `text_bytes` bytes each. */
static buffer make_png(int n, size_t text_bytes, int compression) {
    buffer b = {0};
    static char key[] = "Comment";
    png_byte row[3] = {10, 20, 30};
    char *text = malloc(text_bytes + 1);
    png_text *texts = calloc((size_t)n, sizeof *texts);
    assert_true(text && texts);
    memset(text, 'a', text_bytes);
    text[text_bytes] = '\0';
    for (int i = 0; i < n; i++)
        texts[i] = (png_text){
            .compression = compression, .key = key, .text = text, .text_length = text_bytes};
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    png_set_user_limits(png, 100, 100);
    png_set_chunk_cache_max(png, 0);
    png_set_write_fn(png, &b, append, NULL);
    png_set_IHDR(png, info, 1, 1, 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_set_text(png, info, texts, n);
    png_write_info(png, info);
    png_write_row(png, row);
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
    free(texts);
    free(text);
    return b;
}

/* The number of bytes that libpng has decompressed so far. */
static size_t inflated;

typedef struct z_head { /* the first fields of zlib's z_stream */
    const void *next_in;
    unsigned avail_in;
    unsigned long total_in;
    void *next_out;
    unsigned avail_out;
    unsigned long total_out;
} z_head;

__attribute__((visibility("default"))) int inflate(void *stream, int flush);

int inflate(void *stream, int flush) {
    static int (*real)(void *, int);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "inflate");
    const z_head *z = stream;
    const unsigned long before = z->total_out;
    const int result = real(stream, flush);
    inflated += z->total_out - before;
    return result;
}

static cgp_status decode(const void *bytes, size_t size, int64_t pixels) {
    cgp__image image = {0};
    const cgp__image_file file = {"x", bytes, size, pixels};
    const cgp_status status = cgp__image_decode(&image, &file);
    cgp__image_release(&image);
    return status;
}

/* A PNG file may have 990 compressed texts like the 20 texts of this test. Inflating 990 texts
 * would give 8 GB and take 90 s. */
TEST_CASE(compressed_texts_are_not_inflated) {
    buffer b = make_png(20, 7900000, PNG_TEXT_COMPRESSION_zTXt);
    inflated = 0;
    assert_ok(decode(b.bytes, b.size, 100));
    print_message("a PNG of %zu bytes: %zu inflated\n", b.size, inflated);
    assert_in_range(inflated, 4, 100); /* only the pixel was inflated */
    free(b.bytes);
}

TEST_CASE(chunks_are_counted) {
    buffer b = make_png(999, 1, PNG_TEXT_COMPRESSION_NONE);
    /* 999 texts, the header chunk and the end chunk are 1001 chunks */
    assert_status(decode(b.bytes, b.size, 100), CGP_EFORMAT);
    assert_message("x: expected at most 1000 chunks besides the pixels, got 1001 "
                   "(CGP_LIMITS=chunks=N allows more)");
    set_limits("chunks=1001");
    assert_ok(decode(b.bytes, b.size, 100));
    set_limits(NULL);
    free(b.bytes);
    b = make_png(998, 1, PNG_TEXT_COMPRESSION_NONE);
    assert_ok(decode(b.bytes, b.size, 100));
    unsigned char *padded = calloc(b.size + 20000, 1); /* zeros after the end are not chunks */
    assert_non_null(padded);
    memcpy(padded, b.bytes, b.size);
    assert_ok(decode(padded, b.size + 20000, 100));
    free(padded);
    free(b.bytes);
}

/* --- JPEG, and the pixels of both formats --- */

static void make_jpeg(test_image *out, int side) {
    uint8_t *pixels = calloc((size_t)(side * side), 3);
    const test_jpeg kind = {side, side, 3, 90, true};
    assert_non_null(pixels);
    test_make_jpeg(out, &kind, pixels);
    free(pixels);
}

TEST_CASE(scans_are_counted) {
    static test_image image;
    make_jpeg(&image, 16);
    assert_ok(decode(image.bytes, image.size, 1000));
    set_limits("scans=2");
    assert_status(decode(image.bytes, image.size, 1000), CGP_EFORMAT);
    assert_message("x: expected at most 2 scans, got more (CGP_LIMITS=scans=N allows more)");
    set_limits("scans=20");
    assert_ok(decode(image.bytes, image.size, 1000));
    set_limits(NULL);
}

/* The JPEG header states 11,000 x 11,000 pixels, which is below the limit of pixels. Decoding would
 * take 1.1 GB, including 726 MB for coefficients. */
TEST_CASE(a_progressive_file_of_many_pixels_is_refused) {
    static test_image image;
    make_jpeg(&image, 16);
    uint8_t *frame = memmem(image.bytes, image.size, "\xff\xc2", 2);
    assert_non_null(frame);
    frame[5] = frame[7] = 11000 >> 8;
    frame[6] = frame[8] = 11000 & 255;
    frame[11] = 0x11; /* no chroma subsampling */
    assert_status(decode(image.bytes, image.size, (int64_t)1 << 27), CGP_EFORMAT);
    assert_message(
        "x: expected a JPEG that takes at most 512 MiB to decode, got a progressive one of "
        "more (CGP_LIMITS=image-memory=N allows more)");
    make_jpeg(&image, 200);
    set_limits("image-memory=100000");
    assert_status(decode(image.bytes, image.size, 40000), CGP_EFORMAT);
    set_limits("image-memory=10000000");
    assert_ok(decode(image.bytes, image.size, 40000));
    set_limits(NULL);
}

static cgp_status read_directory(void) {
    cgp_image_folder_options o = cgp_image_folder_options_default();
    cgp_data *data = NULL;
    float pixels[8 * 8 * 3];
    int32_t label = 0;
    o.size = 8;
    o.strict = o.plain = true;
    o.validation_fraction = 0;
    o.workers = 0;
    CGP_TRY(cgp_data_image_folder(&data, test_path_of("images"), &o));
    const cgp_status status = cgp_data_read(data, CGP_SPLIT_TRAIN, 0, 1, pixels, &label);
    cgp_data_destroy(data);
    return status;
}

TEST_CASE(pixels_are_counted) {
    static test_image image;
    make_jpeg(&image, 16);
    assert_int_equal(mkdir(test_path_of("images"), 0700), 0);
    assert_int_equal(mkdir(test_path_of("images/a"), 0700), 0);
    test_write_file(test_path_of("images/a/x.jpg"), image.bytes, image.size);
    assert_ok(read_directory());
    set_limits("pixels=255");
    assert_status(read_directory(), CGP_EFORMAT);
    assert_message(
        "x.jpg: expected at most 255 pixels, got 16 x 16 (CGP_LIMITS=pixels=N allows more)");
    set_limits("pixels=256");
    assert_ok(read_directory());
    set_limits(NULL);
    assert_int_equal(unlink(test_path_of("images/a/x.jpg")), 0);
    assert_int_equal(rmdir(test_path_of("images/a")), 0);
    assert_int_equal(rmdir(test_path_of("images")), 0);
}

TEST_GROUP(.set_up = test_make_directory, .tear_down = test_remove_directory);
