/* SPDX-License-Identifier: Apache-2.0 */
/* harness.h -- gives the operands of one op random values, and runs a kernel of a backend on them.
 *
 *     op_case c = {.op = CGP_OP_GELU, .attributes = plain_attributes(5, 17), .n = 2};
 *     operands o;
 *     operands_create(&o, &c, &seed);
 *     op_run(&on, &o, CGP_OP_FORWARD); // on a runner, a device of a backend
 *
 * Each operand has its own host memory (there.h copies it to devices with other memory). An operand
 * begins `shift` floats after a multiple of 64 bytes; state and accumulator begin at a multiple of
 * 64 bytes. Guards lie before and after each operand, and op_run checks the guards. Operands share
 * memory only if a test calls operands_alias: dx[k] may share memory with dy or x[0], and y with
 * x[k].
 *
 * A case in bf16 also stores its operands as floats. op_run rounds these floats to separate bf16
 * arrays, which share memory and have guards in the same way. After the run, op_run widens the
 * results to floats. */
#ifndef CGP_TESTS_OP_HARNESS_H
#define CGP_TESTS_OP_HARNESS_H

#include <float.h>

#include "backend/running_stats.h"
#include "cases.h"
#include "base/bf16.h"
#include "there.h"

enum {
    SLOT_X,
    SLOT_Y = SLOT_X + CGP_OP_MAX_INPUTS,
    SLOT_SAVED,
    SLOT_PARAM = SLOT_SAVED + CGP_OP_MAX_SAVED,
    SLOT_DY = SLOT_PARAM + CGP_OP_MAX_PARAMETERS,
    SLOT_DX,
    SLOT_DPARAM = SLOT_DX + CGP_OP_MAX_INPUTS,
    SLOT_STATE = SLOT_DPARAM + CGP_OP_MAX_PARAMETERS,
    SLOT_ACCUMULATOR = SLOT_STATE + CGP_OP_MAX_STATE, /* doubles */
    SLOTS
};

#define GUARD 16 /* floats before and after an operand; one vector */
/* Return the bits of a slot's guard, which is a different NaN for each slot. If a kernel reads
 * outside an operand, its results become NaN. If a kernel writes outside an operand, the guard
 * changes, even if the kernel writes the NaN of another slot. The workspace counts as slot
 * SLOTS. */
#define GUARD_BITS(slot) (0x7FC0BAD0u + (uint32_t)(slot))

typedef struct operands {
    op_case c;
    int64_t count[SLOTS]; /* elements of all samples */
    bool per_sample[SLOTS];
    float *memory[SLOTS]; /* allocated memory of each slot */
    float *at[SLOTS];     /* the operands; NULL if the op lacks one */
    uint64_t seed, step;
    uint32_t id; /* id of the op, for dropout */
    float loss_scale;
    double loss;
} operands;

/* Per-step constants, followed by the scales of the losses. */
enum { LOSSES = 3 };
typedef struct value_row {
    cgp_step_values values;
    float scales[LOSSES];
} value_row;

/* The tested op is the model's second loss, in micro-batch 2. Therefore the loss words of two
 * micro-batches precede its loss word. */
enum { LOSS = 1, LOSS_WORD = 2 * LOSSES, LOSS_WORDS = 3 * LOSSES };

/* --- operands --- */

/* Return the number of elements of x[k] in one sample; 0 if the op has no x[k]. */
static inline int64_t count_input(const op_case *c, int k) {
    const cgp_op_attributes *g = &c->attributes;
    if (c->op == CGP_OP_CONCAT) return g->rows * g->parts.parts[k];
    if (c->op == CGP_OP_ATTENTION && k > 0)
        return g->attention.fused || k > 2 ? 0
                                           : g->attention.keys * g->attention.kv_heads *
                                                 (k == 1 ? depth_of(g) : value_width_of(g));
    if (c->op == CGP_OP_CACHED_ATTENTION && k > 0)
        return k == 3 ? 1 : g->attention.kv_heads * (k == 1 ? depth_of(g) : value_width_of(g));
    if (c->op == CGP_OP_MATMUL && k == 1) return g->matmul.heads * g->in * g->out;
    if (c->op == CGP_OP_ROTARY && k == 1) return c->deferred ? g->rows : 0;
    if (c->op == CGP_OP_CROSS_ENTROPY && k == 2) return g->cross_entropy.weighted ? g->rows : 0;
    if (k >= cgp__op_find(c->op)->op.n_inputs) return 0;
    if (c->op == CGP_OP_WEIGHTED_MEAN && k == 2) return 0; /* kernels do not read x[2] */
    if (c->op == CGP_OP_EMBEDDING || (c->op == CGP_OP_CROSS_ENTROPY && k == 1)) return g->rows;
    return (is_window_op(c->op) ? (int64_t)g->windows.height * g->windows.width : g->rows) * g->in;
}

