/* SPDX-License-Identifier: Apache-2.0 */
/* test_late_waits.c -- tests on the backend `late` that every wait between actions is needed (see
 * waits.h). The host runs only a limited number of actions ahead. (test_cuda_waits tests this on
 * cuda-host.) */
#include "waits.h"

#include "backend/registry.h"
#include "late/late.h"

int cgp__site_off = -1;

TEST_CASE(every_wait_makes_a_difference) {
    check_waits();
}

TEST_CASE(a_slow_queue_changes_no_bit) {
    check_slow_queues();
}

/* --- how far the host runs ahead --- */

/* Event counters of a device on `late` that has no transfers. Each action records two events, one
 * at its start and one at its end. `most` is the largest number of actions in flight. */
static struct { int records, landed, most; } ahead;

static cgp_status counted_record(cgp_device *device, cgp_queue queue, cgp_event *event) {
    const int in_flight = ++ahead.records / 2 - ahead.landed;
    ahead.most = in_flight > ahead.most ? in_flight : ahead.most;
    return cgp__backend_late.streams->event_record(device, queue, event);
}

static cgp_status counted_sync(cgp_event *event) {
    ahead.landed++;
    return cgp__backend_late.streams->event_sync(event);
}

static cgp_status counted_done(cgp_event *event, bool *done) {
    const cgp_status status = cgp__backend_late.streams->event_done(event, done);
    ahead.landed += *done;
    return status;
}

/* Train with slow kernels, and return the largest number of actions in flight. */
static int most_ahead(int site) {
    uint64_t state = 1;
    test_sizes sizes = {.layers = 2, .sequence = 6, .width = 8, .heads = 2, .vocab = 11};
    cgp_model *model = test_random_graph(&state, &sizes);
    cgp_plan_options o = cgp_plan_options_default();
    test_batch batch;
    result got;
    o.batch = o.chunks = 8;
    o.devices = (const char *const[]){"counted"};
    test_batch_fill(&batch, model, &sizes, o.batch, &state);
    memset(&ahead, 0, sizeof ahead);
    cgp__site_off = site;
    atomic_store(&cgp__late_delay_ns[CGP_QUEUE_COMPUTE], SLOW_NS);
    train(model, &o, &batch, &got);
    atomic_store(&cgp__late_delay_ns[CGP_QUEUE_COMPUTE], 0);
    cgp__site_off = -1;
    test_batch_release(&batch);
    cgp_model_destroy(model);
    return ahead.most;
}

TEST_CASE(the_host_is_so_many_actions_ahead_and_no_more) {
    static cgp_backend counted;
    static cgp_backend_streams streams;
    counted = cgp__backend_late;
    streams = *counted.streams;
    counted.name = "counted";
    streams.event_record = counted_record;
    streams.event_sync = counted_sync;
    streams.event_done = counted_done;
    counted.streams = &streams;
    assert_ok(cgp__backend_add(&counted));
    assert_int_equal(most_ahead(-1), CGP__AHEAD);
    assert_int_equal(most_ahead(CGP__SITE_AHEAD), CGP__AHEAD + 1);
}

static void make_slow(int queue, int64_t ns) {
    atomic_store(&cgp__late_delay_ns[queue], ns);
}

int main(void) {
    waits_on = (waits_device){"late", "cpu", make_slow, true, false};
    return test_run();
}
