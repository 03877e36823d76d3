/* SPDX-License-Identifier: Apache-2.0 */
/* test_layout.c -- the layout of a stage against a plain one that looks at every item each time: the same places, to
 * the byte; and how the work of planning grows. */
#include "support.h"

#include <cgpipe/models/gpt2.h>
#include <cgpipe/models/unet.h>

#include "plan/plan.h"

/* --- a plain layout --- */

static int compare(int64_t a, int64_t b) {
    return (a > b) - (a < b);
}

typedef int order(const cgp__item *p, const cgp__item *q);

static int by_time(const cgp__item *p, const cgp__item *q) {
    return p->start != q->start ? compare(p->start, q->start) : compare(p - q, 0);
}

static int by_size(const cgp__item *p, const cgp__item *q) {
    return p->bytes != q->bytes ? compare(q->bytes, p->bytes) : by_time(p, q);
}

static int by_area(const cgp__item *p, const cgp__item *q) {
    const double x = (double)p->bytes * (p->end - p->start + 1),
                 y = (double)q->bytes * (q->end - q->start + 1);
    return x != y ? (x < y) - (x > y) : by_size(p, q);
}

static int by_duration(const cgp__item *p, const cgp__item *q) {
    const int x = p->end - p->start, y = q->end - q->start;
    return x != y ? compare(y, x) : by_size(p, q);
}

static int by_end(const cgp__item *p, const cgp__item *q) {
    return p->end != q->end ? compare(q->end, p->end) : by_size(p, q);
}

static order *const orders[] = {by_size, by_area, by_duration, by_end, by_time};

static void sort(cgp__item **list, int n, order *before) {
    for (int gap = n / 2; gap > 0; gap /= 2) {
        for (int i = gap; i < n; i++) {
            cgp__item *item = list[i];
            int j = i;
            for (; j >= gap && before(list[j - gap], item) > 0; j -= gap)
                list[j] = list[j - gap];
            list[j] = item;
        }
    }
}

static bool together(const cgp__item *a, const cgp__item *b) {
    return a->start <= b->end && b->start <= a->end;
}

/* The lowest offset where `item` meets none of those that are placed in the arena. */
static int64_t lowest(cgp__item *const *placed, int n, const cgp__item *item,
                      cgp__arena arena) {
    int64_t offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < n; i++) {
            const cgp__item *p = placed[i];
            if (p->place.arena != arena || !together(p, item) ||
                p->place.offset >= offset + item->bytes || p->place.offset + p->bytes <= offset)
                continue;
            offset = p->place.offset + p->bytes;
            moved = true;
        }
    }
    return offset;
}

static int64_t plain_saved(cgp__item **list, int n, cgp__layout_turns turns, cgp__item **placed,
                           int *n_placed) {
    int64_t height = 0;
    bool gradients = false;
    for (int i = 0; i < n; i++)
        gradients = gradients || (list[i]->saved && list[i]->start >= turns.input);
    for (int rank = 0; rank < 2; rank++) { /* what W reads, then what I alone reads */
        sort(list, n, rank == 1 && gradients ? by_end : by_time);
        for (int i = 0; i < n; i++) {
            cgp__item *item = list[i];
            if (!item->saved || item->start >= turns.input ||
                (item->end >= turns.weight) != (rank == 0))
                continue;
            item->place = (cgp__place){CGP__SAVED_SLOT, height};
            height += item->bytes;
            placed[(*n_placed)++] = item;
        }
    }
    sort(list, n, by_time);
    int64_t depth = 0, top = height;
    for (int i = 0; i < n && gradients; i++) {
        if (!list[i]->saved || list[i]->start < turns.input) continue;
        depth += list[i]->bytes;
        for (int k = 0; k < *n_placed; k++) {
            const cgp__item *below = placed[k];
            if (below->end >= list[i]->start &&
                depth + below->place.offset + below->bytes > top)
                top = depth + below->place.offset + below->bytes;
        }
        top = depth > top ? depth : top;
    }
    depth = 0;
    for (int i = 0; i < n && gradients; i++) {
        cgp__item *item = list[i];
        if (!item->saved || item->start < turns.input) continue;
        depth += item->bytes;
        item->place = (cgp__place){CGP__SAVED_SLOT, top - depth};
        placed[(*n_placed)++] = item;
    }
    return top;
}

static int64_t plain_others(cgp__item **list, int n, order *before, cgp__item **placed,
                            int n_placed, int64_t slot) {
    int64_t workspace = 0;
    sort(list, n, before);
    for (int i = 0; i < n; i++) {
        cgp__item *item = list[i];
        if (item->saved) continue;
        int64_t offset = lowest(placed, n_placed, item, CGP__SAVED_SLOT);
        const bool fits = offset + item->bytes <= slot;
        if (!fits) offset = lowest(placed, n_placed, item, CGP__WORKSPACE);
        item->place = (cgp__place){fits ? CGP__SAVED_SLOT : CGP__WORKSPACE, offset};
        placed[n_placed++] = item;
        if (!fits && offset + item->bytes > workspace) workspace = offset + item->bytes;
    }
    return workspace;
}

