/* SPDX-License-Identifier: Apache-2.0 */
/* test_ranks_agree.c -- tests what ranks exchange before they allocate memory, and before each
 * step. The ranks of a host share its memory. All ranks use the lowest instruction set, and compare
 * the results of libm. In a step, all ranks use the learning rates of rank 0. They also compare
 * their settings, which the program makes on each rank. Each rank is a thread with its own
 * simulated machine: the linker replaces the functions that inspect the process by functions of
 * this file. */
#include "rank_calls.h"

#include "optim/optim.h"
#include "inside.h"
#include "pipeline/run/clocks.h"
#include "pipeline/run/places.h"
#include "pipeline/run/ranks.h"

static const test_sizes sizes = {
    .layers = 2, .sequence = 8, .width = 24, .heads = 2, .vocab = 11, .dropout = 0.1};

enum { RANKS = 3, SAMPLES = 6 };

/* --- a machine for each rank --- */

/* `change` is a function that changes the placement of rank `number`, or NULL. `lr_factor` scales
 * the learning rates of each rank. */
static void (*change)(int number, cgp__place *place);
static double lr_factor[RANKS] = {1, 1, 1};
static _Thread_local int self;

cgp_status __real_cgp__place_find(cgp__place *out, const cgp_plan *plan, int number);
cgp_status __wrap_cgp__place_find(cgp__place *out, const cgp_plan *plan, int number);
cgp_status __wrap_cgp__place_find(cgp__place *out, const cgp_plan *plan, int number) {
    const cgp_status status = __real_cgp__place_find(out, plan, number);
    self = number;
    if (change) change(number, out);
    return status;
}

cgp_update_values __real_cgp__optim_values(const cgp_optim *optim, int64_t step);
cgp_update_values __wrap_cgp__optim_values(const cgp_optim *optim, int64_t step);
cgp_update_values __wrap_cgp__optim_values(const cgp_optim *optim, int64_t step) {
    cgp_update_values values = __real_cgp__optim_values(optim, step);
    values.lr *= lr_factor[self];
    return values;
}

/* --- ranks --- */

typedef struct world {
    cgp_model *model;
    cgp_plan *plan;
    test_batch batch;
} world;

static void make_world(world *w, int ranks) {
    uint64_t state = 3;
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = o.chunks = 3;
    o.batch = SAMPLES;
    o.ranks = ranks;
    const cgp_optim_group biases = cgp_optim_group_of("*.bias");
    o.optim.groups = &biases;
    o.optim.n_groups = 1;
    w->model = test_gpt2(&sizes);
    assert_ok(cgp_plan_create(&w->plan, w->model, &o));
    test_batch_fill(&w->batch, w->model, &sizes, SAMPLES, &state);
}

static void free_world(world *w) {
    test_batch_release(&w->batch);
    cgp_plan_destroy(w->plan);
    cgp_model_destroy(w->model);
}

static void create_only(rank *r) {
    note_create(r);
}

/* Create a pipeline on all ranks; `how` describes the machine of each rank. Check that every
 * rank returns this status and a message that contains `part`. */
static void create_on(world *w, rank *ranks, void (*how)(int, cgp__place *), cgp_status status,
                      const char *part) {
    make_ranks(ranks, RANKS, w->plan, &w->batch, create_only);
    change = how;
    run_ranks(ranks, RANKS);
    change = NULL;
    assert_note(ranks, RANKS, 0, status, -1, part);
}

static void train(rank *r) {
    note_create(r);
    for (int s = 0; s < 2; s++) {
        note(r, cgp_pipeline_step(r->pipeline, r->batch->inputs, 2, &r->loss));
        note(r, cgp_optim_step(r->pipeline));
    }
    note(r, cgp_pipeline_weights_sha256(r->pipeline, r->sha256));
}

