/* SPDX-License-Identifier: Apache-2.0 */
/* plan_explain.c -- see plan_explain.h.
 *
 * A device's step has five parts: F and B, recomputation, idle time, the exchange of gradients
 * between replicas, and the update. Let T be the
 * makespan, b the bubble, and r the time of recomputation as a fraction of the time of F and B. On
 * average, a device spends (1 - b) T / (1 + r) on F and B, and r times as long on recomputation. It
 * is idle for b T. */
#include "commands/plan_explain.h"

#include "text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WORK, RECOMPUTED, IDLE, EXCHANGE, UPDATE, PARTS };
static const char *const parts[] = {"F and B", "recomputation", "idle", "exchange", "update"};

static double part_of(const cgp_search_choice *c, int part) {
    const double busy = (1 - c->bubble) * c->makespan, work = busy / (1 + c->recomputed);
    const double all[] = {[WORK] = work,
                          [RECOMPUTED] = busy - work,
                          [IDLE] = c->makespan - busy,
                          [EXCHANGE] = c->exchange,
                          [UPDATE] = c->update};
    return all[part];
}

static bool fits(const cgp_search_choice *c) {
    return c->makespan > 0;
}

/* Tell whether `a` comes before `b`. Plans that fit come first, ordered by step time. The other
 * plans are ordered by bytes. */
static bool before(const cgp_search_choice *a, const cgp_search_choice *b) {
    if (fits(a) != fits(b)) return fits(a);
    return fits(a) ? cli_search_step(a) < cli_search_step(b) : a->bytes < b->bytes;
}

