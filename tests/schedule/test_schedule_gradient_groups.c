/* SPDX-License-Identifier: Apache-2.0 */
/* test_schedule_gradient_groups.c -- tests the order in which the gradients of gradient groups are
 * added, and the cost of these additions in a simulated step.
 *
 * These tests represent a sum of micro-batches as a text such as "((0+1)+2)". The parentheses show
 * the order of the additions. */
#include "schedules.h"

#include "schedule/gradient_groups.h"

enum { MOST_MICROBATCHES = 40, TEXT = 16 * MOST_MICROBATCHES };

/* Write the sum of groups `first` to `next` - 1, by the definition of the binary tree. */
static void tree(int first, int next, int m, int groups, char *text) {
    char left[TEXT] = "", right[TEXT] = "";
    *text = '\0';
    if (next - first == 1) {
        for (int i = first * m / groups; i < next * m / groups; i++) {
            strcpy(left, text);
            snprintf(text, TEXT, *left ? "(%s+%d)" : "%s%d", left, i);
        }
        return;
    }
    tree(first, (first + next) / 2, m, groups, left);
    tree((first + next) / 2, next, m, groups, right);
    snprintf(text, TEXT, *left && *right ? "(%s+%s)" : "%s%s", left, right);
}

/* Add up the micro-batches of a replica in the buffers that cgp__gradient_place_of() gives. Return
 * the number of buffers. */
static int run_replica(int m, int groups, int replica, int replicas, char *text) {
    static char buffers[12][TEXT], before[TEXT];
    int n = 0, last = -1;
    buffers[0][0] = '\0';
    for (int i = cgp__replica_first(replica, m, replicas);
         i < cgp__replica_first(replica + 1, m, replicas); i++) {
        const cgp__gradient_place place = cgp__gradient_place_of(i, m, groups, replicas);
        char *to = buffers[place.buffer];
        strcpy(before, place.group == last ? to : "");
        snprintf(to, TEXT, *before ? "(%s+%d)" : "%s%d", before, i);
        last = place.group;
        n = place.buffer + 1 > n ? place.buffer + 1 : n;
        for (int k = place.buffer; k > place.buffer - place.additions; k--) {
            strcpy(before, buffers[k - 1]);
            snprintf(buffers[k - 1], TEXT, "(%s+%s)", before, buffers[k]);
        }
    }
    strcpy(text, buffers[0]);
    return n;
}

static int run(int m, int groups, char *text) {
    return run_replica(m, groups, 0, 1, text);
}

TEST_CASE(groups_are_added_in_a_complete_binary_tree) {
    char expected[TEXT], got[TEXT];
    for (int groups = 1; groups <= 64; groups *= 2) {
        for (int m = 1; m <= MOST_MICROBATCHES; m++) {
            tree(0, groups, m, groups, expected);
            const int buffers = run(m, groups, got);
            assert_string_equal(got, expected);
            assert_int_equal(buffers, 1 + cgp__gradient_partials(m, groups));
        }
    }
    (void)run(5, 4, got); /* groups of 1, 1, 1 and 2 */
    assert_string_equal(got, "((0+1)+(2+(3+4)))");
    (void)run(3, 4, got); /* group 0 is empty */
    assert_string_equal(got, "(0+(1+2))");
    (void)run(5, 1, got);
    assert_string_equal(got, "((((0+1)+2)+3)+4)");
}

TEST_CASE(a_replica_adds_up_to_the_root_of_its_subtree) {
    char expected[TEXT], got[TEXT];
    for (int groups = 1; groups <= 16; groups *= 2) {
        for (int replicas = 1; replicas <= groups; replicas *= 2) {
            for (int m = 1; m <= MOST_MICROBATCHES; m++) {
                const int own = groups / replicas, most = (m + replicas - 1) / replicas;
                for (int r = 0; r < replicas; r++) {
                    tree(r * own, (r + 1) * own, m, groups, expected);
                    const int buffers = run_replica(m, groups, r, replicas, got);
                    assert_string_equal(got, expected);
                    assert_true(buffers <= 1 + cgp__gradient_partials(most, own));
                }
            }
        }
    }
}

