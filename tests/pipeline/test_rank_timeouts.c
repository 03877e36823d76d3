/* SPDX-License-Identifier: Apache-2.0 */
/* test_rank_timeouts.c -- the time limit holds for all ranks together: no rank fails while another
 * rank makes progress. If a rank hangs, is silent or loses a message, the calls of all ranks fail
 * with the same message. If a rank is only late, the other ranks wait for it. */
#include "rank_calls.h"

#include <time.h>

#include "base/base.h"
static const double timeout = 0.4; /* seconds; an action of these models takes less than 1 ms */

/* Longest time in seconds from the limit to the failure of a call, even on a busy machine. (A call
 * that misses the failure would never return.) */
static const double soon = 20;

/* Settings and results of a run. Rank 1 begins its step `pause` seconds late. */
static struct {
    double pause;
    bool mute;           /* if true, rank 1 sends nothing during the pause */
    double wakeup_delay; /* how late rank 0 wakes up, in seconds */
    double seconds[MAX_RANKS];
    char *text[MAX_RANKS]; /* diagnosis of each rank after the step */
    char *idle_text;       /* rank 0's diagnosis, which reports even short waits */
} the;

static double now(void) {
    return (double)cgp__now_ns() * 1e-9;
}

static void pause_for(double seconds) {
    const struct timespec time = {(time_t)seconds,
                                  (long)(1e9 * (seconds - (double)(time_t)seconds))};
    nanosleep(&time, NULL);
}

static void step_in_time(rank *r) {
    note_create(r);
    note(r, cgp_pipeline_set_timeout(r->pipeline, timeout));
    const cgp_tensor *inputs[] = {r->batch->inputs[0], r->batch->inputs[1]};
    if (r->number == 0) loopback_delay_wakeups(r->communicator, the.wakeup_delay);
    if (r->number == 1) pause_for(0.1); /* all ranks send a heartbeat meanwhile */
    if (r->number == 1 && the.mute) loopback_mute(r->communicator);
    if (r->number == 1) pause_for(the.pause);
    const double begin = now();
    note(r, cgp_pipeline_step(r->pipeline, inputs, 2, &r->loss));
    the.seconds[r->number] = now() - begin;
    free(the.text[r->number]);
    the.text[r->number] = NULL;
    assert_ok(cgp_pipeline_diagnosis(r->pipeline, "the test", 0, &the.text[r->number]));
    if (r->number > 0) return;
    free(the.idle_text);
    the.idle_text = NULL;
    assert_ok(cgp_pipeline_diagnosis(r->pipeline, "the test", 1e-9, &the.idle_text));
}

/* Run a step on `n` ranks with one stage each. `faults` is the value of CGP_FAULT. */
static void run(rank *ranks, int n, int chunks, const char *faults) {
    const test_sizes sizes = {.layers = 8, .sequence = 4, .width = 8, .heads = 2, .vocab = 7};
    uint64_t state = 3;
    cgp_plan_options o = cgp_plan_options_default();
    cgp_model *model = test_gpt2(&sizes);
    cgp_plan *plan = NULL;
    test_batch batch;
    o.stages = o.ranks = n;
    o.batch = o.chunks = chunks;
    assert_ok(cgp_plan_create(&plan, model, &o));
    test_batch_fill(&batch, model, &sizes, chunks, &state);
    if (faults) setenv("CGP_FAULT", faults, 1);
    make_ranks(ranks, n, plan, &batch, step_in_time);
    run_ranks(ranks, n);
    unsetenv("CGP_FAULT");
    test_batch_release(&batch);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
}

/* Assert that the step fails on all ranks, soon after the limit, with a message that contains
 * `part`. Rank `by` reports its own failure; all other ranks report a peer's failure. */
static void assert_end(const rank *ranks, int n, int by, const char *part) {
    for (int r = 0; r < n; r++) {
        const cgp_status expected = r == by ? CGP_EDEVICE : CGP_EPEER;
        if (ranks[r].status[2] == expected && strstr(ranks[r].message[2], part) &&
            the.seconds[r] < timeout + soon)
            continue;
        print_error("rank %d: %s (%s) after %.3f s, expected %s (%s)\n", r,
                    cgp_status_name(ranks[r].status[2]), ranks[r].message[2], the.seconds[r],
                    cgp_status_name(expected), part);
        fail();
    }
}

