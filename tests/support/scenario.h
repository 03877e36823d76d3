/* SPDX-License-Identifier: Apache-2.0 */
/* scenario.h -- plays calls of the API again and again, and lets another allocation fail each time.
 *
 *     undisturbed    calls of thread 0: N0, of thread 1: N1 ...     result R
 *     once           one of them fails: the call of the API that needed it fails with a message
 *                    that names what was out of memory, changes nothing, and works when it is
 *                    made again; the result is R
 *     lasting        that one and all later ones fail: an error, or R where nothing was needed
 *
 * After each: no block, map, stream, thread or descriptor more than before, and no
 * temporary file. All places are taken, so there is nothing to draw; one that is complained about
 * can be repeated with CGP_TEST_PLACE=<scenario>:<thread>:<call>. */
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

/* Make a call of the API unless one has failed (`status`); once more if memory was short. */
#define DO(call)                                                                                   \
    do {                                                                                           \
        if (status == CGP_OK) {                                                                    \
            (void)cgp_fail(CGP_EINVAL, "none");                                                    \
            status = (call);                                                                       \
            if (scenario_came_short(#call, status)) status = (call);                               \
        }                                                                                          \
    } while (0)

/* Return true if a call that returned `status` is to be repeated. */
bool scenario_came_short(const char *call, cgp_status status);

/* Play a scenario with every one of its allocations failing. It may write in test_directory/run,
 * which is not there when it begins. Fails the test after all complaints. */
void scenario_check(const char *name, scenario *act);

/* cmocka's set-up and tear-down of a group: the hooks in place, a directory, no warnings. */
int scenario_set_up(void **state);
int scenario_tear_down(void **state);

#endif