/* The first of the orders with the smallest workspace. */
static void plain_pack(cgp__item *items, int n, cgp__layout_turns turns, int64_t *slot,
                       int64_t *workspace) {
    cgp__item **list = calloc(2 * (size_t)n, sizeof *list), **placed = list + n;
    int saved = 0, best = 0;
    for (int i = 0; i < n; i++)
        list[i] = &items[i];
    *slot = plain_saved(list, n, turns, placed, &saved);
    *workspace = INT64_MAX;
    for (int k = 0; k < 5; k++) {
        const int64_t bytes = plain_others(list, n, orders[k], placed, saved, *slot);
        if (bytes < *workspace) best = k;
        if (bytes < *workspace) *workspace = bytes;
    }
    (void)plain_others(list, n, orders[best], placed, saved, *slot);
    free(list);
}

/* --- random items --- */

/* As programs leave them, of `nodes` nodes: saved ones live from forward into backward, in halves some from I
 * into W; others live shortly, and a few for long. */
static void draw(uint64_t *state, cgp__item *items, int n, int nodes, cgp__layout_turns turns,
                 bool halves) {
    const int last = 4 * nodes + 3;
    const int longest = test_between(state, 0, nodes);
    for (int i = 0; i < n; i++) {
        cgp__item *item = &items[i];
        *item = (cgp__item){.bytes = 64 * test_between(state, 1, 40)};
        item->saved = test_between(state, 0, 2) == 0;
        item->start = test_between(state, 0, item->saved ? nodes - 1 : last);
        item->end =
            item->start + test_between(state, 0, test_between(state, 0, 19) == 0 ? longest : 6);
        if (item->saved && halves && test_between(state, 0, 1) == 0) {
            item->start = test_between(state, turns.input, turns.weight - 1);
            item->end = test_between(state, turns.weight, last);
        } else if (item->saved) {
            /* what is made last is read first, more or less */
            const int half = halves && test_between(state, 0, 1) ? turns.weight : turns.input;
            item->end = half + 2 * (nodes - 1 - item->start) / (half == turns.weight ? 2 : 1) +
                        test_between(state, 0, 3);
        }
        item->end = item->end > last ? last : item->end;
    }
}

/* A round; the layout's workspace and slot are the plain one's. */
static void compare_layouts(uint64_t *state, int n) {
    const int nodes = n / test_between(state, 2, 4) + 2;
    const cgp__layout_turns turns = {nodes + 1, 3 * nodes + 3};
    cgp__item *items = calloc((size_t)n, sizeof *items),
              *plain = calloc((size_t)n, sizeof *items);
    int64_t slot, workspace, plain_slot, plain_workspace, steps = 0;
    draw(state, items, n, nodes, turns, test_between(state, 0, 1));
    memcpy(plain, items, (size_t)n * sizeof *items);
    assert_ok(cgp__layout_pack(items, n, turns, &slot, &workspace, &steps));
    plain_pack(plain, n, turns, &plain_slot, &plain_workspace);
    assert_int_equal(slot, plain_slot);
    assert_int_equal(workspace, plain_workspace);
    for (int i = 0; i < n; i++) {
        assert_int_equal(items[i].place.arena, plain[i].place.arena);
        assert_int_equal(items[i].place.offset, plain[i].place.offset);
    }
    free(plain);
    free(items);
}

static void places_are_those_of_a_plain_layout(void **unused) {
    (void)unused;
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
    print_message("%s: %lld steps, %lld for twice as much: %.2f times\n", what,
                  (long long)steps, (long long)twice, (double)twice / (double)steps);
    assert_true(steps > 1000);
    assert_true((double)twice < 2.5 * (double)steps);
}

/* Not seconds but turns of the loops that look for places, messages and kernels: twice the layers take little more
 * than twice as many. */
static void twice_the_layers_take_twice_the_steps(void **unused) {
    (void)unused;
    assert_near_linear("gpt2, one stage", steps_of(gpt2(100), 1, 4, "gpipe"),
                       steps_of(gpt2(200), 1, 4, "gpipe"));
    assert_near_linear("gpt2, 16 stages", steps_of(gpt2(160), 16, 8, "1f1b"),
                       steps_of(gpt2(320), 16, 8, "1f1b"));
    assert_near_linear("gpt2, backward in halves", steps_of(gpt2(160), 4, 8, "zb-h1"),
                       steps_of(gpt2(320), 4, 8, "zb-h1"));
    assert_near_linear("gpt2, a stage for two layers", steps_of(gpt2(100), 50, 4, "1f1b"),
                       steps_of(gpt2(200), 100, 4, "1f1b"));
    assert_near_linear("unet", steps_of(unet(20), 3, 4, "1f1b"),
                       steps_of(unet(40), 3, 4, "1f1b"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_are_those_of_a_plain_layout),
        cmocka_unit_test(twice_the_layers_take_twice_the_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