static inline bool makes_dx(cgp_op_kind op, int k) {
    const bool integers = op == CGP_OP_ROTARY && k == 1;
    return op_has(op, CGP_OP_BACKWARD_INPUT) && (k == 0 || !is_loss(op)) && !integers;
}

static inline bool is_row_norm(cgp_op_kind op) {
    return op == CGP_OP_LAYER_NORM || op == CGP_OP_RMS_NORM;
}

static inline bool is_norm(cgp_op_kind op) {
    return is_row_norm(op) || op == CGP_OP_BATCH_NORM || op == CGP_OP_INSTANCE_NORM ||
           op == CGP_OP_GROUP_NORM;
}

/* Return the slot of a norm's saved 1 / deviation. LAYER_NORM and channel norms also save the mean,
 * in the slot before rstd. */
static inline int rstd_slot(cgp_op_kind op) {
    return SLOT_SAVED + (op != CGP_OP_RMS_NORM);
}

static inline int64_t count_saved(const op_case *c) {
    const cgp_op_attributes *g = &c->attributes;
    if (is_row_norm(c->op) || c->op == CGP_OP_CROSS_ENTROPY) return g->rows;
    if (c->op == CGP_OP_BATCH_NORM || c->op == CGP_OP_INSTANCE_NORM) return g->out;
    if (c->op == CGP_OP_GROUP_NORM) return g->norm.groups;
    return c->op == CGP_OP_ATTENTION ? g->attention.heads * g->rows : 0;
}

static inline int64_t count_weight(const op_case *c) {
    const cgp_op_attributes *g = &c->attributes;
    switch (c->op) {
    case CGP_OP_EMBEDDING:
    case CGP_OP_LINEAR:
        return g->in * g->out;
    case CGP_OP_CONV2D:
    case CGP_OP_CONV_TRANSPOSE2D:
        return g->out * g->windows.kernel_height * g->windows.kernel_width * g->in /
               g->windows.groups;
    case CGP_OP_POSITION:
        return g->rows * g->out;
    case CGP_OP_LAYER_NORM:
    case CGP_OP_RMS_NORM:
    case CGP_OP_BATCH_NORM:
    case CGP_OP_GROUP_NORM:
        return g->out;
    default:
        return 0;
    }
}

static inline int64_t count_cache(const op_case *c) {
    const cgp_op_attributes *g = &c->attributes;
    if (c->op != CGP_OP_CACHED_ATTENTION) return 0;
    return g->attention.keys * g->attention.kv_heads * (depth_of(g) + value_width_of(g));
}

/* Set the number of elements of each operand: per sample, or in total if all samples share the
 * operand. */
static inline void count_operands(operands *o) {
    const cgp_op_attributes *g = &o->c.attributes;
    const cgp_op_kind op = o->c.op;
    const bool batch = op == CGP_OP_BATCH_NORM;
    int64_t *count = o->count;
    for (int k = 0; k < CGP_OP_MAX_INPUTS; k++) {
        count[SLOT_X + k] = count_input(&o->c, k);
        count[SLOT_DX + k] = makes_dx(op, k) ? count[SLOT_X + k] : 0;
    }
    count[SLOT_Y] = count[SLOT_DY] = is_loss(op) ? 0 : g->rows * g->out;
    count[SLOT_SAVED] = count_saved(&o->c);
    count[SLOT_SAVED + 1] = op != CGP_OP_RMS_NORM ? count_saved(&o->c) : 0;
    count[SLOT_PARAM] = count[SLOT_DPARAM] = count_weight(&o->c);
    count[SLOT_PARAM + 1] = count[SLOT_DPARAM + 1] =
        has_bias(&o->c) || (is_norm(op) && op != CGP_OP_RMS_NORM && count_weight(&o->c) > 0)
            ? g->out
            : 0;
    count[SLOT_STATE] = count[SLOT_STATE + 1] = batch ? g->out : 0;
    if (count_cache(&o->c)) count[SLOT_STATE] = count_cache(&o->c);
    count[SLOT_STATE + 2] = batch;
    count[SLOT_ACCUMULATOR] = batch ? cgp__running_stats_bytes(g->out) / (int64_t)sizeof(float) : 0;
    for (int slot = 0; slot < SLOTS; slot++) {
        const bool parameter = slot >= SLOT_DPARAM || (slot >= SLOT_PARAM && slot < SLOT_DY);
        const bool saved = slot >= SLOT_SAVED && slot < SLOT_PARAM;
        o->per_sample[slot] = !parameter && !(saved && batch);
        count[slot] *= o->per_sample[slot] ? o->c.n : 1;
    }
}

