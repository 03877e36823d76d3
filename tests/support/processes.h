/* SPDX-License-Identifier: Apache-2.0 */
/* processes.h -- for a test program that runs as several processes, each of which is one rank.
 * Plans of several ranks use the program's transport, instead of several ranks in one process
 * (ranks.c). */
#ifndef CGP_TESTS_PROCESSES_H
#define CGP_TESTS_PROCESSES_H

#include <cgpipe/pipeline.h>

/* NULL: the program is one process. */
extern const cgp_transport *test_transport;
extern cgp_communicator *test_communicator;

#endif
