/* SPDX-License-Identifier: Apache-2.0 */
/* report.h -- plans and results: as text for people, as JSON for programs. */
#ifndef CGPIPE_CLI_REPORT_H
#define CGPIPE_CLI_REPORT_H

#include <cgpipe/model.h>
#include <cgpipe/plan.h>
#include <cgpipe/schedule.h>

#include <jansson.h>
#include <stdio.h>

typedef struct cli_session cli_session;

/* Print model, mini-batch, pipeline and optimizer, one per line. */
void cli_print_configuration(FILE *out, const cli_session *session);

/* Print a summary of the configuration and the memory in at most 7 lines. If `known` is true, the
 * run is resumed and the configuration is known, so print only 2 lines. */
void cli_print_summary(FILE *out, const cli_session *session, bool known);

/* Print the ranks of a pipeline if there are several: one line for consecutive ranks with the same
 * host and cores. */
void cli_print_ranks(FILE *out, const cli_session *session);
/* Print how messages pass between ranks, a line for each edge. */
void cli_print_edges(FILE *out, const cli_session *session);

/* Draw a schedule with a row per device, cut at the width of a page. The label of a row is `name`
 * and the row's number. */
CGP_MUST_CHECK cgp_status cli_print_picture(FILE *out, const cgp_schedule *schedule,
                                            const char *name);

/* Draw a timeline to scale with a row per device. The width of a page stands for times 0 to
 * `until`. */
CGP_MUST_CHECK cgp_status cli_print_timeline(FILE *out, const cgp_schedule *schedule,
                                             const cgp_schedule_timeline *timeline, double until);

/* Return the time that one column of a timeline covers. */
double cli_timeline_column(double until);

/* Return the FLOPs that a stage recomputes, in R and within backward, divided by the FLOPs of its
 * forward. */
double cli_recomputed_share(const cgp_plan *plan, int stage);

/* Print configuration, memory, the machine's free memory, schedule, simulated bubble. */
CGP_MUST_CHECK cgp_status cli_print_plan(FILE *out, const cli_session *session);

/* Print the median step time, samples/s and bubble on one line. */
void cli_print_result_line(FILE *out, const cli_session *session);

/* Print how the time of a step is spent, by kind of op, and add these times to a report (ops.c).
 * Collective. */
CGP_MUST_CHECK cgp_status cli_print_ops(FILE *out, const cli_session *session);
CGP_MUST_CHECK cgp_status cli_ops_json(const cli_session *session, json_t *report);

/* Print median times, samples/s, bubble, busy fraction per device, planned and allocated bytes. */
void cli_print_result(FILE *out, const cli_session *session);

/* Print a simulated step beside the measured one. `source` says where the costs are from. */
void cli_print_prediction(FILE *out, const cli_session *session, double seconds,
                          const char *source);

/* Return the number of elements of frozen parameters. */
int64_t cli_frozen_count(const cgp_model *model);

/* The first function returns the JSON of a plan. The second sets *out to the JSON of a plan and its
 * run. The caller owns the JSON. */
json_t *cli_plan_json(const cli_session *session);
CGP_MUST_CHECK cgp_status cli_run_json(const cli_session *session, json_t **out);

#endif
