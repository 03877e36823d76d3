/* SPDX-License-Identifier: Apache-2.0 */
/* vocabulary.c -- simulates vocabulary parallelism (Yeung et al. 2024, arXiv:2411.05288) for GPT-2s
 * with a vocabulary of 50,257 tokens, and compares it with the fastest plan of cgp_plan_search().
 *
 *     bench_vocabulary [CASES]
 *
 * Each of K devices has an equal part of the blocks, of the embeddings, and of the head. FLOPs are
 * the unit of time, and messages take no time, in both simulations. A micro-batch passes
 *
 *     F   the blocks of devices 0 .. K-1
 *     S   on each device, after the last F: the head's forward for its part of the vocabulary
 *     T   on each device, after all S (softmax needs all parts): the gradient of the head's input
 *     I   the blocks of devices K-1 .. 0, after all T (they are added)
 *     W   weight gradients of the blocks and of the device's part of the head, at any later time
 *
 * A list scheduler orders the actions. It tries several orders of priority and several limits of
 * micro-batches in flight, with split and with whole backward. The best result is printed. The
 * assumptions favour vocabulary parallelism: in a real run, S and T need collective messages, which
 * take time.
 *
 * Each row of CSV has the model, K, the number of micro-batches, and the schedule that the search
 * found. Next come the step times of the search and of vocabulary parallelism, relative to work /
 * K. The last field says by how many percent vocabulary parallelism shortens the step. */
#include <cgpipe/cgpipe.h>
#include <cgpipe/models/spec.h>
#include <cgpipe/planner.h>

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_LAYERS = 80, MAX_DEVICES = 64, MAX_CHUNKS = 256 };
enum { F, S, T, I, W, KINDS };

static const struct {
    const char *spec;
    int devices;
} cases[] = {{"gpt2:layers=12,width=768,heads=12,vocab=50257,seq=1024", 4},
             {"gpt2:layers=12,width=768,heads=12,vocab=50257,seq=1024", 6},
             {"gpt2:layers=12,width=768,heads=12,vocab=50257,seq=1024", 12},
             {"gpt2:layers=24,width=1024,heads=16,vocab=50257,seq=1024", 4},
             {"gpt2:layers=24,width=1024,heads=16,vocab=50257,seq=1024", 8},
             {"gpt2:layers=24,width=1024,heads=16,vocab=50257,seq=1024", 12},
             {"gpt2:layers=24,width=1024,heads=16,vocab=50257,seq=1024", 24},
             {"gpt2:layers=64,width=1024,heads=16,vocab=50257,seq=1024", 16},
             {"gpt2:layers=64,width=1024,heads=16,vocab=50257,seq=1024", 32},
             {"gpt2:layers=64,width=1024,heads=16,vocab=50257,seq=1024", 64}};
enum { CASES = sizeof cases / sizeof cases[0] };

static void need(cgp_status status) {
    if (status == CGP_OK) return;
    fprintf(stderr, "%s\n", cgp_message());
    exit(1);
}

/* --- costs --- */

/* Costs of each kind of action on each device. W has two parts: the weight gradients of the blocks
 * (of[W]), and those of the head (head_weight). */
typedef struct costs {
    double of[KINDS], head_weight;
    double work; /* FLOPs of a micro-batch, summed over all devices */
} costs;

/* Read the FLOPs of the layers (embeddings, blocks, norm, head) from a plan with one stage per
 * layer. */
static costs read_costs(const cgp_model *model, int devices) {
    cgp_plan_options o = cgp_plan_options_default();
    cgp_plan *plan = NULL;
    costs c = {0};
    o.stages = cgp_model_layers(model);
    need(cgp_plan_create(&plan, model, &o));
    for (int i = 0; i < o.stages; i++) {
        const cgp_plan_stage *stage = cgp_plan_stage_at(plan, i);
        const bool head = i == o.stages - 1;
        c.of[head ? S : F] += stage->forward_flops / devices;
        c.of[head ? T : I] += (stage->backward_flops - stage->weight_flops) / devices;
        *(head ? &c.head_weight : &c.of[W]) += stage->weight_flops / devices;
        c.work += stage->forward_flops + stage->backward_flops;
    }
    cgp_plan_destroy(plan);
    return c;
}

/* --- list scheduler --- */

typedef struct policy {
    bool split;        /* true: backward is split into I and W */
    int order[KINDS];  /* priority of actions that can start at the same time, highest first */
    double per_device; /* limit of micro-batches in flight on device d of n: */
    int extra;         /* per_device (n - d) + extra */
} policy;

typedef struct state {
    const costs *costs;
    const policy *policy;
    int n, m;
    int next[MAX_DEVICES][KINDS], head_weights[MAX_DEVICES];
    double clock[MAX_DEVICES];
    double forward[MAX_DEVICES][MAX_CHUNKS], input[MAX_DEVICES][MAX_CHUNKS];
    double shared[2][MAX_CHUNKS]; /* end of the last S and T so far */
    int done[2][MAX_CHUNKS];      /* number of devices that have run S and T */
} state;

static double cost_of(const state *s, int kind) {
    const costs *c = s->costs;
    if (s->policy->split || kind == F || kind == S) return c->of[kind];
    return kind == T ? c->of[T] + c->head_weight : c->of[I] + c->of[W];
}

/* Return the earliest time at which a device can run its next action of a kind. Return INFINITY if
 * the time is not known yet. */
