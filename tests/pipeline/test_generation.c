/* SPDX-License-Identifier: Apache-2.0 */
/* test_generation.c -- generation with a key/value cache gives the same logits as the model over
 * the whole sequence, bit for bit. This holds for any number of tokens per call and any layout.
 *
 *     whole     T tokens at once                          logits [T, V]
 *     cached    n1 tokens, n2 tokens, ... then one by one     the same rows */
#include <cgpipe/cgpipe.h>
#include <cgpipe/models/spec.h>

#include <inttypes.h>

#include "support.h"

typedef struct network {
    cgp_model *model;
    cgp_plan *plan;
    cgp_pipeline *pipeline;
} network;

static void release(network *net) {
    cgp_pipeline_destroy(net->pipeline);
    cgp_plan_destroy(net->plan);
    cgp_model_destroy(net->model);
}

/* Create a network with initial weights, which depend only on names, shapes and seed. */
static network network_of(const cgp_model_spec *spec, cgp_plan_options options) {
    cgp_model_spec given = *spec;
    network net = {0};
    options.inference = true;
    given.gpt2.loss = given.llama.loss = false;
    assert_ok(cgp_model_spec_create(&net.model, &given));
    if (options.stages > cgp_model_layers(net.model)) options.stages = cgp_model_layers(net.model);
    assert_ok(cgp_plan_create(&net.plan, net.model, &options));
    assert_ok(cgp_pipeline_create(&net.pipeline, net.plan, 7));
    return net;
}

/* --- models --- */

static void draw_llama(cgp_llama_options *o, uint64_t *seed) {
    static const int64_t lengths[] = {1, 5, 63, 64, 65, 100, 150};
    o->layers = test_between(seed, 1, 3);
    o->kv_heads = test_between(seed, 1, 2);
    o->heads = o->kv_heads * test_between(seed, 1, 3);
    o->head_width = 2 * test_between(seed, 1, 20);
    o->width = test_between(seed, 1, 50);
    o->inner = test_between(seed, 1, 70);
    o->vocab = test_between(seed, 2, 60);
    o->sequence = lengths[test_random(seed) % 7];
    o->tied = test_random(seed) & 1;
    o->bias = test_random(seed) & 1;
    o->qk_norm = !o->bias && test_random(seed) & 1;
    if (test_random(seed) & 1) o->window = test_between(seed, 1, 90);
    if (o->window > 0 && test_random(seed) & 1) o->window_from = test_between(seed, 0, 3);
    if (o->window > 0 && o->window_from == 0) o->full_every = test_between(seed, 0, 3);
    o->rope = (cgp_rotary_scaling)test_between(seed, 0, 2);
    if (o->rope != CGP_ROTARY_UNSCALED) o->factor = 2;
    if (o->rope != CGP_ROTARY_LLAMA3) return;
    o->low_freq_factor = 1;
    o->high_freq_factor = 4;
    o->original_max_position = 32;
}

static void draw_gpt2(cgp_gpt2_options *o, uint64_t *seed) {
    static const int64_t lengths[] = {1, 7, 64, 70, 130};
    o->layers = test_between(seed, 1, 3);
    o->residuals = test_random(seed) % 3 ? 0 : test_between(seed, 1, 2);
    o->heads = test_between(seed, 1, 3);
    o->width = o->heads * test_between(seed, 1, 20);
    o->vocab = test_between(seed, 2, 60);
    o->sequence = lengths[test_random(seed) % 5];
    o->tied = test_random(seed) & 1;
    o->dropout = 0.1;
    o->gelu = (cgp_gpt2_gelu)(test_random(seed) & 1);
}

static int64_t sequence_of(const cgp_model_spec *spec) {
    return spec->kind == CGP_MODEL_GPT2 ? spec->gpt2.sequence : spec->llama.sequence;
}

static int64_t vocab_of(const cgp_model_spec *spec) {
    return spec->kind == CGP_MODEL_GPT2 ? spec->gpt2.vocab : spec->llama.vocab;
}

