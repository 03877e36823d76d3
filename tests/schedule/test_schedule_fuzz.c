/* SPDX-License-Identifier: Apache-2.0 */
/* test_schedule_fuzz.c -- tests random schedules, given as tables of actions. For correct tables,
 * no capacities below the reported minimum may suffice. For damaged tables, the checker must agree
 * with a simple reference executor, which has no index and does not search for cycles. */
#include "support.h"

#include "schedule_lists.h"

#define STAGES 4
#define CHUNKS 4
#define EDGES 16
#define LENGTH 384 /* capacity of a list; correct lists have up to 160 actions */

typedef struct tables {
    int stages, chunks, devices, n_edges;
    int device_of[STAGES];
    cgp_edge edges[EDGES];
    cgp_action lists[STAGES][LENGTH];
    int counts[STAGES];
    bool lowered;
} tables;

static cgp_status make(cgp_schedule **out, const tables *t) {
    const cgp_action *const lists[] = {t->lists[0], t->lists[1], t->lists[2], t->lists[3]};
    const test_schedule_table table = {.name = "random",
                                       .stages = t->stages,
                                       .chunks = t->chunks,
                                       .devices = t->devices,
                                       .device_of = t->device_of,
                                       .lists = lists,
                                       .counts = t->counts,
                                       .lowered = t->lowered,
                                       .edges = t->edges,
                                       .n_edges = t->lowered ? t->n_edges : 0};
    return test_schedule_from_lists(out, &table);
}

static void copy_lists(tables *t, const cgp_schedule *schedule) {
    for (int device = 0; device < t->devices; device++) {
        const cgp_action *list = cgp_schedule_actions(schedule, device, &t->counts[device]);
        assert_true(t->counts[device] < LENGTH);
        for (int i = 0; i < t->counts[device]; i++) /* an empty list may be NULL */
            t->lists[device][i] = list[i];
    }
}

/* --- correct tables: repeatedly draw an action that can run next, until none is left --- */

typedef struct progress {
    bool done[CGP__COMPUTE_KINDS][STAGES][CHUNKS];
    bool sent[EDGES][CHUNKS], posted[EDGES][CHUNKS];
    /* see find_needs() */
    bool needs[STAGES], weight[STAGES], backward;
} progress;

static bool started_backward(const progress *p, int j, int i) {
    return p->done[CGP_ACTION_B][j][i] || p->done[CGP_ACTION_I][j][i];
}

/* Return true if stage `j` of a chain can run an action of micro-batch `i` next. If `split` is
 * true, the micro-batch has I and W instead of B. If `again` is true, it has R before backward. */
static bool is_ready(const tables *t, const progress *p, cgp_action_kind kind, int j, int i,
                     bool split, bool again) {
    if (p->done[kind][j][i]) return false;
    const bool forward = p->done[CGP_ACTION_F][j][i], last = j == t->stages - 1;
    switch (kind) {
    case CGP_ACTION_F:
        return j == 0 || p->done[CGP_ACTION_F][j - 1][i];
    case CGP_ACTION_R:
        return again && forward && !started_backward(p, j, i);
    case CGP_ACTION_B:
    case CGP_ACTION_I:
        return split == (kind == CGP_ACTION_I) && forward &&
               (!again || p->done[CGP_ACTION_R][j][i]) && (last || started_backward(p, j + 1, i));
    default:
        return split && p->done[CGP_ACTION_I][j][i];
    }
}