static void assert_text(int r, const char *part) {
    if (strstr(the.text[r], part)) return;
    print_error("rank %d: expected %s in\n%s\n", r, part, the.text[r]);
    fail();
}

/* One micro-batch passes through 8 ranks in 2 s, and its gradient returns. A wait fails after the
 * limit plus 1.1 s if no rank makes progress. The first and the last rank wait longer than that,
 * but the other ranks make progress. */
TEST_CASE(a_bubble_longer_than_the_limit_is_no_hang) {
    rank ranks[8];
    run(ranks, 8, 1,
        "delay:0F0:0.25,delay:1F0:0.25,delay:2F0:0.25,delay:3F0:0.25,delay:4F0:0.25,"
        "delay:5F0:0.25,delay:6F0:0.25,delay:7F0:0.25");
    for (int k = 0; k < 3; k++)
        assert_note(ranks, 8, k, CGP_OK, -1, "");
    assert_true(the.seconds[7] > timeout + 1.1);
}

TEST_CASE(a_hanging_action_is_named_on_all_ranks) {
    rank ranks[4];
    run(ranks, 4, 4, "stall:2B1");
    assert_end(ranks, 4, 2, "stage 2, micro-batch 1, 2B1: did not end for ");
    for (int r = 0; r < 4; r++)
        assert_true((strncmp(ranks[r].message[2], "rank 2: ", 8) == 0) == (r != 2));
    assert_text(2, "\"state\": \"runs\"");
    assert_text(2, "\"action\": \"2B1\"");
    assert_text(0, "\"state\": \"waits\"");
    assert_text(0, "\"peer_rank\": 1");
    assert_text(0, "\"reason\": \"the test\"");
    assert_text(3, "\"events\": [");
}

/* Rank 0's worker wakes up late. So the rank's supervisor thread runs after the worker's wait has
 * ended and before the worker reports this. */
TEST_CASE(a_rank_that_wakes_late_names_the_one_that_hangs) {
    the.wakeup_delay = 1.2;
    a_hanging_action_is_named_on_all_ranks(NULL);
    the.wakeup_delay = 0;
}

TEST_CASE(a_silent_rank_is_named_on_all_others) {
    rank ranks[3];
    the.mute = true;
    the.pause = timeout + 0.3;
    run(ranks, 3, 3, NULL);
    the.mute = false;
    the.pause = 0;
    assert_end(ranks, 3, -1, "rank 1: silent for ");
}

/* Rank 1 is late because it still runs the caller's code. It sends heartbeats, so the other ranks
 * wait for it. */
TEST_CASE(a_rank_that_comes_late_is_waited_for) {
    rank ranks[3];
    the.pause = timeout + 0.3;
    run(ranks, 3, 3, NULL);
    the.pause = 0;
    assert_note(ranks, 3, 2, CGP_OK, -1, "");
    assert_true(the.seconds[0] > timeout);
}

TEST_CASE(a_lost_message_is_named_on_all_ranks) {
    rank ranks[3];
    run(ranks, 3, 3, "lost:1SEND_F1");
    assert_end(ranks, 3, -1, "stage 2, micro-batch 1, 2RECV_F1: did not end for ");
    assert_text(1, "\"sent\": [");
    assert_text(2, "\"action\": \"2RECV_F1\"");
}

TEST_CASE(a_late_message_is_waited_for) {
    rank ranks[3];
    run(ranks, 3, 3, "late:1SEND_F1:0.2,late:1SEND_B0:0.1");
    assert_note(ranks, 3, 2, CGP_OK, -1, "");
    assert_true(the.seconds[0] > 0.2);
}

TEST_CASE(a_rank_at_rest_can_be_described) {
    rank ranks[3];
    run(ranks, 3, 3, NULL);
    assert_note(ranks, 3, 2, CGP_OK, -1, "");
    assert_text(0, "\"state\": \"idle\"");
    assert_text(0, "\"in_step\": false");
    assert_null(the.idle_text);
}

static int free_texts(void **unused) {
    (void)unused;
    for (int r = 0; r < MAX_RANKS; r++)
        free(the.text[r]);
    free(the.idle_text);
    return 0;
}

TEST_GROUP(.tear_down = free_texts);

int main(void) {
    cgp_log_set_level(CGP_LOG_ERROR);
    return test_run();
}
