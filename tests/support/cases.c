/* SPDX-License-Identifier: Apache-2.0 */
/* cases.c -- collects and runs the tests of a program (support.h). */
#include "support.h"

enum { CASES = 64 };

/* The default test group, for a program that does not use TEST_GROUP. */
__attribute__((weak)) const test_group test_program;

static struct CMUnitTest cases[CASES]; /* sorted by line; cmocka skips empty entries */
static int lines[CASES], count;

void test_add(int line, const struct CMUnitTest *test) {
    int at = count;
    if (count == CASES) abort();
    for (; at > 0 && lines[at - 1] > line; at--) {
        lines[at] = lines[at - 1];
        cases[at] = cases[at - 1];
    }
    lines[at] = line;
    cases[at] = *test;
    count++;
}

int test_run(void) {
    if (count == 0) abort(); /* the program defines no test */
    for (int i = 0; i < count; i++) {
        if (!cases[i].setup_func) cases[i].setup_func = test_program.before;
        if (!cases[i].teardown_func) cases[i].teardown_func = test_program.after;
    }
    return cmocka_run_group_tests_name("tests", cases, test_program.set_up, test_program.tear_down);
}
