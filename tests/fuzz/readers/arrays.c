/* SPDX-License-Identifier: Apache-2.0 */
/* arrays.c -- reads damaged files of CIFAR and MNIST. Either the files are refused, or every sample
 * can be read and has a label in range. A refusal states file, offset, expected value and actual
 * value.
 *
 * An input is the name of a data set ("mnist", "cifar10", "cifar20" or "cifar100") and the files of
 * both splits. All five training files of CIFAR-10 get the same bytes. */
#include "fuzz.h"

#include <cgpipe/images.h>
#include <cgpipe/data.h>

enum { PARTS = 5, VALUES = 32 * 32 * 3, SAMPLES = 8 };

static cgp_status open_mnist(cgp_data **data, const fuzz_part *parts) {
    static const char *const names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                        "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};
    for (int i = 0; i < 4; i++)
        fuzz_write(names[i], parts[i + 1].bytes, parts[i + 1].size);
    return cgp_data_mnist(data, fuzz_directory, NULL);
}

static cgp_status open_cifar(cgp_data **data, const fuzz_part *parts, int classes) {
    cgp_cifar_options options = cgp_cifar_options_default();
    options.classes = classes;
    for (int i = 1; i <= 5 && classes == 10; i++) {
        char name[32];
        snprintf(name, sizeof name, "data_batch_%d.bin", i);
        fuzz_write(name, parts[1].bytes, parts[1].size);
    }
    if (classes != 10) fuzz_write("train.bin", parts[1].bytes, parts[1].size);
    fuzz_write(classes == 10 ? "test_batch.bin" : "test.bin", parts[2].bytes, parts[2].size);
    return cgp_data_cifar(data, fuzz_directory, &options);
}

static void check_split(cgp_data *data, cgp_split split) {
    static float picture[VALUES];
    const int64_t classes = cgp_data_classes(data), samples = cgp_data_samples(data, split);
    REQUIRE(samples >= 1);
    for (int64_t i = 0; i < samples && i < SAMPLES; i++) {
        int32_t label = -1;
        REQUIRE(cgp_data_read(data, split, i, 1, picture, &label) == CGP_OK);
        REQUIRE(label >= 0 && label < classes);
        for (int k = 0; k < 784; k++)
            REQUIRE(isfinite(picture[k]));
    }
}

static bool try_input(const uint8_t *bytes, size_t size) {
    fuzz_part parts[PARTS] = {{0}};
    cgp_data *data = NULL;
    fuzz_cut(bytes, size, parts, PARTS);
    char *kind = fuzz_text(parts[0].bytes, parts[0].size);
    const int classes = strncmp(kind, "cifar", 5) == 0 ? atoi(kind + 5) : 0;
    const cgp_status status =
        classes ? open_cifar(&data, parts, classes) : open_mnist(&data, parts);
    free(kind);
    if (status == CGP_OK) {
        check_split(data, CGP_SPLIT_TRAIN);
        check_split(data, CGP_SPLIT_VALIDATION);
        cgp_data_destroy(data);
        return true;
    }
    REQUIRE(!data && (status == CGP_EFORMAT || status == CGP_EINVAL));
    REQUIRE(status == CGP_EINVAL || strstr(cgp_message(), ": at byte "));
    return false;
}

const fuzz_reader fuzz_arrays = {
    .take = try_input,
    .words = FUZZ_WORDS(FUZZ_BETWEEN, "mnist", "cifar10", "cifar20", "cifar100", "\x1f\x8b", "\x7f",
                        "\xff", "\x08\x03", "\x08\x01", "\x1c", "0123456789"),
    .mutations = 6000,
    .corpus = 4,
};
