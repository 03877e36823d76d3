/* SPDX-License-Identifier: Apache-2.0 */
/* report.h -- plans and results: as text for people, as JSON for programs. */
#ifndef CGPIPE_CLI_REPORT_H
#define CGPIPE_CLI_REPORT_H

#include "session/session.h"

/* Model, mini-batch, pipeline, optimizer: one line each. */
void cli_print_configuration(FILE *out, const cli_session *session);

/* The most important of it, and the memory, in at most 7 lines; 2 where all that a run keeps is `known`. */
void cli_print_summary(FILE *out, const cli_session *session, bool known);

/* A row per device and one for all, the total also in bytes. */
void cli_print_memory(FILE *out, const cgp_plan *plan, const cgp_model *model);

/* A row per device, cut at the width of a page. `name` stands before the number of the row. */
CGP_MUST_CHECK cgp_status cli_print_picture(FILE *out, const cgp_schedule *schedule,
                                            const char *name);

/* A row per device, to scale, as wide as a page for `until`. */
CGP_MUST_CHECK cgp_status cli_print_timeline(FILE *out, const cgp_schedule *schedule,
                                             const cgp_schedule_timeline *timeline,
                                             double until);

/* Time that a column of it stands for. */
double cli_timeline_column(double until);

/* Configuration, memory and whether this machine has it, schedule, simulated bubble. */
CGP_MUST_CHECK cgp_status cli_print_plan(FILE *out, const cli_session *session);

/* Median time of a step, samples/s, bubble: a line. */
void cli_print_result_line(FILE *out, const cli_session *session);

/* Median times, samples/s, bubble, busy share per device, planned and allocated bytes. */
void cli_print_result(FILE *out, const cli_session *session);

/* The keys that a plan knows; with those that a run adds. Owned by the caller. */
json_t *cli_plan_json(const cli_session *session);
CGP_MUST_CHECK cgp_status cli_run_json(const cli_session *session, json_t **out);

#endif
