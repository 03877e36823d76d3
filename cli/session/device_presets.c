/* SPDX-License-Identifier: Apache-2.0 */
/* device_presets.c -- see device_presets.h. The sources are beside the same figures in
 * docs/reference/cluster-files.md. Peaks are without sparsity. */
#include "session/device_presets.h"

#include <string.h>

#define TERA 1e12
#define GIGA 1000000000

/* name, {f32, bf16, tf32}, memory bandwidth, memory */
static const cli_device_preset presets[] = {
    {"A100", {19.5 * TERA, 312 * TERA, 156 * TERA}, 2.039 * TERA, (int64_t)80 * GIGA},
    {"H100", {67 * TERA, 989 * TERA, 494 * TERA}, 3.35 * TERA, (int64_t)80 * GIGA},
    {"H200", {67 * TERA, 989 * TERA, 494 * TERA}, 4.8 * TERA, (int64_t)141 * GIGA},
    {"B200", {80 * TERA, 2250 * TERA, 1100 * TERA}, 8 * TERA, (int64_t)180 * GIGA},
    {"MI300X", {163 * TERA, 1307 * TERA, 654 * TERA}, 5.3 * TERA, (int64_t)192 * GIGA},
};

const cli_device_preset *cli_device_preset_find(const char *name) {
    for (size_t k = 0; k < sizeof presets / sizeof *presets; k++) {
        if (strcmp(presets[k].name, name) == 0) return &presets[k];
    }
    return NULL;
}

const char *cli_device_preset_names(void) {
    return "A100, H100, H200, B200, MI300X";
}
