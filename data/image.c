/* SPDX-License-Identifier: Apache-2.0 */
/* image.c -- chooses the decoder for a file, and implements what both decoders share. */
#include "data/image.h"

#include "base/limits.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

cgp_status cgp__image_damaged(const cgp__image_file *file, size_t at, const char *format,
                              const char *reason) {
    return cgp_fail(CGP_EFORMAT, "%s: at byte %zu: expected a whole %s, got: %s (damaged)",
                    file->path, at, format, reason);
}

cgp_status cgp__image_make(cgp__image *image, const cgp__image_file *file, int64_t width,
                           int64_t height) {
    const int64_t pixels = width * height; /* does not overflow, because both are below 2^31 */
    if (pixels > file->max_pixels)
        return cgp_fail(
            CGP_EFORMAT, "%s: expected at most %" PRId64 " pixels, got %" PRId64 " x %" PRId64 "%s",
            file->path, file->max_pixels, width, height, cgp__limit_hint(CGP__LIMIT_PIXELS));
    const size_t bytes = (size_t)pixels * CGP__IMAGE_CHANNELS;
    *image = (cgp__image){width, height, cgp__calloc(bytes, 1)};
    return image->pixels ? CGP_OK : cgp__no_memory(file->path, bytes);
}

void cgp__image_release(cgp__image *image) {
    free(image->pixels);
    *image = (cgp__image){0};
}

static cgp_status unknown(const cgp__image_file *file) {
    uint8_t start[4] = {0};
    if (file->size == 0)
        return cgp_fail(CGP_EFORMAT, "%s: is empty, expected a JPEG or PNG", file->path);
    memcpy(start, file->bytes, file->size < sizeof start ? file->size : sizeof start);
    return cgp_fail(CGP_EFORMAT,
                    "%s: at byte 0: expected a JPEG or PNG, got the bytes %02x %02x %02x %02x",
                    file->path, start[0], start[1], start[2], start[3]);
}

cgp_status cgp__image_decode(cgp__image *out, const cgp__image_file *file) {
    static const uint8_t jpeg[] = {0xff, 0xd8, 0xff}, png[] = {0x89, 'P', 'N', 'G'};
    cgp_status status = CGP_OK;
    *out = (cgp__image){0};
    if (file->size >= sizeof jpeg && memcmp(file->bytes, jpeg, sizeof jpeg) == 0)
        status = cgp__image_decode_jpeg(out, file);
    else if (file->size >= sizeof png && memcmp(file->bytes, png, sizeof png) == 0)
        status = cgp__image_decode_png(out, file);
    else
        status = unknown(file);
    if (status != CGP_OK) cgp__image_release(out);
    return status;
}