/* Compute the hash of the weights after the same steps in one process. */
static void train_alone(char sha256[65]) {
    world w;
    rank one = {.seed = 5};
    make_world(&w, 1);
    self = 0;
    assert_ok(cgp_pipeline_create(&one.pipeline, w.plan, one.seed));
    for (int s = 0; s < 2; s++) {
        assert_ok(cgp_pipeline_step(one.pipeline, w.batch.inputs, 2, NULL));
        assert_ok(cgp_optim_step(one.pipeline));
    }
    assert_ok(cgp_pipeline_weights_sha256(one.pipeline, sha256));
    cgp_pipeline_destroy(one.pipeline);
    free_world(&w);
}

static void assert_trained(const rank *ranks, const char *sha256) {
    for (int k = 0; k < ranks[0].notes; k++)
        assert_note(ranks, RANKS, k, CGP_OK, -1, "");
    for (int r = 0; r < RANKS; r++)
        assert_string_equal(ranks[r].sha256, sha256);
}

/* --- memory --- */

static int64_t needed[RANKS], available[RANKS];

/* Place ranks 0 and 2 on host a, and rank 1 on host b. */
static void two_hosts(int number, cgp__place *place) {
    place->machine = number == 1;
    snprintf(place->host, sizeof place->host, "%s", number == 1 ? "b" : "a");
    place->machine_bytes = available[number];
    place->container_bytes = INT64_MAX;
}

/* Place all ranks on one machine, with rank 2 in its own container. */
static void two_containers(int number, cgp__place *place) {
    place->machine_bytes = INT64_MAX;
    place->container = number == 2;
    place->container_bytes = available[number];
}

TEST_CASE(memory_of_a_host_is_for_all_of_its_ranks) {
    world w;
    rank ranks[RANKS];
    make_world(&w, RANKS);
    for (int r = 0; r < RANKS; r++)
        needed[r] = cgp_plan_device_at(w.plan, r)->planned_bytes;
    available[0] = available[2] = needed[0] + needed[2];
    available[1] = needed[1];
    create_on(&w, ranks, two_hosts, CGP_OK, "");
    available[2]--; /* a host has the lowest memory that its ranks report */
    create_on(&w, ranks, two_hosts, CGP_ELIMIT, "memory: host a has ");
    assert_note(ranks, RANKS, 0, CGP_ELIMIT, -1, "but its ranks together need ");
    available[2]++;
    available[1]--;
    create_on(&w, ranks, two_hosts, CGP_ELIMIT, "memory: host b has ");
    available[0] = available[1] = needed[0] + needed[1];
    available[2] = needed[2];
    create_on(&w, ranks, two_containers, CGP_OK, "");
    available[1]--;
    create_on(&w, ranks, two_containers, CGP_ELIMIT, "its ranks together need ");
    available[1]++;
    available[2]--;
    create_on(&w, ranks, two_containers, CGP_ELIMIT, "its rank need");
    free_world(&w);
}

/* --- instruction set --- */

static void rank_1_is_older(int number, cgp__place *place) {
    if (number == 1) place->isa = CGP_ISA_V3;
}

TEST_CASE(all_ranks_take_the_lowest_instruction_set) {
    world w;
    rank ranks[RANKS];
    char older[65];
    setenv("CGP_CPU_ISA", "v3", 1);
    train_alone(older);
    unsetenv("CGP_CPU_ISA");
    make_world(&w, RANKS);
    make_ranks(ranks, RANKS, w.plan, &w.batch, train);
    change = rank_1_is_older;
    run_ranks(ranks, RANKS);
    change = NULL;
    assert_trained(ranks, older);
    free_world(&w);
}

static void demand_in_vain(rank *r) {
    note_create(r);
    note(r, r->pipeline ? CGP_ESTATE : CGP_OK);
}

TEST_CASE(an_instruction_set_that_is_none_is_refused_on_all_ranks) {
    world w;
    rank ranks[RANKS];
    make_world(&w, RANKS);
    make_ranks(ranks, RANKS, w.plan, &w.batch, demand_in_vain);
    setenv("CGP_CPU_ISA", "v5", 1);
    run_ranks(ranks, RANKS);
    unsetenv("CGP_CPU_ISA");
    assert_note(ranks, RANKS, 0, CGP_EINVAL, -1, "CGP_CPU_ISA: expects v1, v3, v4, v4-bf16 or amx");
    assert_note(ranks, RANKS, 1, CGP_OK, -1, "");
    free_world(&w);
}

