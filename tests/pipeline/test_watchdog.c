/* SPDX-License-Identifier: Apache-2.0 */
/* test_watchdog.c -- if a run makes no progress, it ends soon after the timeout. The report is
 * correct for every device.
 *
 * The expected report is computed without threads. simulate() runs the action lists until every
 * device is done or blocked by the stalled action, which never ends. Buffers are bounded and lists
 * are ordered, so this final state is unique. */
#include "watched.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inside.h"
#include "pipeline/run/bind.h"
#include "pipeline/run/measured.h"
#include "pipeline/team/team.h"
#include "plan/memory/devices.h"
#include "plan/plan.h"

/* --- the expected report --- */

typedef struct position {
    const cgp_action *actions;
    int n, at;
} position;

typedef struct simulation {
    position devices[MAX_DEVICES];
    bool sent[MAX_EDGES][MAX_CHUNKS];
    int taken[MAX_EDGES]; /* buffers in use */
} simulation;

static bool is_send(const cgp_action *action) {
    return action->kind == CGP_ACTION_SEND_F || action->kind == CGP_ACTION_SEND_B;
}

/* Match an action as CGP_FAULT does. If one action has several RECVs, the first one matches. */
static bool is_same(const cgp_action *a, const cgp_action *b) {
    return a->kind == b->kind && a->stage == b->stage && a->microbatch == b->microbatch;
}

/* Complete an action if it is not blocked; return whether it is complete. */
static bool advance(simulation *s, const cgp_plan *plan, const cgp_action *action) {
    if (action->edge < 0) return true;
    bool *sent = &s->sent[action->edge][action->microbatch];
    if (is_send(action) ? s->taken[action->edge] == plan->messages.edges[action->edge].capacity
                        : !*sent)
        return false;
    s->taken[action->edge] += is_send(action) ? 1 : -1;
    *sent = is_send(action);
    return true;
}

/* Run the action lists until each device is done or blocked by the action `stalled`, which never
 * ends. */
static void simulate(simulation *s, const cgp_plan *plan, const cgp_schedule *schedule,
                     const cgp_action *stalled) {
    memset(s, 0, sizeof *s);
    for (int d = 0; d < cgp_plan_devices(plan); d++)
        s->devices[d].actions = cgp_schedule_actions(schedule, d, &s->devices[d].n);
    for (bool moves = true; moves;) {
        moves = false;
        for (int d = 0; d < cgp_plan_devices(plan); d++) {
            position *p = &s->devices[d];
            while (p->at < p->n && !is_same(&p->actions[p->at], stalled) &&
                   advance(s, plan, &p->actions[p->at])) {
                p->at++;
                moves = true;
            }
        }
    }
}

/* Return the device that device `d` waits for, or -1. */
static int waits_for(const simulation *s, const cgp_plan *plan, int d, const cgp_action *stalled) {
    const position *p = &s->devices[d];
    if (p->at == p->n || is_same(&p->actions[p->at], stalled)) return -1;
    const cgp_edge *edge = &plan->messages.edges[p->actions[p->at].edge].edge;
    return is_send(&p->actions[p->at]) ? edge->to : edge->from; /* stages = devices */
}

/* Assert that the report has a chain of waiting devices that ends at the stalled action, and that
 * no chain is longer. */
static void check_chain(const cgp_pipeline *pipeline, const simulation *s,
                        const cgp_action *stalled) {
    char chains[MAX_DEVICES][256], name[32];
    int longest = 0, lengths[MAX_DEVICES];
    const int n = cgp_plan_devices(inside_plan(pipeline));
    cgp_action_text(stalled, name, sizeof name);
    for (int d = 0; d < n; d++) {
        int length = 0, at = d;
        int size = snprintf(chains[d], sizeof chains[d], "  device %d", d);
        for (int next; (next = waits_for(s, inside_plan(pipeline), at, stalled)) >= 0; length++) {
            size += snprintf(chains[d] + size, sizeof chains[d] - (size_t)size,
                             "%s waits for device %d", length ? ", which" : "", next);
            at = next;
        }
        snprintf(chains[d] + size, sizeof chains[d] - (size_t)size, ", which runs %s\n", name);
        lengths[d] = length;
        if (length > longest) longest = length;
    }
    bool found = longest == 0 && strstr(cgp_pipeline_report(pipeline), "no device waits");
    for (int d = 0; d < n; d++)
        found = found || (longest > 0 && lengths[d] == longest &&
                          strstr(cgp_pipeline_report(pipeline), chains[d]));
    if (found) return;
    print_error("expected a chain of %d:\n%s", longest, cgp_pipeline_report(pipeline));
    fail();
}

