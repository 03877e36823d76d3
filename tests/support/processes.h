/* SPDX-License-Identifier: Apache-2.0 */
/* processes.h -- a setting for test programs that run as several processes, one per rank. Plans of
 * several ranks then use the program's transport. Without this setting, ranks.c runs several ranks
 * in one process. */
#ifndef CGP_TESTS_PROCESSES_H
#define CGP_TESTS_PROCESSES_H

#include <cgpipe/pipeline.h>

/* The program's transport; NULL if the program is a single process. */
extern const cgp_transport *test_transport;
extern cgp_communicator *test_communicator;

#endif