/* --- libm and rates --- */

static void rank_2_has_another_libm(int number, cgp__place *place) {
    snprintf(place->host, sizeof place->host, "host%d", number);
    if (number == 2) snprintf(place->libm, sizeof place->libm, "0123456789abcdef");
}

TEST_CASE(ranks_with_other_results_of_libm_are_refused) {
    world w;
    rank ranks[RANKS];
    make_world(&w, RANKS);
    create_on(&w, ranks, rank_2_has_another_libm, CGP_EINVAL,
              "libm: expected the same results on all ranks, for the bits of one process, got "
              "0123456789abcdef (");
    assert_note(ranks, RANKS, 0, CGP_EINVAL, -1, " on rank 2, host host2, ");
    assert_note(ranks, RANKS, 0, CGP_EINVAL, -1, " on rank 0, host host0 (");
    free_world(&w);
}

TEST_CASE(rates_are_those_of_rank_0) {
    world w;
    rank ranks[RANKS];
    char alone[65];
    train_alone(alone);
    make_world(&w, RANKS);
    make_ranks(ranks, RANKS, w.plan, &w.batch, train);
    lr_factor[1] = 2;
    lr_factor[2] = 0.5;
    run_ranks(ranks, RANKS);
    lr_factor[1] = lr_factor[2] = 1;
    assert_trained(ranks, alone);
    free_world(&w);
}

/* --- what a program sets on each rank alone --- */

/* A setting that must be equal on all ranks. Rank 1 first sets another value, and the next step
 * then fails with `message`. */
typedef struct setting {
    cgp_status (*set)(cgp_pipeline *pipeline, bool other);
    const char *message;
} setting;

static cgp_status set_lr(cgp_pipeline *pipeline, bool other) {
    return cgp_pipeline_set_lr(pipeline, other ? NAN : 0.25);
}

static cgp_status set_group_lr(cgp_pipeline *pipeline, bool other) {
    return cgp_pipeline_set_group_lr(pipeline, 0, other ? 0.5 : 0.25);
}

static cgp_status set_targets(cgp_pipeline *pipeline, bool other) {
    return cgp_pipeline_set_targets(pipeline, (const int64_t[]){other ? 7 : 9}, 1);
}

static cgp_status no_targets(cgp_pipeline *pipeline, bool other) {
    return cgp_pipeline_set_targets(pipeline, other ? NULL : (const int64_t[]){9}, !other);
}

static cgp_status set_accumulation(cgp_pipeline *pipeline, bool other) {
    return cgp_pipeline_set_accumulation(pipeline, other);
}

static cgp_status set_updates(cgp_pipeline *pipeline, bool other) {
    return cgp_pipeline_set_updates(pipeline, other ? 3 : 4);
}

static cgp_status set_seed(cgp_pipeline *pipeline, bool other) {
    return cgp_pipeline_set_seed(pipeline, other ? UINT64_MAX : 7);
}

static cgp_status restart_dropout(cgp_pipeline *pipeline, bool other) {
    return other ? cgp_pipeline_set_seed(pipeline, 5) : CGP_OK;
}

static const setting settings[] = {
    {set_lr, "learning rate: expected the same on all ranks, got the plan's on rank 1, 0.25 "
             "on rank 0 (call cgp_pipeline_set_lr or cgp_pipeline_set_group_lr on all)"},
    {set_group_lr,
     "learning rate: expected the same on all ranks, got 0.5 on rank 1, 0.25 on rank"},
    {set_targets, "targets: expected the same on all ranks, got 7 on rank 1, 9 on rank 0"},
    {no_targets, "targets: expected the same on all ranks, got their count on rank 1, 9 on rank 0"},
    {set_accumulation, "accumulation: expected the same on all ranks, got on on rank 1, off on "},
    {set_updates, "updates: expected the same on all ranks, got 3 on rank 1, 4 on rank 0"},
    {set_seed, "dropout seed: expected the same on all ranks, got 18446744073709551615 on rank 1"},
    {restart_dropout, "steps of dropout: expected the same on all ranks, got 0 on rank 1, 1 on "},
};

