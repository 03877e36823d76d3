/* SPDX-License-Identifier: Apache-2.0 */
/* waits.h -- tests that every wait of one queue for another is needed. If a wait is omitted while
 * the other queue is slow, a result must differ. With all waits, no result may differ.
 *
 *     [COMPUTE][IN]    a kernel reads a slot into which a message is being copied
 *     [COMPUTE][OUT]   a kernel writes a slot from which a message is still copied
 *     [IN][COMPUTE]    a message is copied over a slot, or workspace, that a kernel still reads
 *     [IN][OUT]        a message is copied over a slot from which another message is still copied
 *     [OUT][COMPUTE]   a message is copied from a slot that a kernel has not written yet
 *     message          the receiver copies before the sender has filled the buffer
 *     buffer           the sender fills a buffer from which the receiver still copies
 *     fork             a kernel of the branch reads memory that a kernel has not written yet
 *     join             a kernel overwrites memory that a kernel of the branch still reads
 *     end              the next action begins while a kernel of the branch runs
 *
 * The list is complete. The test fails if a plan has a wait that is not listed, if no random run
 * has a listed wait, or if omitting a wait has no effect. The host is at most CGP__AHEAD actions
 * ahead of the device. Therefore a plan omits the waits for actions whose end the host has already
 * waited for.
 *
 * A test that includes this file is built with CGP_TEST_SITES, and defines cgp__site_off. */
#ifndef CGP_TESTS_SUPPORT_WAITS_H
#define CGP_TESTS_SUPPORT_WAITS_H

#include "graphs.h"
#include "model/model.h"
#include "pipeline/run/queues.h"
#include "plan/list.h"
#include "plan/program/program.h"
#include "plan/setup.h"

/* The device under test, and a reference device. The reference device gives bit-identical results,
 * its queues need no waits, and it does not use the branch. make_slow() sets the delay of a queue
 * or of the branch; 0 ns means no delay. */
typedef struct waits_device {
    const char *name, *reference;
    void (*make_slow)(int queue, int64_t ns);
    bool custom_ops, branch;
} waits_device;

static waits_device waits_on;

enum { STEPS = 2, MAX_DRAWS = 400, SLOW_RUNS = 36, BRANCH = CGP_QUEUES };
#define SLOW_NS 400000

#define QUEUES(queue, other) CGP__SITE_QUEUES + CGP_QUEUES *CGP_QUEUE_##queue + CGP_QUEUE_##other
/* clang-format off */
static const char *const names[CGP__SITES] = { /* NULL if there is no such wait */
    [QUEUES(COMPUTE, IN)] = "[COMPUTE][IN]", [QUEUES(COMPUTE, OUT)] = "[COMPUTE][OUT]",
    [QUEUES(IN, COMPUTE)] = "[IN][COMPUTE]", [QUEUES(IN, OUT)] = "[IN][OUT]",
    [QUEUES(OUT, COMPUTE)] = "[OUT][COMPUTE]",
    [CGP__SITE_MESSAGE] = "message", [CGP__SITE_BUFFER] = "buffer",
    [CGP__SITE_FORK] = "fork", [CGP__SITE_JOIN] = "join", [CGP__SITE_END] = "end"};
/* clang-format on */

/* Return true if plans for the device under test can have this wait. */
static inline bool has_wait(int site) {
    return names[site] && (waits_on.branch || site < CGP__SITE_FORK);
}

/* The result of a training run. The result includes the status of each update, because an update
 * fails if there is a NaN. */
typedef struct result {
    double losses[STEPS];
    cgp_status updates[STEPS];
    char sha256[65];
} result;

