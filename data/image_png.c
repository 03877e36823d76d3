/* SPDX-License-Identifier: Apache-2.0 */
/* image_png.c -- decodes every kind of PNG to RGB, with libpng; errors jump back as in
 * image_jpeg.c.
 *
 * libpng allocates with functions of this file, which record when memory runs out. This
 * distinguishes a lack of memory from damage. The distinction matters because damaged images are
 * skipped, and the choice of images must not depend on the machine's memory. */
#include "data/files.h"
#include "data/image.h"

#include "base/limits.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

typedef struct png_job {
    png_structp png;
    png_infop info;
    const cgp__image_file *file;
    size_t at; /* number of bytes read so far */
    cgp__image *image;
    png_bytep *rows; /* [height] pointers to the rows of the image */
    bool no_memory;
    char reason[128];
} png_job;

/* --- callbacks of libpng --- */

static void on_error(png_structp png, png_const_charp message) {
    png_job *job = png_get_error_ptr(png);
    snprintf(job->reason, sizeof job->reason, "%s", message);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp message) {
    (void)png;
    (void)message;
}

static png_voidp on_malloc(png_structp png, png_alloc_size_t bytes) {
    png_job *job = png_get_mem_ptr(png);
    void *memory = cgp__calloc(bytes, 1);
    if (!memory) job->no_memory = true;
    return memory;
}

static void on_free(png_structp png, png_voidp memory) {
    (void)png;
    free(memory);
}

static void on_read(png_structp png, png_bytep out, size_t count) {
    png_job *job = png_get_io_ptr(png);
    if (count > job->file->size - job->at) png_error(png, "the end of the file");
    memcpy(out, job->file->bytes + job->at, count);
    job->at += count;
}

/* --- chunks --- */

/* Return whether a valid file may have thousands of chunks of this type. Such chunks hold pixels,
 * or the pictures of an animated PNG, which libpng skips. */
static bool is_pixels(const uint8_t *type) {
    return memcmp(type, "IDAT", 4) == 0 || memcmp(type, "fcTL", 4) == 0 ||
           memcmp(type, "fdAT", 4) == 0;
}

static cgp_status check_chunks(const cgp__image_file *file) {
    enum { SIGNATURE = 8, LENGTH_TYPE_CRC = 12 };
    int64_t max = 0, n = 0, size = (int64_t)file->size;
    CGP_TRY(cgp__limit_get(CGP__LIMIT_CHUNKS, &max));
    for (int64_t at = SIGNATURE; at + LENGTH_TYPE_CRC <= size;
         at += LENGTH_TYPE_CRC + cgp__big_endian(file->bytes + at)) {
        n += !is_pixels(file->bytes + at + 4);
        if (memcmp(file->bytes + at + 4, "IEND", 4) == 0) break; /* IEND is the last chunk */
    }
    if (n <= max) return CGP_OK;
    return cgp_fail(CGP_EFORMAT,
                    "%s: expected at most %" PRId64 " chunks besides the pixels, got %" PRId64 "%s",
                    file->path, max, n, cgp__limit_hint(CGP__LIMIT_CHUNKS));
}

/* --- decoding --- */

static cgp_status ensure_capacity(png_job *job) {
    const int64_t height = png_get_image_height(job->png, job->info);
    CGP_TRY(
        cgp__image_make(job->image, job->file, png_get_image_width(job->png, job->info), height));
    job->rows = cgp__calloc((size_t)height, sizeof *job->rows);
    if (!job->rows) return cgp__no_memory(job->file->path, (size_t)height * sizeof *job->rows);
    for (int64_t y = 0; y < height; y++)
        job->rows[y] = job->image->pixels + y * job->image->width * CGP__IMAGE_CHANNELS;
    return CGP_OK;
}

static cgp_status damaged(const png_job *job) {
    return cgp__image_damaged(job->file, job->at, "PNG", job->reason);
}

static cgp_status decode(png_job *job) {
    if (!job->png) return damaged(job);
    if (setjmp(png_jmpbuf(job->png))) return damaged(job); /* libpng has jumped back */
    job->info = png_create_info_struct(job->png);
    if (!job->info) return damaged(job);
    png_set_read_fn(job->png, job, on_read);
    /* Skip chunks that change no pixel (texts, profiles) without inflating them, because a megabyte
     * of such chunks can inflate to a gigabyte. */
    png_set_keep_unknown_chunks(job->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_read_info(job->png, job->info);
    CGP_TRY(ensure_capacity(job));
    png_set_expand(job->png); /* expands palettes, and gray of 1, 2, 4 bits */
    png_set_scale_16(job->png);
    png_set_gray_to_rgb(job->png);
    png_set_strip_alpha(job->png);
    png_set_interlace_handling(job->png);
    png_read_update_info(job->png, job->info);
    if (png_get_rowbytes(job->png, job->info) != (size_t)job->image->width * CGP__IMAGE_CHANNELS)
        png_error(job->png, "rows that are not RGB");
    png_read_image(job->png, job->rows);
    png_read_end(job->png, NULL);
    return CGP_OK;
}

cgp_status cgp__image_decode_png(cgp__image *out, const cgp__image_file *file) {
    CGP_TRY(check_chunks(file));
    png_job *job = cgp__calloc(1, sizeof *job);
    if (!job) return cgp__no_memory(file->path, sizeof *job);
    job->file = file;
    job->image = out;
    job->png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, job, on_error, on_warning, job,
                                        on_malloc, on_free);
    cgp_status status = decode(job);
    if (job->no_memory) status = cgp__no_memory(file->path, 1);
    png_destroy_read_struct(&job->png, &job->info, NULL);
    free(job->rows);
    free(job);
    return status;
}