static const setting *tried;

static void set_differently(rank *r) {
    note_create(r);
    note(r, cgp_pipeline_step(r->pipeline, r->batch->inputs, 2, &r->loss));
    note(r, cgp_optim_step(r->pipeline));
    note(r, tried->set(r->pipeline, r->number == 1));
    note(r, cgp_pipeline_step(r->pipeline, r->batch->inputs, 2, &r->loss));
    note(r, tried->set(r->pipeline, tried->set == restart_dropout));
    note(r, cgp_pipeline_step(r->pipeline, r->batch->inputs, 2, &r->loss));
    note(r, cgp_optim_step(r->pipeline));
}

TEST_CASE(settings_that_differ_refuse_a_step) {
    world w;
    rank ranks[RANKS];
    make_world(&w, RANKS);
    for (size_t k = 0; k < sizeof settings / sizeof *settings; k++) {
        tried = &settings[k];
        make_ranks(ranks, RANKS, w.plan, &w.batch, set_differently);
        run_ranks(ranks, RANKS);
        for (int i = 0; i < ranks[0].notes; i++)
            assert_note(ranks, RANKS, i, i == 4 ? CGP_EINVAL : CGP_OK, -1,
                        i == 4 ? tried->message : "");
    }
    free_world(&w);
}

static void accumulate_differently(rank *r) {
    note_create(r);
    note(r, cgp_pipeline_set_accumulation(r->pipeline, true));
    note(r, cgp_pipeline_step(r->pipeline, r->batch->inputs, 2, &r->loss));
    if (r->number == 1) note(r, cgp_pipeline_zero_grad(r->pipeline));
    if (r->number != 1) note(r, CGP_OK);
    note(r, cgp_pipeline_step(r->pipeline, r->batch->inputs, 2, &r->loss));
    note(r, cgp_pipeline_zero_grad(r->pipeline));
    note(r, cgp_pipeline_step(r->pipeline, r->batch->inputs, 2, &r->loss));
    note(r, cgp_pipeline_clip_grad_norm(r->pipeline, r->number == 1 ? 2 : 1, NULL));
    note(r, cgp_pipeline_clip_grad_norm(r->pipeline, r->number == 1 ? -1 : 1, NULL));
    note(r, cgp_pipeline_clip_grad_norm(r->pipeline, 1, NULL));
    note(r, cgp_optim_step(r->pipeline));
}

TEST_CASE(gradients_that_wait_on_some_ranks_refuse_a_step) {
    world w;
    rank ranks[RANKS];
    make_world(&w, RANKS);
    make_ranks(ranks, RANKS, w.plan, &w.batch, accumulate_differently);
    run_ranks(ranks, RANKS);
    assert_note(ranks, RANKS, 4, CGP_EINVAL, -1,
                "gradients that wait: expected the same on all ranks, got none on rank 1, some on "
                "rank 0");
    assert_note(ranks, RANKS, 6, CGP_OK, -1, "");
    assert_note(ranks, RANKS, 7, CGP_EINVAL, -1,
                "max_norm: expected the same on all ranks, got 2 on rank 1, 1 on rank 0");
    assert_note(ranks, RANKS, 8, CGP_EINVAL, 1,
                "max_norm: a number of 0 or more is expected, got -1");
    assert_note(ranks, RANKS, 9, CGP_OK, -1, "");
    assert_note(ranks, RANKS, 10, CGP_OK, -1, "");
    free_world(&w);
}

/* With an external loss, the setting decides whether the backward adds to gradients or overwrites
 * them. Rank 1 has another setting than the other ranks. */
