/* SPDX-License-Identifier: Apache-2.0 */
/* test_layout.c -- compares the layout of a stage's memory with the result of a simple algorithm,
 * which scans all ranges for every placement. All locations must be equal. The file also tests how
 * the work of planning grows with the number of layers. */
#include "support.h"

#include <cgpipe/models/gpt2.h>
#include <cgpipe/models/unet.h>

#include "plan/memory/layout.h"
#include "plan/plan.h"

/* --- a simple layout --- */

static int compare(int64_t a, int64_t b) {
    return (a > b) - (a < b);
}

typedef int order(const cgp__live_range *p, const cgp__live_range *q);

static int by_time(const cgp__live_range *p, const cgp__live_range *q) {
    return p->start != q->start ? compare(p->start, q->start) : compare(p - q, 0);
}

static int by_size(const cgp__live_range *p, const cgp__live_range *q) {
    return p->bytes != q->bytes ? compare(q->bytes, p->bytes) : by_time(p, q);
}

static int by_area(const cgp__live_range *p, const cgp__live_range *q) {
    const double x = (double)p->bytes * (p->end - p->start + 1),
                 y = (double)q->bytes * (q->end - q->start + 1);
    return x != y ? (x < y) - (x > y) : by_size(p, q);
}

static int by_duration(const cgp__live_range *p, const cgp__live_range *q) {
    const int x = p->end - p->start, y = q->end - q->start;
    return x != y ? compare(y, x) : by_size(p, q);
}

static int by_end(const cgp__live_range *p, const cgp__live_range *q) {
    return p->end != q->end ? compare(q->end, p->end) : by_size(p, q);
}

static order *const orders[] = {by_size, by_area, by_duration, by_end, by_time};

static void sort(cgp__live_range **list, int n, order *before) {
    for (int gap = n / 2; gap > 0; gap /= 2) {
        for (int i = gap; i < n; i++) {
            cgp__live_range *range = list[i];
            int j = i;
            for (; j >= gap && before(list[j - gap], range) > 0; j -= gap)
                list[j] = list[j - gap];
            list[j] = range;
        }
    }
}

static bool together(const cgp__live_range *a, const cgp__live_range *b) {
    return a->start <= b->end && b->start <= a->end;
}

/* Return the lowest free offset in the arena: at this offset, `range` does not overlap a placed
 * range that is in use at the same time. */
static int64_t lowest(cgp__live_range *const *placed, int n, const cgp__live_range *range,
                      cgp__arena arena) {
    int64_t offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < n; i++) {
            const cgp__live_range *p = placed[i];
            if (p->location.arena != arena || !together(p, range) ||
                p->location.offset >= offset + range->bytes ||
                p->location.offset + p->bytes <= offset)
                continue;
            offset = p->location.offset + p->bytes;
            moved = true;
        }
    }
    return offset;
}

static int64_t plain_saved(cgp__live_range **list, int n, cgp__layout_starts starts,
                           cgp__live_range **placed, int *n_placed, int64_t *gradient) {
    int64_t height = 0;
    bool gradients = false;
    for (int i = 0; i < n; i++)
        gradients = gradients || (list[i]->saved && list[i]->start >= starts.input);
    /* place the values that weight backward (W) reads, then the values that only input backward (I)
     * reads */
    for (int rank = 0; rank < 2; rank++) {
        sort(list, n, rank == 1 && gradients ? by_end : by_time);
        for (int i = 0; i < n; i++) {
            cgp__live_range *range = list[i];
            if (!range->saved || range->start >= starts.input ||
                (range->end >= starts.weight) != (rank == 0))
                continue;
            range->location = (cgp__location){CGP__SAVED_SLOT, height};
            height += range->bytes;
            placed[(*n_placed)++] = range;
        }
    }
    sort(list, n, by_time);
    int64_t depth = 0, top = height;
    for (int i = 0; i < n && gradients; i++) {
        if (!list[i]->saved || list[i]->start < starts.input) continue;
        depth += list[i]->bytes;
        for (int k = 0; k < *n_placed; k++) {
            const cgp__live_range *below = placed[k];
            if (below->end >= list[i]->start && depth + below->location.offset + below->bytes > top)
                top = depth + below->location.offset + below->bytes;
        }
        top = depth > top ? depth : top;
    }
    /* the first gradients, which do not fit in the saved slot, are placed in the gradient slot */
    depth = *gradient = 0;
    for (int i = 0; i < n && gradients; i++) {
        cgp__live_range *range = list[i];
        if (!range->saved || range->start < starts.input) continue;
        if (*gradient < top - height) {
            range->location = (cgp__location){CGP__GRADIENT_SLOT, *gradient};
            *gradient += range->bytes;
            continue;
        }
        depth += range->bytes;
        range->location = (cgp__location){CGP__SAVED_SLOT, height - depth};
        placed[(*n_placed)++] = range;
    }
    return height;
}