static void draw_compute(tables *t, uint64_t *seed, bool backward) {
    progress p = {0};
    /* NOLINTNEXTLINE(misc-redundant-expression): two draws */
    const uint64_t split = test_random(seed) & test_random(seed), again = test_random(seed);
    for (;;) {
        cgp_action ready[CGP__COMPUTE_KINDS * STAGES * CHUNKS];
        int n = 0;
        for (int kind = 0; kind < (backward ? CGP__COMPUTE_KINDS : 1); kind++) {
            for (int cell = 0; cell < t->stages * t->chunks; cell++) {
                const int j = cell / t->chunks, i = cell % t->chunks;
                if (is_ready(t, &p, (cgp_action_kind)kind, j, i, split >> cell & 1,
                             again >> cell & 1))
                    ready[n++] = (cgp_action){
                        .kind = (cgp_action_kind)kind, .stage = j, .microbatch = i, .edge = -1};
            }
        }
        if (n == 0) return;
        const cgp_action a = ready[test_between(seed, 0, n - 1)];
        const int device = t->device_of[a.stage];
        p.done[a.kind][a.stage][a.microbatch] = true;
        t->lists[device][t->counts[device]++] = a;
    }
}

static void draw_edges(tables *t, uint64_t *seed) {
    for (int j = 0; j + 1 < t->stages; j++) {
        t->edges[t->n_edges++] = (cgp_edge){j, j + 1};
        t->edges[t->n_edges++] = (cgp_edge){j + 1, j};
    }
    for (int k = t->stages > 1 ? test_between(seed, 0, 6) : 0; k > 0; k--) {
        const int from = test_between(seed, 0, t->stages - 1),
                  to = test_between(seed, 0, t->stages - 1);
        if (from != to) t->edges[t->n_edges++] = (cgp_edge){from, to};
    }
    for (int e = t->n_edges - 1; e > 0; e--) { /* so that the chain's edges are not always first */
        const int other = test_between(seed, 0, e);
        const cgp_edge edge = t->edges[e];
        t->edges[e] = t->edges[other];
        t->edges[other] = edge;
    }
}

static void insert_action(tables *t, int device, int position, cgp_action a) {
    cgp_action *list = t->lists[device];
    memmove(list + position + 1, list + position,
            (size_t)(t->counts[device]++ - position) * sizeof a);
    list[position] = a;
}

static cgp_action remove_action(tables *t, int device, int position) {
    cgp_action *list = t->lists[device];
    const cgp_action a = list[position];
    memmove(list + position, list + position + 1,
            (size_t)(--t->counts[device] - position) * sizeof a);
    return a;
}

/* Return the first position to which receive number `i` may move: after the last earlier receive of
 * the same action. */
static int first_position(const tables *t, int device, int i) {
    const cgp_action *list = t->lists[device];
    for (int k = i - 1; k >= 0; k--) {
        if (list[k].kind == list[i].kind && list[k].stage == list[i].stage &&
            list[k].microbatch == list[i].microbatch)
            return k + 1;
    }
    return 0;
}

/* Move some receives to earlier positions; receives of one action keep their order. */
static cgp_schedule *post_early(cgp_schedule *schedule, tables *t, uint64_t *seed) {
    cgp_schedule_destroy(schedule);
    for (int device = 0; device < t->devices; device++) {
        for (int i = 1; i < t->counts[device]; i++) {
            if (!cgp__is_receive(t->lists[device][i].kind) || test_between(seed, 0, 2) == 0)
                continue;
            const int to = test_between(seed, first_position(t, device, i), i);
            insert_action(t, device, to, remove_action(t, device, i));
        }
    }
    assert_ok(make(&schedule, t));
    return schedule;
}

/* Freeze the parameters of random stages. Stages that then have no backward lose their gradient
 * edges. */
static void draw_frozen(tables *t, cgp_schedule *schedule, uint64_t *seed) {
    cgp_stage_backward stages[STAGES];
    int kept = 0;
    for (int j = 0; j < t->stages; j++)
        stages[j] = (cgp_stage_backward)test_between(seed, CGP_BACKWARD_FULL, CGP_BACKWARD_NONE);
    assert_ok(cgp_schedule_freeze(schedule, stages));
    for (int e = 0; e < t->n_edges; e++) {
        const cgp_edge edge = t->edges[e];
        if (cgp__is_gradient(edge) &&
            (stages[edge.from] == CGP_BACKWARD_NONE || stages[edge.to] == CGP_BACKWARD_NONE))
            continue;
        t->edges[kept++] = edge;
    }
    t->n_edges = kept;
}

