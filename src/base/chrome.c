/* SPDX-License-Identifier: Apache-2.0 */
/* chrome.c -- implements chrome.h: writes trace events as JSON. */
#include "base/chrome.h"

#include <jansson.h>

/* Maximum size of an event, in bytes. Events are short, because all names in them come from the
 * library. */
enum { MAX_EVENT = 1024 };

void cgp__chrome_begin(cgp__chrome *trace, FILE *file) {
    *trace = (cgp__chrome){.file = file, .status = CGP_OK};
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", file);
}

/* Write an event and release it. `event` is NULL if memory was short. */
static void write_event(cgp__chrome *trace, json_t *event) {
    char text[MAX_EVENT];
    const size_t size =
        event && trace->status == CGP_OK
            ? json_dumpb(event, text, sizeof text, JSON_COMPACT | JSON_REAL_PRECISION(15))
            : 0;
    json_decref(event);
    if (trace->status != CGP_OK) return;
    if (size == 0 || size > sizeof text) {
        trace->status = cgp__no_memory("trace", MAX_EVENT);
        return;
    }
    fputs(trace->begun ? ",\n" : "\n", trace->file);
    fwrite(text, 1, size, trace->file);
    trace->begun = true;
}

void cgp__chrome_process(cgp__chrome *trace, int pid, const char *name) {
    write_event(trace, json_pack("{ss si si ss s{ss}}", "ph", "M", "pid", pid, "tid", 0, "name",
                                 "process_name", "args", "name", name));
    write_event(trace, json_pack("{ss si si ss s{si}}", "ph", "M", "pid", pid, "tid", 0, "name",
                                 "process_sort_index", "args", "sort_index", pid));
}

void cgp__chrome_slice(cgp__chrome *trace, int pid, int tid, const char *name, const char *category,
                       double start, double duration, int stage, int microbatch, bool critical) {
    write_event(trace,
                json_pack("{ss si si sf sf ss ss s{si si sb}}", "ph", "X", "pid", pid, "tid", tid,
                          "ts", start, "dur", duration, "name", name, "cat", category, "args",
                          "stage", stage, "microbatch", microbatch, "critical", critical));
}

void cgp__chrome_flow(cgp__chrome *trace, int id, int from_pid, double from, int to_pid,
                      double to) {
    write_event(trace, json_pack("{ss si si si sf ss ss}", "ph", "s", "id", id, "pid", from_pid,
                                 "tid", 0, "ts", from, "name", "message", "cat", "message"));
    write_event(trace, json_pack("{ss ss si si si sf ss ss}", "ph", "f", "bp", "e", "id", id, "pid",
                                 to_pid, "tid", 0, "ts", to, "name", "message", "cat", "message"));
}

void cgp__chrome_counter(cgp__chrome *trace, int pid, const char *name, double time, int value) {
    write_event(trace, json_pack("{ss si si sf ss s{si}}", "ph", "C", "pid", pid, "tid", 0, "ts",
                                 time, "name", name, "args", "value", value));
}

cgp_status cgp__chrome_end(cgp__chrome *trace, const char *key, const char *json) {
    fputs("\n]", trace->file);
    if (key) fprintf(trace->file, ",\n\"%s\":%s", key, json);
    fputs("}\n", trace->file);
    return trace->status;
}
