/* SPDX-License-Identifier: Apache-2.0 */
/* device_balance.c -- min-max balance by device: minimizes the cost of the device with the largest
 * cost.
 *
 * In a V-shaped placement, device d has stages d and 2n-1-d, so the devices take layers from both
 * ends:
 *
 *     |d0 |d1 |.. the rest ..|d1 |d0 |        device d adds one stage on the left, one on the right
 *     0       i              j       layers
 *
 * A dynamic program works with a limit on the cost of a device. For each d and i, it finds the
 * right ends j that the first d devices can reach with left end i. No stage may be empty, so these
 * j are not always one interval; they are stored as runs of consecutive j. If a device adds the
 * layers from i to i' on the left, it may add as many layers on the right as the limit allows.
 * Bisection finds the least limit for which the last device can take the remaining layers.
 *
 * For other placements of several stages on a device (loops, tables), and for devices of unequal
 * speed, a local search is used instead. */
#include "partition/device_balance.h"

#include <cgpipe/partition.h>

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "partition/local_search.h"

/* A V-shaped placement is balanced exactly if devices x layers x layers is at most this. */
#define EXACT_LIMIT (1 << 24)

static int64_t between(const cgp__device_row *row, int first, int next) {
    return row->sums[next] - row->sums[first];
}

/* Return the cost of layers on the device of a stage. */
static int64_t on_device(const cgp__device_row *row, int stage, int first, int next) {
    const size_t at = row->row_of ? (size_t)row->row_of[row->device_of[stage]] : 0;
    const int64_t *sums = row->sums + at * ((size_t)row->layers + 1);
    return sums[next] - sums[first];
}

/* Return the cost of a layer on the fastest device. */
static int64_t least_cost(const cgp__device_row *row, int layer) {
    int64_t least = on_device(row, 0, layer, layer + 1);
    for (int j = 1; row->row_of && j < row->stages; j++)
        least = cgp__min(least, on_device(row, j, layer, layer + 1));
    return least;
}

int64_t cgp__device_bound(const cgp__device_row *row) {
    int64_t sum = 0, largest = 0;
    for (int i = 0; i < row->layers; i++) {
        const int64_t least = least_cost(row, i);
        sum += least;
        largest = cgp__max(largest, least);
    }
    return cgp__max(largest, (sum + row->devices - 1) / row->devices);
}

/* Return the cost of the device with the largest cost. `load` is scratch memory for [devices]
 * loads. */
static int64_t largest_of(const cgp__device_row *row, const int *cuts, int64_t *load) {
    int64_t max = 0;
    memset(load, 0, (size_t)row->devices * sizeof *load);
    for (int j = 0; j < row->stages; j++) {
        load[row->device_of[j]] += on_device(row, j, cuts[j], cuts[j + 1]);
        max = cgp__max(max, load[row->device_of[j]]);
    }
    return max;
}

/* --- cuts by stage --- */

/* Mark the layers at which each stage can end within a limit. A stage can end at `next` if it stays
 * within the limit when it begins as late as possible. It begins where the previous stage ends, so
 * the latest beginning is the last possible end of the previous stage before `next`. `ends`:
 * [stages + 1][layers + 1]; row j has the ends of stage j - 1. Return true if the last stage can
 * end after the last layer. */
static bool mark_ends(const cgp__device_row *row, int64_t limit, uint8_t *ends) {
    const size_t width = (size_t)row->layers + 1;
    memset(ends, 0, ((size_t)row->stages + 1) * width);
    ends[0] = 1;
    for (int j = 0; j < row->stages; j++) {
        const uint8_t *before = ends + (size_t)j * width;
        int first = -1; /* the last possible end of the previous stage */
        for (int next = 1; next <= row->layers; next++) {
            if (before[next - 1]) first = next - 1;
            if (first >= 0 && on_device(row, j, first, next) <= limit)
                ends[((size_t)j + 1) * width + (size_t)next] = 1;
        }
    }
    return ends[((size_t)row->stages + 1) * width - 1];
}

/* Balance the stages of unequal devices, by bisection on the limit. */
static cgp_status balance_unequal(const cgp__device_row *row, int *cuts) {
    const size_t width = (size_t)row->layers + 1, bytes = ((size_t)row->stages + 1) * width;
    int64_t low = 0, high = 0;
    uint8_t *ends = cgp__calloc(bytes, 1);
    if (!ends) return cgp__no_memory("balance", bytes);
    for (int j = 0; j < row->stages; j++)
        high = cgp__max(high, on_device(row, j, 0, row->layers));
    while (low < high) {
        const int64_t limit = low + (high - low) / 2;
        if (mark_ends(row, limit, ends))
            high = limit;
        else
            low = limit + 1;
    }
    (void)mark_ends(row, high, ends);
    cuts[row->stages] = row->layers;
    for (int j = row->stages - 1; j >= 0; j--) {
        cuts[j] = cuts[j + 1] - 1;
        while (!ends[(size_t)j * width + (size_t)cuts[j]])
            cuts[j]--;
    }
    free(ends);
    return CGP_OK;
}