static double ready(const state *s, int d, int kind) {
    const int i = s->next[d][kind], *next = s->next[d];
    const int ended = s->policy->split ? next[W] : next[I];
    const int limit = (int)(s->policy->per_device * (s->n - d)) + s->policy->extra;
    if (kind == W) {
        const bool head = s->head_weights[d] < next[T], block = i < next[I];
        return s->policy->split && (head || block) ? 0 : INFINITY;
    }
    if (i >= s->m) return INFINITY;
    if (kind == F && i - ended >= limit) return INFINITY;
    if (kind == F) return d == 0 ? 0 : i < s->next[d - 1][F] ? s->forward[d - 1][i] : INFINITY;
    if (kind == S) return i < s->next[s->n - 1][F] ? s->forward[s->n - 1][i] : INFINITY;
    if (kind == T) return s->done[0][i] == s->n ? s->shared[0][i] : INFINITY;
    if (d == s->n - 1) return s->done[1][i] == s->n ? s->shared[1][i] : INFINITY;
    return i < s->next[d + 1][I] ? s->input[d + 1][i] : INFINITY;
}

/* Find the next action of a device: the action that can start first. A W runs when the device would
 * otherwise wait. */
static int choose(const state *s, int d, double *start) {
    int best = -1;
    for (int k = 0; k < KINDS; k++) {
        const int kind = s->policy->order[k];
        const double at = fmax(ready(s, d, kind), s->clock[d]);
        if (isinf(at) || (best >= 0 && at >= *start)) continue;
        best = kind;
        *start = at;
    }
    return best;
}

static void run(state *s, int d, int kind, double start) {
    const bool head = kind == W && s->head_weights[d] < s->next[d][T] &&
                      (s->next[d][W] >= s->next[d][I] || s->head_weights[d] < s->next[d][W]);
    const double end = start + (head ? s->costs->head_weight : cost_of(s, kind));
    s->clock[d] = end;
    if (head) {
        s->head_weights[d]++;
        return;
    }
    const int i = s->next[d][kind]++;
    if (kind == F) s->forward[d][i] = end;
    if (kind == I) s->input[d][i] = end;
    if (kind == S || kind == T) {
        s->shared[kind - S][i] = fmax(s->shared[kind - S][i], end);
        s->done[kind - S][i]++;
    }
}

/* Return the makespan, or INFINITY if the policy's limit of micro-batches in flight is too
 * small. */
static double simulate(const costs *c, const policy *p, int n, int m) {
    static state s;
    s = (state){.costs = c, .policy = p, .n = n, .m = m};
    double makespan = 0;
    while (true) {
        int device = -1, kind = -1;
        double first = INFINITY;
        for (int d = 0; d < n; d++) {
            double start = INFINITY;
            const int found = choose(&s, d, &start);
            if (found < 0 || start >= first) continue;
            device = d, kind = found, first = start;
        }
        if (device < 0) break;
        run(&s, device, kind, first);
        makespan = fmax(makespan, s.clock[device]);
    }
    for (int d = 0; d < n; d++) {
        if (s.next[d][I] < m) return INFINITY;
    }
    return makespan;
}

static double best_of_policies(const costs *c, int n, int m) {
    static const int orders[][KINDS] = {
        {T, S, I, F, W}, {I, T, S, F, W}, {I, F, T, S, W}, {F, I, T, S, W}, {S, T, F, I, W}};
    static const double limits[] = {1, 1.5, 2, 3};
    double best = INFINITY;
    for (size_t o = 0; o < sizeof orders / sizeof orders[0]; o++) {
        for (size_t l = 0; l < sizeof limits / sizeof limits[0]; l++) {
            for (int extra = 0; extra <= 2; extra++) {
                for (int split = 0; split <= 1; split++) {
                    policy p = {split, {0}, limits[l], extra};
                    for (int k = 0; k < KINDS; k++)
                        p.order[k] = orders[o][k];
                    best = fmin(best, simulate(c, &p, n, m));
                }
            }
        }
    }
    return best;
}

/* --- the comparison --- */

/* Search for the fastest plan over all schedules and balances, without recomputation. */
static void search(const cgp_model *model, int devices, int chunks, cgp_search_result *found) {
    cgp_plan_options o = cgp_plan_options_default();
    cgp_search_options s = cgp_search_options_default();
    o.stages = devices;
    o.batch = o.chunks = chunks;
    s.recomputes = false;
    s.most = 1;
    need(cgp_plan_search(model, &o, &s, found));
}

static void compare(const char *spec, int devices) {
    const int chunks = 4 * devices;
    cgp_model *model = NULL;
    cgp_search_result found = {0};
    cgp_model_spec parsed = cgp_model_spec_default();
    need(cgp_model_spec_parse(&parsed, spec));
    need(cgp_model_spec_create(&model, &parsed));
    const costs c = read_costs(model, devices);
    search(model, devices, chunks, &found);
    const double ideal = c.work * chunks / devices, plain = found.choices[0].makespan;
    const double split = best_of_policies(&c, devices, chunks);
    printf("\"%s\",%d,%d,%s %d,%.3f,%.3f,%.1f\n", spec, devices, chunks, found.choices[0].schedule,
           found.choices[0].virtual_stages, plain / ideal, split / ideal,
           100 * (1 - split / plain));
    fflush(stdout);
    cgp_search_result_release(&found);
    cgp_model_destroy(model);
}

int main(int argc, char **argv) {
    const int count = argc > 1 ? atoi(argv[1]) : CASES;
    printf("model,devices,micro-batches,schedule,search / ideal,vocabulary / ideal,falls by %%\n");
    for (int k = 0; k < count && k < CASES; k++)
        compare(cases[k].spec, cases[k].devices);
    return 0;
}
