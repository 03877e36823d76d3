/* SPDX-License-Identifier: Apache-2.0 */
/* scenario.h -- repeats calls of the API, with a different allocation failing each time.
 *
 *     undisturbed    calls of thread 0: N0, of thread 1: N1 ...     result R
 *     once           one allocation fails: the API call that needed it fails with a message that
 *                    names what was out of memory, changes nothing, and works when repeated;
 *                    the result is R
 *     lasting        that allocation and all later ones fail: an error, or R if none of
 *                    them was needed
 *
 * After each run there are no more blocks, maps, streams, threads or descriptors than before, and
 * no temporary files. A random half of the allocations is tested; CGP_TEST_SCALE=2 tests all.
 * CGP_TEST_PLACE=<scenario>:<thread>:<call> repeats a single failure. */
#ifndef CGP_TESTS_SCENARIO_H
#define CGP_TESTS_SCENARIO_H

#include "directory.h"
#include "shortage.h"

#include <cgpipe/cgpipe.h>

/* The result of a scenario, as text: equal texts are equal results, bit for bit. */
typedef struct outcome {
    char text[2048];
    size_t used;
} outcome;

typedef cgp_status scenario(outcome *out);

void note(outcome *out, const char *format, ...) CGP_PRINTF(2, 3);

/* Call the API unless an earlier call has failed (`status`); repeat the call once if memory was
 * short. */
#define DO(call)                                                                                   \
    do {                                                                                           \
        if (status == CGP_OK) {                                                                    \
            (void)cgp_fail(CGP_EINVAL, "none");                                                    \
            status = (call);                                                                       \
            if (scenario_came_short(#call, status)) status = (call);                               \
        }                                                                                          \
    } while (0)

/* Return true if a call that returned `status` must be repeated. */
bool scenario_came_short(const char *call, cgp_status status);

/* Run a scenario once for each of its allocations, and let that allocation fail. A scenario may
 * write in test_directory/run, which does not exist when it begins. All complaints are printed
 * before the test fails. */
void scenario_check(const char *name, scenario *act);

/* Set-up and tear-down of a cmocka group: install the hooks, make a directory, silence warnings. */
int scenario_set_up(void **state);
int scenario_tear_down(void **state);

#endif