static bool same_text(const char *a, const char *b) {
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool same_schedule(const cgp_search_choice *a, const cgp_search_choice *b) {
    return same_text(a->schedule, b->schedule) && a->virtual_stages == b->virtual_stages &&
           a->in_flight == b->in_flight;
}

/* --- output --- */

/* Print how much longer the step of a plan is than the best step, in percent of the best step. */
static void print_loss(FILE *out, const cgp_search_choice *c, const cgp_search_choice *best) {
    char bytes[32];
    if (!fits(c)) {
        fprintf(out, "no tried plan fits: the smallest needs %s\n",
                cgp_bytes_text(c->bytes, bytes, sizeof bytes));
        return;
    }
    fprintf(out, "%+6.1f %%", 100 * (cli_search_step(c) / cli_search_step(best) - 1));
    for (int part = 0, n = 0; part < PARTS; part++) {
        const double loss = 100 * (part_of(c, part) - part_of(best, part)) / cli_search_step(best);
        if (fabs(loss) >= 0.05) fprintf(out, "%s %s %+.1f", n++ ? "," : ":", parts[part], loss);
    }
    fprintf(out, "\n");
}

/* Print the parts of the step, in percent. */
static void print_best(FILE *out, const cgp_search_choice *best) {
    char schedule[CLI_SCHEDULE_TEXT];
    fprintf(out, "\nthe step with %s, %d stage%s on a device, %d micro-batches, recompute %s:\n ",
            best->schedule ? cli_search_schedule(best, schedule) : "the file", best->virtual_stages,
            best->virtual_stages == 1 ? "" : "s", best->chunks,
            cgp_recompute_name(best->recompute));
    for (int part = 0, n = 0; part < PARTS; part++) {
        const double share = 100 * part_of(best, part) / cli_search_step(best);
        if (share >= 0.05) fprintf(out, "%s %s %.1f %%", n++ ? "," : "", parts[part], share);
    }
    fprintf(out, "\n");
}

/* Return the index of the best tried plan that has the schedule of entry i; -1: an earlier entry
 * has the same schedule. */
static int best_of(const cgp_search_result *found, int i) {
    int best = i;
    for (int k = 0; k < found->n_tried; k++) {
        if (!same_schedule(&found->tried[k], &found->tried[i])) continue;
        if (k < i) return -1;
        if (before(&found->tried[k], &found->tried[best])) best = k;
    }
    return best;
}

static int compare(const void *a, const void *b) {
    const cgp_search_choice *const *x = a, *const *y = b;
    return before(*x, *y) ? -1 : before(*y, *x) ? 1 : 0;
}

/* Print a line for each other combination of a schedule and a number of stages per device. */
static void print_schedules(FILE *out, const cgp_search_result *found,
                            const cgp_search_choice *best) {
    const cgp_search_choice **list = cli_calloc((size_t)found->n_tried, sizeof(void *));
    char schedule[CLI_SCHEDULE_TEXT];
    int n = 0;
    for (int i = 0; i < found->n_tried; i++) {
        const int k = best_of(found, i);
        if (k >= 0 && !same_schedule(&found->tried[k], best)) list[n++] = &found->tried[k];
    }
    qsort(list, (size_t)n, sizeof(void *), compare);
    if (n > 0) fprintf(out, "\nother schedules, with their best mode, in %% of that step:\n");
    for (int k = 0; k < n; k++) {
        fprintf(out, "  %-14s %d  %6d  %-21s  ", cli_search_schedule(list[k], schedule),
                list[k]->virtual_stages, list[k]->chunks, cgp_recompute_name(list[k]->recompute));
        print_loss(out, list[k], best);
    }
    free(list);
}

/* Find the tried plan with this recomputation mode and the schedule, micro-batches and precision of
 * the best plan; NULL: there is none. */
static const cgp_search_choice *find_mode(const cgp_search_result *found,
                                          const cgp_search_choice *best, cgp_recompute mode) {
    for (int k = 0; k < found->n_tried; k++) {
        const cgp_search_choice *c = &found->tried[k];
        if (same_schedule(c, best) && c->chunks == best->chunks && c->recompute == mode &&
            c->precision == best->precision)
            return c;
    }
    return NULL;
}

/* Print a line for each other recomputation mode, unless --recompute has fixed the mode. */
static void print_modes(FILE *out, const cgp_search_result *found, const cgp_search_choice *best) {
    bool fixed = true;
    for (int k = 0; k < found->n_tried; k++)
        fixed = fixed && found->tried[k].recompute == best->recompute;
    if (fixed) return;
    fprintf(out, "\nother modes of that schedule:\n");
    for (int mode = 0; mode <= (int)CGP_RECOMPUTE_BUDGET; mode++) {
        if (mode == (int)best->recompute) continue;
        const cgp_search_choice *c = find_mode(found, best, (cgp_recompute)mode);
        fprintf(out, "  %-21s  ", cgp_recompute_name((cgp_recompute)mode));
        if (c)
            print_loss(out, c, best);
        else
            fprintf(out, "not planned: a mode with less recomputation fits\n");
    }
}

void cli_plan_explain(FILE *out, const cgp_search_result *found, const cgp_search_choice *choice) {
    print_best(out, choice);
    print_schedules(out, found, choice);
    print_modes(out, found, choice);
}

/* Print the best plan of a part. */
static void print_part(FILE *out, const cli_search_part *part, const cgp_search_choice *best) {
    const cgp_search_result *found = &part->found;
    char bytes[32];
    fprintf(out, "  %4lld x %-3lld  ", (long long)part->options.replicas,
            (long long)part->options.stages);
    if (found->n > 0)
        print_loss(out, &found->choices[0], best);
    else if (found->least.bytes > 0)
        fprintf(out, "no tried plan fits: the smallest needs %s\n",
                cgp_bytes_text(found->least.bytes, bytes, sizeof bytes));
    else
        fprintf(out, "%s\n", part->reason);
}

void cli_plan_explain_replicas(FILE *out, const cli_search_parts *found,
                               const cli_search_row *best) {
    fprintf(out, "the best plan with each number of replicas, in %% of the step of row %d:\n",
            (int)(best - found->rows) + 1);
    for (int k = 0; k < found->n_parts; k++)
        print_part(out, &found->parts[k], best->choice);
    fprintf(out, "\n");
}