/* Draw a correct table and lower it. Return the lowered schedule, and set `t` to the schedule's
 * lists. */
static cgp_schedule *draw_lowered(tables *t, uint64_t *seed) {
    *t = (tables){.stages = test_between(seed, 1, STAGES), .chunks = test_between(seed, 1, CHUNKS)};
    t->devices = test_between(seed, 1, t->stages);
    for (int j = 0; j < t->stages; j++)
        t->device_of[j] = test_between(seed, 0, t->devices - 1);
    draw_compute(t, seed, test_between(seed, 0, 9) > 0);
    draw_edges(t, seed);
    cgp_schedule *schedule = NULL;
    assert_ok(make(&schedule, t));
    if (test_between(seed, 0, 2) == 0) draw_frozen(t, schedule, seed);
    assert_ok(cgp_schedule_lower(schedule, t->edges, t->n_edges));
    t->lowered = true;
    copy_lists(t, schedule);
    return schedule;
}

/* Draw a correct table; half of the time, some of its receives are posted early. */
static cgp_schedule *draw_schedule(tables *t, uint64_t *seed) {
    cgp_schedule *schedule = draw_lowered(t, seed);
    return test_between(seed, 0, 1) ? post_early(schedule, t, seed) : schedule;
}

/* --- the reference executor --- */

/* Consider the messages of one kind (activations or gradients) for a stage and a micro-batch.
 * Return true if all of them have been sent, and a receive has been posted for each. */
static bool all_received(const tables *t, const progress *p, int stage, int microbatch,
                         bool gradient) {
    for (int e = 0; e < t->n_edges; e++) {
        if (cgp__is_gradient(t->edges[e]) == gradient && t->edges[e].to == stage &&
            !(p->sent[e][microbatch] && p->posted[e][microbatch]))
            return false;
    }
    return true;
}

/* Find the stages that must have a complete backward: these stages have a backward action or a
 * gradient edge. Find the stages that must have W: these stages have a W, or both B and I. */
static void find_needs(const tables *t, progress *p) {
    bool both[STAGES] = {false}, input[STAGES] = {false};
    for (int device = 0; device < t->devices; device++) {
        for (int i = 0; i < t->counts[device]; i++) {
            const cgp_action *a = &t->lists[device][i];
            both[a->stage] |= a->kind == CGP_ACTION_B;
            input[a->stage] |= a->kind == CGP_ACTION_I;
            p->weight[a->stage] |= a->kind == CGP_ACTION_W;
        }
    }
    for (int j = 0; j < t->stages; j++) {
        p->weight[j] |= both[j] && input[j];
        p->needs[j] = both[j] || input[j] || p->weight[j];
        p->backward |= p->needs[j];
    }
    for (int e = 0; p->backward && e < t->n_edges; e++) {
        if (cgp__is_gradient(t->edges[e]))
            p->needs[t->edges[e].from] = p->needs[t->edges[e].to] = true;
    }
}

static bool transfer(const tables *t, progress *p, const cgp_action *a, bool backward) {
    const int e = a->edge, i = a->microbatch;
    const bool gradient = a->kind == CGP_ACTION_SEND_B || a->kind == CGP_ACTION_RECV_B;
    if (gradient != cgp__is_gradient(t->edges[e]) || (gradient && !backward)) return false;
    if (a->kind == CGP_ACTION_RECV_F || a->kind == CGP_ACTION_RECV_B) {
        if (a->stage != t->edges[e].to || p->posted[e][i]) return false;
        return p->posted[e][i] = true;
    }
    const bool made =
        gradient ? started_backward(p, a->stage, i) : p->done[CGP_ACTION_F][a->stage][i];
    if (a->stage != t->edges[e].from || !made || p->sent[e][i]) return false;
    return p->sent[e][i] = true;
}

