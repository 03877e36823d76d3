/* SPDX-License-Identifier: Apache-2.0 */
/* processes.h -- a test program that several processes run together, each of them a rank: plans of
 * several ranks run on its transport (ranks.c) instead of on teams inside the program. */
#ifndef CGP_TESTS_PROCESSES_H
#define CGP_TESTS_PROCESSES_H

#include <cgpipe/pipeline.h>

/* NULL: the program is one process. */
extern const cgp_transport *test_transport;
extern cgp_communicator *test_communicator;

#endif