static void check_report(const cgp_pipeline *pipeline, const cgp_schedule *schedule,
                         const cgp_action *stalled) {
    const cgp_plan *plan = inside_plan(pipeline);
    simulation s;
    char name[32], expected[256];
    int ended = 0;
    simulate(&s, plan, schedule, stalled);
    for (int d = 0; d < cgp_plan_devices(plan); d++) {
        const position *p = &s.devices[d];
        const cgp_action *action = &p->actions[p->at];
        int size = snprintf(expected, sizeof expected, "  device %d (%s:%d): ", d,
                            plan->placement.devices[d].backend->name, d);
        ended += p->at;
        if (p->at < p->n) cgp_action_text(action, name, sizeof name);
        if (p->at == p->n)
            snprintf(expected + size, sizeof expected - (size_t)size, "is done with its list\n");
        else if (is_same(action, stalled))
            snprintf(expected + size, sizeof expected - (size_t)size, "runs %s for ", name);
        else
            snprintf(expected + size, sizeof expected - (size_t)size,
                     "waits in %s for stage %d to %s, for ", name, waits_for(&s, plan, d, stalled),
                     is_send(action) ? "free a buffer" : "send it");
        assert_report(pipeline, expected);
    }
    check_chain(pipeline, &s, stalled);
    snprintf(expected, sizeof expected, "the last %d events", ended < 50 ? ended : 50);
    assert_report(pipeline, expected);
}

/* Assert that every event line of the report has the expected columns, and that events of a device
 * do not overlap. Lines must be in the order in which the events ended. */
static void check_events(const cgp_pipeline *pipeline) {
    const char *line = strchr(strstr(cgp_pipeline_report(pipeline), "the last "), '\n') + 1;
    double last = 0, ends[MAX_DEVICES] = {0};
    for (; *line; line = strchr(line, '\n') + 1) {
        double begin, end;
        int device;
        assert_int_equal(sscanf(line, "%lf %lf  device %d", &begin, &end, &device), 3);
        assert_true(begin >= ends[device] && end >= begin && end >= last);
        last = ends[device] = end;
    }
}

/* --- injected faults --- */

static cgp_action draw_action(uint64_t *state, const cgp_schedule *schedule) {
    const int device = test_between(state, 0, cgp_schedule_devices(schedule) - 1);
    int n = 0;
    const cgp_action *actions = cgp_schedule_actions(schedule, device, &n);
    return actions[test_between(state, 0, n - 1)];
}

/* Make one action hang or take far too long. The call must still return in time, with the
 * report. */
static void hang_once(const world *w, enum call call, const cgp_schedule *schedule,
                      const cgp_action *action, const char *format) {
    char name[32], fault[80], expected[128];
    cgp_action_text(action, name, sizeof name);
    snprintf(fault, sizeof fault, format, name);
    const int threads = test_count_threads();
    cgp_pipeline *pipeline = start(w, fault, timeout);
    const double begin = now();
    assert_status(call_once(pipeline, w, call), CGP_EDEVICE);
    const double seconds = now() - begin;
    if (seconds > timeout + soon) {
        print_error("%s: took %.3f s\n", fault, seconds);
        fail();
    }
    assert_true(seconds >= timeout);
    snprintf(expected, sizeof expected, "stage %d, micro-batch %d, %s: did not end for ",
             action->stage, action->microbatch, name);
    assert_message(expected);
    assert_report(pipeline, expected);
    check_report(pipeline, schedule, action);
    check_events(pipeline);
    assert_status(call_once(pipeline, w, call), CGP_ESTATE);
    assert_message(expected);
    const double destroyed = now();
    cgp_pipeline_destroy(pipeline);
    assert_true(now() - destroyed < soon);
    assert_threads(threads);
}

