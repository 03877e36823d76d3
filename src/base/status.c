/* SPDX-License-Identifier: Apache-2.0 */
/* status.c -- records the last failure of each thread, and writes the log. */
#include "base/base.h"
#include "base/json.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char message[1024];
static atomic_int log_level = -1; /* -1: CGP_LOG has not been read */

const char *cgp_message(void) {
    return message;
}

const char *cgp_status_name(cgp_status status) {
    static const char *const names[] = {"CGP_OK",    "CGP_EINVAL",  "CGP_ENOMEM", "CGP_ELIMIT",
                                        "CGP_EIO",   "CGP_EFORMAT", "CGP_ESTATE", "CGP_EDEVICE",
                                        "CGP_EPEER", "CGP_EDIFFERS"};
    const int n = (int)(sizeof names / sizeof names[0]);
    return (int)status >= 0 && (int)status < n ? names[status] : "unknown status";
}

cgp_status cgp_fail(cgp_status status, const char *format, ...) {
    if (!format) format = "cgp_fail: format: expected a pointer, got NULL";
    char text[sizeof message]; /* the arguments may point into the old message */
    va_list args;
    va_start(args, format);
    cgp__vprint(text, sizeof text, format, args);
    va_end(args);
    (void)cgp_escape(text, message, sizeof message);
    return status;
}

void cgp_log_set_level(cgp_log_level level) {
    atomic_store(&log_level, (int)level);
}

static int current_log_level(void) {
    int level = atomic_load(&log_level);
    if (level < 0) {
        static const char *const names[] = {"error", "warn", "info", "debug"};
        const char *name = getenv("CGP_LOG");
        level = CGP_LOG_WARN;
        for (int i = 0; name && i < 4; i++) {
            if (strcmp(name, names[i]) == 0) level = i;
        }
        atomic_store(&log_level, level);
    }
    return level;
}

void cgp_log(cgp_log_level level, const char *module, const char *format, ...) {
    CGP__NEED_OR(module, );
    CGP__NEED_OR(format, );
    if ((int)level > current_log_level()) return;
    char text[1024];
    va_list args;
    va_start(args, format);
    cgp__vprint(text, sizeof text, format, args);
    va_end(args);
    char shown[sizeof text];
    fprintf(stderr, "cgpipe: [%s] %s%s\n", module, level == CGP_LOG_WARN ? "warning: " : "",
            cgp_escape(text, shown, sizeof shown));
}
