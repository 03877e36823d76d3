/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_hash.c -- ranks compare plan hashes. The hash is equal for equal models and options,
 * and differs after any single change. */
#include <cgpipe/ext/op.h>

#include "graphs.h"

/* --- options --- */

static cgp_plan_options options(void) {
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = 3;
    o.batch = 8;
    o.chunks = 4;
    o.schedule = "gpipe";
    o.optim = cgp_optim_sgd(0.1, 0.9, false, 0.01);
    o.optim.eps = 1e-8;
    o.optim.schedule.kind = CGP_LR_MILESTONES;
    o.optim.schedule.gamma = 0.5;
    o.optim.schedule.n_milestones = 2;
    o.optim.schedule.milestones[0] = 5;
    o.optim.schedule.milestones[1] = 9;
    return o;
}

/* Change option number `k` and return its name, or NULL if there is no option `k`. */
static const char *change(cgp_plan_options *o, int k) {
    static const int balance[] = {1, 2, 4};
    static const char *const devices[] = {"cpu", "cpu:1", "cpu"}, *const limited[] = {
                                                                      "cpu", "cpu@1GiB", "cpu"};
    cgp_lr_schedule *rate = &o->optim.schedule;
#define CHANGES(field, value)                                                                      \
    if (k-- == 0) {                                                                                \
        (field) = (value);                                                                         \
        return #field " = " #value;                                                                \
    }
    if (k-- == 0) {
        o->inference = true;
        o->schedule = NULL; /* the default: forward-only */
        return "inference";
    }
    CHANGES(o->stages, 2)
    CHANGES(o->balance, balance)
    CHANGES(o->batch, 7)
    CHANGES(o->chunks, 2)
    CHANGES(o->schedule, "1f1b")
    CHANGES(o->schedule, "zb-h1")
    CHANGES(o->schedule, "zb-v")
    CHANGES(o->recompute, CGP_RECOMPUTE_ALWAYS)
    CHANGES(o->recompute, CGP_RECOMPUTE_EXCEPT_LAST)
    CHANGES(o->devices, devices)
    CHANGES(o->devices, limited)
    CHANGES(o->threads_per_device, 2)
    CHANGES(o->memory_limit, 1 << 30)
    CHANGES(o->precision, CGP_PRECISION_BF16)
    CHANGES(o->convolution, CGP_CONVOLUTION_WINOGRAD)
    CHANGES(o->deferred_batch_norm, true)
    CHANGES(o->gradient_groups, 2)
    CHANGES(o->ranks, 2)
    CHANGES(o->ranks, 3)
    CHANGES(o->optim.kind, CGP_OPTIM_RMSPROP)
    CHANGES(o->optim.lr, 0.2)
    CHANGES(o->optim.weight_decay, 0.02)
    CHANGES(o->optim.momentum, 0.8)
    CHANGES(o->optim.nesterov, true)
    CHANGES(o->optim.beta1, 0.5)
    CHANGES(o->optim.beta2, 0.5)
    CHANGES(o->optim.eps, 1e-3)
    CHANGES(o->optim.alpha, 0.5)
    CHANGES(o->optim.clip_norm, 1.0)
    CHANGES(o->optim.decay_all, true)
    CHANGES(rate->kind, CGP_LR_CONSTANT)
    CHANGES(rate->warmup, 3)
    CHANGES(rate->steps, 100)
    CHANGES(rate->min_ratio, 0.1)
    CHANGES(rate->step_size, 10)
    CHANGES(rate->gamma, 0.25)
    CHANGES(rate->start, 0.5)
    CHANGES(rate->warmup_interval, 2)
    CHANGES(rate->n_milestones, 1)
    CHANGES(rate->milestones[1], 10)
    for (int g = 0; g < 4; g++) {
        static cgp_optim_group groups[4];
        if (k-- != 0) continue;
        groups[g] = cgp_optim_group_of(g == 1 ? "first.*" : "*");
        if (g == 2) groups[g].lr = 0.3;
        if (g == 3) groups[g].weight_decay = 0.3;
        o->optim.groups = &groups[g];
        o->optim.n_groups = 1;
        return "groups";
    }
    return NULL;
#undef CHANGES
}

/* --- models --- */

/* Changes to a model, one per member. A member is 0 if its change is not made. */
typedef struct knobs {
    int input_name, input_shape, input_dtype, parameter_name, width, init, bias_decays, order,
        shared, dropped, probability, state_begins, weight, second_loss, output, table;
} knobs;

enum { KNOBS = sizeof(knobs) / sizeof(int) };

static cgp_status infer_count(const void *attributes, const cgp_op_type *inputs,
                              cgp_op_shapes *out) {
    const int *changed = attributes;
    out->output = inputs[0];
    out->n_parameters = out->n_state = 1;
    out->parameters[0] =
        (cgp_op_parameter){.suffix = "weight", .shape = {1, {4}}, .decays = changed[0] != 0};
    out->state[0] = (cgp_op_state){"count", CGP_F32, {1, {1}}, (float)changed[1]};
    return CGP_OK;
}

static cgp_status nothing(const cgp_op_run *run) {
    (void)run;
    return CGP_OK;
}