/* Make random actions of every kind hang, in steps, evaluations and predictions. A later training
 * must still give the same weights. */
TEST_CASE(every_hanging_action_is_named) {
    uint64_t state = test_seed();
    for (int i = 0; i < 8; i++) { /* two schedules, 1 to 4 stages */
        world w;
        char before[65], after[65];
        make_world(&w, &state, 1 + i % MAX_DEVICES, i / 4 % 2 ? "gpipe" : "1f1b", true);
        train_once(&w, NULL, 0, before);
        for (int k = 0; k < 4; k++) {
            const enum call call = k == 0 ? (enum call)test_between(&state, 0, 2) : STEP;
            const int chunks = (int)((w.options.batch + cgp_plan_microbatch(w.plan) - 1) /
                                     cgp_plan_microbatch(w.plan));
            cgp_schedule *schedule = NULL;
            assert_ok(cgp__plan_make_schedule(w.plan, chunks, call != STEP, &schedule));
            const cgp_action action = draw_action(&state, schedule);
            hang_once(&w, call, schedule, &action, k == 3 ? "delay:%s:60" : "stall:%s");
            cgp_schedule_destroy(schedule);
        }
        train_once(&w, NULL, timeout * 20, after);
        assert_string_equal(before, after);
        release_world(&w);
    }
}

/* Delays shorter than the timeout change no bit, in any action. */
TEST_CASE(delays_change_no_bits) {
    uint64_t state = test_seed();
    for (int i = 0; i < 4; i++) {
        world w;
        char plain[65], delayed[65], fault[160], a[32], b[32];
        make_world(&w, &state, MAX_DEVICES, i % 2 ? "gpipe" : "1f1b", true);
        train_once(&w, NULL, 0, plain);
        train_once(&w, "delay:3", 20, delayed);
        assert_string_equal(plain, delayed);
        const cgp_action one = draw_action(&state, cgp_plan_schedule(w.plan));
        const cgp_action two = draw_action(&state, cgp_plan_schedule(w.plan));
        snprintf(fault, sizeof fault, "delay:%s:0.05,delay:1.5,delay:%s:0.03",
                 cgp_action_text(&one, a, sizeof a), cgp_action_text(&two, b, sizeof b));
        const double begin = now();
        train_once(&w, fault, 20, delayed);
        assert_true(now() - begin >= 0.05);
        assert_string_equal(plain, delayed);
        release_world(&w);
    }
}

/* Time during which the process is stopped (Ctrl-Z) does not count. When the process continues, the
 * full timeout starts again. */
TEST_CASE(a_sleep_of_the_process_does_not_count) {
    uint64_t state = test_seed();
    world w;
    make_world(&w, &state, 1, "gpipe", true);
    cgp_pipeline *pipeline = start(&w, "delay:0F0:2.1", 1);
    const pid_t parent = getpid(), child = fork();
    assert_true(child >= 0);
    if (child == 0) { /* stopped from 0.2 s to 1.9 s */
        nanosleep(&(struct timespec){0, 200000000}, NULL);
        kill(parent, SIGSTOP);
        nanosleep(&(struct timespec){1, 700000000}, NULL);
        kill(parent, SIGCONT);
        _exit(0);
    }
    assert_ok(call_once(pipeline, &w, STEP));
    assert_int_equal(waitpid(child, NULL, 0), child);
    cgp_pipeline_destroy(pipeline);
    release_world(&w);
}

/* A run may take several times the timeout if actions keep completing. The caller may also pause
 * between calls. */