/* Return the number of a slot's elements per sample; 0 if all samples share the slot. */
static inline int64_t per_sample(const operands *o, int slot) {
    return o->per_sample[slot] ? o->count[slot] / o->c.n : 0;
}

/* Draw a float in [-1, 1). */
static inline float random_float(uint64_t *seed) {
    return (float)((double)(int64_t)test_random(seed) / 9223372036854775808.0);
}

static inline void fill_random(float *to, int64_t count, uint64_t *seed) {
    for (int64_t i = 0; i < count; i++)
        to[i] = random_float(seed);
}

/* Fill the positions with runs of consecutive numbers, which sometimes overlap. */
static inline void fill_positions(operands *o, uint64_t *seed) {
    int32_t *to = (int32_t *)(void *)o->at[SLOT_X + 3];
    const int length = (int)o->c.attributes.attention.keys;
    for (int64_t i = 0; i < o->count[SLOT_X + 3]; i++) {
        to[i] = i == 0 || test_random(seed) % 4 == 0 ? test_between(seed, 0, length - 1)
                                                     : to[i - 1] + 1;
        if (to[i] >= length) to[i] = 0;
    }
}

/* Fill an integer slot with ids below attribute `in`. One in three targets of a loss is the ignored
 * target. */
static inline void fill_integers(operands *o, int slot, uint64_t *seed) {
    int32_t *to = (int32_t *)(void *)o->at[slot];
    for (int64_t i = 0; i < o->count[slot]; i++) {
        to[i] = (int32_t)(test_random(seed) % (uint64_t)o->c.attributes.in);
        if (o->c.op == CGP_OP_CROSS_ENTROPY && test_random(seed) % 3 == 0)
            to[i] = (int32_t)o->c.attributes.cross_entropy.ignore;
    }
}

static inline bool is_integer_slot(const operands *o, int slot) {
    return (o->c.op == CGP_OP_EMBEDDING && slot == SLOT_X) ||
           (o->c.op == CGP_OP_CACHED_ATTENTION && slot == SLOT_X + 3) ||
           (o->c.op == CGP_OP_ROTARY && slot == SLOT_X + 1) ||
           (o->c.op == CGP_OP_CROSS_ENTROPY && slot == SLOT_X + 1) || slot == SLOT_STATE + 2;
}

/* Fill the accumulator as if two micro-batches of three rows each had been collected. The
 * accumulator has sums of either sign, followed by sums of squares above 0. */
static inline void fill_accumulator(operands *o, uint64_t *seed) {
    double *to = (double *)(void *)o->at[SLOT_ACCUMULATOR];
    const int64_t channels = o->c.attributes.out;
    to[0] = 6.0;
    to[1] = 2.0;
    for (int64_t i = 0; i < 2 * channels; i++) {
        to[2 + i] = (double)random_float(seed);
        if (i >= channels) to[2 + i] = 0.1 + fabs(to[2 + i]);
    }
}

/* Fill a slot with floats in [-1, 1). Exceptions are integers, targets of BCE (0 to 1) and running
 * variances (above 0). */
static inline void fill_slot(operands *o, int slot, uint64_t *seed) {
    const bool targets = o->c.op == CGP_OP_BCE_WITH_LOGITS && slot == SLOT_X + 1;
    const bool variances = slot == SLOT_STATE + 1;
    if (o->c.op == CGP_OP_CACHED_ATTENTION && slot == SLOT_X + 3) {
        fill_positions(o, seed);
        return;
    }
    if (is_integer_slot(o, slot)) {
        fill_integers(o, slot, seed);
        return;
    }
    if (slot == SLOT_ACCUMULATOR) {
        fill_accumulator(o, seed);
        return;
    }
    fill_random(o->at[slot], o->count[slot], seed);
    for (int64_t i = 0; (targets || variances) && i < o->count[slot]; i++)
        o->at[slot][i] = fabsf(o->at[slot][i]) + (variances ? 0.1f : 0.0f);
}

