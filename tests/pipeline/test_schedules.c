/* SPDX-License-Identifier: Apache-2.0 */
/* test_schedules.c -- every generated schedule, and a custom schedule, runs.
 *
 * Edges have the fewest buffers that the schedule checker allows, and actions begin after random
 * delays. Nothing hangs, and the weights equal the weights of training in one stage. */
#define _GNU_SOURCE
#include "graphs.h"

#include <stdlib.h>

#include "plan/plan.h"

enum { STEPS = 2 };

typedef struct fixture {
    cgp_model *model;
    cgp_plan_options options;
    test_batch batches[STEPS];
    char sha256[65]; /* weights after training in one stage */
} fixture;

/* Train, optionally with the minimum number of buffers, and return the hash of the weights. */
static void train(const fixture *f, const cgp_plan_options *options, bool min, char sha256[65]) {
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    assert_ok(cgp_plan_create(&plan, f->model, options));
    if (min) {
        cgp_schedule_report report;
        assert_ok(cgp_schedule_check(cgp_plan_schedule(plan), &report));
        /* set the capacities, although min_capacity may exceed the planned capacity */
        for (int e = 0; e < cgp_plan_edges(plan); e++)
            plan->messages.edges[e].capacity = plan->links.list[e].capacity =
                report.min_capacity[e];
        cgp__place_links(plan); /* gives the new buffers memory */
        cgp_schedule_report_release(&report);
    }
    assert_ok(cgp_pipeline_create(&pipeline, plan, 7));
    assert_ok(cgp_pipeline_set_timeout(pipeline, 60));
    for (int s = 0; s < STEPS; s++) {
        assert_ok(cgp_pipeline_step(pipeline, f->batches[s].inputs, f->batches[s].n, NULL));
        assert_ok(cgp_optim_step(pipeline));
    }
    assert_ok(cgp_pipeline_weights_sha256(pipeline, sha256));
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
}

static void set_up(fixture *f, int chunks) {
    uint64_t state = test_seed();
    const test_sizes sizes = {
        .layers = 9, .sequence = 6, .width = 8, .heads = 2, .vocab = 11, .dropout = 0.2};
    memset(f, 0, sizeof *f);
    f->model = test_gpt2(&sizes);
    f->options = cgp_plan_options_default();
    f->options.optim = cgp_optim_adamw(1e-2, 0.01);
    f->options.batch = chunks;
    f->options.chunks = chunks;
    for (int s = 0; s < STEPS; s++)
        test_batch_fill(&f->batches[s], f->model, &sizes, chunks, &state);
    train(f, &f->options, false, f->sha256);
}

static void tear_down(fixture *f) {
    unsetenv("CGP_FAULT");
    for (int s = 0; s < STEPS; s++)
        test_batch_release(&f->batches[s]);
    cgp_model_destroy(f->model);
}

static void check(const fixture *f, const cgp_plan_options *options, const char *what) {
    char sha256[65];
    train(f, options, true, sha256);
    if (strcmp(sha256, f->sha256) != 0)
        print_message("%s, %d devices, %d stages: other weights\n", what, options->stages,
                      cgp_plan_options_stages(options));
    assert_string_equal(sha256, f->sha256);
}

TEST_CASE(every_schedule_runs_with_min_buffers_and_delays) {
    /* 8 micro-batches run on 2 and 4 devices, 3 micro-batches on 1 and 3 devices. */
    static const int chunks[] = {8, 3};
    for (int k = 0; k < 2; k++) {
        fixture f;
        set_up(&f, chunks[k]);
        setenv("CGP_FAULT", "delay:5", 1);
        for (int i = 0; cgp_schedule_info_at(i); i++) {
            const cgp_schedule_info *info = cgp_schedule_info_at(i);
            for (int n = 2 - k; n <= 4 && info->has_backward; n += 2) {
                cgp_plan_options o = f.options;
                o.schedule = info->name;
                o.stages = n;
                o.recompute = (n + i) % 2 ? CGP_RECOMPUTE_NEVER : CGP_RECOMPUTE_EXCEPT_LAST;
                if (strcmp(info->name, "dualpipe-v") == 0 && chunks[k] < 2 * n) continue;
                check(&f, &o, info->name);
                if (!info->any_virtual || n > 3) continue;
                o.virtual_stages = 3;
                check(&f, &o, info->name);
            }
        }
        tear_down(&f);
    }
}