static int64_t plain_others(cgp__live_range **list, int n, order *before, cgp__live_range **placed,
                            int n_placed, int64_t slot) {
    int64_t workspace = 0;
    sort(list, n, before);
    for (int i = 0; i < n; i++) {
        cgp__live_range *range = list[i];
        if (range->saved) continue;
        int64_t offset = lowest(placed, n_placed, range, CGP__SAVED_SLOT);
        const bool fits = offset + range->bytes <= slot;
        if (!fits) offset = lowest(placed, n_placed, range, CGP__WORKSPACE);
        range->location = (cgp__location){fits ? CGP__SAVED_SLOT : CGP__WORKSPACE, offset};
        placed[n_placed++] = range;
        if (!fits && offset + range->bytes > workspace) workspace = offset + range->bytes;
    }
    return workspace;
}

/* Place the ranges in five different orders. Use the order with the smallest workspace; if there
 * are several, use the first of them. */
static void plain_pack(cgp__live_range *ranges, int n, cgp__layout_starts starts, int64_t *slot,
                       int64_t *gradient, int64_t *workspace) {
    cgp__live_range **list = calloc(2 * (size_t)n, sizeof *list), **placed = list + n;
    int saved = 0, best = 0;
    for (int i = 0; i < n; i++)
        list[i] = &ranges[i];
    *slot = plain_saved(list, n, starts, placed, &saved, gradient);
    *workspace = INT64_MAX;
    for (int k = 0; k < 5; k++) {
        const int64_t bytes = plain_others(list, n, orders[k], placed, saved, *slot);
        if (bytes < *workspace) best = k;
        if (bytes < *workspace) *workspace = bytes;
    }
    (void)plain_others(list, n, orders[best], placed, saved, *slot);
    free(list);
}

/* --- random ranges --- */

/* Draw live ranges as in programs with `nodes` nodes. Saved values live from forward into backward.
 * If `split` is true, some saved values live from input backward (I) into weight backward (W). Most
 * other values live briefly; a few live long. */
static void draw(uint64_t *state, cgp__live_range *ranges, int n, int nodes,
                 cgp__layout_starts starts, bool split) {
    const int last = 4 * nodes + 3;
    const int longest = test_between(state, 0, nodes);
    for (int i = 0; i < n; i++) {
        cgp__live_range *range = &ranges[i];
        *range = (cgp__live_range){.bytes = 64 * test_between(state, 1, 40)};
        range->saved = test_between(state, 0, 2) == 0;
        range->start = test_between(state, 0, range->saved ? nodes - 1 : last);
        range->end =
            range->start + test_between(state, 0, test_between(state, 0, 19) == 0 ? longest : 6);
        if (range->saved && split && test_between(state, 0, 1) == 0) {
            range->start = test_between(state, starts.input, starts.weight - 1);
            range->end = test_between(state, starts.weight, last);
        } else if (range->saved) {
            /* values saved last are released first, approximately */
            const int start = split && test_between(state, 0, 1) ? starts.weight : starts.input;
            range->end = start + 2 * (nodes - 1 - range->start) / (start == starts.weight ? 2 : 1) +
                         test_between(state, 0, 3);
        }
        range->end = range->end > last ? last : range->end;
    }
}