/* Return the shift of a slot. State and accumulator are not shifted, because their types need
 * alignment. */
static inline int slot_shift(int slot, int shift) {
    return slot >= SLOT_STATE ? 0 : shift;
}

static inline size_t guarded_bytes(int64_t count, int shift) {
    return (size_t)(count + shift + 2 * GUARD + 15) / 16 * 16 * sizeof(float);
}

static inline float *guarded(float **memory, int64_t count, int shift, int slot) {
    const size_t floats = guarded_bytes(count, shift) / sizeof(float);
    const uint32_t bits = GUARD_BITS(slot);
    *memory = aligned_alloc(CGP__ALIGN, floats * sizeof **memory);
    assert_non_null(*memory);
    for (size_t i = 0; i < floats; i++)
        memcpy(*memory + i, &bits, sizeof bits);
    return *memory + GUARD + shift;
}

static inline void operands_create(operands *o, const op_case *c, uint64_t *seed) {
    *o = (operands){.c = *c, .loss_scale = 0.37f};
    count_operands(o);
    for (int slot = 0; slot < SLOTS; slot++) {
        if (o->count[slot] == 0) continue;
        o->at[slot] = guarded(&o->memory[slot], o->count[slot], slot_shift(slot, c->shift), slot);
        fill_slot(o, slot, seed);
    }
    if (is_function(c->op))
        spread_function(o->at[SLOT_X], o->count[SLOT_X], c->attributes.function.function);
    o->seed = test_random(seed);
    o->step = test_random(seed);
    o->id = (uint32_t)test_random(seed);
}

static inline void operands_destroy(operands *o) {
    for (int slot = 0; slot < SLOTS; slot++)
        free(o->memory[slot]);
}

/* Make operands of `n` samples with another shift. Copy samples `first` to `first + n - 1` of
 * `from`, and all parameters. */
static inline void operands_slice(operands *o, const operands *from, int64_t first, int64_t n,
                                  int shift) {
    *o = *from;
    o->c.n = n;
    o->c.sample += first;
    o->c.shift = shift;
    for (int slot = 0; slot < SLOTS; slot++) {
        o->memory[slot] = o->at[slot] = NULL;
        const int64_t each = per_sample(from, slot);
        if (each) o->count[slot] = each * n;
        if (!from->at[slot]) continue;
        o->at[slot] = guarded(&o->memory[slot], o->count[slot], slot_shift(slot, shift), slot);
        memcpy(o->at[slot], from->at[slot] + first * each, (size_t)o->count[slot] * sizeof(float));
    }
}

static inline void operands_copy(operands *o, const operands *from) {
    operands_slice(o, from, 0, from->c.n, from->c.shift);
}

/* Let slot `a` share the memory of slot `b`. Both slots have the same number of elements. */
static inline void operands_alias(operands *o, int a, int b) {
    assert_int_equal(o->count[a], o->count[b]);
    free(o->memory[a]);
    o->memory[a] = NULL;
    o->at[a] = o->at[b];
}

/* Set a slot to NULL, like a caller that does not need this result. */
static inline void operands_drop(operands *o, int slot) {
    free(o->memory[slot]);
    o->memory[slot] = o->at[slot] = NULL;
}

static inline void scale_slot(operands *o, int slot, float factor) {
    for (int64_t i = 0; i < o->count[slot]; i++)
        o->at[slot][i] *= factor;
}

/* Check that a slot of `a` is bit-identical to the elements of `b` that start at index `at`. */
static inline void assert_same_bits(const operands *a, const operands *b, int slot, int64_t at,
                                    const char *property) {
    for (int64_t i = 0; a->at[slot] && i < a->count[slot]; i++) {
        const float *x = a->at[slot] + i, *y = b->at[slot] + at + i;
        if (memcmp(x, y, sizeof *x) != 0)
            fail_msg("%s: %s: slot %d [%" PRId64 "] is %.9g, expected %.9g", case_text(&a->c),
                     property, slot, i, (double)*x, (double)*y);
    }
}

static inline void copy_slot(operands *to, const operands *from, int slot) {
    if (to->at[slot]) memcpy(to->at[slot], from->at[slot], (size_t)to->count[slot] * sizeof(float));
}

