/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_slots.c -- check the slots of planned action lists without running the lists. A slot is
 * in use from the first to the last action of the list that uses it:
 *
 *     list          RECV_F 1   F 1   SEND_F 1   ...   RECV_B 1   B 1   SEND_B 1
 *     input slot    |---------------------------------------------|
 *     saved slot               |---------------------------------------------|
 *     gradient slot                                 |------------------------|
 */
#include "graphs.h"

#include "model/model.h"
#include "plan/list.h"
#include "plan/plan.h"
#include "schedule_lists.h"

#include <stdlib.h>

/* A slot of one micro-batch: its range in the pool, and the first and last action that use it. */
typedef struct range {
    int64_t at, bytes;
    int first, last; /* indexes of the first and last action that use it */
} range;

enum { INPUT, SAVED, GRADIENT, KINDS };

/* The slots of an action list, indexed [stages][KINDS][chunks]. */
typedef struct ranges {
    range *of;
    int n;
} ranges;

static void use(range *r, int64_t at, int64_t bytes, int action) {
    if (at < 0 || bytes == 0) return;
    if (r->bytes == 0) *r = (range){at, bytes, action, action};
    assert_int_equal(r->at, at);
    r->last = action;
}

static bool uses(const cgp__call *call, cgp__arena arena) {
    bool found =
        call->y.arena == arena || call->dy.arena == arena || call->workspace.arena == arena;
    for (int k = 0; k < CGP_OP_MAX_INPUTS; k++)
        found = found || call->x[k].arena == arena || call->dx[k].arena == arena;
    for (int k = 0; k < CGP_OP_MAX_SAVED; k++)
        found = found || call->saved[k].arena == arena;
    return found;
}

/* Check that an action has an input, saved or gradient slot if one of its operands is in a slot of
 * that kind. */
static void check_operands(const cgp_plan *plan, const cgp__bound_action *bound,
                           const cgp__variant *v) {
    const cgp__program *program = &cgp__plan_stage(plan, v->stage)->programs[v->program];
    for (int i = v->begin; i < v->end; i++) {
        assert_true(v->input_slot >= 0 || !uses(&program->calls[i], CGP__INPUT_SLOT));
        assert_true(v->saved_slot >= 0 || !uses(&program->calls[i], CGP__SAVED_SLOT));
        assert_true(v->gradient_slot >= 0 || !uses(&program->calls[i], CGP__GRADIENT_SLOT));
    }
    for (int i = 0;
         bound->action.edge >= 0 && i < cgp__plan_edge(plan, bound->action.edge)->n_parts; i++) {
        const cgp__part *part = &cgp__plan_edge(plan, bound->action.edge)->parts[i];
        const bool sends = cgp__queue_of(bound->action.kind) == CGP_QUEUE_OUT;
        const cgp__arena arena =
            (sends ? part->from[v->program != CGP__FORWARD_NOSAVE] : part->to).arena;
        assert_true(arena != CGP__INPUT_SLOT || v->input_slot >= 0);
        assert_true(arena != CGP__SAVED_SLOT || v->saved_slot >= 0);
        assert_true(arena != CGP__GRADIENT_SLOT || v->gradient_slot >= 0);
    }
}

static int64_t slot_of(const cgp__variant *v, int kind) {
    return kind == INPUT ? v->input_slot : kind == SAVED ? v->saved_slot : v->gradient_slot;
}

static int64_t bytes_of(const cgp_plan *plan, int stage, int kind) {
    const cgp__stage_plan *s = cgp__plan_stage(plan, stage);
    return kind == INPUT   ? s->info.input_slot_bytes
           : kind == SAVED ? s->info.saved_slot_bytes
                           : s->gradient_slot_bytes;
}

static ranges ranges_of(const cgp_plan *plan, const cgp__list *list, int chunks) {
    ranges r = {.n = KINDS * cgp_plan_stages(plan) * chunks};
    r.of = calloc((size_t)r.n, sizeof *r.of);
    for (int i = 0; i < list->n; i++) {
        const cgp__bound_action *bound = &list->actions[i];
        const cgp__variant *v = &list->variants[bound->variant];
        range *input = &r.of[KINDS * v->stage * chunks + bound->action.microbatch];
        check_operands(plan, bound, v);
        for (int k = 0; k < KINDS; k++)
            use(&input[k * chunks], slot_of(v, k), bytes_of(plan, v->stage, k), i);
    }
    return r;
}

/* Check that slots in use at the same time do not overlap, and that all slots are within the
 * pool. */
