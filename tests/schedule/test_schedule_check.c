/* SPDX-License-Identifier: Apache-2.0 */
/* test_schedule_check.c -- tests that the checker refuses wrong schedules with the right messages.
 * A table is one string of actions per device. A transfer uses the edge that fits its stage, or
 * names an edge: "0SEND_F1@2" is on edge 2. */
#include "support.h"

#include "schedule_lists.h"

#define MOST 64

/* A chain of two stages with edges 0 -> 1 and 1 -> 0, and a correct table for two micro-batches. */
static const cgp_edge chain[] = {{0, 1}, {1, 0}};
#define FIRST "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1"
#define SECOND "1RECV_F0 1F0 1RECV_F1 1F1 1B0 1SEND_B0 1B1 1SEND_B1"

static const char *const kinds[] = {"F",      "B",      "I",      "W",     "R",
                                    "SEND_F", "RECV_F", "SEND_B", "RECV_B"};

static int find_edge(const cgp_action *a, const cgp_edge *edges, int n_edges) {
    for (int e = 0; e < n_edges; e++) {
        const bool gradient = a->kind == CGP_ACTION_SEND_B || a->kind == CGP_ACTION_RECV_B;
        const int stage = cgp__is_send(a->kind) ? edges[e].from : edges[e].to;
        if (gradient == cgp__is_gradient(edges[e]) && stage == a->stage) return e;
    }
    return 0;
}

static cgp_action parse_action(const char *word, const cgp_edge *edges, int n_edges) {
    char kind[16];
    cgp_action a = {.edge = -1};
    assert_true(sscanf(word, "%d%15[A-Z_]%d", &a.stage, kind, &a.microbatch) == 3);
    while (strcmp(kinds[a.kind], kind) != 0)
        a.kind++;
    if (cgp__is_transfer(a.kind)) a.edge = find_edge(&a, edges, n_edges);
    if (strchr(word, '@')) a.edge = atoi(strchr(word, '@') + 1);
    return a;
}

typedef struct layout {
    int stages, chunks, devices;
    const int *device_of;
    const cgp_edge *edges;
    int n_edges;
} layout;

static cgp_status make(cgp_schedule **out, const layout *l, const char *const *rows) {
    static cgp_action lists[4][MOST];
    const cgp_action *const pointers[] = {lists[0], lists[1], lists[2], lists[3]};
    int counts[4] = {0};
    for (int device = 0; device < l->devices; device++) {
        char text[1024];
        snprintf(text, sizeof text, "%s", rows[device]);
        for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
            lists[device][counts[device]++] = parse_action(word, l->edges, l->n_edges);
    }
    const test_schedule_table table = {.name = "by hand",
                                       .stages = l->stages,
                                       .chunks = l->chunks,
                                       .devices = l->devices,
                                       .device_of = l->device_of,
                                       .lists = pointers,
                                       .counts = counts,
                                       .lowered = true,
                                       .edges = l->edges,
                                       .n_edges = l->n_edges};
    return test_schedule_from_lists(out, &table);
}

static const layout two_stages = {2, 2, 2, (const int[]){0, 1}, chain, 2};

/* Assert that the checker, the simulator and the drawing refuse the table with this message. */
static void assert_refused(const layout *l, const char *const *rows, const char *message) {
    cgp_schedule *schedule = NULL;
    cgp_schedule_report report = {.devices = -1};
    cgp_schedule_timeline timeline = {.devices = -1};
    assert_ok(make(&schedule, l, rows));
    assert_status(cgp_schedule_check(schedule, &report), CGP_EINVAL);
    assert_string_equal(cgp_message(), message);
    assert_int_equal(report.devices, -1);
    assert_status(cgp_schedule_simulate(schedule, NULL, &timeline), CGP_EINVAL);
    assert_string_equal(cgp_message(), message);
    assert_int_equal(timeline.devices, -1);
    assert_null(cgp_schedule_draw(schedule));
    assert_string_equal(cgp_message(), message);
    cgp_schedule_destroy(schedule);
}

static void assert_two_stages_refused(const char *first, const char *second, const char *message) {
    assert_refused(&two_stages, (const char *const[]){first, second}, message);
}