/* --- bf16 --- */

/* Return true if the slot has the type of the case; all other slots are always f32 or integers. */
static inline bool is_activation(const operands *o, int slot) {
    if (slot == SLOT_Y) return o->c.op != CGP_OP_ARGMAX;
    if (slot < SLOT_Y) return !is_integer_slot(o, slot);
    if (slot == SLOT_STATE) return o->c.op == CGP_OP_CACHED_ATTENTION;
    return slot >= SLOT_DY && slot < SLOT_DPARAM;
}

/* Round every activation to the nearest bf16 value. */
static inline void operands_round(operands *o) {
    for (int slot = 0; slot < SLOTS; slot++) {
        for (int64_t i = 0; is_activation(o, slot) && o->at[slot] && i < o->count[slot]; i++)
            o->at[slot][i] = cgp__bf16_to_float(cgp__bf16_from_float(o->at[slot][i]));
    }
}

/* Make bf16 operands in `out` from `o`; slots share memory as in `o`. The shift is multiplied by
 * `step`. */
static inline void halves_create(operands *out, const operands *o, int step) {
    *out = *o;
    out->c.shift *= step;
    for (int slot = 0; slot < SLOTS; slot++) {
        out->memory[slot] = NULL;
        if (!o->memory[slot] || !is_activation(o, slot)) continue;
        const int shift = out->c.shift;
        float *begin = guarded(&out->memory[slot], (o->count[slot] + shift + 1) / 2, 0, slot);
        uint16_t *to = (uint16_t *)(void *)begin + shift;
        out->at[slot] = (float *)(void *)to;
        for (int64_t i = 0; i < o->count[slot]; i++)
            to[i] = cgp__bf16_from_float(o->at[slot][i]);
        for (int other = 0; other < SLOTS; other++) {
            if (!o->memory[other] && o->at[other] == o->at[slot]) out->at[other] = out->at[slot];
        }
    }
}

/* Check that the guards around a slot's bf16 values are unchanged. */
static inline void check_half_guards(const operands *halves, int slot) {
    const uint16_t *memory = (uint16_t *)(void *)halves->memory[slot];
    const int64_t begin = 2 * GUARD + halves->c.shift, end = begin + halves->count[slot];
    for (int64_t i = 0; i < end + 2 * GUARD; i++) {
        if (i == begin) i = end;
        const uint16_t guard = (uint16_t)(GUARD_BITS(slot) >> (i % 2 ? 16 : 0));
        if (memory[i] != guard)
            fail_msg("%s wrote element %" PRId64 " of slot %d", case_text(&halves->c), i - begin,
                     slot);
    }
}

/* Widen the bf16 results to floats in `o`, and free `halves`. */
static inline void halves_destroy(operands *halves, operands *o) {
    for (int slot = 0; slot < SLOTS; slot++) {
        if (!halves->memory[slot]) continue;
        const uint16_t *from = (const uint16_t *)(const void *)halves->at[slot];
        check_half_guards(halves, slot);
        for (int64_t i = 0; i < o->count[slot]; i++)
            o->at[slot][i] = cgp__bf16_to_float(from[i]);
        free(halves->memory[slot]);
    }
}

static inline bool has_tails(cgp_op_kind op) {
    return op == CGP_OP_GELU || op == CGP_OP_GELU_TANH || op == CGP_OP_SILU ||
           op == CGP_OP_SIGMOID || op == CGP_OP_TANH;
}

/* Make operands with large values, so that they reach the tails of GELU, SILU and similar ops, and
 * the peaks of a softmax. Values are rounded to the case's type. */
static inline void operands_create_bent(operands *o, const op_case *c, uint64_t *seed) {
    operands_create(o, c, seed);
    if (has_tails(c->op) || (is_function(c->op) && !takes_probabilities(c)))
        scale_slot(o, SLOT_X, 6.0f);
    const bool attends = c->op == CGP_OP_ATTENTION || c->op == CGP_OP_CACHED_ATTENTION;
    for (int k = 0; attends && k < 3; k++)
        scale_slot(o, SLOT_X + k, 2.0f);
    if (c->op == CGP_OP_CACHED_ATTENTION) scale_slot(o, SLOT_STATE, 2.0f);
    if (is_loss(c->op) || is_softmax(c->op)) scale_slot(o, SLOT_X, 4.0f);
    if (c->type == CGP_BF16) operands_round(o);
}

