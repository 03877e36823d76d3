/* SPDX-License-Identifier: Apache-2.0 */
/* diagnosis.c -- see diagnosis.h. Search the files that the ranks left, and find the rank that
 * failed or that the others wait for. The report names the first of these cases that applies:
 *
 *     failed    a rank that failed by itself, according to the files of the others
 *     silent    a rank without a file or heartbeats: killed, stopped, or unreachable
 *     absent    a live rank that has not made the call in which the others wait
 *     slow      the device whose action has run longest; `hangs` if the run has ended
 *     lost      a message that was sent but not received
 *     cycle     ranks that wait for each other */
#include "report/diagnosis.h"

#include "json_value.h"
#include "report/output.h"
#include "text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef enum verdict { NOTHING, FAILED, SILENT, ABSENT, SLOW, HANGS, LOST, CYCLE } verdict;
static const char *const verdicts[] = {"nothing", "failed", "silent", "absent",
                                       "slow",    "hangs",  "lost",   "cycle"};

/* The failed rank. If this rank left no file, `device` is a device of another rank that waits for
 * the failed rank. In this case, `stage` and `microbatch` belong to the action that the device
 * waits for. */
typedef struct cause {
    verdict verdict;
    int64_t rank;
    const cli_diagnosed_device *device; /* NULL: no device is known */
    int64_t waiter;                     /* the rank of `device` */
    const char *action;        /* action that the failed rank did not complete; NULL: not known */
    int64_t stage, microbatch; /* -1: not known */
    double seconds; /* age of the last heartbeat, or time in the action or wait; NaN: not known */
} cause;

static cause cause_of(verdict found, int64_t rank, int64_t waiter) {
    return (cause){.verdict = found,
                   .rank = rank,
                   .waiter = waiter,
                   .stage = -1,
                   .microbatch = -1,
                   .seconds = NAN};
}

/* Return the most recent information that the files of other ranks have on a rank; NULL: none. */
static const cli_known_rank *known(const cli_diagnosis_files *all, int64_t rank) {
    const cli_known_rank *best = NULL;
    for (int64_t r = 0; r < all->ranks; r++) {
        const cli_known_rank *k = all->files[r].known ? &all->files[r].known[rank] : NULL;
        if (r != rank && k && !isnan(k->age) && (!best || k->age < best->age)) best = k;
    }
    return best;
}

/* --- who waits for whom --- */

/* Among the devices of a rank, return the device that has waited longest for another rank. NULL:
 * none of these devices waits, or one of them runs an action. */
static const cli_diagnosed_device *waiting(const cli_rank_file *file, int64_t rank) {
    const cli_diagnosed_device *longest = NULL;
    for (size_t i = 0; i < file->n_devices; i++) {
        const cli_diagnosed_device *d = &file->devices[i];
        if (strcmp(d->state, "runs") == 0 || strcmp(d->state, "updates") == 0) return NULL;
        if (strcmp(d->state, "waits") == 0 && d->peer_rank >= 0 && d->peer_rank != rank &&
            (!longest || d->seconds > longest->seconds))
            longest = d;
    }
    return longest;
}

/* Return the rank that rank `rank` waits for; -1: it waits for none. */
static int64_t next_of(const cli_diagnosis_files *all, int64_t rank) {
    const cli_diagnosed_device *d =
        cli_diagnosis_has(all, rank) ? waiting(&all->files[rank], rank) : NULL;
    return d ? d->peer_rank : -1;
}

/* Return the length of the chain of waits that begins at a rank. A length above all->ranks means
 * that the chain ends in a cycle. */
static int64_t chain_length(const cli_diagnosis_files *all, int64_t rank) {
    int64_t length = 0;
    while (length <= all->ranks && (rank = next_of(all, rank)) >= 0)
        length++;
    return length;
}

static int64_t longest_chain(const cli_diagnosis_files *all) {
    int64_t first = 0;
    for (int64_t r = 1; r < all->ranks; r++) {
        if (chain_length(all, r) > chain_length(all, first)) first = r;
    }
    return first;
}

/* --- the cause --- */

/* Store in `c` the action that a device waits for. The action's stage is the stage at the other end
 * of the transfer. */
static void take_missed(cause *c, const cli_diagnosed_device *d, int64_t waiter) {
    c->device = d;
    c->waiter = waiter;
    c->stage = d->wants_message ? d->from_stage : d->to_stage;
    c->microbatch = d->microbatch;
    c->action = d->peer_action;
    c->seconds = d->seconds;
}