/* Run an action if every rule allows the action to run next; return true if it has run. */
static bool can_do(const tables *t, progress *p, const cgp_action *a, bool backward) {
    const int j = a->stage, i = a->microbatch;
    if (cgp__is_transfer(a->kind)) return transfer(t, p, a, backward);
    if (p->done[a->kind][j][i]) return false;
    bool right = p->done[CGP_ACTION_F][j][i];
    if (a->kind == CGP_ACTION_F)
        right = all_received(t, p, j, i, false);
    else if (a->kind == CGP_ACTION_R)
        right = right && p->needs[j] && !started_backward(p, j, i);
    else if (a->kind == CGP_ACTION_W)
        right = p->done[CGP_ACTION_I][j][i];
    else
        right = right && !started_backward(p, j, i) && all_received(t, p, j, i, true);
    if (right) p->done[a->kind][j][i] = true;
    return right;
}

static bool is_complete(const tables *t, const progress *p, bool backward) {
    for (int i = 0; i < t->chunks; i++) {
        for (int j = 0; j < t->stages; j++) {
            if (!p->done[CGP_ACTION_F][j][i]) return false;
            const cgp_action_kind end = p->weight[j] ? CGP_ACTION_W : CGP_ACTION_I;
            if (p->needs[j] && !p->done[CGP_ACTION_B][j][i] && !p->done[end][j][i]) return false;
        }
        for (int e = 0; e < t->n_edges; e++) {
            if ((backward || !cgp__is_gradient(t->edges[e])) && !(p->sent[e][i] && p->posted[e][i]))
                return false;
        }
    }
    return true;
}

static bool runs_plainly(const tables *t) {
    progress p = {0};
    int next[STAGES] = {0};
    bool moved = true;
    find_needs(t, &p);
    const bool backward = p.backward;
    while (moved) {
        moved = false;
        for (int device = 0; device < t->devices; device++) {
            while (next[device] < t->counts[device] &&
                   can_do(t, &p, &t->lists[device][next[device]], backward)) {
                next[device]++;
                moved = true;
            }
        }
    }
    for (int device = 0; device < t->devices; device++) {
        if (next[device] < t->counts[device]) return false;
    }
    return is_complete(t, &p, backward);
}

/* --- capacities --- */

static bool runs_with(const cgp_schedule *schedule, const int *capacity) {
    const cgp_schedule_costs costs = {.capacity = capacity};
    cgp_schedule_timeline timeline;
    if (cgp_schedule_simulate(schedule, &costs, &timeline) == CGP_OK) {
        cgp_schedule_timeline_release(&timeline);
        return true;
    }
    assert_message("schedule: deadlock: device ");
    return false;
}

/* Set `capacity` to the next combination of capacities from 1 to `min[e]` on each edge e, in
 * descending order. Return false after the last combination. */
static bool next_smaller(int *capacity, const int *min, int n_edges) {
    for (int e = 0; e < n_edges; e++) {
        if (--capacity[e] >= 1) return true;
        capacity[e] = min[e];
    }
    return false;
}

TEST_CASE(nothing_below_the_min_capacity_runs) {
    uint64_t seed = test_seed();
    int tried = 0, above_one = 0;
    for (int round = 0; round < 400; round++) {
        tables t;
        cgp_schedule *schedule = draw_schedule(&t, &seed);
        cgp_schedule_report report;
        assert_ok(cgp_schedule_check(schedule, &report));
        int capacity[EDGES], max = 1, vectors = 0;
        for (int e = 0; e < t.n_edges; e++) {
            capacity[e] = report.min_capacity[e];
            max = capacity[e] > max ? capacity[e] : max;
        }
        above_one += max > 1;
        assert_true(runs_with(schedule, capacity));
        while (next_smaller(capacity, report.min_capacity, t.n_edges) && vectors++ < 200)
            assert_false(runs_with(schedule, capacity));
        tried += vectors;
        /* If all edges have the same capacity, the smallest sufficient capacity is the largest of
         * the edges' minimum capacities. */
        for (int e = 0; e < t.n_edges; e++)
            capacity[e] = max;
        assert_true(runs_with(schedule, capacity));
        for (int e = 0; e < t.n_edges; e++)
            capacity[e] = max - 1;
        if (max > 1) assert_false(runs_with(schedule, capacity));
        cgp_schedule_report_release(&report);
        cgp_schedule_destroy(schedule);
    }
    print_message("%d tables need more than one buffer; %d smaller vectors tried\n", above_one,
                  tried);
    assert_true(above_one > 20 && tried > 20);
}