static void check_apart(const ranges *r, int64_t bytes) {
    for (int a = 0; a < r->n; a++) {
        const range *x = &r->of[a];
        if (x->bytes == 0) continue;
        assert_true(x->at + x->bytes <= bytes);
        for (int b = a + 1; b < r->n; b++) {
            const range *y = &r->of[b];
            if (y->bytes == 0 || x->last < y->first || y->last < x->first) continue;
            assert_true(x->at + x->bytes <= y->at || y->at + y->bytes <= x->at);
        }
    }
}

/* Check that each slot is freed by the last action that uses it, and by no other action. */
static void check_frees(const cgp__list *list, const ranges *r, int chunks) {
    for (int i = 0; i < list->n; i++) {
        const cgp__bound_action *bound = &list->actions[i];
        const range *input =
            &r->of[KINDS * bound->action.stage * chunks + bound->action.microbatch];
        const bool frees[KINDS] = {bound->frees_input, bound->frees_saved, bound->frees_gradient};
        for (int k = 0; k < KINDS; k++) {
            if (input[k * chunks].bytes > 0)
                assert_int_equal(frees[k], input[k * chunks].last == i);
        }
    }
}

/* --- waits --- */

/* For each queue, the last action that has completed when a given action begins; -1 if there is
 * none. */
typedef struct vector_clock {
    int done[CGP_QUEUES];
} vector_clock;

static void join(vector_clock *to, const vector_clock *from) {
    for (int q = 0; q < CGP_QUEUES; q++)
        to->done[q] = from->done[q] > to->done[q] ? from->done[q] : to->done[q];
}

/* Add action `i` to a vector clock, and all actions that had completed when action `i` began. */
static void add(vector_clock *to, const vector_clock *clocks, const cgp__list *list, int i) {
    const int queue = (int)cgp__queue_of(list->actions[i].action.kind);
    join(to, &clocks[i]);
    if (to->done[queue] < i) to->done[queue] = i;
}

/* Compute vector clocks (Mattern 1989). An action begins only after three kinds of actions have
 * completed. These are all earlier actions of its queue, the actions that it waits for, and all
 * actions at least CGP__AHEAD places before it. */
static vector_clock *clocks_of(const cgp__list *list) {
    vector_clock *clocks = calloc((size_t)list->n + 1, sizeof *clocks);
    int last[CGP_QUEUES] = {-1, -1, -1};
    for (int i = 0; i < list->n; i++) {
        const int queue = (int)cgp__queue_of(list->actions[i].action.kind);
        for (int q = 0; q < CGP_QUEUES; q++)
            clocks[i].done[q] = -1;
        if (last[queue] >= 0) add(&clocks[i], clocks, list, last[queue]);
        for (int q = 0; q < CGP_QUEUES; q++) {
            if (list->actions[i].wait[q] >= 0)
                add(&clocks[i], clocks, list, list->actions[i].wait[q]);
        }
        for (int k = 0; k <= i - CGP__AHEAD; k++)
            add(&clocks[i], clocks, list, k);
        last[queue] = i;
    }
    return clocks;
}

static bool overlap(int64_t a, int64_t a_bytes, int64_t b, int64_t b_bytes) {
    return a >= 0 && b >= 0 && a < b + b_bytes && b < a + a_bytes;
}

/* Return true if two actions use at least one common byte. */
static bool touch(const cgp_plan *plan, const cgp__list *list, int a, int b) {
    const cgp__variant *v[2] = {&list->variants[list->actions[a].variant],
                                &list->variants[list->actions[b].variant]};
    bool common = true;
    for (int k = 0; k < 2; k++)
        common = common && cgp__transfer_touches(plan, &list->actions[k ? b : a].action,
                                                 v[k]->program, CGP__WORKSPACE);
    for (int k = 0; k < KINDS * KINDS && !common; k++)
        common = overlap(slot_of(v[0], k / KINDS), bytes_of(plan, v[0]->stage, k / KINDS),
                         slot_of(v[1], k % KINDS), bytes_of(plan, v[1]->stage, k % KINDS));
    return common;
}

/* Check that two actions with common bytes run one after the other, even on two queues. Check also
 * that an action waits only for actions with which it has common bytes. */
static void check_waits(const cgp_plan *plan, const cgp__list *list) {
    vector_clock *clocks = clocks_of(list);
    for (int i = 0; i < list->n; i++) {
        for (int q = 0; q < CGP_QUEUES; q++) {
            const int wait = list->actions[i].wait[q];
            assert_true(wait < 0 || (wait < i && touch(plan, list, wait, i)));
        }
        for (int k = 0; k < i; k++) {
            const int queue = (int)cgp__queue_of(list->actions[k].action.kind);
            assert_true(clocks[i].done[queue] >= k || !touch(plan, list, k, i));
        }
    }
    free(clocks);
}

