/* SPDX-License-Identifier: Apache-2.0 */
/* recordings.c -- recorded launches: a device gets the kernels of an action as one piece of work.
 *
 *     the row, the caller's data    copied, each time
 *     the calls behind them         first use of a variant: one by one; second: recorded, and run; later: run
 *     the output                    copied, each time
 *
 * Between two actions of one variant, in runs of one kind, only the tags of these calls change, and what they read in memory of the
 * device: operands are slots of the variant, or have fixed places. Copies and events between actions are not recorded, nor is a run
 * whose kernels are measured. */
#include "pipeline/run/run.h"

#include <stdlib.h>
#include <string.h>

#ifdef CGP_TEST_SITES
cgp_status (*cgp__recordings_compare)(const cgp_recording *recorded, const cgp_recording *now);
#endif

cgp_status cgp__recordings_read(bool *records) {
    const char *text = getenv("CGP_GRAPHS");
    *records = !text || strcmp(text, "off") != 0;
    if (!text || !*records || strcmp(text, "on") == 0) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "CGP_GRAPHS: expects on or off, got \"%s\"", text);
}

/* Those of other lists, up to `known`, may have the variant. */
static cgp_status find(cgp__worker *worker, int known, cgp__variant *variant) {
    for (int i = 0; i < known; i++) {
        variant->recordings = i;
        if (cgp__same_variant(&worker->recordings[i].variant, variant)) return CGP_OK;
    }
    if (!cgp__grow(&worker->recordings, &worker->recordings_capacity, worker->n_recordings + 1,
                   sizeof *worker->recordings))
        return cgp__no_memory("recordings", sizeof *worker->recordings);
    variant->recordings = worker->n_recordings;
    worker->recordings[worker->n_recordings++] = (cgp__recordings){.variant = *variant};
    return CGP_OK;
}

cgp_status cgp__recordings_bind(cgp__worker *worker, cgp__list *list) {
    const int known = worker->n_recordings;
    for (int i = 0; i < list->n_variants; i++) {
        cgp__variant *variant = &list->variants[i];
        variant->recordings = -1;
        if (worker->records && variant->end > variant->begin)
            CGP_TRY(find(worker, known, variant));
    }
    return CGP_OK;
}

void cgp__recordings_destroy(cgp__worker *worker) {
    for (int i = 0; i < 4 * worker->n_recordings; i++) {
        cgp_recording *recording = worker->recordings[i / 4].of[i / 2 % 2][i % 2].recording;
        if (recording) cgp__backend_of(worker)->recording_destroy(recording);
    }
    free(worker->recordings);
}

/* Record calls from `begin` on. *out: NULL, there is no recording. */
static bool record(const cgp__execution *s, int begin, cgp_recording **out) {
    cgp__worker *worker = s->worker;
    const cgp_backend *backend = cgp__backend_of(worker);
    cgp__execution recorded = *s;
    recorded.records = true;
    *out = NULL;
    if (backend->record_begin(worker->device) != CGP_OK) return cgp__fail_on_device(s, -1);
    const bool all = cgp__run_calls(&recorded, begin, s->variant->end);
    const cgp_status status = backend->record_end(worker->device, out);
    if (!all) { /* reported */
        if (*out) backend->recording_destroy(*out);
        *out = NULL;
        return false;
    }
    if (status != CGP_ENOMEM) return status == CGP_OK || cgp__fail_on_device(s, -1);
    worker->records = false;
    cgp_log(CGP_LOG_INFO, "pipeline", "device %s: no memory for more recordings: %s",
            s->plan->devices[worker->index].name, cgp_message());
    return true;
}

#ifdef CGP_TEST_SITES
/* Record once more, and compare. */
static bool is_as_recorded(const cgp__execution *s, int begin, const cgp_recording *recorded) {
    cgp_recording *now = NULL;
    if (!cgp__recordings_compare) return true;
    if (!record(s, begin, &now)) return false;
    const bool same = cgp__recordings_compare(recorded, now) == CGP_OK;
    if (!same) (void)cgp__fail_on_device(s, -1);
    if (now) cgp__backend_of(s->worker)->recording_destroy(now);
    return same;
}
#else
#define is_as_recorded(s, begin, recorded) true
#endif

/* Run what was recorded. */
static bool replay(const cgp__execution *s, int begin, cgp_recording *recording) {
    cgp__worker *worker = s->worker;
    const int64_t tag = cgp__tag_of((int)(s->bound - s->list->actions), 0);
    atomic_store_explicit(&worker->call, begin, memory_order_relaxed);
    if (recording && cgp__backend_of(worker)->recording_run(recording, tag) != CGP_OK)
        return cgp__fail_on_device(s, -1);
    return !cgp__is_stopped(worker);
}

bool cgp__run_recorded(const cgp__execution *s, int begin) {
    cgp__worker *worker = s->worker;
    const cgp__variant *variant = s->variant;
    if (begin == variant->end || variant->recordings < 0 || worker->node_times)
        return cgp__run_calls(s, begin, variant->end);
    cgp__recorded *r = &worker->recordings[variant->recordings]
                            .of[s->context->training][s->context->with_loss];
    if (r->state == CGP__RECORDED)
        return is_as_recorded(s, begin, r->recording) && replay(s, begin, r->recording);
    if (r->state == CGP__USED && worker->records) {
        if (!record(s, begin, &r->recording)) return false;
        if (worker->records) {
            r->state = CGP__RECORDED;
            return replay(s, begin, r->recording);
        }
    }
    r->state = CGP__USED;
    return cgp__run_calls(s, begin, variant->end);
}
