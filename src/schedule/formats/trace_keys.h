/* SPDX-License-Identifier: Apache-2.0 */
/* trace_keys.h -- the keys of a measured step in a trace, for the writer and the reader of traces
 * (draw_trace.c describes the format). */
#ifndef CGP_SRC_SCHEDULE_FORMATS_TRACE_KEYS_H
#define CGP_SRC_SCHEDULE_FORMATS_TRACE_KEYS_H

#include <stdbool.h>

#define CGP__TRACE_KEY "cgpipe"
#define CGP__TRACE_FORMAT_KEY "format"
#define CGP__TRACE_NAME_KEY "schedule"
#define CGP__TRACE_CSV_KEY "csv"
#define CGP__TRACE_EDGES_KEY "edges"
#define CGP__TRACE_CLOCKS_KEY "clock_uncertainty_seconds"
#define CGP__TRACE_EXCHANGED_KEY "exchanged_seconds"

enum { CGP__TRACE_FORMAT = 1, CGP__TRACE_NAME = 128, CGP__TRACE_TIMES = 4 };

/* The keys of the times, in the order of start, end, released, ready. */
static const char *const cgp__trace_times[CGP__TRACE_TIMES] = {"start_seconds", "end_seconds",
                                                               "given_seconds", "ready_seconds"};

/* Return true for the characters that a schedule's name may have. Others are excluded because names
 * are printed on terminals. */
static inline bool cgp__trace_printable(char c) {
    return c >= ' ' && c <= '~';
}

#endif