/* --- lists --- */

/* Return the largest number of slot bytes in use at one time. */
static int64_t most_live(const ranges *r, int n) {
    int64_t most = 0;
    for (int i = 0; i < n; i++) {
        int64_t live = 0;
        for (int k = 0; k < r->n; k++) {
            if (r->of[k].bytes > 0 && r->of[k].first <= i && i <= r->of[k].last)
                live += r->of[k].bytes;
        }
        most = live > most ? live : most;
    }
    return most;
}

/* Check the action lists of a mini-batch with `chunks` micro-batches. For each device, divide its
 * slot bytes by the largest number of slot bytes in use at one time. Return the largest
 * quotient. */
static double check_lists(const cgp_plan *plan, int chunks, bool forward_only) {
    cgp_schedule *schedule = NULL;
    double ratio = 1;
    assert_ok(cgp__plan_make_schedule(plan, chunks, forward_only, &schedule));
    for (int d = 0; d < cgp_plan_devices(plan); d++) {
        const int64_t samples = chunks * cgp_plan_microbatch(plan);
        cgp__list list = {0};
        assert_ok(cgp__plan_bind(
            plan, schedule,
            (cgp__minibatch){.samples = samples, .forward_only = forward_only, .chunks = chunks}, d,
            &list));
        ranges r = ranges_of(plan, &list, chunks);
        const int64_t bytes = cgp_plan_device_at(plan, d)->slot_bytes, live = most_live(&r, list.n);
        check_apart(&r, bytes);
        check_frees(&list, &r, chunks);
        check_waits(plan, &list);
        if (live > 0 && (double)bytes / (double)live > ratio) ratio = (double)bytes / (double)live;
        free(r.of);
        cgp__list_release(&list);
    }
    cgp_schedule_destroy(schedule);
    return ratio;
}

/* Check the action lists of mini-batches of every size. Return the ratio of check_lists() for the
 * full mini-batch. */
static double check_plan(const cgp_plan *plan) {
    for (int chunks = 1; chunks < cgp_plan_chunks(plan); chunks++)
        (void)check_lists(plan, chunks, cgp__plan_setup(plan)->inference);
    for (int chunks = 1; chunks <= cgp_plan_chunks(plan) + 2; chunks++)
        (void)check_lists(plan, chunks, true);
    return check_lists(plan, cgp_plan_chunks(plan), cgp__plan_setup(plan)->inference);
}

static cgp_model *make_model(uint64_t *state) {
    const test_sizes sizes = {.layers = 10, .sequence = 6, .width = 8, .heads = 2, .vocab = 11};
    return test_random_graph(state, &sizes);
}

TEST_CASE(slots_of_random_plans_are_apart_for_every_number_of_micro_batches) {
    uint64_t state = test_seed();
    for (int i = 0; i < test_scaled(60); i++) {
        cgp_model *model = make_model(&state);
        cgp_plan_options o = cgp_plan_options_default();
        cgp_plan *plan = NULL;
        int balance[64];
        test_random_training(&state, model, &o, balance);
        assert_ok(cgp_plan_create(&plan, model, &o));
        (void)check_plan(plan);
        cgp_plan_destroy(plan);
        cgp_model_destroy(model);
    }
}

/* --- built-in schedules --- */

/* Make a model of equal layers; the last layer also has a small loss. */
static cgp_model *make_equal(int layers) {
    const cgp_linear_options linear = {.out = 64, .init = {CGP_INIT_NORMAL, 0.4}};
    char name[16];
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "equal"));
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 2, (int64_t[]){2, 64});
    const cgp_value y = cgp_model_input(model, "targets", CGP_I32, 1, (int64_t[]){2});
    for (int i = 0; i < layers; i++) {
        snprintf(name, sizeof name, "h%d", i);
        cgp_model_layer(model, name);
        for (int k = 0; k < 4; k++) {
            snprintf(name, sizeof name, "h%d.%d", i, k);
            x = cgp_gelu(model, cgp_linear(model, x, name, linear));
        }
    }
    cgp_model_loss_cross_entropy(model, x, y, -100, 1);
    assert_ok(cgp_model_finish(model));
    return model;
}

