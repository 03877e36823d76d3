/* SPDX-License-Identifier: Apache-2.0 */
/* channel_norm.c -- BATCH_NORM (Ioffe and Szegedy 2015, arXiv:1502.03167) and INSTANCE_NORM
 * (Ulyanov et al. 2016, arXiv:1607.08022) normalise each channel to mean 0 and variance 1, over all
 * rows of a set. GROUP_NORM (Wu and He 2018, arXiv:1803.08494) normalises several channels
 * together; these channels form a `part`.
 *
 *     sets: one with the rows of all samples (BATCH_NORM), or one per sample (the others)
 *     y = (x - mean) rstd weight + bias     rstd = 1 / sqrt(variance + eps)     h = (x - mean) rstd
 *     dweight = sum dy h     dbias = sum dy
 *     dx = weight rstd (dy - dbias / rows - h dweight / rows)
 *     a part of k elements:     g = dy weight     dx = rstd (g - sum g / k - h sum (g h) / k)
 *
 * Forward saves mean and rstd; backward reads them and x. Each direction passes over its operands
 * twice: once for the sums, once for y or dx. The gradient dx may alias dy.
 *
 * Rows with few channels would leave vectors partly empty, so several rows are treated as one wide
 * row. The columns of one channel are added up at the end. The moments of a part are merged from
 * the moments of its channels (Chan, Golub, LeVeque 1979).
 *
 *     x       a b c a b c a b c a b c | a b c a b c a b c a b c | a b c       channels 3, copies 4,
 *             wide row 0                wide row 1                rest        width 12
 *
 * The workspace first holds the sums of each group of wide rows, in double, for columns 0 .. width
 * - 1. The factors of each column follow. Each set begins in a new group, and groups are added in
 * order, so the bits of results depend only on the set. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/operands.h"
#include "backend/running_stats.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define WIDE 256       /* maximum number of elements of a wide row that is made of several rows */
#define CHUNK 512      /* maximum columns of an item */
#define MIN_COLUMNS 64 /* an item of this many columns is not divided further */
#define GROUP 131072   /* approximate elements of an item, or of all items that share its rows */

enum { MEAN, SCALE, SHIFT, SLOPE, FACTORS };

/* Sizes that follow from a spec. */
typedef struct layout {
    /* Number of sets, and number of rows in a set. */
    int64_t sets, rows;
    int64_t channels, copies, width;
    /* Number of means in a set, and number of channels that share a mean. */
    int64_t parts, each;
    /* Number of wide rows in a set, and number of elements after the wide rows. */
    int64_t wide, rest;
    /* Number of wide rows in a group, and number of groups in a set. */
    int64_t group, groups;
} layout;

static layout layout_of(const cgp_kernel_spec *spec) {
    const bool batch = spec->op == CGP_OP_BATCH_NORM;
    const int64_t channels = spec->attributes.out;
    layout l = {.sets = batch ? 1 : spec->n,
                .rows = spec->attributes.rows * (batch ? spec->n : 1),
                .channels = channels,
                .parts = spec->op == CGP_OP_GROUP_NORM ? cgp_spec_norm(spec)->groups : channels};
    l.each = channels / l.parts;
    /* Put as many copies of the channels into a wide row as fit, with a multiple of 16 elements in
     * total. If none fit, use one copy. */
    int64_t min = 16;
    while (min > 1 && min / 2 * channels % 16 == 0)
        min /= 2;
    const int64_t max = WIDE / channels / min * min;
    l.copies = cgp__min(max > 1 ? max : 1, l.rows);
    l.width = l.copies * channels;
    l.wide = l.rows / l.copies;
    l.rest = l.rows % l.copies * channels;
    l.group = cgp__ceil_div(GROUP, cgp__min(l.width, CHUNK));
    l.groups = cgp__ceil_div(l.wide, l.group);
    return l;
}

/* Return the number of doubles for one group: two sums for each column. */
static int64_t group_sums(const layout *l) {
    return 2 * l->width;
}

/* Return the number of floats for one set: FACTORS for each column. */
static int64_t set_factors(const layout *l) {
    return FACTORS * cgp__cpu_padded(l->width);
}