/* Compare the two layouts of random ranges. Workspace, slots and locations must be equal. */
static void compare_layouts(uint64_t *state, int n) {
    const int nodes = n / test_between(state, 2, 4) + 2;
    const cgp__layout_starts starts = {nodes + 1, 3 * nodes + 3};
    cgp__live_range *ranges = calloc((size_t)n, sizeof *ranges),
                    *plain = calloc((size_t)n, sizeof *ranges);
    int64_t slot, gradient, workspace, plain_slot, plain_gradient, plain_workspace, steps = 0;
    draw(state, ranges, n, nodes, starts, test_between(state, 0, 1));
    memcpy(plain, ranges, (size_t)n * sizeof *ranges);
    assert_ok(cgp__layout_pack(ranges, n, starts, &slot, &gradient, &workspace, &steps));
    plain_pack(plain, n, starts, &plain_slot, &plain_gradient, &plain_workspace);
    assert_int_equal(slot, plain_slot);
    assert_int_equal(gradient, plain_gradient);
    assert_int_equal(workspace, plain_workspace);
    for (int i = 0; i < n; i++) {
        assert_int_equal(ranges[i].location.arena, plain[i].location.arena);
        assert_int_equal(ranges[i].location.offset, plain[i].location.offset);
    }
    free(plain);
    free(ranges);
}

TEST_CASE(locations_are_those_of_a_plain_layout) {
    uint64_t state = test_seed();
    for (int round = 0; round < 400; round++)
        compare_layouts(&state, test_between(&state, 1, round % 20 ? 60 : 500));
    compare_layouts(&state, 2500);
}

/* --- growth --- */

static int64_t steps_of(cgp_model *model, int stages, int chunks, const char *schedule) {
    cgp_plan_options options = cgp_plan_options_default();
    options.stages = stages;
    options.batch = options.chunks = chunks;
    options.schedule = schedule;
    options.recompute = CGP_RECOMPUTE_ALWAYS_SELECTIVE;
    cgp_plan *plan = NULL;
    assert_ok(cgp_plan_create(&plan, model, &options));
    const int64_t steps = plan->steps;
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
    return steps;
}

static cgp_model *gpt2(int layers) {
    cgp_gpt2_options options = cgp_gpt2_options_default();
    cgp_model *model = NULL;
    options.layers = layers;
    options.width = 16;
    options.heads = 2;
    options.vocab = 64;
    options.sequence = 8;
    options.dropout = 0.1;
    assert_ok(cgp_gpt2_create(&model, &options));
    return model;
}

static cgp_model *unet(int convolutions) {
    cgp_unet_options options = cgp_unet_options_default();
    cgp_model *model = NULL;
    options.convs = convolutions;
    options.channels = 2;
    options.depth = 4;
    options.image = 32;
    assert_ok(cgp_unet_create(&model, &options));
    return model;
}

static void assert_near_linear(const char *what, int64_t steps, int64_t twice) {
    print_message("%s: %lld steps, %lld for twice as much: %.2f times\n", what, (long long)steps,
                  (long long)twice, (double)twice / (double)steps);
    assert_true(steps > 1000);
    assert_true((double)twice < 2.5 * (double)steps);
}

/* The test does not measure seconds. It counts the iterations of the planner's loops that search
 * locations, messages and kernels. A model with twice as many layers needs little more than twice
 * as many iterations. */
TEST_CASE(twice_the_layers_take_twice_the_steps) {
    assert_near_linear("gpt2, one stage", steps_of(gpt2(100), 1, 4, "gpipe"),
                       steps_of(gpt2(200), 1, 4, "gpipe"));
    assert_near_linear("gpt2, 16 stages", steps_of(gpt2(160), 16, 8, "1f1b"),
                       steps_of(gpt2(320), 16, 8, "1f1b"));
    assert_near_linear("gpt2, split backward", steps_of(gpt2(160), 4, 8, "zb-h1"),
                       steps_of(gpt2(320), 4, 8, "zb-h1"));
    assert_near_linear("gpt2, a stage for two layers", steps_of(gpt2(100), 50, 4, "1f1b"),
                       steps_of(gpt2(200), 100, 4, "1f1b"));
    assert_near_linear("unet", steps_of(unet(20), 3, 4, "1f1b"), steps_of(unet(40), 3, 4, "1f1b"));
}