/* Find devices of other ranks that wait for actions of the failed rank. Store in `c` the one of
 * these actions that comes first in the failed rank's list. */
static void find_missed(const cli_diagnosis_files *all, cause *c) {
    for (int64_t r = 0; r < all->ranks; r++) {
        const cli_rank_file *file = &all->files[r];
        for (size_t i = 0; cli_diagnosis_has(all, r) && i < file->n_devices; i++) {
            const cli_diagnosed_device *d = &file->devices[i];
            if (strcmp(d->state, "waits") == 0 && d->peer_rank == c->rank && r != c->rank &&
                (!c->device || d->peer_index < c->device->peer_index))
                take_missed(c, d, r);
        }
    }
}

/* Parse the reason in the file of rank `r`, "rank 2: ...". Set *rank to the rank that the reason
 * names, and return the text after the rank. NULL: the reason names no rank. */
static const char *rank_in(const cli_diagnosis_files *all, int64_t r, int64_t *rank) {
    long long number = -1;
    int end = 0;
    const char *reason = all->files[r].root ? all->files[r].reason : "";
    if (sscanf(reason, "rank %7lld: %n", &number, &end) != 1 || end == 0 || number < 0 ||
        number >= all->ranks)
        return NULL;
    *rank = number;
    return reason + end;
}

/* Find a rank that failed by itself. Such a rank left no file, or the reason in its file names the
 * rank itself. */
static bool find_failed(const cli_diagnosis_files *all, cause *c) {
    for (int64_t r = 0; r < all->ranks; r++) {
        int64_t rank = -1;
        const char *reason = rank_in(all, r, &rank);
        if (!reason || strncmp(reason, "silent for ", 11) == 0 ||
            (rank != r && cli_diagnosis_has(all, rank)))
            continue;
        *c = cause_of(FAILED, rank, r);
        return true;
    }
    return false;
}

/* Tell whether a rank that left no file has made fewer collective calls than another rank. */
static bool is_behind(const cli_diagnosis_files *all, int64_t rank) {
    for (int64_t r = 0; r < all->ranks; r++) {
        const cli_known_rank *k = all->files[r].known;
        if (k && r != rank && k[rank].agreements < k[r].agreements) return true;
    }
    return false;
}

/* Tell whether a rank missed 3 heartbeats. Heartbeats are 1/8 of the time limit apart, but at most
 * 0.25 s. */
static bool is_silent(const cli_diagnosis_files *all, const cli_known_rank *k) {
    double interval = 0.25;
    for (int64_t r = 0; r < all->ranks; r++) {
        if (all->files[r].root && all->files[r].timeout < 8 * interval)
            interval = all->files[r].timeout / 8;
    }
    return !k || k->age > 3 * interval + 0.05;
}

/* Tell whether a rank without a file is the cause. One of these must hold: the run has ended, the
 * rank sends no heartbeats, or it has not made the call in which the other ranks wait. */
static bool is_missed(const cli_diagnosis_files *all, int64_t r) {
    const cli_known_rank *k = known(all, r);
    if (cli_diagnosis_has(all, r) || (k && k->left)) return false;
    return all->ended || is_silent(all, k) || is_behind(all, r);
}

/* Find the rank that the files of others call silent. If there is none, find the rank with the
 * oldest heartbeat. */
static bool find_silent(const cli_diagnosis_files *all, cause *c) {
    int64_t worst = -1;
    for (int64_t r = 0; r < all->ranks; r++) {
        const cli_known_rank *k = known(all, r), *w = worst >= 0 ? known(all, worst) : NULL;
        if (is_missed(all, r) && (worst < 0 || (w && (!k || k->age > w->age)))) worst = r;
    }
    if (all->silent >= 0) worst = all->silent;
    if (worst < 0) return false;
    const cli_known_rank *k = known(all, worst);
    *c = cause_of(all->ended || is_silent(all, k) ? SILENT : ABSENT, worst, 0);
    find_missed(all, c);
    c->seconds = k ? k->age : NAN;
    return true;
}

