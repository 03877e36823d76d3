/* SPDX-License-Identifier: Apache-2.0 */
/* test_stash.c -- tests values passed by name (stash and pop). The results are bit-identical to the
 * results of the same model with plain variables. The message about an unmatched name states the
 * namespace and layer.
 *
 *     layer    in           down          middle       up           out
 *              x ──► a ───► b ──────────► c ─────────► + ─────────► + ──► logits, loss
 *                    │      └── "skip" of "inner" ────┘            │
 *                    └───────── "skip" ────────────────────────────┘ */
#include "graphs.h"

#include "model/model.h"
#include "model/builder.h"

enum { LAYERS = 5, MODES = CGP_RECOMPUTE_EXCEPT_LAST_SELECTIVE + 1, SAMPLES = 5, STEPS = 2 };

static const test_sizes sizes = {.vocab = 5};

static cgp_value linear(cgp_model *model, cgp_value x, const char *name, int64_t out) {
    return cgp_linear(
        model, x, name,
        (cgp_linear_options){.out = out, .bias = true, .init = {CGP_INIT_NORMAL, 0.3}});
}

static cgp_model *start(void) {
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "names"));
    return model;
}

static cgp_model *end(cgp_model *model, cgp_value x, cgp_value targets) {
    const cgp_value logits = linear(model, x, "head", 5);
    cgp_model_loss_cross_entropy(model, logits, targets, -100, 1);
    cgp_model_output(model, logits);
    assert_ok(cgp_model_finish(model));
    return model;
}

/* --- pairs of layers with a skip between the two layers; `space` is the skip's namespace --- */

static cgp_value keep(cgp_model *model, cgp_value x, const char *layer, const char *space) {
    cgp_model_layer(model, layer);
    x = cgp_gelu(model, linear(model, x, layer, 16));
    cgp_model_stash(model, space, "skip", x);
    return x;
}

static cgp_value take(cgp_model *model, cgp_value x, const char *layer, const char *space) {
    cgp_model_layer(model, layer);
    return cgp_add(model, linear(model, x, layer, 16), cgp_model_pop(model, space, "skip"));
}

static cgp_model *by_name(void) {
    char copy[] = "inner"; /* names are compared by text, not by address */
    cgp_model *model = start();
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){6});
    const cgp_value t = cgp_model_input(model, "targets", CGP_I32, 1, (int64_t[]){1});
    x = keep(model, x, "in", NULL);
    x = keep(model, x, "down", "inner");
    cgp_model_layer(model, "middle");
    x = cgp_dropout(model, linear(model, x, "middle", 16), 0.25);
    x = take(model, x, "up", copy);
    x = take(model, x, "out", "");
    return end(model, x, t);
}

static cgp_model *by_hand(void) {
    cgp_model *model = start();
    const cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){6});
    const cgp_value t = cgp_model_input(model, "targets", CGP_I32, 1, (int64_t[]){1});
    cgp_model_layer(model, "in");
    const cgp_value a = cgp_gelu(model, linear(model, x, "in", 16));
    cgp_model_layer(model, "down");
    const cgp_value b = cgp_gelu(model, linear(model, a, "down", 16));
    cgp_model_layer(model, "middle");
    cgp_value y = cgp_dropout(model, linear(model, b, "middle", 16), 0.25);
    cgp_model_layer(model, "up");
    y = cgp_add(model, linear(model, y, "up", 16), b);
    cgp_model_layer(model, "out");
    y = cgp_add(model, linear(model, y, "out", 16), a);
    return end(model, y, t);
}

static cgp_plan_options cut(const int *balance) {
    cgp_plan_options o = cgp_plan_options_default();
    for (o.stages = 0; o.stages < LAYERS && balance[o.stages] > 0;)
        o.stages++;
    o.balance = balance;
    o.batch = SAMPLES;
    o.chunks = 3;
    return o;
}

/* Return the bytes per sample of the message over an edge; 0 if there is no such edge. */
static int64_t message(const cgp_model *model, const int *balance, int from, int to) {
    cgp_plan *plan = NULL;
    int64_t bytes = 0;
    cgp_plan_options o = cut(balance);
    o.batch = o.chunks = 1;
    assert_ok(cgp_plan_create(&plan, model, &o));
    for (int e = 0; e < cgp_plan_edges(plan); e++) {
        const cgp_plan_edge edge = cgp_plan_edge_at(plan, e);
        if (edge.from == from && edge.to == to) bytes += edge.bytes;
    }
    cgp_plan_destroy(plan);
    return bytes;
}

