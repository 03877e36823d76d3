/* SPDX-License-Identifier: Apache-2.0 */
/* captured_graphs.h -- runs launches that repeat unchanged as one captured graph. Only the worker
 * calls these functions. */
#ifndef CGP_SRC_PIPELINE_RUN_CAPTURED_GRAPHS_H
#define CGP_SRC_PIPELINE_RUN_CAPTURED_GRAPHS_H

#include <cgpipe/ext/backend.h>

typedef struct cgp__list cgp__list;
typedef struct cgp__worker cgp__worker;

/* Launches that repeat unchanged, and their captured graph. */
typedef struct cgp__captured cgp__captured;

/* The jobs that have a captured graph. */
enum { CGP__CAPTURED_UPDATE, CGP__CAPTURED_PACKS, CGP__CAPTURED_SQUARES, CGP__CAPTURED_JOBS };

/* A function that enqueues launches one by one. If `captures`, the launches are captured into a
 * graph. The run may be given up during the call. */
typedef cgp_status cgp__launch(cgp__worker *worker, const void *what, bool captures);

/* These functions create and free the worker's captured graphs. Graphs are captured only if
 * `captures` is set and the backend can capture graphs. Call the second function before the device
 * is destroyed. */
cgp_status cgp__captured_graphs_create(cgp__worker *worker, bool captures);
void cgp__captured_graphs_destroy(cgp__worker *worker);

/* Reserve captured graphs for a list's bound instances. Lists with the same bound instance share
 * the graphs of this instance. */
cgp_status cgp__captured_graphs_bind(cgp__worker *worker, cgp__list *list);

/* The first function returns the graph of bound instance `i` for a kind of run. The second function
 * returns the graph of a job. */
cgp__captured *cgp__captured_run(const cgp__worker *worker, int i, bool training, bool with_loss);
cgp__captured *cgp__captured_job(const cgp__worker *worker, int job);

/* At the first use, enqueue the launches one by one. At the second use, capture a graph and run it.
 * At later uses, run the graph. `tag` is added to the tags of the graph's kernels. */
cgp_status cgp__run_captured(cgp__worker *worker, cgp__captured *captured, int64_t tag,
                             cgp__launch *launch, const void *what);

#ifdef CGP_TEST_SITES
/* For tests: a function that compares a captured graph with a second capture of the same launches;
 * NULL: no comparison. */
extern cgp_status (*cgp__captured_graphs_compare)(const cgp_captured_graph *captured,
                                                  const cgp_captured_graph *now);
#endif

#endif