static inline void train(const cgp_model *model, const cgp_plan_options *o, const test_batch *batch,
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

/* Find the waits of a plan that involve the branch. There is a join if one action has more than one
 * call on the branch. */
static inline void find_branches(const cgp_plan *plan, bool there[CGP__SITES]) {
    for (int j = 0; j < cgp_plan_stages(plan); j++) {
        const cgp__program *backward = &cgp__plan_stage(plan, j)->programs[CGP__BACKWARD];
        int calls = 0;
        for (int i = 0; i < backward->n; i++)
            calls += backward->calls[i].branch;
        there[CGP__SITE_FORK] = there[CGP__SITE_FORK] || calls > 0;
        there[CGP__SITE_JOIN] = there[CGP__SITE_JOIN] || calls > 1;
    }
    there[CGP__SITE_END] = there[CGP__SITE_FORK];
}

/* Find the waits that a training run has. A run waits for messages if the plan has edges. It waits
 * for buffers if an edge has fewer buffers than the plan has micro-batches. */
static inline void find_sites(const cgp_model *model, const cgp_plan_options *o,
                              bool there[CGP__SITES]) {
    cgp_plan *plan = NULL;
    memset(there, 0, CGP__SITES * sizeof *there);
    assert_ok(cgp_plan_create(&plan, model, o));
    for (int d = 0; d < cgp_plan_devices(plan); d++) {
        cgp__list list = {0};
        assert_ok(cgp__plan_bind(plan, cgp_plan_schedule(plan),
                                 (cgp__minibatch){.samples = cgp__plan_setup(plan)->batch,
                                                  .chunks = cgp_plan_chunks(plan)},
                                 d, &list));
        for (int i = 0; i < list.n; i++) {
            const int queue = (int)cgp__queue_of(list.actions[i].action.kind);
            for (int other = 0; other < CGP_QUEUES; other++) {
                if (list.actions[i].wait[other] >= 0)
                    there[CGP__SITE_QUEUES + CGP_QUEUES * queue + other] = true;
            }
        }
        cgp__list_release(&list);
    }
    find_branches(plan, there);
    there[CGP__SITE_MESSAGE] = cgp_plan_edges(plan) > 0;
    for (int e = 0; e < cgp_plan_edges(plan); e++)
        there[CGP__SITE_BUFFER] =
            there[CGP__SITE_BUFFER] || cgp_plan_edge_at(plan, e).buffers < cgp_plan_chunks(plan);
    cgp_plan_destroy(plan);
}

/* A randomly drawn training run. */
typedef struct draw {
    test_sizes sizes;
    cgp_model *model;
    cgp_plan_options options;
    const char *devices[8];
    int balance[64];
    test_batch batch;
    result expected; /* result on the reference device */
} draw;

static inline bool has_custom_op(const cgp_model *model) {
    for (int i = 0; i < model->n_nodes; i++) {
        if (model->nodes[i].kind == CGP_OP_CUSTOM) return true;
    }
    return false;
}

static inline void make_draw(draw *d, uint64_t *state) {
    *d = (draw){.sizes = {.layers = 6, .sequence = 6, .width = 8, .heads = 2, .vocab = 11}};
    d->model = test_random_graph(state, &d->sizes);
    while (!waits_on.custom_ops && has_custom_op(d->model)) {
        cgp_model_destroy(d->model);
        d->model = test_random_graph(state, &d->sizes);
    }
    d->options = cgp_plan_options_default();
    test_random_training(state, d->model, &d->options, d->balance);
    test_batch_fill(&d->batch, d->model, &d->sizes, d->options.batch, state);
    for (int i = 0; i < 8; i++)
        d->devices[i] = waits_on.reference;
    d->options.devices = d->devices;
    setenv("CGP_BRANCH", "off", 1);
    train(d->model, &d->options, &d->batch, &d->expected);
    unsetenv("CGP_BRANCH");
    for (int i = 0; i < 8; i++)
        d->devices[i] = waits_on.name;
}

static inline void release_draw(draw *d) {
    test_batch_release(&d->batch);
    cgp_model_destroy(d->model);
}

/* Train with queue `slow` slowed down, and without the wait at `site` (-1: with all waits). Return
 * true if the result differs from the expected result. */
static inline bool differs(const draw *d, int slow, int site) {
    result got;
    cgp__site_off = site;
    waits_on.make_slow(slow, SLOW_NS);
    train(d->model, &d->options, &d->batch, &got);
    waits_on.make_slow(slow, 0);
    cgp__site_off = -1;
    return memcmp(&d->expected, &got, sizeof got) != 0;
}

/* Return true if the wait at `site` waits for work of `queue`. */
static inline bool is_for(int site, int queue) {
    if (site == CGP__SITE_MESSAGE) return queue == CGP_QUEUE_OUT;
    if (site == CGP__SITE_BUFFER) return queue == CGP_QUEUE_IN;
    if (site == CGP__SITE_FORK) return queue == CGP_QUEUE_COMPUTE;
    if (site == CGP__SITE_JOIN || site == CGP__SITE_END) return queue == BRANCH;
    return (site - CGP__SITE_QUEUES) % CGP_QUEUES == queue;
}

/* Check that for every wait, omitting the wait changes a result. */
static inline void check_waits(void) {
    uint64_t state = test_seed();
    bool found[CGP__SITES] = {false}, noticed[CGP__SITES] = {false};
    int open = 1;
    for (int i = 0; i < 12 || (open > 0 && i < MAX_DRAWS); i++) {
        bool there[CGP__SITES];
        draw d;
        make_draw(&d, &state);
        find_sites(d.model, &d.options, there);
        open = 0;
        for (int site = 0; site < CGP__SITES; site++) {
            found[site] = found[site] || there[site];
            for (int q = 0; q <= BRANCH && there[site] && !noticed[site]; q++)
                noticed[site] = is_for(site, q) && differs(&d, q, site);
            open += has_wait(site) && !noticed[site];
        }
        release_draw(&d);
    }
    for (int site = 0; site < CGP__SITES; site++) {
        if (has_wait(site))
            print_message("%s: %s\n", names[site],
                          noticed[site] ? "noticed"
                          : found[site] ? "makes no difference"
                                        : "is in no plan");
        else if (found[site])
            fail_msg("site %d: expected no such wait, got one", site);
    }
    assert_int_equal(open, 0);
}

/* Check that with all waits, results with a slow queue are bit-identical to results without a slow
 * queue. */
static inline void check_slow_queues(void) {
    const int queues = CGP_QUEUES + waits_on.branch;
    uint64_t state = test_seed();
    for (int i = 0; i < SLOW_RUNS / queues; i++) {
        draw d;
        make_draw(&d, &state);
        for (int q = 0; q < queues; q++)
            assert_false(differs(&d, q, -1));
        release_draw(&d);
    }
}

#endif