TEST_CASE(the_table_that_the_others_are_made_of_is_accepted) {
    cgp_schedule *schedule = NULL;
    cgp_schedule_report report;
    assert_ok(make(&schedule, &two_stages, (const char *const[]){FIRST, SECOND}));
    assert_ok(cgp_schedule_check(schedule, &report));
    assert_int_equal(report.peak_in_flight[0], 2);
    cgp_schedule_report_release(&report);
    cgp_schedule_destroy(schedule);
}

TEST_CASE(a_missing_action_is_named) {
    assert_two_stages_refused("0F0 0SEND_F0 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1", SECOND,
                              "schedule: device 0, 0F1: expected once, got none");
    assert_two_stages_refused(FIRST, "1RECV_F0 1F0 1RECV_F1 1F1 1B0 1SEND_B0 1SEND_B1",
                              "schedule: device 1, 1B1: expected once (or I and W), got none");
    assert_two_stages_refused(
        "0F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1", SECOND,
        "schedule: device 0, 0SEND_F0: expected once for edge 0, 0 -> 1, got none");
    assert_two_stages_refused(
        FIRST, "1RECV_F0 1F0 1F1 1B0 1SEND_B0 1B1 1SEND_B1",
        "schedule: device 1, 1RECV_F1: expected once for edge 0, 0 -> 1, got none");
    assert_two_stages_refused(
        FIRST, "1RECV_F0 1F0 1RECV_F1 1F1 1B0 1B1 1SEND_B1",
        "schedule: device 1, 1SEND_B0: expected once for edge 1, 1 -> 0, got none");
    assert_two_stages_refused(
        "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0B1", SECOND,
        "schedule: device 0, 0RECV_B1: expected once for edge 1, 1 -> 0, got none");
    assert_two_stages_refused("", "", "schedule: device 0, 0F0: expected once, got none");
}

TEST_CASE(a_duplicate_is_named_with_both_positions) {
    assert_two_stages_refused(FIRST " 0F0", SECOND,
                              "schedule: device 0, position 8, 0F0: expected once, got it again "
                              "(first at position 0)");
    assert_two_stages_refused(
        FIRST, SECOND " 1SEND_B0",
        "schedule: device 1, position 8, 1SEND_B0: expected once, got it again "
        "(first at position 5)");
}

TEST_CASE(a_wrong_order_is_named_with_both_positions) {
    assert_two_stages_refused(
        "0SEND_F0 0F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1", SECOND,
        "schedule: device 0, position 0, 0SEND_F0: expected after 0F0, got it "
        "before (position 1)");
    assert_two_stages_refused(
        FIRST, "1F0 1RECV_F0 1RECV_F1 1F1 1B0 1SEND_B0 1B1 1SEND_B1",
        "schedule: device 1, position 0, 1F0: expected after 1RECV_F0, got it "
        "before (position 1)");
    assert_two_stages_refused(
        FIRST, "1RECV_F0 1B0 1F0 1RECV_F1 1F1 1SEND_B0 1B1 1SEND_B1",
        "schedule: device 1, position 1, 1B0: expected after 1F0, got it before "
        "(position 2)");
    assert_two_stages_refused(
        FIRST, "1RECV_F0 1F0 1RECV_F1 1F1 1SEND_B0 1B0 1B1 1SEND_B1",
        "schedule: device 1, position 4, 1SEND_B0: expected after 1B0, got it "
        "before (position 5)");
    assert_two_stages_refused(
        "0F0 0SEND_F0 0F1 0SEND_F1 0B0 0RECV_B0 0RECV_B1 0B1", SECOND,
        "schedule: device 0, position 4, 0B0: expected after 0RECV_B0, got it "
        "before (position 5)");
}

TEST_CASE(recomputation_stands_between_forward_and_backward) {
    assert_two_stages_refused(
        "0R0 " FIRST, SECOND,
        "schedule: device 0, position 0, 0R0: expected after 0F0, got it before "
        "(position 1)");
    assert_two_stages_refused(
        FIRST " 0R1", SECOND,
        "schedule: device 0, position 7, 0B1: expected after 0R1, got it before "
        "(position 8)");
    assert_two_stages_refused("0F0 0SEND_F0 0F1 0SEND_F1 0R1", "1RECV_F0 1F0 1RECV_F1 1F1",
                              "schedule: device 0, position 4, 0R1: expected F only in a schedule "
                              "without backward, got R");
}

