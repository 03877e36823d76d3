/* SPDX-License-Identifier: Apache-2.0 */
/* device_presets.h -- public devices by name, for cluster files. */
#ifndef CGPIPE_CLI_DEVICE_PRESETS_H
#define CGPIPE_CLI_DEVICE_PRESETS_H

#include <cgpipe/plan.h>

typedef struct cli_device_preset {
    const char *name;
    double flops_per_second[CGP_PRECISION_TF32 + 1]; /* dense peak, by cgp_precision */
    double bytes_per_second;                         /* memory bandwidth */
    int64_t memory_bytes;
} cli_device_preset;

/* Return the preset with this name, or NULL. Static. */
const cli_device_preset *cli_device_preset_find(const char *name);

/* Return all names, for messages: "A100, H100". Static. */
const char *cli_device_preset_names(void);

#endif