/* Plan a schedule, with one layer per stage. */
static cgp_plan *plan_equal(const cgp_schedule_info *info, int n, int chunks,
                            cgp_recompute recompute) {
    cgp_plan_options o = cgp_plan_options_default();
    cgp_plan *plan = NULL;
    int balance[64];
    o.schedule = info->name;
    o.stages = n;
    o.batch = o.chunks = chunks;
    o.recompute = recompute;
    cgp_model *model = make_equal(cgp_plan_options_stages(&o));
    for (int j = 0; j < cgp_plan_options_stages(&o); j++)
        balance[j] = 1;
    o.balance = balance;
    assert_ok(cgp_plan_create(&plan, model, &o));
    return plan;
}

static void destroy(cgp_plan *plan) {
    cgp_model *model = (cgp_model *)cgp__plan_setup(plan)->model;
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
}

/* For each device, divide its slot bytes by a simple estimate, and return the largest quotient. The
 * estimate is the largest number of micro-batches in flight on the device, times the slot bytes of
 * the largest stage. */
static double ratio_to_stages(const cgp_plan *plan) {
    cgp_schedule_report report;
    int64_t stage_bytes = 0;
    double ratio = 0;
    assert_ok(cgp_schedule_check(cgp_plan_schedule(plan), &report));
    for (int j = 0; j < cgp_plan_stages(plan); j++) {
        const cgp_plan_stage *stage = cgp_plan_stage_at(plan, j);
        const int64_t bytes = stage->input_slot_bytes + stage->saved_slot_bytes;
        stage_bytes = bytes > stage_bytes ? bytes : stage_bytes;
    }
    for (int d = 0; d < cgp_plan_devices(plan); d++) {
        const double r = (double)cgp_plan_device_at(plan, d)->slot_bytes /
                         (double)(report.peak_slots[d] * stage_bytes);
        ratio = r > ratio ? r : ratio;
    }
    cgp_schedule_report_release(&report);
    return ratio;
}

/* Return the number of variants (bound instances of compute actions) that another rule would give.
 * Under that rule, each stage has its own numbered slots, and a micro-batch takes the free slot
 * with the lowest number. */
static int numbered_variants(const cgp_plan *plan, int device) {
    const int chunks = cgp_plan_chunks(plan);
    int n = 0;
    cgp__list list = {0};
    assert_ok(cgp__plan_bind(
        plan, cgp_plan_schedule(plan),
        (cgp__minibatch){.samples = chunks * cgp_plan_microbatch(plan), .chunks = chunks}, device,
        &list));
    ranges r = ranges_of(plan, &list, chunks);
    cgp__variant *found = calloc((size_t)list.n + 1, sizeof *found);
    for (int i = 0; i < list.n; i++) {
        const cgp__bound_action *bound = &list.actions[i];
        cgp__variant v = list.variants[bound->variant];
        range *input = &r.of[KINDS * v.stage * chunks];
        v.gradient_slot = -1;
        for (int k = 0; k < GRADIENT; k++) {
            range *x = input + k * chunks, *own = &x[bound->action.microbatch];
            if (own->bytes == 0 || own->first != i) continue;
            own->at = 0;
            for (int m = 0; m < chunks; m++) { /* find the lowest free number */
                const bool taken = x[m].bytes > 0 && x[m].first < i && x[m].last >= i;
                if (!taken || x[m].at != own->at) continue;
                own->at++;
                m = -1;
            }
        }
        if (v.input_slot >= 0) v.input_slot = input[bound->action.microbatch].at;
        if (v.saved_slot >= 0) v.saved_slot = input[chunks + bound->action.microbatch].at;
        int same = 0;
        while (same < n && !cgp__same_variant(&found[same], &v))
            same++;
        if (same == n && v.end > v.begin) found[n++] = v;
    }
    free(found);
    free(r.of);
    cgp__list_release(&list);
    return n;
}

static void check_variants(const cgp_plan *plan) {
    for (int d = 0; d < cgp_plan_devices(plan); d++) {
        const int most = 2 * numbered_variants(plan, d);
        if (cgp_plan_device_at(plan, d)->variants > most) {
            print_message("%s, device %d: %d bound instances, expected at most %d\n",
                          cgp_schedule_name(cgp_plan_schedule(plan)), d,
                          cgp_plan_device_at(plan, d)->variants, most);
            fail();
        }
    }
}

