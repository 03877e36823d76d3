/* SPDX-License-Identifier: Apache-2.0 */
/* schedule_file.c -- see schedule_file.h. */
#include "options/schedule_file.h"

#include "files.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

bool cli_schedule_is_file(const char *name) {
    return strchr(name, '/') || cli_ends_with(name, ".csv");
}

cgp_status cli_schedule_read(cgp_schedule **out, const char *path) {
    char *bytes = NULL;
    size_t size = 0;
    CGP_TRY(cli_file_read(path, CLI_LARGEST_FILE, &bytes, &size));
    const cgp_status status = cgp_schedule_from_csv(out, path, bytes, size);
    free(bytes);
    return status;
}