/* Draw costs that are small integers, so that many actions end at equal times. */
static void draw_costs(cgp_schedule_costs *costs, double values[5][EDGES], uint64_t *seed) {
    const int max = test_between(seed, 0, 3);
    for (int k = 0; k < 5; k++) {
        for (int i = 0; i < EDGES; i++)
            values[k][i] = test_between(seed, 0, max);
    }
    *costs = (cgp_schedule_costs){.forward = values[0],
                                  .backward_input = values[1],
                                  .backward_weight = values[2],
                                  .recompute = values[3],
                                  .latency = values[4]};
}

/* Return true if every action starts and ends at the same times in both timelines. */
static bool same_times(const cgp_schedule *s, const cgp_schedule_timeline *a,
                       const cgp_schedule_timeline *b) {
    for (int device = 0; device < s->devices; device++) {
        const size_t bytes = (size_t)s->counts[device] * sizeof(double);
        if (bytes && (memcmp(a->start[device], b->start[device], bytes) != 0 ||
                      memcmp(a->end[device], b->end[device], bytes) != 0))
            return false;
    }
    return true;
}

TEST_CASE(with_the_free_capacity_no_sender_waits_and_with_less_one_does) {
    uint64_t seed = test_seed();
    for (int round = 0; round < 600; round++) {
        tables t;
        double values[5][EDGES];
        cgp_schedule_costs costs;
        cgp_schedule_timeline unbounded, bounded;
        cgp_schedule *schedule = draw_schedule(&t, &seed);
        draw_costs(&costs, values, &seed);
        assert_ok(cgp_schedule_simulate(schedule, &costs, &unbounded));
        int capacity[EDGES];
        memcpy(capacity, unbounded.free_capacity, (size_t)t.n_edges * sizeof *capacity);
        costs.capacity = capacity;
        assert_ok(cgp_schedule_simulate(schedule, &costs, &bounded));
        assert_true(same_times(schedule, &unbounded, &bounded));
        assert_memory_equal(capacity, bounded.free_capacity, (size_t)t.n_edges * sizeof *capacity);
        cgp_schedule_timeline_release(&bounded);
        for (int e = 0; e < t.n_edges; e++) {
            if (capacity[e] == 1) continue;
            capacity[e]--;
            if (cgp_schedule_simulate(schedule, &costs, &bounded) == CGP_OK) {
                assert_false(same_times(schedule, &unbounded, &bounded));
                cgp_schedule_timeline_release(&bounded);
            } else {
                assert_message("schedule: deadlock: device ");
            }
            capacity[e]++;
        }
        cgp_schedule_timeline_release(&unbounded);
        cgp_schedule_destroy(schedule);
    }
}

/* Return the arrival time of the last message that a compute action needs. */
static double last_arrival(const tables *t, double arrival[EDGES][CHUNKS], const cgp_action *a) {
    double last = 0.0;
    if (a->kind != CGP_ACTION_F && !cgp__starts_backward(a->kind)) return last;
    for (int e = 0; e < t->n_edges; e++) {
        if (t->edges[e].to == a->stage &&
            cgp__is_gradient(t->edges[e]) == (a->kind != CGP_ACTION_F))
            last = fmax(last, arrival[e][a->microbatch]);
    }
    return last;
}

/* The simulation starts each action as early as the rules allow. An action starts when the previous
 * action on the device has ended; an F, B or I also needs its messages. The time of a RECV is the
 * time at which its message is taken, wherever the RECV is in the list. */
