/* gpt2.c -- GPT-2 on top of the builder, with the names and layouts of Hugging Face's
 * GPT2LMHeadModel.
 *
 *     layer     values                                     parameters, below "transformer."
 *     wte       tokens [T] -> x [T, C]                     wte.weight [V, C]
 *     wpe       x = drop(x + wpe)                          wpe.weight [T, C]
 *     h.0 ..    x += drop(c_proj(attention(c_attn(         h.0.ln_1 [C], attn.c_attn [C, 3C],
 *                    ln_1(x)))))                           attn.c_proj [C, C]
 *               x += drop(c_proj(gelu(c_fc(ln_2(x)))))     h.0.ln_2, mlp.c_fc [C, 4C],
 *                                                          mlp.c_proj [4C, C]
 *     ln_f      x = ln_f(x)                                ln_f [C]
 *     lm_head   logits [T, V]                              lm_head.weight [V, C] (no prefix), or
 *                                                          wte.weight, tied
 *
 * Weights inside a block are [in, out] and have a bias (the published code calls them Conv1D);
 * the head is [out, in] without one. The two that end a residual branch begin smaller by
 * sqrt(2 layers): the sum of all 2 layers branches then begins with the variance of one.
 *
 * Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", 2.3. */
#include <cgpipe/models/gpt2.h>

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EPS 1e-5
#define DEVIATION 0.02
#define NAME_SIZE 64

/* Largest sizes: far above any real model, small enough that no product of three overflows. */
#define MOST_LAYERS 10000
#define MOST_WIDTH (1 << 20)
#define MOST_COUNT INT32_MAX

/* --- the graph --- */

/* A linear map of a block, `transformer.h.<block>.<name>`, [in, out] with bias. */
static cgp_value block_linear(cgp_model *model, cgp_value x, int block, const char *name,
                              int64_t out, double deviation) {
    char full[NAME_SIZE];
    snprintf(full, sizeof full, "transformer.h.%d.%s", block, name);
    const cgp_init init = {CGP_INIT_NORMAL, deviation};
    const cgp_linear_options options = {.out = out, .bias = true, .in_out = true, .init = init};
    return cgp_linear(model, x, full, options);
}

static cgp_value block_norm(cgp_model *model, cgp_value x, int block, const char *name) {
    char full[NAME_SIZE];
    snprintf(full, sizeof full, "transformer.h.%d.%s", block, name);
    return cgp_layer_norm(model, x, full, EPS);
}

/* x [T, C] -> [T, C] */
static cgp_value add_block(cgp_model *model, cgp_value x, int block,
                           const cgp_gpt2_options *o) {
    const double branch_end = DEVIATION / sqrt(2.0 * o->layers);
    char layer[NAME_SIZE];
    snprintf(layer, sizeof layer, "h.%d", block);
    cgp_model_layer(model, layer);

    cgp_value y = block_norm(model, x, block, "ln_1");
    y = block_linear(model, y, block, "attn.c_attn", 3 * o->width, DEVIATION);
    y = cgp_causal_attention(model, y, o->heads, o->dropout);
    y = block_linear(model, y, block, "attn.c_proj", o->width, branch_end);
    x = cgp_add(model, x, cgp_dropout(model, y, o->dropout));

    y = block_norm(model, x, block, "ln_2");
    y = block_linear(model, y, block, "mlp.c_fc", 4 * o->width, DEVIATION);
    y = cgp_gelu(model, y);
    y = block_linear(model, y, block, "mlp.c_proj", o->width, branch_end);
    return cgp_add(model, x, cgp_dropout(model, y, o->dropout));
}

static void build(cgp_model *model, const cgp_gpt2_options *o) {
    const cgp_init normal = {CGP_INIT_NORMAL, DEVIATION};
    const int64_t window[1] = {o->sequence};
    const cgp_value tokens = cgp_model_input(model, "tokens", CGP_I32, 1, window);
    cgp_value targets = {-1};
    if (o->loss) targets = cgp_model_input(model, "targets", CGP_I32, 1, window);

    cgp_model_layer(model, "wte");
    cgp_value x =
        cgp_embedding(model, tokens, "transformer.wte", o->vocabulary, o->width, normal);
    cgp_model_layer(model, "wpe");
    x = cgp_position_embedding(model, x, "transformer.wpe", normal);
    x = cgp_dropout(model, x, o->dropout);
    for (int i = 0; i < o->layers; i++)
        x = add_block(model, x, i, o);
    cgp_model_layer(model, "ln_f");
    x = cgp_layer_norm(model, x, "transformer.ln_f", EPS);
    cgp_model_layer(model, "lm_head");
    if (o->tied) cgp_model_tie(model, "lm_head.weight", "transformer.wte.weight");
    const cgp_linear_options head = {.out = o->vocabulary, .init = normal};
    x = cgp_linear(model, x, "lm_head", head);

    cgp_model_output(model, x);
    if (o->loss) cgp_model_loss_cross_entropy(model, x, targets, -100, 1);
}

/* --- options --- */

/* The keys of a model's text, in the order in which they are written. */
static const char *const keys[] = {"layers", "width", "heads", "vocab", "seq", "tied"};
enum { KEY_LAYERS, KEY_WIDTH, KEY_HEADS, KEY_VOCAB, KEY_SEQ, KEY_TIED, KEY_COUNT };

typedef struct range {
    int64_t least, most;
} range;

static const range ranges[KEY_COUNT] = {
    [KEY_LAYERS] = {1, MOST_LAYERS}, [KEY_WIDTH] = {1, MOST_WIDTH},
    [KEY_HEADS] = {1, MOST_WIDTH},   [KEY_VOCAB] = {1, MOST_COUNT},
    [KEY_SEQ] = {1, MOST_COUNT},     [KEY_TIED] = {0, 1},
};