cgp_status cgp__balance_stages(const cgp__device_row *row, int *cuts) {
    if (row->row_of) return balance_unequal(row, cuts);
    double *costs = cgp__calloc((size_t)row->layers, sizeof *costs);
    if (!costs) return cgp__no_memory("balance", (size_t)row->layers * sizeof *costs);
    for (int i = 0; i < row->layers; i++)
        costs[i] = (double)between(row, i, i + 1);
    const cgp_status status = cgp_balance_solve(costs, row->layers, row->stages, cuts + 1);
    free(costs);
    cuts[0] = 0;
    for (int j = 1; status == CGP_OK && j <= row->stages; j++)
        cuts[j] += cuts[j - 1];
    return status;
}

void cgp__balance_evenly(const cgp__device_row *row, int *cuts) {
    const int n = row->stages;
    const double share = (double)row->sums[row->layers] / n;
    cuts[0] = 0;
    for (int j = 1; j < n; j++) {
        int cut = cuts[j - 1] + 1;
        while (cut < row->layers - (n - j) &&
               (double)(row->sums[cut] + row->sums[cut + 1]) / 2 <= share * j)
            cut++;
        cuts[j] = cut;
    }
    cuts[n] = row->layers;
}

/* --- V placements --- */

/* A run of right ends, first .. last - 1. */
typedef struct run {
    int first, last;
} run;

typedef struct v_search {
    const cgp__device_row *row;
    int64_t limit;
    /* [devices x (layers + 1) + 1] index of the first run for each pair (number of devices done,
     * left end) */
    int *first;
    run *runs;
    int n_runs, capacity;
    /* [layers + 1] marks the right ends that are reachable with one left end */
    uint8_t *right;
} v_search;

static bool is_v(const cgp__device_row *row) {
    const int n = row->devices;
    if (row->stages != 2 * n) return false;
    for (int d = 0; d < n; d++) {
        if (row->device_of[d] != row->device_of[2 * n - 1 - d]) return false;
        for (int e = 0; e < d; e++) {
            if (row->device_of[e] == row->device_of[d]) return false;
        }
    }
    return true;
}

static int state_of(const v_search *v, int done, int left) {
    return done * (v->row->layers + 1) + left;
}

/* Return true if `devices` devices can share the cost `cost` without exceeding the limit. */
static bool fits(const v_search *v, int64_t cost, int devices) {
    return devices > 0 ? (cost + devices - 1) / devices <= v->limit : cost == 0;
}

/* Return the range of right ends that may be reachable with left end `at`. For such a right end,
 * two conditions hold within the limit. The first `done` devices can take the layers outside the
 * two ends. The other devices can take the layers between the two ends. `window` is the range for
 * left end `at` - 1. It begins and ends no later than the range for `at`. */
static run window_of(const v_search *v, int done, int at, run window) {
    const cgp__device_row *row = v->row;
    const int left = row->devices - done;
    window.first = cgp__max(window.first, at + 2 * left);
    window.last = cgp__max(window.last, window.first);
    while (window.last <= row->layers - done && fits(v, between(row, at, window.last), left))
        window.last++;
    while (window.first < window.last &&
           !fits(v, between(row, 0, at) + between(row, window.first, row->layers), done))
        window.first++;
    return window;
}

/* Mark the right ends that a device reaches if it adds layers i .. at - 1 on the left. `from` is a
 * run of right ends before this device adds layers. From the first end of the run, try any number
 * of layers on the right. From every other end, try only one layer, because all further ends are
 * reachable from the first end. */
static void mark(v_search *v, run from, int i, int at, run window) {
    const int64_t left = between(v->row, i, at);
    for (int end = from.first; end < from.last; end++) {
        for (int j = end - 1; j >= window.first; j--) {
            if (left + between(v->row, j, end) > v->limit) break;
            if (j < window.last) v->right[j] = 1;
            if (end > from.first) break;
        }
    }
}

