/* times.c -- what the traces tell of the last step. */
#include "pipeline/pipeline.h"

#include <math.h>

int64_t cgp_pipeline_allocated_bytes(const cgp_pipeline *pipeline, int device) {
    if (device < 0 || device >= pipeline->plan->n_devices) return 0;
    return pipeline->workers[device].bytes;
}

static bool is_compute(int kind) {
    return kind <= CGP_ACTION_R;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

cgp_pipeline_times cgp_pipeline_last_times(const cgp_pipeline *pipeline, double *busy) {
    cgp_pipeline_times times = {NAN, NAN, NAN, NAN};
    int64_t start = INT64_MAX, end = 0, last_forward = 0, first_backward = INT64_MAX;
    const int n = pipeline->plan->n_devices;
    double total = 0;
    for (int d = 0; d < n; d++) {
        const cgp__trace *trace = &pipeline->workers[d].trace;
        int64_t sum = 0;
        for (int64_t k = pipeline->workers[d].trace_start; k < trace->written; k++) {
            const cgp__event *event = &trace->events[k & (trace->capacity - 1)];
            start = least(start, event->start_ns);
            end = most(end, event->end_ns);
            if (is_compute(event->kind)) sum += event->end_ns - event->start_ns;
            if (event->kind == CGP_ACTION_F) last_forward = most(last_forward, event->end_ns);
            if (event->kind == CGP_ACTION_B || event->kind == CGP_ACTION_I)
                first_backward = least(first_backward, event->start_ns);
        }
        total += (double)sum;
        if (busy) busy[d] = (double)sum;
    }
    for (int d = 0; busy && d < n; d++)
        busy[d] = end > 0 ? busy[d] / (double)(end - start) : NAN;
    if (end == 0) return times;
    times.seconds = (double)(end - start) * 1e-9;
    times.bubble = 1 - total / (n * (double)(end - start));
    if (first_backward == INT64_MAX) {
        times.forward_seconds = times.seconds;
        times.backward_seconds = 0;
    } else if (last_forward == 0) {
        times.forward_seconds = 0;
        times.backward_seconds = times.seconds;
    } else if (last_forward <= first_backward) {
        times.forward_seconds = (double)(last_forward - start) * 1e-9;
        times.backward_seconds = (double)(end - last_forward) * 1e-9;
    }
    return times;
}