static int64_t workspace(const cgp_kernel_spec *spec, int threads) {
    const layout l = layout_of(spec);
    (void)threads;
    return cgp__align_up(l.sets * l.groups * group_sums(&l) * (int64_t)sizeof(double)) +
           (l.sets * set_factors(&l) + l.channels) * (int64_t)sizeof(float);
}

/* A run: its sizes and the arrays in its workspace. */
typedef struct norm {
    const cgp_kernel *kernel;
    const cgp_kernel_args *args;
    layout l;
    double *sums;    /* [sets, groups, 2, width] */
    float *factors;  /* [sets, FACTORS, padded width] */
    float *variance; /* [channels] */
    /* Number of columns in an item of the first pass. */
    int64_t columns;
    bool backward;
} norm;

/* Return the number of columns of an item. If there are several threads, items are narrow enough
 * for about four items per thread. Groups alone may be too few, because all rows of a small image
 * are in a single group. */
static int64_t columns_at_once(const layout *l, int threads) {
    const int64_t want = cgp__ceil_div(4 * (int64_t)threads, l->sets * cgp__max(l->groups, 1));
    const int64_t even = cgp__ceil_div(cgp__ceil_div(l->width, want), MIN_COLUMNS) * MIN_COLUMNS;
    return threads == 1 ? CHUNK : cgp__min(even, CHUNK);
}

static norm norm_of(const cgp_kernel *kernel, const cgp_kernel_args *args, bool backward) {
    norm w = {.kernel = kernel, .args = args, .backward = backward};
    w.l = layout_of(&kernel->spec);
    const int64_t sums = w.l.sets * w.l.groups * group_sums(&w.l);
    w.sums = args->workspace;
    w.factors =
        (float *)(void *)((char *)args->workspace + cgp__align_up(sums * (int64_t)sizeof(double)));
    w.variance = w.factors + w.l.sets * set_factors(&w.l);
    w.columns = columns_at_once(&w.l, kernel->device->threads);
    return w;
}

static bool is_grouped(const norm *w) {
    return w->kernel->spec.op == CGP_OP_GROUP_NORM;
}

/* Return the address of a set's factors of one kind, which begin at column 0. */
static float *factor_of(const norm *w, int64_t set, int kind) {
    return w->factors + set * set_factors(&w->l) + kind * cgp__cpu_padded(w->l.width);
}

static double *sums_of(const norm *w, int64_t set, int64_t group) {
    return w->sums + (set * w->l.groups + group) * group_sums(&w->l);
}

/* Return the wide rows of a set, starting at row `row` and column `column`. */
static cgp__cpu_columns columns_of(const norm *w, int64_t set, int64_t row, int64_t column) {
    const cgp_kernel_args *args = w->args;
    const cgp_dtype type = w->kernel->spec.type;
    const int64_t at = set * w->l.rows * w->l.channels + row * w->l.width + column;
    void *to = w->backward ? args->dx[0] : args->y;
    return (cgp__cpu_columns){.type = type,
                              .width = w->l.width - column,
                              .stride = w->l.width,
                              .x = cgp__cpu_at(type, args->x[0], at),
                              .dy = args->dy ? cgp__cpu_at(type, args->dy, at) : NULL,
                              .mean = factor_of(w, set, MEAN) + column,
                              .scale = factor_of(w, set, SCALE) + column,
                              .shift = factor_of(w, set, SHIFT) + column,
                              .slope = factor_of(w, set, SLOPE) + column,
                              .grouped = is_grouped(w),
                              .to = to ? cgp__cpu_at(type, to, at) : NULL,
                              .add = w->backward && cgp__cpu_adds(w->kernel, 0)};
}

/* --- first pass: sums --- */

static void run_sums(const norm *w, const cgp__cpu_columns *columns) {
    if (w->backward)
        w->kernel->device->kernels->columns_sums(columns);
    else
        w->kernel->device->kernels->columns_moments(columns);
}

/* Run items begin .. end - 1. An item is a range of columns of one group. Items are counted over
 * the groups of all sets. */