TEST_CASE(a_backward_comes_in_one_piece_or_in_two) {
    assert_two_stages_refused(
        FIRST " 0W0", SECOND,
        "schedule: device 0, position 8, 0W0: expected B or else I and W, got B, "
        "too (position 5)");
    assert_two_stages_refused(
        FIRST " 0I1", SECOND,
        "schedule: device 0, position 8, 0I1: expected B or else I and W, got B, "
        "too (position 7)");
    assert_two_stages_refused("0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0I0 0RECV_B1 0B1", SECOND,
                              "schedule: device 0, 0W0: expected once after I, got none");
    assert_two_stages_refused("0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0W0 0RECV_B1 0B1", SECOND,
                              "schedule: device 0, 0I0: expected once before W, got none");
    assert_two_stages_refused(
        "0F0 0SEND_F0 0F1 0SEND_F1 0W0 0RECV_B0 0I0 0RECV_B1 0B1", SECOND,
        "schedule: device 0, position 4, 0W0: expected after 0I0, got it before "
        "(position 6)");
    /* A schedule may have B for some micro-batches, and I and W for others. */
    cgp_schedule *schedule = NULL;
    assert_ok(make(&schedule, &two_stages,
                   (const char *const[]){
                       "0F0 0SEND_F0 0F1 0SEND_F1 0R0 0RECV_B0 0I0 0RECV_B1 0B1 0W0", SECOND}));
    assert_ok(cgp_schedule_check(schedule, NULL));
    cgp_schedule_destroy(schedule);
}

TEST_CASE(a_transfer_fits_its_edge) {
    const cgp_edge edges[] = {{0, 1}, {1, 2}, {1, 0}};
    const layout three = {3, 1, 3, (const int[]){0, 1, 2}, edges, 3};
    assert_refused(
        &three, (const char *const[]){"0F0 0SEND_F0@1 0B0", "1RECV_F0 1F0 1SEND_F0 1B0", "2F0 2B0"},
        "schedule: device 0, position 1, 0SEND_F0: expected stage 1 as edge 1 is 1 -> 2, got "
        "stage 0");
    assert_refused(
        &three, (const char *const[]){"0F0 0SEND_B0@0 0B0", "1RECV_F0 1F0 1SEND_F0 1B0", "2F0 2B0"},
        "schedule: device 0, position 1, 0SEND_B0: expected a gradient on edge 0, which is 0 "
        "-> 1");
    assert_refused(
        &three, (const char *const[]){"0F0 0SEND_F0@2 0B0", "1RECV_F0 1F0 1SEND_F0 1B0", "2F0 2B0"},
        "schedule: device 0, position 1, 0SEND_F0: expected an activation on edge 2, which is "
        "1 -> 0");
    assert_two_stages_refused("0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0", "1RECV_F0 1F0 1RECV_F1 1F1",
                              "schedule: device 0, position 4, 0RECV_B0: expected no gradient in a "
                              "schedule without backward");
}

TEST_CASE(numbers_out_of_range_are_refused_at_once) {
    cgp_schedule *schedule = NULL;
    const layout no_edges = {2, 2, 2, (const int[]){0, 1}, NULL, 0};
    const layout bad_device = {2, 2, 2, (const int[]){0, 2}, chain, 2};
    const layout bad_edge = {2, 2, 2, (const int[]){0, 1}, (const cgp_edge[]){{0, 2}}, 1};
    assert_status(make(&schedule, &two_stages, (const char *const[]){"2F0", ""}), CGP_EINVAL);
    assert_message("schedule: device 0, position 0, 2F0: expected stage 0 to 1, got 2");
    assert_status(make(&schedule, &two_stages, (const char *const[]){"0F0 0F2", ""}), CGP_EINVAL);
    assert_message("schedule: device 0, position 1, 0F2: expected micro-batch 0 to 1, got 2");
    assert_status(make(&schedule, &two_stages, (const char *const[]){"1F0", ""}), CGP_EINVAL);
    assert_message("schedule: device 0, position 0, 1F0: expected on device 1 as all of stage 1");
    assert_status(make(&schedule, &two_stages, (const char *const[]){"0SEND_F0@2", ""}),
                  CGP_EINVAL);
    assert_message("0SEND_F0: expected one of 2 edges, got edge 2");
    assert_status(make(&schedule, &no_edges, (const char *const[]){"0SEND_F0", ""}), CGP_EINVAL);
    assert_message("0SEND_F0: expected one of 0 edges, got edge 0");
    assert_status(make(&schedule, &two_stages, (const char *const[]){"0F0@1", ""}), CGP_EINVAL);
    assert_message("0F0: expected edge -1, got 1");
    assert_status(make(&schedule, &bad_device, (const char *const[]){FIRST, SECOND}), CGP_EINVAL);
    assert_message("schedule: stage 1: expected a device 0 to 1, got 2");
    assert_status(make(&schedule, &bad_edge, (const char *const[]){"", ""}), CGP_EINVAL);
    assert_message("schedule: edge 0: expected stages 0 to 1, got 0 -> 2");
    assert_null(schedule);
}

