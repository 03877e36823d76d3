/* harness.h -- the operands of one op with random values, run through a kernel of a backend.
 *
 *     op_case c = {.op = CGP__OP_GELU, .geometry = plain_geometry(5, 17), .n = 2};
 *     operands o;
 *     operands_create(&o, &c, &seed);
 *     op_run(&on, &o, CGP__FORWARD); // on a runner, a device of a backend
 *
 * Every operand is host memory of its own (both backends run on the host), `shift` floats after
 * a multiple of 64 bytes and between guards that op_run checks. dx[k] shares memory with dy or
 * x[0] and y with x[k] only where a test says so, by operands_share.
 *
 * A case in bf16 holds its operands as floats too; op_run rounds them to halves of their own, shared
 * and guarded likewise, and widens what the kernel leaves. */
#ifndef CGP_TESTS_OP_HARNESS_H
#define CGP_TESTS_OP_HARNESS_H

#include <float.h>
#include <inttypes.h>

#include "op/op.h"
#include "support.h"
#include "tensor/bf16.h"

enum {
    SLOT_X,
    SLOT_Y = SLOT_X + CGP__MAX_INPUTS,
    SLOT_SAVED,
    SLOT_PARAM = SLOT_SAVED + CGP__MAX_SAVED,
    SLOT_DY = SLOT_PARAM + CGP__MAX_PARAMS,
    SLOT_DX,
    SLOT_DPARAM = SLOT_DX + CGP__MAX_INPUTS,
    SLOTS = SLOT_DPARAM + CGP__MAX_PARAMS
};

#define GUARD 16 /* floats on either side of an operand: one vector */
/* A NaN, of its own for each slot: what a kernel reads shows in its results, what it writes in
 * the guard, also where a NaN is passed on as it came. The workspace is slot SLOTS. */
#define GUARD_BITS(slot) (0x7FC0BAD0u + (uint32_t)(slot))

/* One op at one size, and how it is run. */
typedef struct op_case {
    cgp__op_kind op;
    cgp__geometry geometry;
    int64_t n;
    uint32_t add;
    bool accumulate; /* dparam is added to */
    bool evaluate;   /* dropout is off */
    int64_t sample;
    int shift; /* elements */
    cgp_dtype type;
} op_case;

typedef struct operands {
    op_case c;
    int64_t count[SLOTS]; /* elements, all samples */
    bool per_sample[SLOTS];
    float *room[SLOTS]; /* what is freed */
    float *at[SLOTS];   /* NULL where the op has none */
    cgp__rng_key key;
    float loss_scale;
    double loss;
} operands;

/* --- geometries --- */

static inline cgp__geometry plain_geometry(int64_t rows, int64_t width) {
    return (cgp__geometry){.rows = rows, .in = width, .out = width};
}

static inline cgp__geometry embedding_geometry(int64_t rows, int64_t vocabulary,
                                               int64_t width) {
    return (cgp__geometry){.rows = rows, .in = vocabulary, .out = width};
}

static inline cgp__geometry linear_geometry(int64_t rows, int64_t in, int64_t out, bool bias,
                                            bool in_out) {
    return (cgp__geometry){
        .rows = rows, .in = in, .out = out, .has_bias = bias, .in_out = in_out};
}

static inline cgp__geometry layer_norm_geometry(int64_t rows, int64_t width) {
    return (cgp__geometry){.rows = rows, .in = width, .out = width, .eps = 1e-5f};
}

static inline cgp__geometry attention_geometry(int64_t rows, int64_t heads, int64_t depth,
                                               double p) {
    const int64_t width = heads * depth;
    return (cgp__geometry){
        .rows = rows, .in = 3 * width, .out = width, .heads = heads, .p = (float)p};
}

static inline cgp__geometry dropout_geometry(int64_t rows, int64_t width, double p) {
    return (cgp__geometry){.rows = rows, .in = width, .out = width, .p = (float)p};
}

static inline cgp__geometry loss_geometry(int64_t rows, int64_t classes) {
    return (cgp__geometry){.rows = rows, .in = classes, .ignore = -100};
}

static inline cgp__geometry argmax_geometry(int64_t rows, int64_t width) {
    return (cgp__geometry){.rows = rows, .in = width, .out = 1};
}

/* --- operands --- */