static void sums_range(const void *work, int64_t begin, int64_t end, int thread) {
    const norm *w = work;
    const layout *l = &w->l;
    const int64_t chunks = cgp__ceil_div(l->width, w->columns);
    (void)thread;
    for (int64_t item = begin; item < end; item++) {
        const int64_t column = item % chunks * w->columns, group = item / chunks % l->groups;
        const int64_t set = item / chunks / l->groups, row = group * l->group;
        double *sums = sums_of(w, set, group) + column;
        cgp__cpu_columns a = columns_of(w, set, row, column);
        a.rows = cgp__min(l->group, l->wide - row);
        a.width = cgp__min(a.width, w->columns);
        a.sums[0] = sums;
        a.sums[1] = sums + l->width;
        run_sums(w, &a);
        if (l->rest <= column || group + 1 < l->groups) continue;
        cgp__cpu_columns rest = columns_of(w, set, l->wide, column);
        rest.rows = 1;
        rest.width = cgp__min(l->rest - column, w->columns);
        rest.before = a.rows;
        memcpy(rest.sums, a.sums, sizeof a.sums);
        run_sums(w, &rest);
    }
}

static void make_sums(const norm *w) {
    const layout *l = &w->l;
    const int64_t items = l->sets * l->groups * cgp__ceil_div(l->width, w->columns);
    const int64_t each = cgp__ceil_div(l->sets * l->rows * l->channels, items);
    cgp__cpu_parallel_for(w->kernel->device, items, cgp__cpu_block_rows(each), sums_range, w);
}

/* Return the number of rows of x in copy number `copy` of a group. */
static int64_t rows_of(const layout *l, int64_t group, int64_t copy) {
    const bool last = group + 1 == l->groups;
    return cgp__min(l->group, l->wide - group * l->group) +
           (last && copy * l->channels < l->rest ? 1 : 0);
}

/* Merge the moments of `count` rows into the moments of `before` rows, as merge_moments() in
 * kernels/channel_norm.c does. */
static void merge(double *to, const double *from, int64_t before, int64_t count, const layout *l) {
    const double fraction = (double)count / (double)(before + count);
    for (int64_t c = 0; c < l->channels; c++) {
        const double d = from[c] - to[c];
        to[c] += d * fraction;
        to[l->width + c] += from[l->width + c] + d * d * ((double)before * fraction);
    }
}

static void add(double *to, const double *from, const layout *l) {
    for (int64_t c = 0; c < l->channels; c++) {
        to[c] += from[c];
        to[l->width + c] += from[l->width + c];
    }
}

/* Combine all sums of a set in the first channels of its first group; return their address. */
static double *gather(const norm *w, int64_t set) {
    const layout *l = &w->l;
    double *to = sums_of(w, set, 0);
    int64_t before = 0;
    for (int64_t group = 0; group < l->groups; group++) {
        for (int64_t copy = 0; copy < l->copies; copy++) {
            const double *from = sums_of(w, set, group) + copy * l->channels;
            const int64_t count = rows_of(l, group, copy);
            if (from != to && w->backward)
                add(to, from, l);
            else if (from != to)
                merge(to, from, before, count, l);
            before += count;
        }
    }
    return to;
}

/* --- second pass: y or dx --- */

/* Copy a channel's factors to all its columns. */
static void widen_factors(const norm *w, int64_t set) {
    const layout *l = &w->l;
    for (int kind = 0; kind < FACTORS; kind++) {
        float *to = factor_of(w, set, kind);
        for (int64_t c = l->channels; c < l->width; c++)
            to[c] = to[c - l->channels];
    }
}

/* Return the number of wide rows of a block. Blocks are processed from the last to the first. The
 * first pass left most of the last block in the caches. The second pass leaves the beginning of the
 * result in the caches, for the next reader. */
static int64_t apply_rows(const layout *l) {
    return cgp__cpu_block_rows(l->width);
}

/* Apply the fused RELU while y is in the cache. */
static void end_in_relu(const norm *w, const cgp__cpu_columns *a) {
    const float slope = w->kernel->spec.attributes.slope;
    if (w->backward || slope == 1.0f) return;
    w->kernel->device->kernels->elementwise[CGP_OP_RELU]->forward(a->type, a->to, a->to,
                                                                  a->rows * a->width, slope);
}