/* Find the device whose current action has run longest. */
static bool find_slow(const cli_diagnosis_files *all, cause *c) {
    c->device = NULL;
    for (int64_t r = 0; r < all->ranks; r++) {
        const cli_rank_file *file = &all->files[r];
        for (size_t i = 0; cli_diagnosis_has(all, r) && i < file->n_devices; i++) {
            const cli_diagnosed_device *d = &file->devices[i];
            const bool runs = strcmp(d->state, "runs") == 0 || strcmp(d->state, "updates") == 0;
            if (!runs || (c->device && d->seconds <= c->device->seconds)) continue;
            *c = cause_of(all->ended ? HANGS : SLOW, r, r);
            c->device = d;
            c->stage = d->stage;
            c->microbatch = d->microbatch;
            c->seconds = d->seconds;
            c->action = d->action;
        }
    }
    return c->device;
}

static bool was_sent(const cli_rank_file *file, const cli_diagnosed_device *d) {
    for (size_t i = 0; i < file->n_sent; i++) {
        if (file->sent[i].edge == d->edge && file->sent[i].microbatch == d->microbatch) return true;
    }
    return false;
}

static bool find_lost(const cli_diagnosis_files *all, cause *c) {
    for (int64_t r = 0; r < all->ranks; r++) {
        const cli_rank_file *file = &all->files[r];
        for (size_t i = 0; cli_diagnosis_has(all, r) && i < file->n_devices; i++) {
            const cli_diagnosed_device *d = &file->devices[i];
            if (strcmp(d->state, "waits") != 0 || d->peer_rank < 0 || !d->wants_message ||
                !was_sent(&all->files[d->peer_rank], d))
                continue;
            *c = cause_of(LOST, d->peer_rank, r);
            take_missed(c, d, r);
            return true;
        }
    }
    return false;
}

static cause find_cause(const cli_diagnosis_files *all) {
    cause c = cause_of(NOTHING, -1, 0);
    if (find_failed(all, &c) || find_silent(all, &c) || find_slow(all, &c) || find_lost(all, &c))
        return c;
    const int64_t first = longest_chain(all);
    if (chain_length(all, first) <= all->ranks) return c;
    c.verdict = CYCLE;
    c.rank = first;
    take_missed(&c, waiting(&all->files[first], first), first);
    return c;
}

/* --- text --- */

static const char *host_of(const cli_diagnosis_files *all, int64_t r) {
    const cli_known_rank *k = known(all, r);
    return all->files[r].root ? all->files[r].host : k ? k->host : "";
}

static int64_t process_of(const cli_diagnosis_files *all, int64_t r) {
    const cli_known_rank *k = known(all, r);
    return all->files[r].root ? all->files[r].process : k ? k->process : 0;
}

static void print_cause(FILE *out, const cli_diagnosis_files *all, const cause *c) {
    static const char *const says[] = {
        [FAILED] = "failed by itself",
        [SILENT] = "left no file: it was killed, was stopped, or cannot be reached",
        [ABSENT] = "is alive but has not made the call in which the others wait",
        [SLOW] = "is slow",
        [HANGS] = "hangs",
        [LOST] = "sent a message that has not arrived",
        [CYCLE] = "is in a cycle of ranks that wait for each other",
    };
    if (c->verdict == NOTHING) {
        fprintf(out, "failed rank  none: no rank waits for another\n");
        return;
    }
    fprintf(out, "failed rank  rank %" PRId64 " (host %s, process %" PRId64 ") %s\n", c->rank,
            cli_shown(host_of(all, c->rank)), process_of(all, c->rank), says[c->verdict]);
    if (c->verdict == FAILED)
        fprintf(out, "reason       %s\n", cli_shown(all->files[c->waiter].reason));
    if (c->verdict == SILENT && !isnan(c->seconds))
        fprintf(out, "heartbeat    last received %.1f s earlier\n", c->seconds);
    if (c->stage >= 0)
        fprintf(out, "action       stage %" PRId64 ", micro-batch %" PRId64 "%s%s", c->stage,
                c->microbatch, c->action ? ", " : "", cli_shown(c->action));
    if (c->stage >= 0 && c->device->layer && c->waiter == c->rank)
        fprintf(out, ", in layer %s, %s", cli_shown(c->device->layer),
                cli_shown(c->device->op ? c->device->op : "?"));
    if (c->stage >= 0 && c->waiter != c->rank)
        fprintf(out, ": rank %" PRId64 " waits for it in %s, for %.1f s", c->waiter,
                cli_shown(c->device->action), c->device->seconds);
    else if (c->stage >= 0)
        fprintf(out, ", for %.1f s", c->device->seconds);
    if (c->stage >= 0) fputc('\n', out);
}