/* An op that never runs. It has a parameter and a state. Its attributes say whether the parameter
 * decays, and have the state's initial value. */
static const cgp_op counter = {.struct_size = sizeof(cgp_op),
                               .name = "counter",
                               .n_inputs = 1,
                               .attribute_bytes = 2 * sizeof(int),
                               .infer = infer_count,
                               .forward = nothing,
                               .backward_input = nothing,
                               .backward_weight = nothing};

static cgp_value linear(cgp_model *model, cgp_value x, const char *name, double scale) {
    cgp_model_layer(model, name);
    return cgp_linear(model, x, name,
                      (cgp_linear_options){.out = 4, .init = {CGP_INIT_NORMAL, scale}});
}

static cgp_model *make_model(const knobs *k) {
    cgp_model *model = NULL;
    const int64_t wide[] = {k->width ? 6 : 4}, rows[] = {2, 4}, flat[] = {4};
    static cgp_op changed;
    changed = counter;
    changed.cheap = true;
    assert_ok(cgp_model_create(&model, "knobs"));
    cgp_value x = cgp_model_input(model, k->input_name ? "y" : "x", CGP_F32, 1, wide);
    const cgp_value more = cgp_model_input(model, "more", k->input_dtype ? CGP_I32 : CGP_F32,
                                           k->input_shape ? 2 : 1, k->input_shape ? rows : flat);
    (void)more;
    cgp_model_layer(model, "unused");
    if (k->dropped) (void)cgp_dropout(model, x, 0.5); /* unused, but takes an op id */
    x = linear(model, x, k->parameter_name ? "other" : "first", k->init ? 0.25 : 0.5);
    x = cgp_dropout(model, x, k->probability ? 0.25 : 0.5);
    const cgp_value left = linear(model, x, k->order ? "b" : "a", 0.5);
    if (k->shared) cgp_model_tie(model, "c.weight", k->order ? "b.weight" : "a.weight");
    const cgp_value right = linear(model, left, k->order ? "a" : "b", 0.5);
    x = linear(model, cgp_add(model, left, right), "c", 0.5);
    cgp_model_layer(model, "counter");
    x = cgp_op_apply(model, k->table ? &changed : &counter, &x, "counter",
                     (const int[]){k->bias_decays, k->state_begins});
    x = linear(model, x, "last", 0.5);
    const cgp_value classes = cgp_argmax(model, x);
    if (!k->output) cgp_model_output(model, x);
    cgp_model_loss_cross_entropy(model, x, classes, -100, k->weight ? 2 : 1);
    if (k->second_loss) cgp_model_loss_cross_entropy(model, x, classes, -100, 1);
    assert_ok(cgp_model_finish(model));
    return model;
}

/* --- laws --- */

typedef struct hash {
    char hex[65];
    const char *name;
} hash;

static hash hash_of(const cgp_model *model, const cgp_plan_options *o, const char *name) {
    hash h = {.name = name};
    cgp_plan *plan = NULL;
    assert_ok(cgp_plan_create(&plan, model, o));
    assert_ok(cgp_plan_hash(plan, h.hex));
    cgp_plan_destroy(plan);
    return h;
}

static void assert_all_differ(const hash *hashes, int n) {
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < i; j++) {
            if (strcmp(hashes[i].hex, hashes[j].hex) != 0) continue;
            print_error("%s: expected another hash than %s, got %s\n", hashes[i].name,
                        hashes[j].name, hashes[i].hex);
            fail();
        }
    }
}

TEST_CASE(every_option_changes_the_hash) {
    cgp_model *model = make_model(&(knobs){0});
    cgp_plan_options o = options();
    hash hashes[64];
    int n = 0;
    hashes[n++] = hash_of(model, &o, "unchanged");
    assert_string_equal(hash_of(model, &o, "").hex, hashes[0].hex);
    for (const char *name = change(&o, 0); name; name = change(&o, n - 1)) {
        hashes[n++] = hash_of(model, &o, name);
        o = options();
    }
    assert_true(n > 30);
    assert_all_differ(hashes, n);
    cgp_model_destroy(model);
}

TEST_CASE(every_part_of_a_model_changes_the_hash) {
    static const char *const names[KNOBS] = {
        "input_name", "input_shape", "input_dtype", "parameter_name",
        "width",      "init",        "bias_decays", "order",
        "shared",     "dropped",     "probability", "state_begins",
        "weight",     "second_loss", "output",      "table"};
    const cgp_plan_options o = options();
    hash hashes[KNOBS + 1];
    for (int k = 0; k <= KNOBS; k++) {
        int values[KNOBS] = {0};
        if (k > 0) values[k - 1] = 1;
        knobs changed;
        memcpy(&changed, values, sizeof changed);
        cgp_model *model = make_model(&changed), *again = make_model(&changed);
        hashes[k] = hash_of(model, &o, k ? names[k - 1] : "unchanged");
        assert_string_equal(hash_of(again, &o, "").hex, hashes[k].hex);
        cgp_model_destroy(again);
        cgp_model_destroy(model);
    }
    assert_all_differ(hashes, KNOBS + 1);
}