TEST_CASE(a_slow_run_is_no_hanging_run) {
    uint64_t state = test_seed();
    world w;
    for (;;) {
        make_world(&w, &state, 1, "gpipe", true);
        if (cgp_plan_chunks(w.plan) >= 3) break;
        release_world(&w);
    }
    cgp_pipeline *pipeline = start(&w, "delay:0F0:0.4,delay:0F1:0.4,delay:0B2:0.4", 1);
    const double begin = now();
    assert_ok(call_once(pipeline, &w, STEP));
    assert_true(now() - begin >= 1.2);
    nanosleep(&(struct timespec){1, 100000000}, NULL);
    assert_ok(cgp_optim_step(pipeline));
    assert_ok(call_once(pipeline, &w, STEP));
    assert_string_equal(cgp_pipeline_report(pipeline), "");
    cgp_pipeline_destroy(pipeline);
    release_world(&w);
}

/* If a worker returns after the call has failed, it reads none of the caller's tensors. */
TEST_CASE(a_late_worker_does_nothing) {
    uint64_t state = test_seed();
    world w;
    make_world(&w, &state, 2, "gpipe", true);
    cgp_pipeline *pipeline = start(&w, "delay:0F0:0.9", timeout);
    assert_status(call_once(pipeline, &w, STEP), CGP_EDEVICE);
    assert_true(inside_team(pipeline)->threads[0].stuck);
    for (int k = 0; k < w.batch.n; k++) {
        free(w.batch.tensors[k].data);
        w.batch.tensors[k].data = NULL;
    }
    pthread_mutex_lock(&inside_team(pipeline)->lock);
    while (inside_team(pipeline)->threads[0].stuck)
        (void)cgp__wait_until(&inside_team(pipeline)->done, &inside_team(pipeline)->lock,
                              INT64_MAX);
    pthread_mutex_unlock(&inside_team(pipeline)->lock);
    assert_status(call_once(pipeline, &w, STEP), CGP_ESTATE);
    assert_int_equal(cgp__trace_written(&inside_measured(pipeline, 0)->trace), 0);
    cgp_pipeline_destroy(pipeline);
    release_world(&w);
}

/* Valid action lists never deadlock, so the test corrupts them: both devices begin with a RECV. */
TEST_CASE(a_deadlock_is_reported_as_a_cycle) {
    uint64_t state = test_seed();
    world w;
    make_world(&w, &state, 2, "gpipe", false);
    cgp_pipeline *pipeline = start(&w, NULL, timeout);
    const cgp__run *run = NULL;
    assert_ok(cgp__run_find(inside_executor(pipeline),
                            (cgp__minibatch){.samples = w.plan->setup.batch}, &run));
    cgp__bound_action *actions = run->lists[0].actions, kept = actions[0];
    int i = 0;
    while (actions[i].action.kind != CGP_ACTION_RECV_B)
        i++;
    actions[0] = actions[i];
    actions[i] = kept;
    assert_status(call_once(pipeline, &w, STEP), CGP_EDEVICE);
    assert_message(", all wait for each other; cgp_pipeline_report() shows");
    const char *backend = w.plan->placement.devices[0].backend->name;
    char expected[128];
    snprintf(expected, sizeof expected,
             "  device 0 (%s:0): waits in 0RECV_B0 for stage 1 to send it, for", backend);
    assert_report(pipeline, expected);
    snprintf(expected, sizeof expected,
             "  device 1 (%s:1): waits in 1RECV_F0 for stage 0 to send it, for", backend);
    assert_report(pipeline, expected);
    assert_report(pipeline, "  device 0 waits for device 1, which waits for device 0: a cycle\n");
    cgp_pipeline_destroy(pipeline);
    release_world(&w);
}

/* With an external loss, the forward part and the backward part of an action list run in separate
 * calls. The report covers only the part that is running. */