TEST_CASE(every_action_starts_as_soon_as_it_can) {
    uint64_t seed = test_seed();
    for (int round = 0; round < 300; round++) {
        tables t;
        double values[5][EDGES], arrival[EDGES][CHUNKS] = {{0}};
        cgp_schedule_costs costs;
        cgp_schedule_timeline x;
        cgp_schedule *schedule = draw_schedule(&t, &seed);
        draw_costs(&costs, values, &seed);
        assert_ok(cgp_schedule_simulate(schedule, &costs, &x));
        for (int device = 0; device < t.devices; device++) {
            for (int i = 0; i < t.counts[device]; i++) {
                const cgp_action *a = &t.lists[device][i];
                if (cgp__is_send(a->kind))
                    arrival[a->edge][a->microbatch] = x.end[device][i] + values[4][a->edge];
            }
        }
        for (int device = 0; device < t.devices; device++) {
            double clock = 0.0;
            for (int i = 0; i < t.counts[device]; i++) {
                const cgp_action *a = &t.lists[device][i];
                const double cost[] = {
                    values[0][a->stage], values[1][a->stage] + values[2][a->stage],
                    values[1][a->stage], values[2][a->stage], values[3][a->stage]};
                if (cgp__is_receive(a->kind)) {
                    assert_true(x.start[device][i] >= arrival[a->edge][a->microbatch]);
                    assert_float_equal(x.end[device][i], x.start[device][i], 0.0);
                    continue;
                }
                clock = fmax(clock, last_arrival(&t, arrival, a));
                assert_float_equal(x.start[device][i], clock, 0.0);
                clock += cgp__is_transfer(a->kind) ? 0.0 : cost[a->kind];
                assert_float_equal(x.end[device][i], clock, 0.0);
            }
        }
        cgp_schedule_timeline_release(&x);
        cgp_schedule_destroy(schedule);
    }
}

/* Assert that the compute actions of two schedules run at the same times. In one schedule, each
 * receive comes directly before the action that needs it. In the other schedule, some receives come
 * earlier. */
static void assert_same_compute(const cgp_schedule *a, const cgp_schedule_timeline *x,
                                const cgp_schedule *b, const cgp_schedule_timeline *y) {
    for (int device = 0; device < a->devices; device++) {
        int k = 0;
        for (int i = 0; i < a->counts[device]; i++) {
            if (cgp__is_receive(a->lists[device][i].kind)) continue;
            while (cgp__is_receive(b->lists[device][k].kind))
                k++;
            assert_int_equal(a->lists[device][i].kind, b->lists[device][k].kind);
            assert_float_equal(x->start[device][i], y->start[device][k], 0.0);
            assert_float_equal(x->end[device][i], y->end[device][k++], 0.0);
        }
    }
}

/* Check that the critical path has no gap: every compute action on the path starts at time 0 or
 * when its predecessor on the path ends. */
static void assert_path_is_whole(const cgp_schedule *s, const cgp_schedule_timeline *t) {
    double last = 0.0;
    for (int device = 0; device < s->devices; device++) {
        for (int i = 0; i < s->counts[device]; i++) {
            if (!t->critical[device][i]) continue;
            last = fmax(last, t->end[device][i]);
            bool begun = t->start[device][i] == 0.0;
            for (int d = 0; d < s->devices && !begun; d++) {
                for (int k = 0; k < s->counts[d]; k++)
                    begun = begun || (t->critical[d][k] && (d != device || k != i) &&
                                      t->end[d][k] <= t->start[device][i]);
            }
            assert_true(begun);
        }
    }
    assert_float_equal(last, t->makespan, 0.0);
}

/* Check that a schedule runs with the buffers in `capacity`, and that each action runs at the same
 * time as without a limit. */
static void assert_capacity_is_free(const cgp_schedule *s, cgp_schedule_costs costs,
                                    const int *capacity, const cgp_schedule_timeline *unlimited) {
    cgp_schedule_timeline limited;
    costs.capacity = capacity;
    assert_ok(cgp_schedule_simulate(s, &costs, &limited));
    assert_same_compute(s, unlimited, s, &limited);
    cgp_schedule_timeline_release(&limited);
}