static int64_t option_of(const cgp_gpt2_options *o, int key) {
    const int64_t values[KEY_COUNT] = {
        [KEY_LAYERS] = o->layers,    [KEY_WIDTH] = o->width,  [KEY_HEADS] = o->heads,
        [KEY_VOCAB] = o->vocabulary, [KEY_SEQ] = o->sequence, [KEY_TIED] = o->tied,
    };
    return values[key];
}

static void set_option(cgp_gpt2_options *o, int key, int64_t value) {
    int64_t *const wide[KEY_COUNT] = {
        [KEY_WIDTH] = &o->width,
        [KEY_HEADS] = &o->heads,
        [KEY_VOCAB] = &o->vocabulary,
        [KEY_SEQ] = &o->sequence,
    };
    if (key == KEY_LAYERS)
        o->layers = (int)value;
    else if (key == KEY_TIED)
        o->tied = value != 0;
    else
        *wide[key] = value;
}

static cgp_status check(const cgp_gpt2_options *o) {
    if (o->struct_size != sizeof *o)
        return cgp_fail(CGP_EINVAL,
                        "gpt2: options: expected struct_size %zu, got %zu (start from "
                        "cgp_gpt2_options_default())",
                        sizeof *o, o->struct_size);
    for (int key = 0; key < KEY_COUNT; key++) {
        const int64_t value = option_of(o, key);
        if (value < ranges[key].least || value > ranges[key].most)
            return cgp_fail(CGP_EINVAL,
                            "gpt2: %s: expected a whole number from %" PRId64 " to %" PRId64
                            ", got %" PRId64,
                            keys[key], ranges[key].least, ranges[key].most, value);
    }
    if (o->width % o->heads != 0)
        return cgp_fail(CGP_EINVAL,
                        "gpt2: heads: expected a divisor of the width, got heads=%" PRId64
                        ", width=%" PRId64,
                        o->heads, o->width);
    if (!(o->dropout >= 0 && o->dropout < 1)) /* false for NaN too */
        return cgp_fail(CGP_EINVAL, "gpt2: dropout: expected 0 <= dropout < 1, got %g",
                        o->dropout);
    return CGP_OK;
}

cgp_status cgp_gpt2_create(cgp_model **out, const cgp_gpt2_options *options) {
    CGP_TRY(check(options));
    cgp_model *model = NULL;
    CGP_TRY(cgp_model_create(&model, "gpt2"));
    build(model, options);
    const cgp_status status = cgp_model_finish(model);
    if (status == CGP_OK)
        *out = model;
    else
        cgp_model_destroy(model);
    return status;
}

/* --- text --- */

/* Nothing but digits, in range: no sign, no space, no overflow. */
static bool parse_whole(const char *text, range allowed, int64_t *value) {
    if (!*text || text[strspn(text, "0123456789")]) return false;
    errno = 0;
    const long long parsed = strtoll(text, NULL, 10);
    *value = parsed;
    return errno == 0 && parsed >= allowed.least && parsed <= allowed.most;
}

static int find_key(const char *name) {
    for (int key = 0; key < KEY_COUNT; key++) {
        if (strcmp(keys[key], name) == 0) return key;
    }
    return -1;
}

/* One "key=value"; `item` is cut in two. */
static cgp_status parse_item(cgp_gpt2_options *options, char *item, bool seen[KEY_COUNT]) {
    char *value_text = strchr(item, '=');
    if (!value_text)
        return cgp_fail(
            CGP_EINVAL,
            "gpt2: expected key=value, got \"%s\" (keys: layers width heads vocab seq tied)",
            item);
    *value_text++ = '\0';
    const int key = find_key(item);
    if (key < 0) {
        const char *near = cgp_nearest(item, keys, KEY_COUNT);
        return cgp_fail(
            CGP_EINVAL, "gpt2: %s: unknown key (%s%s%s)", item, near ? "did you mean " : "",
            near ? near : "keys: layers width heads vocab seq tied", near ? "?" : "");
    }
    if (seen[key]) return cgp_fail(CGP_EINVAL, "gpt2: %s: is given twice", item);
    seen[key] = true;
    int64_t value = 0;
    if (!parse_whole(value_text, ranges[key], &value))
        return cgp_fail(CGP_EINVAL,
                        "gpt2: %s: expected a whole number from %" PRId64 " to %" PRId64
                        ", got \"%s\"",
                        item, ranges[key].least, ranges[key].most, value_text);
    set_option(options, key, value);
    return CGP_OK;
}

cgp_status cgp_gpt2_parse(cgp_gpt2_options *options, const char *text) {
    char copy[512];
    if (strncmp(text, "gpt2", 4) != 0 || (text[4] != '\0' && text[4] != ':'))
        return cgp_fail(CGP_EINVAL, "model: expected gpt2 or gpt2:key=value,..., got \"%s\"",
                        text);
    if (text[4] == '\0') return CGP_OK;
    if (strlen(text) >= sizeof copy)
        return cgp_fail(CGP_EINVAL, "gpt2: expected less than %zu characters, got %zu",
                        sizeof copy, strlen(text));
    strcpy(copy, text + 5);
    cgp_gpt2_options parsed = *options;
    bool seen[KEY_COUNT] = {false};
    for (char *item = copy, *next = NULL; item; item = next) {
        next = strchr(item, ',');
        if (next) *next++ = '\0';
        CGP_TRY(parse_item(&parsed, item, seen));
    }
    *options = parsed;
    return CGP_OK;
}