/* Elements of each operand: of one sample, or for parameters in all. */
static inline void count_operands(operands *o) {
    const cgp__geometry *g = &o->c.geometry;
    const cgp__op_kind op = o->c.op;
    const bool loss = op == CGP__OP_CROSS_ENTROPY;
    const int64_t in = g->rows * g->in, out = g->rows * g->out;
    int64_t *count = o->count;
    count[SLOT_X] = op == CGP__OP_EMBEDDING ? g->rows : in;
    count[SLOT_X + 1] = op == CGP__OP_ADD ? in : loss ? g->rows : 0;
    count[SLOT_Y] = count[SLOT_DY] = out;
    count[SLOT_SAVED] = op == CGP__OP_LAYER_NORM || loss ? g->rows : g->heads * g->rows;
    count[SLOT_SAVED + 1] = op == CGP__OP_LAYER_NORM ? g->rows : 0;
    count[SLOT_DX] = op == CGP__OP_EMBEDDING || op == CGP__OP_ARGMAX ? 0 : in;
    count[SLOT_DX + 1] = op == CGP__OP_ADD ? in : 0;
    for (int slot = 0; slot < SLOTS; slot++) {
        const bool parameter = slot >= SLOT_DPARAM || (slot >= SLOT_PARAM && slot < SLOT_DY);
        o->per_sample[slot] = !parameter;
        count[slot] *= parameter ? 1 : o->c.n;
    }
    const bool norm = op == CGP__OP_LAYER_NORM;
    const bool product = op == CGP__OP_LINEAR || op == CGP__OP_EMBEDDING;
    count[SLOT_PARAM] = product                  ? g->in * g->out
                        : op == CGP__OP_POSITION ? out
                        : norm                   ? g->out
                                                 : 0;
    count[SLOT_PARAM + 1] = norm || g->has_bias ? g->out : 0;
    count[SLOT_DPARAM] = count[SLOT_PARAM];
    count[SLOT_DPARAM + 1] = count[SLOT_PARAM + 1];
}

/* Uniform in [-1, 1). */
static inline float random_float(uint64_t *seed) {
    return (float)((double)(int64_t)test_random(seed) / 9223372036854775808.0);
}

static inline void fill_random(float *to, int64_t count, uint64_t *seed) {
    for (int64_t i = 0; i < count; i++)
        to[i] = random_float(seed);
}

/* Ids below g->in; one target in three of a loss is `ignore`. */
static inline void fill_integers(operands *o, int slot, uint64_t *seed) {
    int32_t *to = (int32_t *)(void *)o->at[slot];
    for (int64_t i = 0; i < o->count[slot]; i++) {
        to[i] = (int32_t)(test_random(seed) % (uint64_t)o->c.geometry.in);
        if (o->c.op == CGP__OP_CROSS_ENTROPY && test_random(seed) % 3 == 0)
            to[i] = (int32_t)o->c.geometry.ignore;
    }
}

static inline bool is_integer_slot(const operands *o, int slot) {
    return (o->c.op == CGP__OP_EMBEDDING && slot == SLOT_X) ||
           (o->c.op == CGP__OP_CROSS_ENTROPY && slot == SLOT_X + 1);
}

static inline float *guarded(float **room, int64_t count, int shift, int slot) {
    const size_t floats = (size_t)(count + shift + 2 * GUARD + 15) / 16 * 16;
    const uint32_t bits = GUARD_BITS(slot);
    *room = aligned_alloc(CGP__ALIGN, floats * sizeof **room);
    assert_non_null(*room);
    for (size_t i = 0; i < floats; i++)
        memcpy(*room + i, &bits, sizeof bits);
    return *room + GUARD + shift;
}

static inline void operands_create(operands *o, const op_case *c, uint64_t *seed) {
    *o = (operands){.c = *c, .loss_scale = 0.37f};
    count_operands(o);
    for (int slot = 0; slot < SLOTS; slot++) {
        if (o->count[slot] == 0) continue;
        o->at[slot] = guarded(&o->room[slot], o->count[slot], c->shift, slot);
        if (is_integer_slot(o, slot))
            fill_integers(o, slot, seed);
        else
            fill_random(o->at[slot], o->count[slot], seed);
    }
    o->key = (cgp__rng_key){(uint32_t)test_random(seed), (uint32_t)test_random(seed)};
}

static inline void operands_destroy(operands *o) {
    for (int slot = 0; slot < SLOTS; slot++)
        free(o->room[slot]);
}

/* Operands of `n` samples of `from`, from `first` on, at another shift; parameters whole. */
static inline void operands_slice(operands *o, const operands *from, int64_t first, int64_t n,
                                  int shift) {
    *o = *from;
    o->c.n = n;
    o->c.sample += first;
    o->c.shift = shift;
    for (int slot = 0; slot < SLOTS; slot++) {
        o->room[slot] = o->at[slot] = NULL;
        const int64_t each = o->per_sample[slot] ? from->count[slot] / from->c.n : 0;
        if (o->per_sample[slot]) o->count[slot] = each * n;
        if (o->count[slot] == 0) continue;
        o->at[slot] = guarded(&o->room[slot], o->count[slot], shift, slot);
        memcpy(o->at[slot], from->at[slot] + first * each,
               (size_t)o->count[slot] * sizeof(float));
    }
}

