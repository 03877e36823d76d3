/* SPDX-License-Identifier: Apache-2.0 */
/* balances.c -- compares default balances with random balances, for three models on four devices,
 * under each schedule with several stages on a device. The program draws 2,000 random balances, and
 * improves each balance by moving single layers until no move helps.
 *
 *     bench_balances [DRAWS]
 *
 * The program prints a row of CSV per model and schedule, with FLOPs as costs:
 *
 *     stage bubble        percent bubble of the leftmost balance that minimizes the largest stage
 *     bubble              percent bubble of the default balance
 *     drawn bubble        percent bubble of the best random balance
 *     makespan / drawn    makespan of the default, relative to the best random balance
 *     ms                  duration of the search for the default balance */
#include <cgpipe/cgpipe.h>
#include <cgpipe/models/spec.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEVICES = 4, CHUNKS = 16, MAX_STAGES = 16, MAX_LAYERS = 64 };

static const char *const specs[] = {"gpt2:layers=12,width=768,heads=12,vocab=3000,seq=128", "vit",
                                    "gpt2:layers=24,width=1024,heads=16,vocab=50257,seq=1024"};
static const char *const schedules[] = {
    "zb-v",       "v-half",        "v-min",          "dualpipe-v", "interleaved",
    "looped-bfs", "looped-bfs-zb", "interleaved-zb", "v-flex",     "wave"};

typedef struct bench {
    cgp_model *model;
    const cgp_schedule *schedule; /* borrowed from a plan */
    int layers, stages;
    double flops[3][MAX_LAYERS]; /* F, I and W of each layer */
} bench;

static void need(cgp_status status) {
    if (status == CGP_OK) return;
    fprintf(stderr, "%s\n", cgp_message());
    exit(1);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Read the FLOPs of the layers from a plan with one stage per layer. */
static void read_flops(bench *b) {
    cgp_plan_options o = cgp_plan_options_default();
    cgp_plan *plan = NULL;
    o.stages = b->layers;
    need(cgp_plan_create(&plan, b->model, &o));
    for (int i = 0; i < b->layers; i++) {
        const cgp_plan_stage *stage = cgp_plan_stage_at(plan, i);
        b->flops[0][i] = stage->forward_flops;
        b->flops[1][i] = stage->backward_flops - stage->weight_flops;
        b->flops[2][i] = stage->weight_flops;
    }
    cgp_plan_destroy(plan);
}

static double makespan(const bench *b, const int *balance, double *bubble) {
    double sums[3][MAX_STAGES] = {{0}};
    for (int k = 0; k < 3; k++) {
        for (int j = 0, i = 0; j < b->stages; j++) {
            for (const int next = i + balance[j]; i < next; i++)
                sums[k][j] += b->flops[k][i];
        }
    }
    const cgp_schedule_costs costs = {
        .forward = sums[0], .backward_input = sums[1], .backward_weight = sums[2]};
    cgp_schedule_timeline t;
    need(cgp_schedule_simulate(b->schedule, &costs, &t));
    const double found = t.makespan;
    if (bubble) *bubble = 100 * t.bubble_makespan;
    cgp_schedule_timeline_release(&t);
    return found;
}

/* Return a number from 0 to n - 1 (splitmix64). */
static int draw(uint64_t *state, int n) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (int)((z ^ z >> 31) % (uint64_t)n);
}

static void draw_balance(const bench *b, uint64_t *state, int *balance) {
    for (int j = 0; j < b->stages; j++)
        balance[j] = 1;
    for (int left = b->layers - b->stages; left > 0; left--)
        balance[draw(state, b->stages)]++;
}

/* Move single layers to a neighbouring stage while this shortens the step; return the makespan. */
static double climb(const bench *b, int *balance) {
    double best = makespan(b, balance, NULL);
    for (int since = 0, k = 0; since < 2 * (b->stages - 1); since++, k++) {
        const int j = k / 2 % (b->stages - 1), from = k % 2 ? j : j + 1, to = k % 2 ? j + 1 : j;
        if (balance[from] == 1) continue;
        balance[from]--;
        balance[to]++;
        const double moved = makespan(b, balance, NULL);
        if (moved < best) {
            best = moved;
            since = -1;
        } else {
            balance[from]++;
            balance[to]--;
        }
    }
    return best;
}

static void compare(bench *b, const char *spec, const char *schedule, int draws) {
    int given[MAX_STAGES], staged[MAX_STAGES], balance[MAX_STAGES];
    double bubble[3], best = 0;
    uint64_t state = 1;
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = DEVICES;
    o.batch = o.chunks = CHUNKS;
    o.schedule = schedule;
    b->stages = cgp_plan_options_stages(&o);
    const double start = seconds();
    need(cgp_balance_for_plan(b->model, &o, CGP_BALANCE_MAKESPAN, NULL, given));
    const double took = seconds() - start;
    cgp_plan *plan = NULL;
    need(cgp_plan_create(&plan, b->model, &o));
    b->schedule = cgp_plan_schedule(plan);
    need(cgp_balance_by_flops(b->model, b->stages, staged));
    const double found = makespan(b, given, &bubble[1]);
    (void)makespan(b, staged, &bubble[0]);
    for (int k = 0; k < draws; k++) {
        draw_balance(b, &state, balance);
        const double climbed = climb(b, balance);
        if (k > 0 && climbed >= best) continue;
        best = makespan(b, balance, &bubble[2]);
    }
    printf("\"%s\",%s,%.1f,%.1f,%.1f,%.4f,%.0f\n", spec, schedule, bubble[0], bubble[1], bubble[2],
           found / best, 1e3 * took);
    fflush(stdout);
    cgp_plan_destroy(plan);
}

int main(int argc, char **argv) {
    const int draws = argc > 1 ? atoi(argv[1]) : 2000;
    printf("model,schedule,stage bubble,bubble,drawn bubble,makespan / drawn,ms\n");
    for (size_t k = 0; k < sizeof specs / sizeof *specs; k++) {
        bench b = {0};
        cgp_model_spec spec = cgp_model_spec_default();
        need(cgp_model_spec_parse(&spec, specs[k]));
        need(cgp_model_spec_create(&b.model, &spec));
        b.layers = cgp_model_layers(b.model);
        read_flops(&b);
        for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++)
            compare(&b, specs[k], schedules[i], draws);
        cgp_model_destroy(b.model);
    }
    return 0;
}
