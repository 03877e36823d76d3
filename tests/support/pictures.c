/* SPDX-License-Identifier: Apache-2.0 */
/* pictures.c -- see pictures.h. */
#include "pictures.h"

#include <jpeglib.h>
#include <png.h>

static void write_bytes(png_structp png, png_bytep bytes, size_t count) {
    test_image *out = png_get_io_ptr(png);
    assert_true(out->size + count <= sizeof out->bytes);
    memcpy(out->bytes + out->size, bytes, count);
    out->size += count;
}

static void flush(png_structp png) {
    (void)png;
}

static void set_palette(png_structp png, png_infop info, int bits) {
    png_color palette[256];
    const png_byte transparent[1] = {0};
    for (int i = 0; i < 256; i++)
        palette[i] = (png_color){(png_byte)i, (png_byte)(255 - i), (png_byte)(i / 2)};
    png_set_PLTE(png, info, palette, 1 << bits);
    png_set_tRNS(png, info, transparent, 1, NULL);
}

void test_make_png(test_image *out, const test_png *kind, const uint8_t *rows) {
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    out->size = 0;
    png_set_write_fn(png, out, write_bytes, flush);
    png_set_IHDR(png, info, (png_uint_32)kind->width, (png_uint_32)kind->height, kind->bits,
                 kind->colour, kind->interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    if (kind->colour == PNG_COLOR_TYPE_PALETTE) set_palette(png, info, kind->bits);
    png_write_info(png, info);
    const size_t row = png_get_rowbytes(png, info);
    png_bytep *list = calloc((size_t)kind->height, sizeof *list);
    for (int y = 0; y < kind->height; y++)
        list[y] = (png_bytep)(uintptr_t)(rows + (size_t)y * row);
    png_write_image(png, list);
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
    free(list);
}

void test_make_jpeg(test_image *out, const test_jpeg *kind, const uint8_t *pixels) {
    static const J_COLOR_SPACE spaces[] = {[1] = JCS_GRAYSCALE, [3] = JCS_RGB, [4] = JCS_CMYK};
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr errors;
    unsigned char *bytes = NULL;
    unsigned long size = 0;
    info.err = jpeg_std_error(&errors);
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &bytes, &size);
    info.image_width = (JDIMENSION)kind->width;
    info.image_height = (JDIMENSION)kind->height;
    info.input_components = kind->components;
    info.in_color_space = spaces[kind->components];
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, kind->quality, TRUE);
    if (kind->components == 4) info.write_Adobe_marker = TRUE;
    if (kind->progressive) jpeg_simple_progression(&info);
    jpeg_start_compress(&info, TRUE);
    while (info.next_scanline < info.image_height) {
        const size_t at = (size_t)info.next_scanline * (size_t)(kind->width * kind->components);
        JSAMPROW row = (JSAMPROW)(uintptr_t)(pixels + at);
        jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    assert_true(size <= sizeof out->bytes);
    memcpy(out->bytes, bytes, size);
    out->size = size;
    free(bytes);
}