/* --- logits --- */

/* A text: its tokens, their positions, and the logits of the whole text. */
typedef struct text {
    int64_t length, vocab;
    int32_t *tokens, *positions;
    float *logits;
} text;

static text draw_text(const cgp_model_spec *spec, uint64_t *seed) {
    text t = {.length = sequence_of(spec), .vocab = vocab_of(spec)};
    t.tokens = calloc((size_t)t.length, 4);
    t.positions = calloc((size_t)t.length, 4);
    t.logits = calloc((size_t)(t.length * t.vocab), 4);
    for (int64_t i = 0; i < t.length; i++) {
        t.tokens[i] = test_between(seed, 0, (int)t.vocab - 1);
        t.positions[i] = (int32_t)i;
    }
    return t;
}

static void release_text(text *t) {
    free(t->tokens);
    free(t->positions);
    free(t->logits);
}

static void predict_whole(network *net, text *t) {
    const cgp_tensor tokens = {CGP_I32, cgp_shape_make(2, (int64_t[]){1, t->length}), t->tokens};
    const cgp_tensor logits = {CGP_F32, cgp_shape_make(3, (int64_t[]){1, t->length, t->vocab}),
                               t->logits};
    assert_ok(cgp_pipeline_predict(net->pipeline, (const cgp_tensor *[]){&tokens}, 1,
                                   (const cgp_tensor *[]){&logits}, 1));
}

/* Predict from `n` tokens of the text, starting at token `first`. `logits` is [n, V]. */
static cgp_status predict(network *net, const text *t, int64_t first, int64_t n, float *logits) {
    const cgp_shape one = cgp_shape_make(2, (int64_t[]){n, 1});
    const cgp_tensor tokens = {CGP_I32, one, t->tokens + first};
    const cgp_tensor positions = {CGP_I32, one, t->positions + first};
    const cgp_tensor output = {CGP_F32, cgp_shape_make(3, (int64_t[]){n, 1, t->vocab}), logits};
    return cgp_pipeline_predict(net->pipeline, (const cgp_tensor *[]){&tokens, &positions}, 2,
                                (const cgp_tensor *[]){&output}, 1);
}

/* Assert that the logits of `n` tokens from token `first` on equal the logits of the whole text. */
static void check_part(network *net, const text *t, int64_t first, int64_t n) {
    float *got = calloc((size_t)(n * t->vocab), 4);
    const float *expected = t->logits + first * t->vocab;
    assert_ok(predict(net, t, first, n, got));
    for (int64_t i = 0; i < n * t->vocab; i++) {
        if (memcmp(got + i, expected + i, 4) != 0)
            fail_msg("of %" PRId64 " tokens from %" PRId64 " on, token %" PRId64 ", logit %" PRId64
                     ": %.9g, expected %.9g",
                     n, first, i / t->vocab, i % t->vocab, (double)got[i], (double)expected[i]);
    }
    free(got);
}

/* Check the logits of a text that is passed in parts of 1 to `most` tokens. After a random
 * position, the text is passed token by token. */
static void check_text(network *net, const text *t, int most, uint64_t *seed) {
    const int64_t single = test_between(seed, 0, (int)t->length);
    for (int64_t first = 0, n; first < t->length; first += n) {
        n = first >= single ? 1 : test_between(seed, 1, most);
        if (n > t->length - first) n = t->length - first;
        check_part(net, t, first, n);
    }
}

/* Draw a layout for generation. */
static cgp_plan_options draw_layout(const cgp_model_spec *spec, uint64_t *seed) {
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = test_between(seed, 1, 3);
    o.chunks = test_between(seed, 1, 3);
    o.batch = test_between(seed, o.chunks, 90);
    o.threads_per_device = test_between(seed, 1, 2);
    /* draw no bf16 for GPT-2: there the cached pass rounds the embeddings to bf16 before it adds
     * them */
    if (spec->kind == CGP_MODEL_LLAMA && test_random(seed) % 2) o.precision = CGP_PRECISION_BF16;
    return o;
}