TEST_CASE(skips_by_name_are_bit_equal_to_plain_values_in_any_stages) {
    static const int balances[][LAYERS] = {{5}, {1, 4}, {2, 3}, {4, 1}, {2, 1, 2}, {1, 1, 1, 1, 1}};
    uint64_t state = test_seed();
    cgp_model *spec = by_name(), *plain = by_hand();
    test_batch batches[STEPS];
    test_outcome expected, got;
    for (int s = 0; s < STEPS; s++)
        test_batch_fill(&batches[s], plain, &sizes, SAMPLES, &state);
    cgp_plan_options o = cut(balances[0]);
    test_train(plain, &o, 7, batches, STEPS, &expected);
    for (size_t i = 0; i < sizeof balances / sizeof balances[0]; i++) {
        for (int mode = 0; mode < MODES; mode++) {
            o = cut(balances[i]);
            o.recompute = (cgp_recompute)mode;
            test_train(spec, &o, 7, batches, STEPS, &got);
            assert_memory_equal(got.losses, expected.losses, STEPS * sizeof got.losses[0]);
            assert_string_equal(got.sha256, expected.sha256);
        }
    }
    for (int s = 0; s < STEPS; s++)
        test_batch_release(&batches[s]);
    cgp_model_destroy(plain);
    cgp_model_destroy(spec);
}

/* A value is 64 bytes large. With five stages, each skip has an edge of its own. The edge bypasses
 * the stages between stash and pop. */
TEST_CASE(a_named_skip_jumps_to_the_stage_that_pops_it) {
    static const int each[LAYERS] = {1, 1, 1, 1, 1}, two[LAYERS] = {2, 3}, one[LAYERS] = {5};
    cgp_model *spec = by_name(), *plain = by_hand();
    for (int from = 0; from < LAYERS; from++) {
        for (int to = 0; to < LAYERS; to++) {
            assert_int_equal(message(spec, each, from, to), message(plain, each, from, to));
            assert_int_equal(message(spec, one, from, to), 0);
        }
    }
    assert_int_equal(message(spec, each, 0, 4), 64);
    assert_int_equal(message(spec, each, 1, 3), 64);
    assert_int_equal(message(spec, each, 0, 3), 0);
    assert_int_equal(message(spec, each, 2, 3), 64); /* c; the skip in "inner" bypasses stage 2 */
    assert_int_equal(message(spec, two, 0, 1), 128); /* a and b; b is sent once for both uses */
    cgp_model_destroy(plain);
    cgp_model_destroy(spec);
}

TEST_CASE(a_stash_adds_nothing_to_the_graph) {
    cgp_model *spec = by_name(), *plain = by_hand();
    assert_int_equal(spec->n_nodes, plain->n_nodes);
    for (int i = 0; i < plain->n_nodes; i++) {
        assert_ptr_equal(spec->nodes[i].use.op, plain->nodes[i].use.op);
        assert_int_equal(spec->nodes[i].layer, plain->nodes[i].layer);
        assert_memory_equal(spec->nodes[i].inputs, plain->nodes[i].inputs,
                            (size_t)plain->nodes[i].n_inputs * sizeof(int));
    }
    cgp_model_destroy(plain);
    cgp_model_destroy(spec);
}

/* A layer may pop one name and stash another. A name may be stashed and popped in the same layer,
 * and an input may be stashed. */
TEST_CASE(names_may_be_stashed_and_popped_in_one_layer) {
    cgp_model *model = start();
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){16});
    cgp_model_stash(model, "inputs", "x", x);
    x = keep(model, x, "one", "a");
    x = take(model, x, "two", "a");
    cgp_model_stash(model, "a", "other", x);
    const cgp_value popped = cgp_model_pop(model, "a", "other");
    assert_int_equal(popped.id, x.id);
    cgp_model_layer(model, "three");
    cgp_model_output(model, cgp_add(model, popped, cgp_model_pop(model, "inputs", "x")));
    assert_ok(cgp_model_finish(model));
    cgp_model_destroy(model);
}

/* --- unmatched names --- */

