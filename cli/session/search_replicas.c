/* SPDX-License-Identifier: Apache-2.0 */
/* search_replicas.c -- see search_replicas.h. */
#include "session/search_replicas.h"

#include "options/resolve.h"
#include "session/session.h"
#include "text.h"

#include <stdlib.h>

double cli_search_step(const cgp_search_choice *choice) {
    return choice->makespan + choice->exchange + choice->update;
}

/* --- parts --- */

/* Give each of `replicas` replicas an equal share of the devices. */
static void divide(cli_run_options *options, int64_t replicas) {
    options->stages /= replicas;
    options->replicas = replicas;
    options->given[CLI_OPTION_REPLICAS] = replicas > 1;
    if (options->devices.count > 1) options->devices.count = 1; /* all names are equal */
}

/* Make a part for each number of replicas, or a single part if the number is given. */
static void make_parts(cli_search_parts *out, const cli_run_options *options) {
    const bool searched = options->replicas == CLI_AUTO;
    const int64_t most = searched ? cli_most_replicas(options) : 1;
    while ((int64_t)1 << out->n_parts <= most)
        out->n_parts++;
    out->parts = cli_calloc((size_t)out->n_parts, sizeof *out->parts);
    for (int k = 0; k < out->n_parts; k++) {
        out->parts[k].options = *options;
        out->parts[k].options.kept = NULL;
        if (searched) divide(&out->parts[k].options, (int64_t)1 << k);
    }
}

/* Return true if other numbers of replicas may have a plan although this number has none. */
static bool is_refusal(cgp_status status) {
    return status == CGP_EINVAL || status == CGP_ELIMIT || status == CGP_EDEVICE ||
           status == CGP_EFORMAT;
}

static cgp_status search_part(cli_session *session, const cgp_search_options *search,
                              cli_search_part *part, bool *warned) {
    cgp_search_options own = *search;
    session->options = &part->options;
    part->status = cli_search_limits(session, &part->options);
    if (part->status == CGP_OK) part->status = cli_search(session, &own, &part->found, warned);
    if (part->status != CGP_OK) part->reason = cli_text("%s", cgp_message());
    return is_refusal(part->status) ? CGP_OK : part->status;
}

/* --- rows --- */

/* Compare two rows by time; among equal times, f32 is first, then fewer bytes, then fewer replicas.
 * Times are compared in single precision: on one device, the times of all schedules are sums of the
 * same terms in different orders. */
static int compare(const void *a, const void *b) {
    const cli_search_row *x = a, *y = b;
    const cgp_search_choice *p = x->choice, *q = y->choice;
    const float of_p = (float)cli_search_step(p), of_q = (float)cli_search_step(q);
    if (of_p != of_q) return of_p < of_q ? -1 : 1;
    if (p->precision != q->precision) return p->precision == CGP_PRECISION_F32 ? -1 : 1;
    if (p->bytes != q->bytes) return p->bytes < q->bytes ? -1 : 1;
    return x->part < y->part ? -1 : x->part > y->part;
}

/* Take the best choices of all parts. */
static void make_rows(cli_search_parts *out, int most) {
    int n = 0;
    for (int k = 0; k < out->n_parts; k++)
        n += out->parts[k].found.n;
    out->rows = cli_calloc((size_t)n, sizeof *out->rows);
    for (int k = 0; k < out->n_parts; k++) {
        const cli_search_part *part = &out->parts[k];
        for (int i = 0; i < part->found.n; i++)
            out->rows[out->n++] = (cli_search_row){part, &part->found.choices[i]};
        out->plans += part->found.plans;
    }
    if (n > 1) qsort(out->rows, (size_t)n, sizeof *out->rows, compare);
    if (out->n > most) out->n = most;
}

/* Fail with the reason of the part whose plan needs the least memory. If no part is short of
 * memory, take the last part, which has the fewest stages. */
static cgp_status explain(cli_session *session, const cli_search_parts *out) {
    const cli_search_part *least = &out->parts[out->n_parts - 1];
    for (int k = 0; k < out->n_parts; k++) {
        const cli_search_part *part = &out->parts[k];
        const int64_t bytes = part->found.least.bytes, now = least->found.least.bytes;
        if (bytes > 0 && (now == 0 || bytes < now)) least = part;
    }
    const cgp_status status = cgp_fail(least->status, "%s", least->reason);
    if (status != CGP_ELIMIT || least->found.least.stages == 0) return status;
    session->options = &least->options;
    return cli_search_add_least(session, &least->found);
}

/* Search again for the least memory of each part. */
static cgp_status search_again(cli_session *session, const cgp_search_options *search,
                               cli_search_parts *out, bool *warned) {
    for (int k = 0; k < out->n_parts; k++) {
        cli_search_part *part = &out->parts[k];
        if (part->status != CGP_ELIMIT) continue;
        cgp_search_result_release(&part->found);
        free(part->reason);
        part->reason = NULL;
        CGP_TRY(search_part(session, search, part, warned));
    }
    free(out->rows);
    out->rows = NULL;
    make_rows(out, search->most);
    return CGP_OK;
}

cgp_status cli_search_replicas(cli_session *session, const cgp_search_options *search,
                               cli_search_parts *out) {
    cgp_status status = CGP_OK;
    bool warned = false;
    *out = (cli_search_parts){0};
    make_parts(out, session->options);
    cgp_search_options own = *search;
    own.give_up_far = out->n_parts > 1;
    for (int k = 0; k < out->n_parts && status == CGP_OK; k++)
        status = search_part(session, &own, &out->parts[k], &warned);
    CGP_TRY(status);
    make_rows(out, search->most);
    if (out->n > 0) return CGP_OK;
    if (own.give_up_far) CGP_TRY(search_again(session, search, out, &warned));
    return out->n > 0 ? CGP_OK : explain(session, out);
}

void cli_search_parts_release(cli_search_parts *out) {
    for (int k = 0; k < out->n_parts; k++) {
        cgp_search_result_release(&out->parts[k].found);
        cli_run_options_release(&out->parts[k].options);
        free(out->parts[k].reason);
    }
    free(out->parts);
    free(out->rows);
    *out = (cli_search_parts){0};
}