static void apply_range(const void *work, int64_t begin, int64_t end, int thread) {
    const norm *w = work;
    const layout *l = &w->l;
    const cgp__cpu_kernels *kernels = w->kernel->device->kernels;
    void (*const apply)(const cgp__cpu_columns *) =
        w->backward ? kernels->columns_backward : kernels->columns_forward;
    const int64_t each = apply_rows(l), blocks = cgp__ceil_div(l->wide, each);
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const int64_t item = l->sets * blocks - 1 - i;
        const int64_t set = item / blocks, row = item % blocks * each;
        cgp__cpu_columns a = columns_of(w, set, row, 0);
        a.rows = cgp__min(each, l->wide - row);
        apply(&a);
        end_in_relu(w, &a);
        if (l->rest == 0 || row + each < l->wide) continue;
        cgp__cpu_columns rest = columns_of(w, set, l->wide, 0);
        rest.rows = 1;
        rest.width = l->rest;
        apply(&rest);
        end_in_relu(w, &rest);
    }
}

static void apply_all(const norm *w) {
    const layout *l = &w->l;
    for (int64_t set = 0; set < l->sets; set++)
        widen_factors(w, set);
    cgp__cpu_parallel_for(w->kernel->device, l->sets * cgp__ceil_div(l->wide, apply_rows(l)), 1,
                          apply_range, w);
}

/* --- forward --- */

/* Compute mean, scale, shift and slope of channel c in `set`. The shift compensates for rounding
 * the mean to f32. */
static void set_channel(const norm *w, int64_t set, int64_t c, double mean, double rstd) {
    const float *weight = w->args->param[0], *bias = w->args->param[1];
    const double scale = rstd * (double)(weight ? weight[c] : 1.0f);
    const double lost = (double)(float)mean - mean;
    factor_of(w, set, MEAN)[c] = (float)mean;
    factor_of(w, set, SCALE)[c] = (float)scale;
    factor_of(w, set, SHIFT)[c] = (float)((double)(bias ? bias[c] : 0.0f) + lost * scale);
    factor_of(w, set, SLOPE)[c] = 0.0f;
}

/* Return rstd. If the variance or one of its sums of squares overflows f32, return NaN, because 1 /
 * infinity would hide the overflow. */
static double reciprocal_deviation(const norm *w, double variance) {
    if (!(variance <= FLT_MAX)) return NAN;
    return 1.0 / sqrt(variance + (double)cgp_spec_norm(&w->kernel->spec)->eps);
}

/* Merge the means and the sums of squared differences of a part's channels, which begin at channel
 * c. */
static void merge_part(double to[2], const double *sums, int64_t c, const layout *l) {
    to[0] = sums[c];
    to[1] = sums[l->width + c];
    for (int64_t k = 1; k < l->each; k++) {
        const double before = (double)(k * l->rows), fraction = 1.0 / (double)(k + 1);
        const double d = sums[c + k] - to[0];
        to[0] += d * fraction;
        to[1] += sums[l->width + c + k] + d * d * (before * fraction);
    }
}

/* Compute and save the statistics of a set's rows. */
static void set_forward(const norm *w, int64_t set) {
    const layout *l = &w->l;
    const double *sums = gather(w, set);
    for (int64_t part = 0; part < l->parts; part++) {
        double of[2];
        merge_part(of, sums, part * l->each, l);
        const double squares = of[1]; /* rounding may make the variance negative */
        const double variance = squares < 0.0 ? 0.0 : squares / (double)(l->rows * l->each);
        const double rstd = reciprocal_deviation(w, variance);
        for (int64_t k = 0; k < l->each; k++)
            set_channel(w, set, part * l->each + k, of[0], rstd);
        w->args->saved[0][set * l->parts + part] = (float)of[0];
        w->args->saved[1][set * l->parts + part] = (float)rstd;
        if (l->each == 1) w->variance[part] = (float)variance;
    }
}

static cgp_status forward(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    const norm w = norm_of(kernel, args, false);
    make_sums(&w);
    for (int64_t set = 0; set < w.l.sets; set++)
        set_forward(&w, set);
    apply_all(&w);
    if (args->accumulator)
        cgp__running_stats_collect(&kernel->spec, args, args->saved[0], w.variance, w.l.rows);
    return CGP_OK;
}

static cgp_status batch_forward(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    if (args->training) return forward(kernel, args);
    const norm w = norm_of(kernel, args, false);
    const float *mean = args->state[0], *variance = args->state[1];
    for (int64_t c = 0; c < w.l.channels; c++)
        set_channel(&w, 0, c, (double)mean[c], reciprocal_deviation(&w, (double)variance[c]));
    apply_all(&w);
    return CGP_OK;
}

