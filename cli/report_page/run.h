/* SPDX-License-Identifier: Apache-2.0 */
/* run.h -- what the sections of a report are made from, and the functions that make them. Each adds
 * members to `data`, and names what it cannot find in `missing`. */
#ifndef CGPIPE_CLI_PAGE_RUN_H
#define CGPIPE_CLI_PAGE_RUN_H

#include <cgpipe/compare.h>
#include <cgpipe/partition.h>

#include <jansson.h>

typedef struct cli_run_directory cli_run_directory;
typedef struct cli_session cli_session;

typedef struct cli_page_run {
    const cli_run_directory *directory; /* borrowed */
    const json_t *record, *measured;    /* run.json; measured.json, NULL: none. Borrowed */
    const cli_session *session;         /* model and plan; NULL: unknown. Borrowed */
    /* The measured step, and its comparison with the plan; NULL: not known. */
    cgp_schedule *schedule;
    cgp_schedule_timeline timeline;
    cgp_schedule_comparison comparison;
    cgp_layer_cost *costs; /* [layers] measured costs of a micro-batch; NULL: not known */
    double median_seconds; /* median time of the steps of the last start; NaN: none */
    double update_seconds; /* measured time of an update; 0: unknown */
    /* Seconds that the search for better plans may take, but for its last plan; 0: no limit. */
    double search_seconds;
    /* How a training of this process ended, as in measured.json; NULL: it is found. Borrowed. */
    const char *state, *state_text;
    json_t *data, *missing;
} cli_page_run;

/* Add "NAME: REASON" to `missing`. */
void cli_page_missing(cli_page_run *run, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Tell whether the last start has measured.json's options: it is the start that wrote the file, or
 * no later start changed an option but --steps. */
bool cli_page_is_current(const json_t *record, const json_t *measured);

/* Tell whether the measured step has the lists of the session's plan. */
bool cli_page_same_lists(const cli_page_run *run);

/* Return the layers of a stage, "h.0 .. h.3". Freed by the caller. */
char *cli_page_layers(const cli_session *session, int stage);

/* The sections, in the order in which they are made. */
void cli_page_curves(cli_page_run *run);   /* curves.c: "curves", "steps" */
void cli_page_facts(cli_page_run *run);    /* facts.c: "facts", "state" */
void cli_page_timeline(cli_page_run *run); /* timeline.c: "timeline" */
void cli_page_memory(cli_page_run *run);   /* memory.c: "memory" */
void cli_page_balance(cli_page_run *run);  /* balance.c: "balance" */
void cli_page_planner(cli_page_run *run);  /* planner.c: "changes", "plans" */
void cli_page_verdict(cli_page_run *run);  /* verdict.c: "verdict" */

#endif
