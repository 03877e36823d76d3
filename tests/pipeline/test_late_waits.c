/* SPDX-License-Identifier: Apache-2.0 */
/* test_late_waits.c -- each wait of a queue for another one is left out, with the other one slow: a result differs.
 *
 *     [COMPUTE][IN]    a kernel reads a slot into which a message is being copied
 *     [IN][COMPUTE]    a message is copied over a slot, or workspace, that a kernel still reads
 *     message          the receiver copies before the sender has filled the buffer
 *     buffer           the sender fills a buffer that the receiver still copies from
 *
 * A wait that no draw has is none; one that is there and makes no difference would be redundant, and fails the test. */
#include "graphs.h"

#include "backend/late/late.h"
#include "pipeline/pipeline.h"

int cgp__site_off = -1;

enum { STEPS = 2, MAX_DRAWS = 400 };
#define SLOW_NS 400000

static const char *const queue_names[] = {"COMPUTE", "IN", "OUT"};

/* The result of a training: statuses too, as a NaN refuses an update. */
typedef struct result {
    double losses[STEPS];
    cgp_status updates[STEPS];
    char sha256[65];
} result;

static void train(const cgp_model *model, const cgp_plan_options *o, const test_batch *batch,
                  result *out) {
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    memset(out, 0, sizeof *out);
    assert_ok(cgp_plan_create(&plan, model, o));
    assert_ok(cgp_pipeline_create(&pipeline, plan, 1));
    for (int s = 0; s < STEPS; s++) {
        assert_ok(cgp_pipeline_step(pipeline, batch->inputs, batch->n, &out->losses[s]));
        out->updates[s] = cgp_optim_step(pipeline);
    }
    assert_ok(cgp_pipeline_weights_sha256(pipeline, out->sha256));
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
}

/* Find the waits between queues that a training has; every one with a transfer has those for messages and buffers. */
static void find_sites(const cgp_model *model, const cgp_plan_options *o,
                       bool there[CGP__SITES]) {
    cgp_plan *plan = NULL;
    memset(there, 0, CGP__SITES * sizeof *there);
    assert_ok(cgp_plan_create(&plan, model, o));
    for (int d = 0; d < plan->n_devices; d++) {
        cgp__list list = {0};
        assert_ok(cgp__plan_bind(plan, plan->schedule,
                                 (cgp__minibatch){plan->batch, false, plan->chunks}, d, &list));
        for (int i = 0; i < list.n; i++) {
            const int queue = (int)cgp__queue_of(list.actions[i].action.kind);
            for (int other = 0; other < CGP_QUEUES; other++) {
                if (list.actions[i].wait[other] >= 0)
                    there[CGP__SITE_QUEUES + CGP_QUEUES * queue + other] = true;
            }
        }
        cgp__list_release(&list);
    }
    there[CGP__SITE_MESSAGE] = plan->n_edges > 0;
    for (int e = 0; e < plan->n_edges; e++)
        there[CGP__SITE_BUFFER] =
            there[CGP__SITE_BUFFER] || plan->edges[e].capacity < plan->chunks;
    cgp_plan_destroy(plan);
}

static int slow_queue(int site) {
    if (site == CGP__SITE_MESSAGE) return CGP_QUEUE_OUT;
    if (site == CGP__SITE_BUFFER) return CGP_QUEUE_IN;
    return (site - CGP__SITE_QUEUES) % CGP_QUEUES;
}

static void print_site(int site, const char *what) {
    if (site >= CGP__SITE_MESSAGE)
        print_message("%s: %s\n", site == CGP__SITE_MESSAGE ? "message" : "buffer", what);
    else
        print_message("[%s][%s]: %s\n", queue_names[site / CGP_QUEUES],
                      queue_names[site % CGP_QUEUES], what);
}

static void every_wait_makes_a_difference(void **unused) {
    (void)unused;
    uint64_t state = test_seed();
    bool found[CGP__SITES] = {false}, noticed[CGP__SITES] = {false}, open = true;
    for (int draw = 0; draw < 12 || (open && draw < MAX_DRAWS); draw++) {
        test_sizes sizes = {.layers = 6, .sequence = 6, .width = 8, .heads = 2, .vocab = 11};
        cgp_model *model = test_random_graph(&state, &sizes);
        cgp_plan_options o = cgp_plan_options_default();
        const char *devices[8];
        int balance[64];
        bool there[CGP__SITES];
        result expected, got;
        test_batch batch;
        for (int d = 0; d < 8; d++)
            devices[d] = "late";
        test_random_training(&state, model, &o, balance);
        o.devices = devices;
        test_batch_fill(&batch, model, &sizes, o.batch, &state);
        find_sites(model, &o, there);
        train(model, &o, &batch, &expected);
        for (int site = 0; site < CGP__SITES; site++) {
            found[site] = found[site] || there[site];
            if (!there[site] || noticed[site]) continue;
            cgp__site_off = site;
            atomic_store(&cgp__late_delay_ns[slow_queue(site)], SLOW_NS);
            train(model, &o, &batch, &got);
            atomic_store(&cgp__late_delay_ns[slow_queue(site)], 0);
            cgp__site_off = -1;
            noticed[site] = memcmp(&expected, &got, sizeof got) != 0;
        }
        open = memcmp(found, noticed, sizeof found) != 0;
        test_batch_release(&batch);
        cgp_model_destroy(model);
    }
    for (int site = 0; site < CGP__SITES; site++)
        if (found[site]) print_site(site, noticed[site] ? "noticed" : "makes no difference");
    assert_false(open);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_wait_makes_a_difference)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