/* --- running --- */

static inline void check_guards(const operands *o, int slot) {
    const uint32_t bits = GUARD_BITS(slot);
    for (int i = 1; o->memory[slot] && i <= GUARD; i++) {
        const float *after = o->at[slot] + o->count[slot] + i - 1;
        if (memcmp(o->at[slot] - i, &bits, sizeof bits) != 0)
            fail_msg("%s wrote %d elements in front of slot %d", case_text(&o->c), i, slot);
        if (memcmp(after, &bits, sizeof bits) != 0)
            fail_msg("%s wrote %d elements behind slot %d", case_text(&o->c), i, slot);
    }
}

/* Make the per-step constants, followed by the loss scales. The scales of losses other than the
 * tested loss are NaN. */
static inline value_row row_of(const operands *o) {
    value_row row = {
        .values = {
            .seed = o->seed, .step = o->step, .sample = o->c.sample, .loss_word = LOSS_WORD}};
    for (int l = 0; l < LOSSES; l++)
        row.scales[l] = l == LOSS ? o->loss_scale : NAN;
    return row;
}

/* Make the arguments of a kernel, except workspace and loss words. */
static inline cgp_kernel_args op_args(operands *o, const value_row *row) {
    cgp_kernel_args args = {
        .y = o->at[SLOT_Y],
        .dy = o->at[SLOT_DY],
        .first = !o->c.accumulate,
        .training = !o->c.evaluate,
        .deferred = o->c.deferred,
        .accumulator = o->at[SLOT_ACCUMULATOR],
        .values = &row->values,
        .loss = LOSS,
        .id = o->id,
    };
    for (int k = 0; k < CGP_OP_MAX_INPUTS; k++) {
        args.x[k] = o->at[SLOT_X + k];
        args.dx[k] = o->at[SLOT_DX + k];
    }
    for (int k = 0; k < CGP_OP_MAX_SAVED; k++)
        args.saved[k] = o->at[SLOT_SAVED + k];
    for (int k = 0; k < CGP_OP_MAX_PARAMETERS; k++) {
        args.param[k] = o->at[SLOT_PARAM + k];
        args.dparam[k] = o->at[SLOT_DPARAM + k];
    }
    for (int k = 0; k < CGP_OP_MAX_STATE; k++)
        args.state[k] = o->at[SLOT_STATE + k];
    return args;
}

/* Return true if GEMMs in bf16 use AVX512_BF16 or AMX. (Both round f32 operands.) */
static inline bool runner_has_tiles(const runner *on) {
    return on->backend == &cgp__backend_cpu && cgp__cpu_tiles_of(on->device);
}

static inline bool is_attention(cgp_op_kind op) {
    return op == CGP_OP_ATTENTION || op == CGP_OP_CACHED_ATTENTION;
}

static inline bool runner_is_cuda(const runner *on) {
    return strncmp(on->backend->name, "cuda", 4) == 0;
}

/* Return true if a GPU's tensor cores, or cuBLASLt, compute a case. Both round f32 operands. */
static inline bool on_tensor_cores(const runner *on, const op_case *c) {
    const cgp_op_attributes *g = &c->attributes;
    if (c->type != CGP_BF16 || !runner_is_cuda(on)) return false;
    if (is_attention(c->op)) return depth_of(g) <= 128 && value_width_of(g) <= 128;
    return is_gemm(c->op) && !(is_convolution(c->op) && g->windows.groups > 1);
}

/* Return true if a case is multiplied in bf16: by tensor cores, AVX512_BF16 or AMX. */
static inline bool multiplies_in_bf16(const runner *on, const op_case *c) {
    return on_tensor_cores(on, c) ||
           (c->type == CGP_BF16 && runner_has_tiles(on) && (is_gemm(c->op) || is_attention(c->op)));
}

/* Return true if cuBLASLt, or its fake, may compute a case: LINEAR in bf16, and convolutions with a
 * 1 x 1 kernel. cuBLASLt needs operands aligned to 16 bytes. */
static inline bool may_use_library(const runner *on, const op_case *c) {
    const char *algorithms = getenv("CGP_CUDA_HOST_ALGORITHMS");
    const cgp_op_windows *g = &c->attributes.windows;
    if (!on_tensor_cores(on, c) || (algorithms && strcmp(algorithms, "0") == 0)) return false;
    return c->op == CGP_OP_LINEAR ||
           (is_convolution(c->op) && g->kernel_height * g->kernel_width == 1);
}

