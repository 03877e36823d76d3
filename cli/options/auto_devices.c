/* SPDX-License-Identifier: Apache-2.0 */
/* auto_devices.c -- --devices auto: all usable GPUs of this machine, or cpu if there is none. */
#include "options/resolve.h"

#include "options/options.h"
#include "ranks.h"
#include "text.h"

#include <cgpipe/devices.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Write the usable ordinals of a backend, at most `limit`: "cuda:0,cuda:1". Return their number. */
static int list_ordinals(FILE *out, const char *backend, int limit) {
    int count = 0, usable = 0;
    if (cgp_backend_devices(&count, backend) != CGP_OK) return 0;
    for (int i = 0; i < count && usable < limit; i++) {
        int64_t bytes = 0;
        if (cgp_backend_memory(&bytes, backend, i) != CGP_OK) continue;
        fprintf(out, "%s%s:%d", usable > 0 ? "," : "", backend, i);
        usable++;
    }
    return usable;
}

/* Write the devices of the first backend that has usable devices and does not use host memory. If
 * there is none, write "cpu". */
static void list_devices(FILE *out, int limit) {
    cgp_backend_info info;
    for (int i = 0; (info = cgp_backend_info_at(i)).name; i++) {
        if (!info.host_addressable && list_ordinals(out, info.name, limit) > 0) return;
    }
    fputs("cpu", out);
}

cgp_status cli_find_devices(cli_run_options *options) {
    const bool alone = options->transport && strcmp(options->transport, "inproc") == 0;
    const int processes = alone ? 1 : cli_ranks_launched();
    const int64_t stages = options->given[CLI_OPTION_STAGES] ? options->stages : INT_MAX;
    cgp_device_list list;
    char *text = NULL;
    size_t size = 0;
    if (processes > 1)
        return cgp_fail(CGP_EINVAL,
                        "--devices auto: expected one process, got %d (name the devices, as in "
                        "cuda:local*%d)",
                        processes, processes);
    FILE *out = open_memstream(&text, &size);
    if (!out) return cgp_fail(CGP_ENOMEM, "--devices auto: out of memory");
    list_devices(out, (int)(stages < INT_MAX ? stages : INT_MAX));
    const bool closed = fclose(out) == 0;
    options->auto_devices = cli_run_options_keep(options, text);
    if (!closed) return cgp_fail(CGP_ENOMEM, "--devices auto: out of memory");
    CGP_TRY(cgp_device_list_parse(&list, text));
    options->devices = (cli_names){cli_run_options_keep(options, list.names), list.count};
    return CGP_OK;
}

bool cli_leaves_gpu(const cli_run_options *options) {
    const char *file = getenv("CGP_GPU_FILE");
    return options->devices.count == 0 && access(file ? file : "/dev/nvidia0", F_OK) == 0;
}