static void print_device(FILE *out, const cli_diagnosed_device *d) {
    fprintf(out, "  device %" PRId64 "  %s", d->device, cli_shown(d->state));
    if (d->action) fprintf(out, " %s%s", *d->state == 'w' ? "in " : "", cli_shown(d->action));
    if (d->layer) fprintf(out, ", in layer %s", cli_shown(d->layer));
    if (d->peer_rank >= 0)
        fprintf(out, ", for %s of stage %" PRId64 " on rank %" PRId64,
                d->wants_message ? "a message" : "a free buffer",
                d->wants_message ? d->from_stage : d->to_stage, d->peer_rank);
    if (!isnan(d->seconds)) fprintf(out, ", for %.1f s", d->seconds);
    fputc('\n', out);
}

static void print_rank(FILE *out, const cli_diagnosis_files *all, int64_t r) {
    const cli_rank_file *file = &all->files[r];
    if (!cli_diagnosis_has(all, r)) {
        fprintf(out, "rank %-8" PRId64 "no file\n", r);
        return;
    }
    const time_t then = (time_t)file->time;
    struct tm utc;
    char when[32] = "?";
    if (gmtime_r(&then, &utc)) (void)strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S UTC", &utc);
    fprintf(out, "rank %-8" PRId64 "%s, process %" PRId64 ", %s: %s\n", r, cli_shown(file->host),
            file->process, when, cli_shown(file->reason));
    for (size_t i = 0; i < file->n_devices; i++)
        print_device(out, &file->devices[i]);
}

static void print_chain(FILE *out, const cli_diagnosis_files *all) {
    const int64_t first = longest_chain(all), length = chain_length(all, first);
    if (length == 0) return;
    fprintf(out, "chain        rank %" PRId64, first);
    int64_t r = first;
    for (int64_t i = 0; i < length && i < all->ranks; i++) {
        const cli_diagnosed_device *d = waiting(&all->files[r], r);
        r = d->peer_rank;
        fprintf(out, "%s waits for rank %" PRId64 " (%s)", i ? ", which" : "", r,
                cli_shown(d->action));
        if (length > all->ranks && r == first) break;
    }
    if (length > all->ranks)
        fprintf(out, ": a cycle\n");
    else
        fprintf(out, "%s\n", cli_diagnosis_has(all, r) ? "" : ", which left no file");
}

void cli_diagnosis_print(FILE *out, const cli_diagnosis_files *all) {
    const cause c = find_cause(all);
    print_cause(out, all, &c);
    print_chain(out, all);
    for (int64_t r = 0; r < all->ranks; r++)
        print_rank(out, all, r);
    cli_output_flush(out);
}

/* --- JSON --- */

static json_t *optional(int64_t value) {
    return value >= 0 ? json_integer(value) : json_null();
}

json_t *cli_diagnosis_json(const cli_diagnosis_files *all) {
    const cause found = find_cause(all), *c = &found;
    json_t *ranks = json_array(), *chain = json_array();
    int64_t r = longest_chain(all);
    const int64_t length = chain_length(all, r);
    for (int64_t i = 0; length > 0 && i <= length && i < all->ranks; i++) {
        json_array_append_new(chain, json_integer(r));
        r = next_of(all, r);
    }
    for (int64_t k = 0; k < all->ranks; k++)
        json_array_append_new(ranks, cli_diagnosis_has(all, k) ? json_incref(all->files[k].root)
                                                               : json_null());
    return json_pack(
        "{s:s, s:o, s:s, s:I, s:o, s:o, s:s?, s:o, s:o, s:o, s:b, s:o}", "verdict",
        verdicts[c->verdict], "rank", optional(c->rank), "host",
        c->rank >= 0 ? host_of(all, c->rank) : "", "process",
        (json_int_t)(c->rank >= 0 ? process_of(all, c->rank) : 0), "stage", optional(c->stage),
        "microbatch", optional(c->microbatch), "action", c->action, "layer",
        c->device && c->device->layer && c->waiter == c->rank ? json_string(c->device->layer)
                                                              : json_null(),
        "seconds", cli_real_json(c->seconds), "chain", chain, "cycle", length > all->ranks, "ranks",
        ranks);
}