/* Posting a RECV early does not change when actions run, but may need more buffers. Capacities that
 * suffice for early receives also suffice for late receives. But the minimum capacity of a single
 * edge may be larger with early receives or with late receives: one more buffer on any of several
 * edges may resolve a deadlock. */
TEST_CASE(a_receive_posted_early_changes_no_time) {
    uint64_t seed = test_seed();
    int more = 0;
    for (int round = 0; round < 400; round++) {
        tables t;
        double values[5][EDGES];
        cgp_schedule_costs costs;
        cgp_schedule_timeline late, early;
        cgp_schedule_report late_report, early_report;
        cgp_schedule *schedule = draw_lowered(&t, &seed), *copy = cgp__copy_lowered(schedule);
        cgp_schedule *moved = post_early(schedule, &t, &seed);
        draw_costs(&costs, values, &seed);
        assert_ok(cgp_schedule_simulate(copy, &costs, &late));
        assert_ok(cgp_schedule_simulate(moved, &costs, &early));
        assert_ok(cgp_schedule_check(copy, &late_report));
        assert_ok(cgp_schedule_check(moved, &early_report));
        assert_same_compute(copy, &late, moved, &early);
        assert_float_equal(late.makespan, early.makespan, 0.0);
        assert_float_equal(late.span, early.span, 0.0);
        assert_float_equal(late.bubble_span, early.bubble_span, 0.0);
        assert_path_is_whole(moved, &early);
        assert_capacity_is_free(copy, costs, early.free_capacity, &late);
        for (int e = 0; e < t.n_edges; e++)
            more += early_report.min_capacity[e] > late_report.min_capacity[e];
        char *picture = cgp_schedule_draw(copy), *same = cgp_schedule_draw(moved);
        assert_string_equal(picture, same);
        free(same);
        free(picture);
        cgp_schedule_report_release(&early_report);
        cgp_schedule_report_release(&late_report);
        cgp_schedule_timeline_release(&early);
        cgp_schedule_timeline_release(&late);
        cgp_schedule_destroy(moved);
        cgp_schedule_destroy(copy);
    }
    print_message("%d edges need more buffers\n", more);
    assert_true(more > 20);
}

/* --- broken tables --- */

static void shuffle(tables *t, int device, uint64_t *seed) {
    for (int i = t->counts[device] - 1; i > 0; i--)
        insert_action(t, device, i, remove_action(t, device, test_between(seed, 0, i)));
}

/* Make one random change to a table. Most changes leave the table almost correct. */
static void damage(tables *t, uint64_t *seed) {
    const int device = test_between(seed, 0, t->devices - 1), count = t->counts[device];
    if (count == 0 || count + 4 > LENGTH) return;
    const int here = test_between(seed, 0, count - 1), there = test_between(seed, 0, count - 1);
    cgp_action *list = t->lists[device], *a = &list[here];
    const cgp_action other = list[there];
    switch (test_between(seed, 0, 9)) {
    case 0: /* move an action */
        insert_action(t, device, there, remove_action(t, device, here));
        return;
    case 1: /* swap neighbouring actions */
        if (here + 1 < count) insert_action(t, device, here, remove_action(t, device, here + 1));
        return;
    case 2: /* swap any two actions */
        list[there] = *a;
        *a = other;
        return;
    case 3:
        remove_action(t, device, here);
        return;
    case 4:
        insert_action(t, device, there, *a);
        return;
    case 5:
        a->microbatch = test_between(seed, -1, t->chunks);
        return;
    case 6:
        a->kind = (cgp_action_kind)test_between(seed, -1, CGP_ACTION_RECV_B + 1);
        return;
    case 7:
        a->stage = test_between(seed, -1, t->stages);
        return;
    case 8:
        if (a->edge >= 0) a->edge = test_between(seed, -1, t->n_edges);
        return;
    default:
        if (test_between(seed, 0, 5) == 0) shuffle(t, device, seed);
    }
}

/* Check that an accepted table can be drawn, simulated and run to the end, also with the minimum
 * capacities. */