/* Device 0 needs gradient 0 before it can send activation 1. Device 1 needs activation 1 before it
 * can run any backward. */
TEST_CASE(a_deadlock_is_named_by_its_cycle) {
    assert_two_stages_refused(
        "0F0 0SEND_F0 0RECV_B0 0B0 0F1 0SEND_F1 0RECV_B1 0B1", SECOND,
        "schedule: deadlock: device 0 waits at 0RECV_B0 for 1SEND_B0; device 1 "
        "waits at 1RECV_F1 for 0SEND_F1");
}

/* Device 0 waits for a device of the cycle, but is not itself part of the cycle. */
TEST_CASE(a_device_outside_the_cycle_is_not_named) {
    const cgp_edge edges[] = {{0, 1}, {1, 0}, {1, 2}, {2, 1}};
    const layout three = {3, 2, 3, (const int[]){0, 1, 2}, edges, 4};
    assert_refused(&three,
                   (const char *const[]){
                       "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1",
                       "1RECV_F0 1F0 1SEND_F0 1RECV_B0 1B0 1SEND_B0 1RECV_F1 1F1 1SEND_F1 1RECV_B1 "
                       "1B1 1SEND_B1",
                       "2RECV_F0 2F0 2RECV_F1 2F1 2B0 2SEND_B0 2B1 2SEND_B1"},
                   "schedule: deadlock: device 1 waits at 1RECV_B0 for 2SEND_B0; device 2 waits at "
                   "2RECV_F1 for "
                   "1SEND_F1");
}

/* Both stages are on one device, and stage 1 comes first in its list. */
TEST_CASE(a_device_can_wait_for_itself) {
    const layout one = {2, 1, 1, (const int[]){0, 0}, chain, 1};
    assert_refused(&one, (const char *const[]){"1RECV_F0 1F0 1B0 0F0 0SEND_F0 0B0"},
                   "schedule: deadlock: device 0 waits at 1RECV_F0 for 0SEND_F0");
}

/* The message about a long cycle is shortened, but ends with the complete text of a device. */
TEST_CASE(a_long_cycle_is_cut_short) {
    enum { N = 40 };
    cgp_action lists[N][4];
    const cgp_action *pointers[N];
    int device_of[N], counts[N];
    cgp_edge edges[N];
    for (int j = 0; j < N; j++) { /* a ring: edges 0 -> 1 -> ... -> N-1 -> 0 */
        const bool last = j == N - 1;
        device_of[j] = j;
        counts[j] = 4;
        pointers[j] = lists[j];
        edges[j] = last ? (cgp_edge){j, 0} : (cgp_edge){j, j + 1};
        for (int i = 0; i < 4; i++)
            lists[j][i] = (cgp_action){.stage = j, .edge = -1};
        /* Stage 0 waits for a gradient before it sends the first activation. */
        lists[j][0].kind = j ? CGP_ACTION_RECV_F : CGP_ACTION_F;
        lists[j][1].kind = j ? CGP_ACTION_F : CGP_ACTION_RECV_B;
        lists[j][2].kind = last ? CGP_ACTION_B : j ? CGP_ACTION_SEND_F : CGP_ACTION_B;
        lists[j][3].kind = last ? CGP_ACTION_SEND_B : j ? CGP_ACTION_B : CGP_ACTION_SEND_F;
        for (int i = 0; i < 4; i++) {
            const cgp_action_kind kind = lists[j][i].kind;
            if (cgp__is_transfer(kind)) lists[j][i].edge = cgp__is_send(kind) ? j : (j + N - 1) % N;
        }
    }
    const test_schedule_table table = {.name = "ring",
                                       .stages = N,
                                       .chunks = 1,
                                       .devices = N,
                                       .device_of = device_of,
                                       .lists = pointers,
                                       .counts = counts,
                                       .lowered = true,
                                       .edges = edges,
                                       .n_edges = N};
    cgp_schedule *schedule = NULL;
    assert_ok(test_schedule_from_lists(&schedule, &table));
    assert_status(cgp_schedule_check(schedule, NULL), CGP_EINVAL);
    assert_message(
        "schedule: deadlock: device 0 waits at 0RECV_B0 for 39SEND_B0; device 39 waits at "
        "39RECV_F0 for 38SEND_F0; device 38");
    const char *end = strstr(cgp_message(), "; and so on over ");
    assert_non_null(end);
    assert_in_range(atoi(end + strlen("; and so on over ")), 20, 30);
    cgp_schedule_destroy(schedule);
}