TEST_CASE(a_backward_alone_is_watched) {
    uint64_t state = test_seed();
    const test_sizes sizes = {
        .layers = 4, .sequence = 4, .width = 8, .heads = 2, .vocab = 7, .no_loss = true};
    world w = {.model = test_random_graph(&state, &sizes)};
    w.options = cgp_plan_options_default();
    w.options.stages = 2;
    w.options.chunks = w.options.batch = 3;
    w.options.schedule = "gpipe";
    w.options.external_loss = true;
    assert_ok(cgp_plan_create(&w.plan, w.model, &w.options));
    test_batch_fill(&w.batch, w.model, &sizes, 3, &state);
    float data[3 * 4 * 7] = {0};
    const cgp_tensor output = {CGP_F32, {3, {3, 4, 7}}, data};
    cgp_pipeline *pipeline = start(&w, "stall:1B1", timeout);
    assert_ok(cgp_pipeline_forward(pipeline, w.batch.inputs, w.batch.n,
                                   (const cgp_tensor *[]){&output}, 1));
    assert_status(cgp_pipeline_backward(pipeline, (const cgp_tensor *[]){&output}, 1), CGP_EDEVICE);
    assert_message("stage 1, micro-batch 1, 1B1: did not end");
    assert_report(pipeline, "): waits in 0RECV_B1 for stage 1 to send it");
    assert_report(pipeline, "): runs 1B1 for");
    assert_null(strstr(cgp_pipeline_report(pipeline), "F0\n")); /* F0 was in the forward */
    check_events(pipeline);
    cgp_pipeline_destroy(pipeline);
    release_world(&w);
}

/* If one worker hangs and another fails, the call reports the failure. */
TEST_CASE(the_first_error_is_reported) {
    uint64_t state = test_seed();
    world w;
    make_world(&w, &state, 3, "gpipe", true);
    const int threads = test_count_threads();
    cgp_pipeline *pipeline = start(&w, "stall:0SEND_F0,fail:2RECV_F0", timeout);
    assert_status(call_once(pipeline, &w, STEP), CGP_EDEVICE);
    assert_message("stage 2, micro-batch 0, 2RECV_F0: failed (injected by CGP_FAULT)");
    cgp_pipeline_destroy(pipeline);
    assert_threads(threads);
    release_world(&w);
}

TEST_CASE(bad_faults_do_nothing) {
    static const char *const faults[] = {
        "", ",", ":", "stall", "stall:", "stal:0F0", "stall:0F", "stall:F0", "stall:0X0",
        "stall:0F0x", "fail:0F0:1", "delay:0F0", "delay:0F0:", "delay:0F0:x", "delay:-1",
        "delay:nan", "delay:inf", "delay:0F0:1e9", "stall:-1F0", "fail:0f0", "fail:99999999990F0",
        "kill:rank=0,at=", "kill:rank=0", "kill:rank=,at=0F0", "stop:0F0@", "stop:0F0@x",
        "exit:0F0:1", "lost:0F0", "late:0SEND_F0", "corrupt:0RECV_F0", "twice:0SEND_F0:1",
        /* valid faults, but of another rank or another step */
        "kill:rank=1,at=0F0", "kill:0F0@1,kill:1B0@2"};
    uint64_t state = test_seed();
    world w;
    char plain[65], sha256[65];
    make_world(&w, &state, 2, "1f1b", true);
    train_once(&w, NULL, 0, plain);
    for (int i = 0; i < (int)(sizeof faults / sizeof faults[0]); i++) {
        train_once(&w, faults[i], timeout * 20, sha256);
        assert_string_equal(plain, sha256);
    }
    release_world(&w);
}

TEST_CASE(timeouts_are_checked) {
    uint64_t state = test_seed();
    world w;
    make_world(&w, &state, 2, "1f1b", true);
    cgp_pipeline *pipeline = start(&w, NULL, 0);
    const double bad[] = {-1, -1e-300, NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 5; i++)
        assert_status(cgp_pipeline_set_timeout(pipeline, bad[i]), CGP_EINVAL);
    assert_message("timeout: expected seconds > 0, got -inf (0 is for no timeout)");
    assert_ok(cgp_pipeline_set_timeout(pipeline, 1e300));
    assert_ok(call_once(pipeline, &w, STEP));
    assert_ok(cgp_pipeline_set_timeout(pipeline, 1e-300)); /* every step exceeds this limit */
    assert_status(call_once(pipeline, &w, STEP), CGP_EDEVICE);
    cgp_pipeline_destroy(pipeline);
    release_world(&w);
}