static void assert_runs(const cgp_schedule *schedule) {
    cgp_schedule_report report;
    cgp_schedule_timeline timeline;
    assert_ok(cgp_schedule_check(schedule, &report));
    assert_ok(cgp_schedule_simulate(schedule, NULL, &timeline));
    assert_true(runs_with(schedule, report.min_capacity));
    assert_true(runs_with(schedule, timeline.free_capacity));
    char *picture = cgp_schedule_draw(schedule);
    assert_non_null(picture);
    free(picture);
    cgp_schedule_timeline_release(&timeline);
    cgp_schedule_report_release(&report);
}

static void assert_stopped(const cgp_schedule *schedule) {
    cgp_schedule_timeline timeline;
    assert_status(cgp_schedule_check(schedule, NULL), CGP_EINVAL);
    assert_message("schedule: de"); /* "device ...", or "deadlock: ..." */
    assert_status(cgp_schedule_simulate(schedule, NULL, &timeline), CGP_EINVAL);
    assert_null(cgp_schedule_draw(schedule));
}

TEST_CASE(a_damaged_table_is_refused_exactly_if_it_cannot_run) {
    uint64_t seed = test_seed();
    int refused_at_once = 0, refused = 0, deadlocked = 0, accepted = 0;
    for (int round = 0; round < 20000; round++) {
        tables t;
        cgp_schedule_destroy(draw_schedule(&t, &seed));
        for (int changes = test_between(&seed, 1, 3); changes > 0; changes--)
            damage(&t, &seed);
        cgp_schedule *schedule = NULL;
        const cgp_status status = make(&schedule, &t);
        if (status != CGP_OK) {
            assert_int_equal(status, CGP_EINVAL);
            assert_message("schedule: device ");
            assert_null(schedule);
            refused_at_once++;
        } else if (runs_plainly(&t)) {
            assert_runs(schedule);
            accepted++;
        } else {
            assert_stopped(schedule);
            refused++;
            deadlocked += strstr(cgp_message(), "deadlock") != NULL;
        }
        cgp_schedule_destroy(schedule);
    }
    print_message("%d refused at once, %d by the checker, %d of them for a deadlock; %d accepted\n",
                  refused_at_once, refused, deadlocked, accepted);
    assert_true(refused_at_once > 500 && refused > 500 && deadlocked > 50 && accepted > 500);
}

/* The functions that insert recomputations, insert transfers and draw a schedule accept damaged
 * tables. The checker finds the damage after lowering. */
TEST_CASE(damage_before_lowering_is_found_after_it) {
    uint64_t seed = test_seed();
    for (int round = 0; round < 5000; round++) {
        tables t;
        cgp_schedule *schedule = NULL;
        cgp_schedule_destroy(draw_schedule(&t, &seed));
        for (int device = 0; device < t.devices; device++) {
            for (int i = t.counts[device] - 1; i >= 0; i--) {
                const cgp_action_kind kind = t.lists[device][i].kind;
                if (cgp__is_transfer(kind) || kind == CGP_ACTION_R) remove_action(&t, device, i);
            }
        }
        t.lowered = false;
        for (int changes = test_between(&seed, 0, 3); changes > 0; changes--)
            damage(&t, &seed);
        if (make(&schedule, &t) != CGP_OK) continue;
        free(cgp_schedule_draw(schedule));
        const cgp_recompute mode = (cgp_recompute)test_between(&seed, 0, 2);
        const bool recomputed =
            cgp_schedule_recompute(schedule, mode) == CGP_OK; /* fails if the damage added an R */
        assert_ok(cgp_schedule_lower(schedule, t.edges, t.n_edges));
        assert_status(cgp_schedule_recompute(schedule, mode), CGP_ESTATE);
        t.lowered = true;
        copy_lists(&t, schedule);
        assert_true(recomputed || strstr(cgp_message(), "lowered"));
        if (runs_plainly(&t))
            assert_runs(schedule);
        else
            assert_stopped(schedule);
        cgp_schedule_destroy(schedule);
    }
}