/* --- backward --- */

/* Set the factors of the channels of a part. These channels share the means of g = dy weight and of
 * g h. */
static void set_grouped_part(const norm *w, int64_t set, int64_t part, const double *sums) {
    const layout *l = &w->l;
    const float *weight = w->args->param[0];
    const double r = (double)w->args->saved[1][set * l->parts + part];
    const double count = (double)(l->rows * l->each);
    const int64_t first = part * l->each, padded = cgp__cpu_padded(l->width);
    float *to = factor_of(w, set, 0) + first;
    double g = 0.0, gh = 0.0;
    for (int64_t c = first; c < first + l->each; c++) {
        g += (double)weight[c] * sums[c];
        gh += (double)weight[c] * sums[l->width + c];
    }
    for (int64_t k = 0; k < l->each; k++) {
        to[SCALE * padded + k] = (float)(r * (double)weight[first + k]);
        to[SHIFT * padded + k] = (float)(r * g / count);
        to[SLOPE * padded + k] = (float)(-r * r * r * gh / count);
    }
}

static void set_backward(const norm *w, int64_t set) {
    const layout *l = &w->l;
    const double *sums = gather(w, set), rows = (double)l->rows;
    for (int64_t part = 0; is_grouped(w) && part < l->parts; part++)
        set_grouped_part(w, set, part, sums);
    if (is_grouped(w)) return;
    const float *rstd = w->args->saved[1] + set * l->channels, *weight = w->args->param[0];
    float *to = factor_of(w, set, 0);
    const int64_t padded = cgp__cpu_padded(l->width);
    for (int64_t c = 0; c < l->channels; c++) {
        const double r = (double)rstd[c];
        to[SCALE * padded + c] = weight ? rstd[c] * weight[c] : rstd[c];
        to[SHIFT * padded + c] = (float)(sums[c] / rows);
        to[SLOPE * padded + c] = (float)(-r * r * sums[l->width + c] / rows);
    }
}

/* Set dweight to the sum of dy h and dbias to the sum of dy, or add these sums. The sets are added
 * in order. */
static void set_gradients(const norm *w) {
    const layout *l = &w->l;
    float *dweight = w->args->dparam[0], *dbias = w->args->dparam[1];
    const bool first = w->args->first;
    for (int64_t c = 0; c < l->channels; c++) {
        const float *rstd = w->args->saved[1] + c / l->each;
        const double *sums = sums_of(w, 0, 0);
        double product = sums[l->width + c] * (double)rstd[0], sum = sums[c];
        for (int64_t set = 1; set < l->sets; set++) {
            sums = sums_of(w, set, 0);
            product += sums[l->width + c] * (double)rstd[set * l->parts];
            sum += sums[c];
        }
        if (dweight) dweight[c] = first ? (float)product : dweight[c] + (float)product;
        if (dbias) dbias[c] = first ? (float)sum : dbias[c] + (float)sum;
    }
}

static cgp_status backward(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    const norm w = norm_of(kernel, args, true);
    for (int64_t set = 0; set < w.l.sets; set++) {
        const float *mean = args->saved[0] + set * w.l.parts;
        for (int64_t c = 0; c < w.l.channels; c++)
            factor_of(&w, set, MEAN)[c] = mean[c / w.l.each];
        widen_factors(&w, set);
    }
    make_sums(&w);
    for (int64_t set = 0; set < w.l.sets; set++)
        set_backward(&w, set);
    if (kernel->spec.op != CGP_OP_INSTANCE_NORM) set_gradients(&w);
    if (args->dx[0]) apply_all(&w);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_batch_norm[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {batch_forward, workspace},
    [CGP_OP_BACKWARD_INPUT] = {backward, workspace},
};

const cgp__cpu_op cgp__cpu_instance_norm[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {forward, workspace},
    [CGP_OP_BACKWARD_INPUT] = {backward, workspace},
};

const cgp__cpu_op cgp__cpu_group_norm[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {forward, workspace},
    [CGP_OP_BACKWARD_INPUT] = {backward, workspace},
};
