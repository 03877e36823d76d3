/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_updates.c -- updates of cuda have the bits of the cpu backend with AVX-512. */
#include "../op/harness.h"

#include "in_program.h"

static uint64_t seed;
static runner cpu, cuda;

enum { PARAM, GRAD, FIRST, SECOND, BUFFERS, N = 1027 };

typedef struct update_case {
    const char *name;
    cgp_update update;
    int states;
} update_case;

static const update_case updates[] = {
    {"SGD", {.rule = CGP_UPDATE_SGD, .weight_decay = 0.01}, 0},
    {"SGD, momentum", {.rule = CGP_UPDATE_SGD, .weight_decay = 0.01, .momentum = 0.9}, 1},
    {"SGD, Nesterov", {.rule = CGP_UPDATE_SGD, .momentum = 0.9, .nesterov = true}, 1},
    {"Adam",
     {.rule = CGP_UPDATE_ADAM, .weight_decay = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
     2},
    {"AdamW",
     {.rule = CGP_UPDATE_ADAMW, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8},
     2},
    {"RMSprop",
     {.rule = CGP_UPDATE_RMSPROP, .weight_decay = 0.01, .alpha = 0.99, .eps = 1e-8},
     1},
    {"RMSprop, momentum",
     {.rule = CGP_UPDATE_RMSPROP, .momentum = 0.9, .alpha = 0.9, .eps = 1e-8},
     2},
};

/* Of buffers from an element on: packs of four, or not. */
static void run_update(const runner *on, const update_case *c, float buffers[BUFFERS][N + 4],
                       int from) {
    cgp_update_values values = {
        .lr = 0.003, .correction1 = 0.271, .correction2_sqrt = 0.0547, .gradient_scale = 0.7};
    cgp_update update = c->update;
    there t = {.on = on};
    there_put(&t, &values, sizeof values);
    for (int b = 0; b < BUFFERS; b++)
        there_put(&t, buffers[b], sizeof buffers[b]);
    update.n = N;
    update.values = there_of(&t, &values);
    update.param = there_of(&t, buffers[PARAM] + from);
    update.grad = there_of(&t, buffers[GRAD] + from);
    for (int s = 0; s < c->states; s++)
        update.state[s] = there_of(&t, buffers[FIRST + s] + from);
    assert_ok(on->backend->update(on->device, &update));
    there_end(&t);
}

static void updates_have_the_bits_of_cpu(void **state) {
    static float a[BUFFERS][N + 4], b[BUFFERS][N + 4];
    (void)state;
    for (size_t i = 0; i < sizeof updates / sizeof *updates; i++) {
        for (int from = 0; from < 4; from++) {
            for (int k = 0; k < BUFFERS; k++)
                fill_random(a[k], N + 4, &seed);
            for (int k = 0; k < N + 4; k++) { /* mean squares */
                a[FIRST][k] = updates[i].update.rule == CGP_UPDATE_RMSPROP ? fabsf(a[FIRST][k])
                                                                           : a[FIRST][k];
                a[SECOND][k] = fabsf(a[SECOND][k]);
            }
            memcpy(b, a, sizeof b);
            run_update(&cuda, &updates[i], a, from);
            run_update(&cpu, &updates[i], b, from);
            if (memcmp(a, b, sizeof a) != 0)
                fail_msg("%s, from element %d on: not the bits of cpu", updates[i].name, from);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(updates_have_the_bits_of_cpu)};
    cgp_isa isa;
    setenv("CGP_CPU_ISA", "v4", 1);
    if (cgp__backend_cpu.isa(CGP_F32, &isa) != CGP_OK) {
        fprintf(stderr, "skipped: %s\n", cgp_message());
        return 77;
    }
    seed = test_seed();
    cpu = runner_open(&cgp__backend_cpu, 1);
    cuda = runner_open(cuda_host(), 1);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    runner_close(&cuda);
    runner_close(&cpu);
    return failed;
}