static cgp_status keep_runs(v_search *v, int state, run window) {
    v->first[state] = v->n_runs;
    for (int j = window.first; j < window.last; j++) {
        if (!v->right[j]) continue;
        if (!cgp__grow(&v->runs, &v->capacity, v->n_runs + 1, sizeof *v->runs))
            return cgp__no_memory("balance", sizeof *v->runs);
        run *made = &v->runs[v->n_runs++];
        made->first = j;
        while (j < window.last && v->right[j])
            j++;
        made->last = j;
    }
    v->first[state + 1] = v->n_runs;
    return CGP_OK;
}

/* Fill in the runs for the current limit. Set *feasible to true if the last device can take the
 * layers that the other devices leave, else to false. */
static cgp_status reach(v_search *v, bool *feasible) {
    const int n = v->row->devices, layers = v->row->layers;
    v->n_runs = 0;
    memset(v->first, 0, ((size_t)n * ((size_t)layers + 1) + 1) * sizeof *v->first);
    for (int done = 0; done < n; done++) {
        run window = {0, 0};
        for (int at = 0; at <= layers - 2 * (n - done); at++) {
            window = done == 0 ? (run){layers, layers + 1} : window_of(v, done, at, window);
            if (window.first < window.last)
                memset(v->right + window.first, done == 0 && at == 0,
                       (size_t)(window.last - window.first));
            for (int i = at - 1; done > 0 && window.first < window.last && i >= done - 1 &&
                                 between(v->row, i, at) <= v->limit;
                 i--) {
                const int state = state_of(v, done - 1, i);
                for (int r = v->first[state]; r < v->first[state + 1]; r++)
                    mark(v, v->runs[r], i, at, window);
            }
            CGP_TRY(keep_runs(v, state_of(v, done, at), window));
        }
    }
    *feasible = v->first[state_of(v, n - 1, 0)] < v->n_runs;
    return CGP_OK;
}

/* Return the absolute difference between the cost of the layers left of `at` and the cost of the
 * layers right of `j`. */
static int64_t skew(const v_search *v, int at, int j) {
    const int64_t d = between(v->row, 0, at) - between(v->row, j, v->row->layers);
    return d < 0 ? -d : d;
}

/* Change left end *at and right end *j to the ends before `device` added its layers. If several
 * pairs of ends are possible, choose the pair with the most even costs left and right. */
static void step_back(const v_search *v, int device, int *at, int *j) {
    const run none = {-1, -1};
    run best = none; /* the left and the right end */
    for (int i = *at - 1; i >= device && between(v->row, i, *at) <= v->limit; i--) {
        const int state = state_of(v, device, i);
        for (int r = v->first[state]; r < v->first[state + 1]; r++) {
            const run ends = v->runs[r];
            for (int end = cgp__max(ends.first, *j + 1); end < ends.last; end++) {
                if (between(v->row, i, *at) + between(v->row, *j, end) > v->limit) break;
                if (best.first < 0 || skew(v, i, end) < skew(v, best.first, best.last))
                    best = (run){i, end};
            }
        }
    }
    *at = best.first;
    *j = best.last;
}

/* Set left end *at and right end *j such that the last device takes the layers *at .. *j - 1. If
 * several pairs of ends are possible, choose the pair with the most even costs left and right. */
static void last_ends(const v_search *v, int *at, int *j) {
    const int done = v->row->devices - 1;
    *at = *j = -1;
    for (int i = 0; i <= v->row->layers; i++) {
        const int state = state_of(v, done, i);
        for (int r = v->first[state]; r < v->first[state + 1]; r++) {
            for (int end = v->runs[r].first; end < v->runs[r].last; end++) {
                if (*at >= 0 && skew(v, i, end) >= skew(v, *at, *j)) continue;
                *at = i;
                *j = end;
            }
        }
    }
}

/* Set the cuts of the solution that reach() found. */
static void take_cuts(const v_search *v, int *cuts) {
    const int n = v->row->devices;
    int at, j;
    last_ends(v, &at, &j);
    cuts[n] = at + 1;
    while (cuts[n] < j - 1 && between(v->row, at, cuts[n]) < between(v->row, cuts[n], j))
        cuts[n]++;
    for (int device = n - 2; device >= 0; device--) {
        cuts[device + 1] = at;
        cuts[2 * n - 1 - device] = j;
        step_back(v, device, &at, &j);
    }
    cuts[0] = 0;
    cuts[2 * n] = v->row->layers;
}