static inline void operands_copy(operands *o, const operands *from) {
    operands_slice(o, from, 0, from->c.n, from->c.shift);
}

/* Slot a takes the memory of slot b, which has the same number of elements. */
static inline void operands_share(operands *o, int a, int b) {
    assert_int_equal(o->count[a], o->count[b]);
    free(o->room[a]);
    o->room[a] = NULL;
    o->at[a] = o->at[b];
}

static inline void scale_slot(operands *o, int slot, float factor) {
    for (int64_t i = 0; i < o->count[slot]; i++)
        o->at[slot][i] *= factor;
}

/* --- bf16 --- */

/* Whether a slot has the type of the case; the others are f32 or integers always. */
static inline bool is_activation(const operands *o, int slot) {
    if (slot == SLOT_Y) return o->c.op != CGP__OP_ARGMAX;
    if (slot == SLOT_X) return o->c.op != CGP__OP_EMBEDDING;
    if (slot == SLOT_X + 1) return o->c.op == CGP__OP_ADD;
    return slot >= SLOT_DY && slot < SLOT_DPARAM;
}

/* Every activation to the nearest value that bf16 has. */
static inline void operands_round(operands *o) {
    for (int slot = 0; slot < SLOTS; slot++) {
        for (int64_t i = 0; is_activation(o, slot) && o->at[slot] && i < o->count[slot]; i++)
            o->at[slot][i] = cgp__bf16_to_float(cgp__bf16_from_float(o->at[slot][i]));
    }
}

/* `out`: the operands as a kernel in bf16 wants them. What is shared is shared. */
static inline void halves_create(operands *out, const operands *o) {
    *out = *o;
    for (int slot = 0; slot < SLOTS; slot++) {
        out->room[slot] = NULL;
        if (!o->room[slot] || !is_activation(o, slot)) continue;
        const int shift = o->c.shift;
        float *begin = guarded(&out->room[slot], (o->count[slot] + shift + 1) / 2, 0, slot);
        uint16_t *to = (uint16_t *)(void *)begin + shift;
        out->at[slot] = (float *)(void *)to;
        for (int64_t i = 0; i < o->count[slot]; i++)
            to[i] = cgp__bf16_from_float(o->at[slot][i]);
        for (int other = 0; other < SLOTS; other++) {
            if (!o->room[other] && o->at[other] == o->at[slot]) out->at[other] = out->at[slot];
        }
    }
}

/* Nothing around the halves of a slot has changed. */
static inline void check_half_guards(const operands *halves, int slot) {
    const uint16_t *room = (uint16_t *)(void *)halves->room[slot];
    const int64_t begin = 2 * GUARD + halves->c.shift, end = begin + halves->count[slot];
    for (int64_t i = 0; i < end + 2 * GUARD; i++) {
        const uint16_t guard = (uint16_t)(GUARD_BITS(slot) >> (i % 2 ? 16 : 0));
        if ((i < begin || i >= end) && room[i] != guard)
            fail_msg("op %d wrote element %" PRId64 " of slot %d", (int)halves->c.op, i - begin,
                     slot);
    }
}

/* Results back to floats. */
static inline void halves_destroy(operands *halves, operands *o) {
    for (int slot = 0; slot < SLOTS; slot++) {
        if (!halves->room[slot]) continue;
        const uint16_t *from = (const uint16_t *)(const void *)halves->at[slot];
        check_half_guards(halves, slot);
        for (int64_t i = 0; i < o->count[slot]; i++)
            o->at[slot][i] = cgp__bf16_to_float(from[i]);
        free(halves->room[slot]);
    }
}

/* --- running --- */

static inline bool op_has(cgp__op_kind op, cgp__direction direction) {
    if (direction == CGP__BACKWARD_INPUT)
        return op != CGP__OP_EMBEDDING && op != CGP__OP_ARGMAX;
    return direction == CGP__FORWARD || op == CGP__OP_EMBEDDING || op == CGP__OP_POSITION ||
           op == CGP__OP_LINEAR;
}