/* --- custom tables --- */

static cgp_schedule *read_csv(const char *text) {
    cgp_schedule *schedule = NULL;
    assert_ok(cgp_schedule_from_csv(&schedule, "own.csv", text, strlen(text)));
    return schedule;
}

/* Run the table of each generator, after writing it as CSV and reading it back, in both CSV
 * dialects. */
TEST_CASE(tables_from_csv_run) {
    static const char *const names[] = {"zb-v", "interleaved", "dualpipe-v"};
    fixture f;
    set_up(&f, 4);
    for (int k = 0; k < 6; k++) {
        cgp_schedule *made = NULL;
        char *text = NULL;
        assert_ok(cgp_schedule_create(&made, names[k / 2], 2, 4, NULL));
        assert_ok(cgp_schedule_lower_chain(made));
        assert_ok(cgp_schedule_to_csv(made, k % 2 ? CGP_CSV_TRANSFERS : CGP_CSV_COMPUTE, &text));
        cgp_schedule *table = read_csv(text);
        cgp_plan_options o = f.options;
        o.table = table;
        o.stages = 2;
        check(&f, &o, names[k / 2]);
        cgp_schedule_destroy(table);
        cgp_schedule_destroy(made);
        free(text);
    }
    tear_down(&f);
}

/* Run a table of three stages on two devices, in an order that no generator makes. The table
 * recomputes some micro-batches, and mixes I and W with B. Then run a mini-batch with fewer
 * micro-batches than the table has. */
TEST_CASE(a_custom_table_runs) {
    static const char table_text[] = "0F0,0F1,2F0,2B0,0F2,2F1,2I1,0R0,0B0,2F2,2W1,2B2,0B1,0B2\n"
                                     "1F0,1F1,1F2,1I0,1R1,1I1,1W0,1W1,1B2\n";
    fixture f;
    set_up(&f, 3);
    cgp_schedule *table = read_csv(table_text);
    cgp_plan_options o = f.options;
    o.table = table;
    o.stages = 2;
    check(&f, &o, "own");
    o.batch = 5; /* micro-batches of 2, 2 and 1 samples */
    f.options.batch = 5;
    train(&f, &f.options, false, f.sha256); /* 3 samples fill two of the micro-batches */
    check(&f, &o, "own, fewer");
    cgp_schedule_destroy(table);
    tear_down(&f);
}

static void refused(const fixture *f, const char *text, int stages, const char *message) {
    cgp_schedule *table = read_csv(text);
    cgp_plan_options o = f->options;
    cgp_plan *plan = NULL;
    o.table = table;
    o.stages = stages;
    assert_int_equal(cgp_plan_create(&plan, f->model, &o), CGP_EINVAL);
    assert_message(message);
    assert_null(plan);
    cgp_schedule_destroy(table);
}

TEST_CASE(wrong_tables_are_refused) {
    fixture f;
    set_up(&f, 2);
    refused(&f, "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n", 1, "stages: expected 2, the devices");
    refused(&f, "0F0,0F1,0F2,0B0,0B1,0B2\n", 1, "has 3 micro-batches, but 2 samples in 2");
    refused(&f, "0F0,0F1,0B0\n1F0,1F1,1B0,1B1\n", 2, "0B1");
    refused(&f, "0F0,0F1\n1F0,1F1\n", 2, "expected a backward to train with, got none");
    refused(&f, "0F0,0F1,0B0,0B1\n1B0,1F0,1F1,1B1\n", 2, "device 1");
    refused(&f, "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n", 2, "deadlock");
    tear_down(&f);
}

/* W of micro-batch 1 runs before W of micro-batch 0. The table runs, but gradients are summed in
 * another order, so the weights differ in the last bits. */
TEST_CASE(a_table_that_descends_runs) {
    fixture f;
    char sha256[65];
    set_up(&f, 3);
    cgp_schedule *table = read_csv("0F0,0F1,0F2,0I0,0I1,0I2,0W2,0W1,0W0\n");
    cgp_plan_options o = f.options;
    o.table = table;
    train(&f, &o, false, sha256);
    assert_string_not_equal(sha256, f.sha256);
    cgp_schedule_destroy(table);
    tear_down(&f);
}