/* Define a property as two tests: one runs it on backend `ref`, the other on `cpu`. cmocka passes
 * the runner as the test's initial state. */
#define TEST_ON_BOTH(property) TEST_CASES(property, ON_BOTH(property))
#define ON_BOTH(property) ON_ONE(property, ref), ON_ONE(property, cpu)
#define ON_ONE(property, runner)                                                                   \
    { #property " (" #runner ")", property, NULL, NULL, &runner }

/* Read the loss. Only the forward pass of a loss writes a loss word. It writes only the word of its
 * loss and micro-batch. */
static inline void take_loss(operands *o, cgp_op_direction direction, const double *losses,
                             const double *before) {
    const int word = LOSS_WORD + LOSS;
    const bool written = is_loss(o->c.op) && direction == CGP_OP_FORWARD;
    for (int w = 0; w < LOSS_WORDS; w++) {
        if (!(written && w == word) && memcmp(losses + w, before + w, sizeof *losses) != 0)
            fail_msg("%s wrote loss word %d", case_text(&o->c), w);
    }
    if (written) o->loss = losses[word];
}

/* Copy the operands to the device. `halves` has the operands' bf16 values; it is NULL in f32. */
static inline void put_operands(there *t, const operands *o, const operands *halves) {
    for (int slot = 0; slot < SLOTS; slot++) {
        there_put(t, o->memory[slot], guarded_bytes(o->count[slot], slot_shift(slot, o->c.shift)));
        if (halves)
            there_put(t, halves->memory[slot],
                      guarded_bytes((o->count[slot] + halves->c.shift + 1) / 2, 0));
    }
}

static inline cgp_kernel_spec spec_of(const op_case *c, cgp_op_direction direction) {
    return (cgp_kernel_spec){.op = c->op,
                             .direction = direction,
                             .attributes = c->attributes,
                             .n = c->n,
                             .add = (uint16_t)c->add,
                             .tf32 = c->tf32,
                             .type = c->type};
}

/* Run one direction of the op. The workspace is filled with NaNs, so that a read of unwritten
 * memory shows in the results. */
static inline void op_run(const runner *on, operands *o, cgp_op_direction direction) {
    const cgp_kernel_spec spec = spec_of(&o->c, direction);
    const uint32_t bits = GUARD_BITS(SLOTS);
    int64_t bytes = 0;
    float *memory = NULL;
    cgp_kernel *kernel = NULL;
    double losses[LOSS_WORDS], before[LOSS_WORDS];
    const cgp_device_options options = device_options(on->threads);
    value_row row = row_of(o);
    assert_ok(on->backend->kernels.workspace(&options, &spec, &bytes));
    assert_ok(on->backend->kernels.create(on->device, &spec, &kernel));
    operands halves;
    if (o->c.type == CGP_BF16) halves_create(&halves, o, may_use_library(on, &o->c) ? 8 : 1);
    cgp_kernel_args args = op_args(o->c.type == CGP_BF16 ? &halves : o, &row);
    for (int w = 0; w < LOSS_WORDS; w++)
        losses[w] = before[w] = NAN;
    args.losses = losses;
    args.workspace = guarded(&memory, (bytes + 3) / 4, 0, SLOTS);
    there t = {.on = on};
    there_put(&t, memory, guarded_bytes((bytes + 3) / 4, 0));
    there_put(&t, losses, sizeof losses);
    there_put(&t, &row, sizeof row);
    put_operands(&t, o, o->c.type == CGP_BF16 ? &halves : NULL);
    cgp_kernel_args moved = there_args(&t, args);
    void *packed = there_pack(&t, &spec, &moved);
    assert_ok(on->backend->kernels.run(kernel, &moved));
    there_end(&t);
    if (packed)
        on->backend->device.memory_destroy(on->device, packed, there_packed_bytes(on, &spec));
    on->backend->kernels.destroy(kernel);
    take_loss(o, direction, losses, before);
    if (o->c.type == CGP_BF16) halves_destroy(&halves, o);
    for (int slot = 0; slot < SLOTS; slot++)
        check_guards(o, slot);
    const float *after = (float *)args.workspace + (bytes + 3) / 4;
    for (int i = 0; i < GUARD; i++)
        assert_memory_equal(after + i, &bits, sizeof bits);
    free(memory);
}

#endif