/* The receiver takes message 1 before message 0, so the edge needs two buffers. With one buffer,
 * the simulation fails, and the error message shows the cycle. */
TEST_CASE(too_few_buffers_are_named_by_their_cycle) {
    const layout forward = {2, 2, 2, (const int[]){0, 1}, chain, 1};
    cgp_schedule *schedule = NULL;
    cgp_schedule_report report;
    cgp_schedule_timeline timeline;
    assert_ok(
        make(&schedule, &forward,
             (const char *const[]){"0F0 0SEND_F0 0F1 0SEND_F1", "1RECV_F1 1F1 1RECV_F0 1F0"}));
    assert_ok(cgp_schedule_check(schedule, &report));
    assert_int_equal(report.min_capacity[0], 2);
    cgp_schedule_report_release(&report);
    const cgp_schedule_costs one = {.capacity = (const int[]){1}},
                             two = {.capacity = (const int[]){2}};
    assert_status(cgp_schedule_simulate(schedule, &one, &timeline), CGP_EINVAL);
    assert_string_equal(cgp_message(),
                        "schedule: deadlock: device 0 waits at 0SEND_F1 (edge 0, capacity 1) for "
                        "1RECV_F1; device 1 waits at 1RECV_F1 for 0SEND_F1");
    assert_ok(cgp_schedule_simulate(schedule, &two, &timeline));
    assert_int_equal(timeline.free_capacity[0], 2);
    cgp_schedule_timeline_release(&timeline);
    cgp_schedule_destroy(schedule);
}

/* Two stages are on one device, which runs all micro-batches of stage 0 first. Every micro-batch
 * then waits in a buffer. The device's number of slots is the sum over its stages. */
TEST_CASE(stages_of_one_device_share_its_slots) {
    const layout one = {2, 3, 1, (const int[]){0, 0}, chain, 2};
    cgp_schedule *schedule = NULL;
    cgp_schedule_report report;
    assert_ok(
        make(&schedule, &one,
             (const char *const[]){
                 "0F0 0SEND_F0 0F1 0SEND_F1 0F2 0SEND_F2 1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 "
                 "1B1 1SEND_B1 1RECV_F2 1F2 1B2 1SEND_B2 0RECV_B0 0B0 0RECV_B1 0B1 0RECV_B2 0B2"}));
    assert_ok(cgp_schedule_check(schedule, &report));
    assert_int_equal(report.devices, 1);
    assert_int_equal(report.peak_in_flight[0], 3);
    assert_int_equal(report.peak_in_flight[1], 1);
    assert_int_equal(report.peak_slots[0], 4);
    assert_int_equal(report.min_capacity[0], 3);
    assert_int_equal(report.min_capacity[1], 3);
    cgp_schedule_report_release(&report);
    cgp_schedule_destroy(schedule);
}

/* If backward is split into I and W, a micro-batch is in flight until its W ends. */
TEST_CASE(a_micro_batch_is_in_flight_until_its_weight_gradient) {
    const layout one = {1, 2, 1, (const int[]){0}, NULL, 0};
    cgp_schedule *schedule = NULL;
    cgp_schedule_report report;
    assert_ok(make(&schedule, &one, (const char *const[]){"0F0 0I0 0F1 0I1 0W0 0W1"}));
    assert_ok(cgp_schedule_check(schedule, &report));
    assert_int_equal(report.peak_in_flight[0], 2);
    cgp_schedule_report_release(&report);
    cgp_schedule_destroy(schedule);
}