static inline void check_guards(const operands *o, int slot) {
    const uint32_t bits = GUARD_BITS(slot);
    for (int i = 1; o->room[slot] && i <= GUARD; i++) {
        const float *after = o->at[slot] + o->count[slot] + i - 1;
        if (memcmp(o->at[slot] - i, &bits, sizeof bits) != 0)
            fail_msg("op %d wrote %d elements in front of slot %d", (int)o->c.op, i, slot);
        if (memcmp(after, &bits, sizeof bits) != 0)
            fail_msg("op %d wrote %d elements behind slot %d", (int)o->c.op, i, slot);
    }
}

static inline cgp__kernel_args op_args(operands *o) {
    cgp__kernel_args args = {
        .y = o->at[SLOT_Y],
        .dy = o->at[SLOT_DY],
        .first = !o->c.accumulate,
        .training = !o->c.evaluate,
        .key = o->key,
        .sample = o->c.sample,
        .loss = &o->loss,
        .loss_scale = o->loss_scale,
    };
    for (int k = 0; k < 2; k++) {
        args.x[k] = o->at[SLOT_X + k];
        args.saved[k] = o->at[SLOT_SAVED + k];
        args.param[k] = o->at[SLOT_PARAM + k];
        args.dx[k] = o->at[SLOT_DX + k];
        args.dparam[k] = o->at[SLOT_DPARAM + k];
    }
    return args;
}

/* A device of a backend. */
typedef struct runner {
    const cgp__backend *backend;
    cgp__device *device;
    int threads;
} runner;

static inline runner runner_open(const cgp__backend *backend, int threads) {
    runner on = {.backend = backend, .threads = threads};
    assert_ok(backend->device_create(&on.device, threads, -1));
    return on;
}

static inline void runner_close(runner *on) {
    on->backend->device_destroy(on->device);
    on->device = NULL;
}

/* Run one direction; the workspace begins as NaNs, so that nothing of it is read unwritten. */
static inline void op_run(const runner *on, operands *o, cgp__direction direction) {
    const cgp__kernel_spec spec = {o->c.op, direction, o->c.geometry,
                                   o->c.n,  o->c.add,  o->c.type};
    const uint32_t bits = GUARD_BITS(SLOTS);
    int64_t bytes = 0;
    float *room = NULL;
    cgp__kernel *kernel = NULL;
    assert_ok(on->backend->workspace(&spec, on->threads, &bytes));
    assert_ok(on->backend->kernel_create(on->device, &spec, &kernel));
    operands halves;
    if (o->c.type == CGP_BF16) halves_create(&halves, o);
    cgp__kernel_args args = op_args(o->c.type == CGP_BF16 ? &halves : o);
    args.loss = &o->loss;
    args.workspace = guarded(&room, (bytes + 3) / 4, 0, SLOTS);
    assert_ok(on->backend->kernel_run(kernel, &args));
    on->backend->kernel_destroy(kernel);
    if (o->c.type == CGP_BF16) halves_destroy(&halves, o);
    for (int slot = 0; slot < SLOTS; slot++)
        check_guards(o, slot);
    const float *after = (float *)args.workspace + (bytes + 3) / 4;
    for (int i = 0; i < GUARD; i++)
        assert_memory_equal(after + i, &bits, sizeof bits);
    free(room);
}

/* Sanitizers make a kernel ten to fifty times slower: one case in so many for them. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define FEWER 5
#else
#define FEWER 1
#endif

/* Cases of products larger than what a block of the cpu holds, 256 rows and a depth of 512. */
#define BLOCK_CASES 3

static inline op_case block_case(int i) {
    static const struct { int64_t rows, in, out; } sizes[] = {{300, 530, 40}, {530, 30, 530}};
    op_case c = {.n = 1, .add = 1, .accumulate = true};
    if (i == BLOCK_CASES - 1) {
        c.op = CGP__OP_ATTENTION;
        c.geometry = attention_geometry(520, 1, 64, 0.0);
        return c;
    }
    c.op = CGP__OP_LINEAR;
    c.geometry = linear_geometry(sizes[i].rows, sizes[i].in, sizes[i].out, true, i % 2 == 0);
    return c;
}

/* "op 3 n 2 rows 5 in 17 ..." for messages */
static inline const char *case_text(const op_case *c) {
    static char text[256];
    const cgp__geometry *g = &c->geometry;
    snprintf(text, sizeof text,
             "op %d n %" PRId64 " rows %" PRId64 " in %" PRId64 " out %" PRId64
             " heads %" PRId64
             " p %g bias %d in_out %d add %u accumulate %d evaluate %d shift %d %s",
             (int)c->op, c->n, g->rows, g->in, g->out, g->heads, (double)g->p, g->has_bias,
             g->in_out, c->add, c->accumulate, c->evaluate, c->shift, cgp_dtype_name(c->type));
    return text;
}

#endif