/* Bisect from a feasible cost, *largest, down to the lower bound. */
static cgp_status bisect(v_search *v, int *cuts, int64_t *largest) {
    int64_t low = cgp__device_bound(v->row);
    bool feasible = false;
    while (low < *largest) {
        v->limit = low + (*largest - low) / 2;
        CGP_TRY(reach(v, &feasible));
        if (feasible)
            *largest = v->limit;
        else
            low = v->limit + 1;
    }
    v->limit = *largest;
    CGP_TRY(reach(v, &feasible));
    take_cuts(v, cuts);
    return CGP_OK;
}

static cgp_status balance_v(const cgp__device_row *row, int *cuts, int64_t *largest) {
    const size_t states = (size_t)row->devices * ((size_t)row->layers + 1);
    v_search v = {.row = row,
                  .first = cgp__calloc(states + 1, sizeof *v.first),
                  .right = cgp__calloc((size_t)row->layers + 1, 1)};
    cgp_status status = v.first && v.right ? CGP_OK : cgp__no_memory("balance", states);
    if (status == CGP_OK) status = bisect(&v, cuts, largest);
    free(v.runs);
    free(v.right);
    free(v.first);
    return status;
}

/* --- other placements --- */

typedef struct loads {
    const cgp__device_row *row;
    int64_t *load; /* [devices] */
    int shift;     /* if each load is first shifted right by `shift` bits, the squares of the loads
                    * add up to less than 2^60 */
} loads;

/* Evaluate cuts by three keys. The first is the largest load of a device. The second is the sum of
 * the squares of the devices' loads. The third is the sum of the squares of the stages' loads. */
static cgp_status evaluate(void *self, const int *cuts, const cgp__value *limit, cgp__value *value,
                           int64_t *spent) {
    loads *x = self;
    (void)limit;
    *value = (cgp__value){{largest_of(x->row, cuts, x->load), 0, 0}};
    for (int d = 0; d < x->row->devices; d++)
        value->key[1] += (x->load[d] >> x->shift) * (x->load[d] >> x->shift);
    for (int j = 0; j < x->row->stages; j++) {
        const int64_t load = on_device(x->row, j, cuts[j], cuts[j + 1]) >> x->shift;
        value->key[2] += load * load;
    }
    *spent += x->row->stages;
    return CGP_OK;
}

/* Descend from cuts that are balanced by stage, from even cuts, and then from random changes of the
 * best cuts. */
static cgp_status search(const cgp__device_row *row, int *cuts, int64_t *largest) {
    enum { TIMES = 20, BUDGET = 1 << 24 };
    cgp__cut_search s = {0};
    loads x = {row, cgp__calloc((size_t)row->devices, sizeof *x.load), 0};
    cgp_status status = x.load ? cgp__cut_search_create(&s, row->layers, row->stages, evaluate, &x)
                               : cgp__no_memory("balance", (size_t)row->devices * sizeof *x.load);
    for (int j = 0; j < row->stages; j++) {
        while (on_device(row, j, 0, row->layers) >> x.shift >= INT64_C(1) << 30)
            x.shift++;
    }
    s.budget = BUDGET;
    if (status == CGP_OK) status = cgp__balance_stages(row, cuts);
    if (status == CGP_OK) status = cgp__descend(&s, cuts);
    if (status == CGP_OK) {
        cgp__balance_evenly(row, cuts);
        status = cgp__descend(&s, cuts);
    }
    if (status == CGP_OK && s.value.key[0] > cgp__device_bound(row))
        status = cgp__perturb(&s, TIMES);
    if (status == CGP_OK) {
        memcpy(cuts, s.best, ((size_t)row->stages + 1) * sizeof *cuts);
        *largest = s.value.key[0];
    }
    cgp__cut_search_release(&s);
    free(x.load);
    return status;
}

/* Balance one stage per device. */
static cgp_status balance_single(const cgp__device_row *row, int *cuts, int64_t *largest) {
    *largest = 0;
    CGP_TRY(cgp__balance_stages(row, cuts));
    for (int j = 0; j < row->stages; j++)
        *largest = cgp__max(*largest, on_device(row, j, cuts[j], cuts[j + 1]));
    return CGP_OK;
}

cgp_status cgp__balance_devices(const cgp__device_row *row, int *cuts, int64_t *largest,
                                bool *exact) {
    const double size = (double)row->devices * row->layers * row->layers;
    if (row->stages == row->devices) {
        *exact = true;
        return balance_single(row, cuts, largest);
    }
    CGP_TRY(search(row, cuts, largest));
    *exact = *largest == cgp__device_bound(row);
    if (*exact || row->row_of || !is_v(row) || size > EXACT_LIMIT) return CGP_OK;
    *exact = true;
    return balance_v(row, cuts, largest);
}