/* Build a small model with mistake number `c`, and return the unfinished model. */
static cgp_model *wrong(int c) {
    cgp_model *model = start();
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){16});
    if (c == 11) cgp_model_stash(model, NULL, "input", x);
    if (c == 12) (void)cgp_model_pop(model, NULL, "input");
    x = keep(model, x, "one", "left");
    if (c == 0) x = keep(model, x, "two", "left");
    cgp_model_layer(model, "three");
    if (c == 1) (void)cgp_model_pop(model, "left", "skp");
    if (c == 2) (void)cgp_model_pop(model, "right", "skip");
    if (c == 3) (void)cgp_model_pop(model, NULL, "other");
    if (c == 4) {
        cgp_model_stash(model, NULL, "plain", x);
        (void)cgp_model_pop(model, "left", "plain");
    }
    if (c == 5) cgp_model_stash(model, NULL, "bad", (cgp_value){-1});
    if (c == 6) cgp_model_stash(model, NULL, "bad", (cgp_value){99});
    if (c == 7) cgp_model_stash(model, NULL, "", x);
    if (c == 8) (void)cgp_model_pop(model, "left", NULL);
    if (c == 10) cgp_model_stash(model, NULL, "lost", x);
    if (c != 9 && c != 10) x = take(model, x, "four", "left");
    if (c == 13) x = take(model, x, "five", "left");
    /* a popped name cannot be stashed again */
    if (c == 14) cgp_model_stash(model, "left", "skip", x);
    if (c == 15) { /* the pop comes before the stash */
        (void)cgp_model_pop(model, NULL, "late");
        cgp_model_stash(model, NULL, "late", x);
    }
    cgp_model_output(model, x);
    return model;
}

TEST_CASE(unmatched_names_are_refused) {
    static const char *const expected[] = {
        "layer two, stash: \"skip\" of namespace \"left\": expected a name of its own, got "
        "that "
        "of a stash in layer one (a namespace keeps equal names apart)",
        "layer three, pop: \"skp\" of namespace \"left\": expected a name stashed before, got "
        "an "
        "unknown one (did you mean \"skip\"?)",
        "layer three, pop: \"skip\" of namespace \"right\": expected a name stashed before, "
        "got "
        "an unknown one (namespace \"left\" has one)",
        "layer three, pop: \"other\": expected a name stashed before, got an unknown one",
        "layer three, pop: \"plain\" of namespace \"left\": expected a name stashed before, "
        "got "
        "an unknown one (there is one without a namespace)",
        "layer three, stash: \"bad\": is not a value of this model",
        "layer three, stash: \"bad\": is not a value of this model",
        "layer three, stash: expects a name, got none",
        "layer three, cgp_model_pop: name: expected a pointer, got NULL",
        "stash in layer one: expected a pop of \"skip\" of namespace \"left\" further on, got "
        "none (cgp_model_pop, or no stash)",
        "stash in layer one: expected a pop of \"skip\" of namespace \"left\" further on, got "
        "none, likewise 1 more (cgp_model_pop, or no stash)",
        "stash in front of all layers: expected a pop of \"input\" further on, got none",
        "pop: \"input\": expected a name stashed before, got an unknown one",
        "layer five, pop: \"skip\" of namespace \"left\": expected one pop, got a second (the "
        "first is in layer four; a value itself may be used any number of times)",
        "layer four, stash: \"skip\" of namespace \"left\": expected a name of its own, got "
        "that "
        "of a stash in layer one",
        "layer four, pop: \"late\": expected a name stashed before, got an unknown one"};
    for (int c = 0; c < 16; c++) {
        cgp_model *model = wrong(c);
        assert_status(cgp_model_finish(model), CGP_EINVAL);
        assert_message(expected[c]);
        assert_status(cgp_model_finish(model), CGP_EINVAL); /* the error stays */
        assert_message(expected[c]);
        cgp_model_destroy(model);
    }
}

/* Only the first error is reported. After an error, a pop returns the invalid value, even if the
 * name was stashed. */
TEST_CASE(an_earlier_error_sticks) {
    cgp_model *model = start();
    const cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){16});
    cgp_model_layer(model, "one");
    cgp_model_stash(model, NULL, "skip", x);
    (void)cgp_dropout(model, x, 7);
    assert_int_equal(cgp_model_pop(model, NULL, "skip").id, -1);
    cgp_model_stash(model, NULL, "skip", x);
    assert_status(cgp_model_finish(model), CGP_EINVAL);
    assert_message("layer one, dropout: ");
    cgp_model_destroy(model);
}

TEST_CASE(a_finished_model_takes_no_stash_and_no_pop) {
    cgp_model *model = by_name();
    cgp_model_stash(model, NULL, "more", (cgp_value){0});
    assert_message("stash: the model is finished");
    assert_int_equal(cgp_model_pop(model, NULL, "skip").id, -1);
    assert_message("pop: the model is finished");
    assert_int_equal(model->build->n_stashes, 2);
    cgp_model_destroy(model);
}