static void check_model(cgp_model_spec *spec, uint64_t *seed) {
    cgp_plan_options layout = draw_layout(spec, seed), whole = cgp_plan_options_default();
    whole.precision = layout.precision;
    whole.batch = whole.chunks = 1;
    network net = network_of(spec, whole);
    spec->gpt2.generation = spec->llama.generation = true;
    network cached = network_of(spec, layout);
    for (int i = 0; i < 2; i++) { /* the second text overwrites the cache of the first */
        text t = draw_text(spec, seed);
        predict_whole(&net, &t);
        check_text(&cached, &t, (int)(i == 0 ? layout.batch : 2 * layout.batch), seed);
        release_text(&t);
    }
    release(&cached);
    release(&net);
}

TEST_CASE(a_llama_has_the_logits_of_recomputation) {
    uint64_t seed = test_seed();
    for (int i = 0; i < test_scaled(20); i++) {
        cgp_model_spec spec = cgp_model_spec_default();
        spec.kind = CGP_MODEL_LLAMA;
        draw_llama(&spec.llama, &seed);
        check_model(&spec, &seed);
    }
}

TEST_CASE(a_gpt2_has_the_logits_of_recomputation) {
    uint64_t seed = test_seed();
    for (int i = 0; i < test_scaled(10); i++) {
        cgp_model_spec spec = cgp_model_spec_default();
        draw_gpt2(&spec.gpt2, &seed);
        check_model(&spec, &seed);
    }
}

static cgp_model_spec small_llama(void) {
    cgp_model_spec spec = cgp_model_spec_default();
    spec.kind = CGP_MODEL_LLAMA;
    spec.llama.layers = 2;
    spec.llama.width = 12;
    spec.llama.heads = 3;
    spec.llama.inner = 8;
    spec.llama.vocab = 11;
    spec.llama.sequence = 20;
    spec.llama.generation = true;
    return spec;
}

TEST_CASE(positions_outside_of_the_cache_are_refused) {
    const cgp_model_spec spec = small_llama();
    network net = network_of(&spec, cgp_plan_options_default());
    int32_t tokens[] = {1, 2}, positions[] = {3, 20};
    float logits[2 * 11], before[2 * 11];
    const text t = {2, 11, tokens, positions, NULL};
    positions[1] = 4;
    assert_ok(predict(&net, &t, 0, 2, before));
    for (int i = 0; i < 2; i++) {
        positions[1] = i == 0 ? 20 : -1;
        assert_status(predict(&net, &t, 0, 2, logits), CGP_EINVAL);
        assert_message("positions");
    }
    positions[1] = 4; /* no kernel ran, so the cache is intact */
    assert_ok(predict(&net, &t, 1, 1, logits));
    assert_memory_equal(logits, before + 11, sizeof before / 2);
    release(&net);
}

TEST_CASE(training_with_a_cache_is_refused) {
    const cgp_model_spec spec = small_llama();
    const int64_t bytes = 2 * 2 * 20 * 12 * 4; /* layers, K and V, positions, columns, f32 */
    cgp_plan_options options = cgp_plan_options_default();
    cgp_model *model = NULL;
    cgp_plan *plan = NULL;
    assert_ok(cgp_model_spec_create(&model, &spec));
    options.external_loss = true;
    assert_status(cgp_plan_create(&plan, model, &options), CGP_EINVAL);
    assert_message("layer layers.0: cached_attention keeps a cache");
    options.external_loss = false;
    options.inference = true;
    assert_ok(cgp_plan_create(&plan, model, &options));
    assert_int_equal(cgp_plan_device_at(plan, 0)->state_bytes, bytes);
    assert_int_equal(cgp_model_states(model), 0); /* the cache is no saved state */
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
}