TEST_CASE(slots_of_built_in_schedules_exceed_those_of_stages_in_flight_by_at_most_three_percent) {
    for (int i = 0; cgp_schedule_info_at(i); i++) {
        const cgp_schedule_info *info = cgp_schedule_info_at(i);
        for (int n = 4; n <= 8 && info->has_backward; n += 4) {
            for (int mode = 0; mode <= CGP_RECOMPUTE_EXCEPT_LAST; mode++) {
                cgp_plan *plan = plan_equal(info, n, 3 * n, (cgp_recompute)mode);
                const double live = check_plan(plan), stages = ratio_to_stages(plan);
                print_message(
                    "%-14s %d devices, %-11s %.3f of the slots in use, %.3f of the stages "
                    "in flight\n",
                    info->name, n, cgp_recompute_name((cgp_recompute)mode), live, stages);
                check_variants(plan);
                assert_true(stages <= 1.03);
                assert_true(live <= (mode == CGP_RECOMPUTE_NEVER ? 1.13 : 1.3));
                destroy(plan);
            }
        }
    }
}

/* --- users' own schedule tables --- */

enum { STAGES = 4, CHUNKS = 5, LENGTH = 2 * 5 * STAGES * CHUNKS };

/* A random schedule table under construction. */
typedef struct table {
    bool done[CGP_ACTION_R + 1][STAGES][CHUNKS];
    cgp_action lists[STAGES][LENGTH];
    int counts[STAGES], device_of[STAGES], devices;
    bool splits;
} table;

/* Return true if all actions that this action depends on are in the table. */
static bool can_run(const table *t, cgp_action_kind kind, int j, int m) {
    const bool ended = t->done[CGP_ACTION_B][j][m] || t->done[CGP_ACTION_I][j][m];
    if (t->done[kind][j][m]) return false;
    if (kind == CGP_ACTION_F) return j == 0 || t->done[CGP_ACTION_F][j - 1][m];
    if (kind == CGP_ACTION_W) return t->done[CGP_ACTION_I][j][m];
    if (!t->done[CGP_ACTION_F][j][m] || ended) return false;
    if (kind == CGP_ACTION_R) return true;
    if ((kind == CGP_ACTION_I) != t->splits) return false;
    return j == STAGES - 1 || t->done[CGP_ACTION_B][j + 1][m] || t->done[CGP_ACTION_I][j + 1][m];
}

/* Draw a random schedule table. */
static cgp_schedule *draw_table(uint64_t *state, bool recomputes) {
    table t = {.devices = test_between(state, 1, STAGES), .splits = test_between(state, 0, 1)};
    cgp_schedule *out = NULL;
    for (int j = 0; j < STAGES; j++)
        t.device_of[j] = j < t.devices ? j : test_between(state, 0, t.devices - 1);
    for (int left = (t.splits ? 3 : 2) * STAGES * CHUNKS; left > 0;) {
        const cgp_action_kind kind = (cgp_action_kind)test_between(state, 0, CGP_ACTION_R);
        const int j = test_between(state, 0, STAGES - 1), m = test_between(state, 0, CHUNKS - 1);
        if (!can_run(&t, kind, j, m) || (kind == CGP_ACTION_R && !recomputes)) continue;
        const int d = t.device_of[j];
        t.done[kind][j][m] = true;
        t.lists[d][t.counts[d]++] =
            (cgp_action){.kind = kind, .stage = j, .microbatch = m, .edge = -1};
        left -= kind != CGP_ACTION_R;
    }
    const cgp_action *const lists[] = {t.lists[0], t.lists[1], t.lists[2], t.lists[3]};
    const test_schedule_table made = {.name = "drawn",
                                      .stages = STAGES,
                                      .chunks = CHUNKS,
                                      .devices = t.devices,
                                      .device_of = t.device_of,
                                      .lists = lists,
                                      .counts = t.counts};
    assert_ok(test_schedule_from_lists(&out, &made));
    return out;
}

TEST_CASE(slots_of_random_tables_are_apart_for_every_number_of_micro_batches) {
    uint64_t state = test_seed();
    for (int i = 0; i < test_scaled(60); i++) {
        cgp_model *model = make_model(&state);
        cgp_plan_options o = cgp_plan_options_default();
        cgp_plan *plan = NULL;
        int balance[STAGES];
        cgp_schedule *drawn = draw_table(&state, i % 3 == 0);
        if (i % 3 > 0) o.recompute = (cgp_recompute)test_between(&state, 0, 5);
        o.table = drawn;
        o.stages = cgp_schedule_devices(drawn);
        o.batch = o.chunks = CHUNKS;
        test_random_balance(&state, cgp_model_layers(model), STAGES, balance);
        o.balance = balance;
        assert_ok(cgp_plan_create(&plan, model, &o));
        (void)check_plan(plan);
        cgp_plan_destroy(plan);
        cgp_schedule_destroy(drawn);
        cgp_model_destroy(model);
    }
}