static void backward_differently(rank *r) {
    float data[SAMPLES * 3];
    const cgp_tensor y = {CGP_F32, {2, {SAMPLES, 3}}, data}, *list[] = {&y};
    note_create(r);
    note(r, cgp_pipeline_set_accumulation(r->pipeline, true));
    note(r, cgp_pipeline_forward(r->pipeline, r->batch->inputs, 1, list, 1));
    note(r, cgp_pipeline_backward(r->pipeline, list, 1));
    note(r, cgp_pipeline_forward(r->pipeline, r->batch->inputs, 1, list, 1));
    note(r, cgp_pipeline_set_accumulation(r->pipeline, r->number != 1));
    note(r, cgp_pipeline_backward(r->pipeline, list, 1));
    note(r, cgp_pipeline_set_accumulation(r->pipeline, true));
    note(r, cgp_pipeline_backward(r->pipeline, list, 1));
    note(r, cgp_optim_step(r->pipeline));
}

TEST_CASE(a_backward_that_adds_on_some_ranks_is_refused) {
    world w = {.model = NULL};
    rank ranks[RANKS];
    uint64_t state = 3;
    cgp_plan_options o = cgp_plan_options_default();
    assert_ok(cgp_model_create(&w.model, "linear"));
    cgp_value x = cgp_model_input(w.model, "x", CGP_F32, 1, (int64_t[]){3});
    for (int l = 0; l < RANKS; l++) {
        const cgp_linear_options linear = {.out = 3, .init = {CGP_INIT_NORMAL, 0.5}};
        const char name[] = {(char)('a' + l), 0};
        cgp_model_layer(w.model, name);
        x = cgp_linear(w.model, x, name, linear);
    }
    cgp_model_output(w.model, x);
    assert_ok(cgp_model_finish(w.model));
    o.stages = o.ranks = RANKS;
    o.batch = SAMPLES;
    o.external_loss = true;
    assert_ok(cgp_plan_create(&w.plan, w.model, &o));
    test_batch_fill(&w.batch, w.model, &sizes, SAMPLES, &state);
    make_ranks(ranks, RANKS, w.plan, &w.batch, backward_differently);
    run_ranks(ranks, RANKS);
    for (int i = 0; i < ranks[0].notes; i++)
        assert_note(ranks, RANKS, i, i == 6 ? CGP_EINVAL : CGP_OK, -1,
                    i == 6 ? "backward: expected the same on all ranks, got overwrites gradients "
                             "on rank 1, adds to gradients on rank 0"
                           : "");
    free_world(&w);
}

/* --- clocks --- */

static double uncertainty[RANKS], makespan[RANKS];

static void measure(rank *r) {
    cgp_schedule_timeline timeline = {0};
    note_create(r);
    note(r, cgp_pipeline_step(r->pipeline, r->batch->inputs, 2, &r->loss));
    note(r, cgp_pipeline_last_timeline(r->pipeline, &timeline));
    uncertainty[r->number] = timeline.clock_uncertainty;
    makespan[r->number] = timeline.makespan;
    cgp_schedule_timeline_release(&timeline);
    if (!r->pipeline) return;
    const cgp__ranks *ranks = inside_ranks(r->pipeline);
    const cgp__reading *last = ranks->clocks->last;
    for (int q = 0; q < RANKS; q++) /* ranks are threads and share one clock */
        if (llabs(last->offset_ns[q]) > last->uncertainty_ns) note(r, CGP_ESTATE);
}

static void every_rank_has_a_clock(int number, cgp__place *place) {
    place->clock = (uint64_t)number;
}

TEST_CASE(timelines_are_of_one_clock) {
    world w;
    rank ranks[RANKS];
    make_world(&w, RANKS);
    for (int several = 0; several < 2; several++) {
        make_ranks(ranks, RANKS, w.plan, &w.batch, measure);
        change = several ? every_rank_has_a_clock : NULL;
        run_ranks(ranks, RANKS);
        change = NULL;
        assert_int_equal(ranks[0].notes, 3);
        for (int k = 0; k < 3; k++)
            assert_note(ranks, RANKS, k, CGP_OK, -1, "");
        assert_true(several ? uncertainty[0] > 0 : uncertainty[0] == 0);
        for (int r = 1; r < RANKS; r++)
            assert_true(uncertainty[r] == uncertainty[0] && makespan[r] == makespan[0]);
    }
    free_world(&w);
}

int main(void) {
    unsetenv("CGP_CPU_ISA");
    return test_run();
}
