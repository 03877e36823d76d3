/* SPDX-License-Identifier: Apache-2.0 */
/* image_jpeg.c -- decodes every kind of JPEG to RGB, with libjpeg(-turbo).
 *
 * libjpeg reports an error with a callback that must not return, so the callback jumps back to
 * decode(). All resources are in a struct outside of decode(). So nothing leaks, and no local
 * variable is read after a jump. */
#include "data/image.h"

#include "base/limits.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdlib.h>

#include <jpeglib.h>
#include <jerror.h>

typedef struct jpeg_job {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
    const cgp__image_file *file;
    cgp__image *image;
    uint8_t *row; /* [width, 4] one row of a CMYK image */
    /* Limits. Without them, a file with thousands of scans could take hours to decode. */
    int64_t max_scans, max_bytes;
    cgp_status status; /* status of a failure outside libjpeg */
    char reason[JMSG_LENGTH_MAX];
} jpeg_job;

/* --- callbacks of libjpeg --- */

static void on_error(j_common_ptr info) {
    jpeg_job *job = info->client_data;
    info->err->format_message(info, job->reason);
    if (info->err->msg_code == JERR_OUT_OF_MEMORY) job->status = cgp__no_memory(job->file->path, 1);
    /* Decoding needs more than max_memory_to_use. */
    if (info->err->msg_code == JERR_NO_BACKING_STORE)
        job->status = cgp_fail(CGP_EFORMAT,
                               "%s: expected a JPEG that takes at most %" PRId64
                               " MiB to decode, got a progressive one of more%s",
                               job->file->path, job->max_bytes >> 20,
                               cgp__limit_hint(CGP__LIMIT_IMAGE_MEMORY));
    longjmp(job->back, 1);
}

/* Treat a warning of missing or wrong data as an error; ignore other warnings (stray bytes,
 * versions). */
static void on_message(j_common_ptr info, int level) {
    static const int damages[] = {JWRN_JPEG_EOF,         JWRN_HIT_MARKER,  JWRN_HUFF_BAD_CODE,
                                  JWRN_ARITH_BAD_CODE,   JWRN_MUST_RESYNC, JWRN_NOT_SEQUENTIAL,
                                  JWRN_BOGUS_PROGRESSION};
    if (level >= 0) return;
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        if (info->err->msg_code == damages[i]) on_error(info);
    }
}

static void on_output(j_common_ptr info) {
    (void)info;
}

static void on_progress(j_common_ptr info) {
    jpeg_job *job = info->client_data;
    if (job->info.input_scan_number <= job->max_scans) return;
    job->status = cgp_fail(CGP_EFORMAT, "%s: expected at most %" PRId64 " scans, got more%s",
                           job->file->path, job->max_scans, cgp__limit_hint(CGP__LIMIT_SCANS));
    longjmp(job->back, 1);
}

/* --- decoding --- */

/* Convert a row from CMYK to RGB. Adobe's files hold the inverse of each ink. */
static void take_cmyk(jpeg_job *job, uint8_t *out) {
    const bool inverse = job->info.saw_Adobe_marker;
    for (int64_t x = 0; x < job->image->width; x++) {
        const uint8_t *inks = job->row + 4 * x;
        const int black = inverse ? inks[3] : 255 - inks[3];
        for (int k = 0; k < CGP__IMAGE_CHANNELS; k++) {
            const int light = inverse ? inks[k] : 255 - inks[k];
            *out++ = (uint8_t)((light * black + 127) / 255);
        }
    }
}

static cgp_status ensure_capacity(jpeg_job *job, bool cmyk) {
    CGP_TRY(cgp__image_make(job->image, job->file, job->info.image_width, job->info.image_height));
    if (!cmyk) return CGP_OK;
    job->row = cgp__calloc(job->info.image_width, 4);
    return job->row ? CGP_OK : cgp__no_memory(job->file->path, 4 * job->info.image_width);
}

static size_t offset_of(const jpeg_job *job) {
    return job->info.src ? job->file->size - job->info.src->bytes_in_buffer : 0;
}

static cgp_status decode(jpeg_job *job) {
    struct jpeg_decompress_struct *info = &job->info;
    if (setjmp(job->back)) /* libjpeg has jumped back */
        return job->status != CGP_OK
                   ? job->status
                   : cgp__image_damaged(job->file, offset_of(job), "JPEG", job->reason);
    jpeg_create_decompress(info);
    info->progress = &job->progress;
    info->mem->max_memory_to_use = (long)job->max_bytes;
    jpeg_mem_src(info, job->file->bytes, job->file->size);
    jpeg_read_header(info, TRUE);
    const bool cmyk = info->jpeg_color_space == JCS_CMYK || info->jpeg_color_space == JCS_YCCK;
    CGP_TRY(ensure_capacity(job, cmyk));
    info->out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(info);
    while (info->output_scanline < info->output_height) {
        uint8_t *out = job->image->pixels +
                       (size_t)info->output_scanline * info->output_width * CGP__IMAGE_CHANNELS;
        JSAMPROW row = cmyk ? job->row : out;
        if (jpeg_read_scanlines(info, &row, 1) == 1 && cmyk) take_cmyk(job, out);
    }
    jpeg_finish_decompress(info);
    return CGP_OK;
}

cgp_status cgp__image_decode_jpeg(cgp__image *out, const cgp__image_file *file) {
    int64_t scans = 0, bytes = 0;
    CGP_TRY(cgp__limit_get(CGP__LIMIT_SCANS, &scans));
    CGP_TRY(cgp__limit_get(CGP__LIMIT_IMAGE_MEMORY, &bytes));
    jpeg_job *job = cgp__calloc(1, sizeof *job);
    if (!job) return cgp__no_memory(file->path, sizeof *job);
    job->max_scans = scans;
    job->max_bytes = bytes;
    job->file = file;
    job->image = out;
    job->info.err = jpeg_std_error(&job->errors);
    job->info.client_data = job;
    job->errors.error_exit = on_error;
    job->errors.emit_message = on_message;
    job->errors.output_message = on_output;
    job->progress.progress_monitor = on_progress;
    const cgp_status status = decode(job);
    jpeg_destroy_decompress(&job->info);
    free(job->row);
    free(job);
    return status;
}