TEST_CASE(large_mini_batches_have_as_many_places) {
    enum { M = 1 << 24 };
    const cgp__gradient_place last = cgp__gradient_place_of(M - 1, M, CGP__MAX_GRADIENT_GROUPS, 1);
    assert_int_equal(last.group, CGP__MAX_GRADIENT_GROUPS - 1);
    assert_int_equal(last.buffer, 10);
    assert_int_equal(last.additions, 10);
    assert_int_equal(cgp__gradient_partials(M, CGP__MAX_GRADIENT_GROUPS), 10);
}

TEST_CASE(numbers_that_are_no_powers_of_two_are_refused) {
    assert_ok(cgp__gradient_groups_check(1));
    assert_ok(cgp__gradient_groups_check(1024));
    assert_status(cgp__gradient_groups_check(0), CGP_EINVAL);
    assert_message("gradient groups: expected 1 to 1024, got 0");
    assert_status(cgp__gradient_groups_check(2048), CGP_EINVAL);
    assert_status(cgp__gradient_groups_check(12), CGP_EINVAL);
    assert_message("expected a power of two, got 12 (8 and 16 are the nearest)");
}

/* Return the makespan of a schedule on one device with 5 micro-batches. F takes 0, I takes 1, and W
 * takes 2. An addition takes 10 after I and 100 after W. */
static double makespan(const char *name, int groups) {
    static const double none[] = {0}, input[] = {1}, weight[] = {2}, add_input[] = {10},
                        add_weight[] = {100};
    const cgp_schedule_costs costs = {.forward = none,
                                      .backward_input = input,
                                      .backward_weight = weight,
                                      .add_input = add_input,
                                      .add_weight = add_weight,
                                      .gradient_groups = groups};
    cgp_schedule *s = test_generate(name, 1, 5, 0);
    test_lower(s);
    cgp_schedule_timeline t;
    assert_ok(cgp_schedule_simulate(s, &costs, &t));
    const double all = t.makespan, path = t.critical_path[CGP_ACTION_B] +
                                          t.critical_path[CGP_ACTION_I] +
                                          t.critical_path[CGP_ACTION_W];
    assert_true(fabs(path - all) < 1e-9);
    assert_true(fabs(t.busy[0] - 1) < 1e-12);
    cgp_schedule_timeline_release(&t);
    cgp_schedule_destroy(s);
    return all;
}

TEST_CASE(a_simulated_step_has_the_additions_of_its_tree) {
    static const char *const names[] = {"gpipe", "zb-h1"};
    for (int k = 0; k < 2; k++) {
        assert_true(makespan(names[k], 0) == 15);
        assert_true(makespan(names[k], 1) == 15);
        assert_true(makespan(names[k], 2) == 15 + 110);
        assert_true(makespan(names[k], 4) == 15 + 3 * 110);
        assert_true(makespan(names[k], 8) == 15 + 4 * 110); /* 5 of 8 groups are not empty */
    }
}

TEST_CASE(wrong_costs_of_additions_are_refused) {
    cgp_schedule *s = test_generate("gpipe", 1, 2, 0);
    cgp_schedule_timeline t;
    test_lower(s);
    assert_status(
        cgp_schedule_simulate(s, &(cgp_schedule_costs){.add_weight = (const double[]){-1}}, &t),
        CGP_EINVAL);
    assert_message("cost of add_weight");
    assert_status(cgp_schedule_simulate(s, &(cgp_schedule_costs){.gradient_groups = 3}, &t),
                  CGP_EINVAL);
    assert_message("gradient groups: expected a power of two, got 3");
    cgp_schedule_destroy(s);
}
