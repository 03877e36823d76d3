/* SPDX-License-Identifier: Apache-2.0 */
/* recordings.h -- captured graphs: launches that repeat unchanged run as one graph. Every call but
 * cgp__recordings_read() is made by the worker. */
#ifndef CGP_SRC_PIPELINE_RUN_RECORDINGS_H
#define CGP_SRC_PIPELINE_RUN_RECORDINGS_H

#include <cgpipe/ext/backend.h>

typedef struct cgp__list cgp__list;
typedef struct cgp__worker cgp__worker;

/* Launches that repeat unchanged, and their captured graph. */
typedef struct cgp__recorded cgp__recorded;

/* The jobs that have a captured graph of their own. */
enum { CGP__RECORDED_UPDATE, CGP__RECORDED_PACKS, CGP__RECORDED_SQUARES, CGP__RECORDED_JOBS };

/* Enqueue launches one by one. `records`: the launches are being captured. The run may be given up
 * meanwhile. */
typedef cgp_status cgp__launch(cgp__worker *worker, const void *what, bool records);

/* Read CGP_GRAPHS. */
cgp_status cgp__recordings_read(bool *records);

/* Make and free the worker's captured graphs. `records`: capture graphs, where the backend can.
 * Call destroy before the device is destroyed. */
cgp_status cgp__recordings_create(cgp__worker *worker, bool records);
void cgp__recordings_destroy(cgp__worker *worker);

/* Reserve captured graphs for a list's bound instances. Lists with the same bound instance share
 * its graphs. */
cgp_status cgp__recordings_bind(cgp__worker *worker, cgp__list *list);

/* Return the graph of bound instance i in a kind of run, and the graph of a job. */
cgp__recorded *cgp__recorded_run(const cgp__worker *worker, int i, bool training, bool with_loss);
cgp__recorded *cgp__recorded_job(const cgp__worker *worker, int job);

/* Enqueue launches one by one at the first use; capture a graph at the second use, and run it from
 * then on. `tag`: added to the tags of the graph's kernels. */
cgp_status cgp__run_recorded(cgp__worker *worker, cgp__recorded *recorded, int64_t tag,
                             cgp__launch *launch, const void *what);

#ifdef CGP_TEST_SITES
/* Function that compares a captured graph with a second capture; NULL: no comparison. */
extern cgp_status (*cgp__recordings_compare)(const cgp_captured_graph *recorded,
                                             const cgp_captured_graph *now);
#endif

#endif
