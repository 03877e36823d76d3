/* SPDX-License-Identifier: Apache-2.0 */
/* scenario.h -- repeats a sequence of API calls (a scenario), with a different allocation failing
 * each time.
 *
 *     undisturbed    calls of thread 0: N0, of thread 1: N1 ...     result R
 *     once           one allocation fails: the API call that needed it fails with a message that
 *                    names what was out of memory, changes nothing, and works when repeated;
 *                    the result is R
 *     lasting        that allocation and all later ones fail: an error, or R if none of
 *                    them was needed
 *
 * After each run, the numbers of memory blocks, maps, streams, threads and descriptors must equal
 * the numbers before the run, and no temporary files may be left. A random half of the allocations
 * is tested; CGP_TEST_SCALE=2 tests all. CGP_TEST_PLACE=<scenario>:<thread>:<call> runs only that
 * failure. */
#ifndef CGP_TESTS_SCENARIO_H
#define CGP_TESTS_SCENARIO_H

#include "directory.h"
#include "shortage.h"

#include <cgpipe/cgpipe.h>

/* The result of a scenario, as a text. Equal texts mean bit-identical results. */
typedef struct outcome {
    char text[2048];
    size_t used;
} outcome;

typedef cgp_status scenario(outcome *out);

void note(outcome *out, const char *format, ...) CGP_PRINTF(2, 3);

/* Make an API call, unless an earlier call has failed (variable `status`). If an allocation failed,
 * repeat the call once. */
#define DO(call)                                                                                   \
    do {                                                                                           \
        if (status == CGP_OK) {                                                                    \
            (void)cgp_fail(CGP_EINVAL, "none");                                                    \
            status = (call);                                                                       \
            if (scenario_came_short(#call, status)) status = (call);                               \
        }                                                                                          \
    } while (0)

/* Return true if `call`, which returned `status`, failed because of the injected failure and must
 * be repeated. */
bool scenario_came_short(const char *call, cgp_status status);

/* Run a scenario once for each of its allocations, and make that allocation fail. A scenario may
 * write to test_directory/run, which does not exist at the beginning of a run. All complaints are
 * printed before the test fails. */
void scenario_check(const char *name, scenario *act);

/* Set-up and tear-down of a cmocka group. Set-up installs the hooks, makes a directory and silences
 * warnings. */
int scenario_set_up(void **state);
int scenario_tear_down(void **state);

#endif
