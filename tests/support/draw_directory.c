/* SPDX-License-Identifier: Apache-2.0 */
/* draw_directory.c -- writes pictures of the data set of drawn shapes as PNG files, with one
 * directory per class (an image folder).
 *
 *     draw_directory FOLDER IMAGES_A_CLASS SIZE */
#include <cgpipe/cgpipe.h>
#include <cgpipe/data.h>
#include <cgpipe/images.h>

#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Undo the data set's normalisation: scale a picture back to bytes from 0 to 255. */
static void to_bytes(const float *picture, int64_t n, uint8_t *bytes) {
    float low = picture[0], high = picture[0];
    for (int64_t i = 0; i < n; i++) {
        low = picture[i] < low ? picture[i] : low;
        high = picture[i] > high ? picture[i] : high;
    }
    for (int64_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(255.0f * (picture[i] - low) / (high > low ? high - low : 1.0f));
}

static int save(const char *directory, const char *class_name, int64_t number, int size,
                const uint8_t *bytes) {
    char path[512];
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)size,
                       .height = (png_uint_32)size,
                       .format = PNG_FORMAT_RGB};
    snprintf(path, sizeof path, "%s/%s", directory, class_name);
    (void)mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/%s/%lld.png", directory, class_name, (long long)number);
    return png_image_write_to_file(&image, path, 0, bytes, 0, NULL) ? 0 : 1;
}

static cgp_status draw(const char *directory, int64_t count, int size) {
    cgp_data *data = NULL;
    cgp_shapes_options options = cgp_shapes_options_default();
    options.size = size;
    CGP_TRY(cgp_data_shapes(&data, &options));
    const int64_t pixels = (int64_t)size * size * 3;
    float *picture = malloc((size_t)pixels * sizeof *picture);
    uint8_t *bytes = malloc((size_t)pixels);
    int64_t done[10] = {0}, left = 10 * count;
    cgp_status status = picture && bytes ? CGP_OK : cgp_fail(CGP_ENOMEM, "draw: no memory");
    (void)mkdir(directory, 0777);
    for (int64_t i = 0; left > 0 && status == CGP_OK; i++) {
        int32_t label = 0;
        status = cgp_data_read(data, CGP_SPLIT_TRAIN, i, 1, picture, &label);
        if (status != CGP_OK || done[label] == count) continue;
        to_bytes(picture, pixels, bytes);
        if (save(directory, cgp_data_class_name(data, label), done[label]++, size, bytes) != 0)
            status = cgp_fail(CGP_EIO, "%s: cannot be written", directory);
        left--;
    }
    free(bytes);
    free(picture);
    cgp_data_destroy(data);
    return status;
}

int main(int count, char **words) {
    if (count != 4) return 2;
    if (draw(words[1], atoll(words[2]), atoi(words[3])) == CGP_OK) return 0;
    fprintf(stderr, "%s\n", cgp_message());
    return 1;
}
