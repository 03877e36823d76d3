/* SPDX-License-Identifier: Apache-2.0 */
/* test_op_update.c -- tests optimizer updates. The results of ref are compared with values computed
 * by hand. The results of cpu are compared with ref, for sizes with and without tails. An element's
 * result does not depend on its index. An update with `gradient_scale` equals an update with a
 * scaled gradient. */
#include "harness.h"

#include <float.h>
#include <math.h>

static uint64_t seed;

enum { MAX = 9001 };

typedef struct sides {
    float param[MAX + 16], grad[MAX + 16], first[MAX + 16], second[MAX + 16];
} sides;

static void fill(sides *s) {
    fill_random(s->param, MAX, &seed);
    fill_random(s->grad, MAX, &seed);
    fill_random(s->first, MAX, &seed);
    fill_random(s->second, MAX, &seed);
    for (int i = 0; i < MAX; i++)
        s->second[i] = fabsf(s->second[i]);
}

enum { PLAIN, DECAYED, MOMENTUM, NESTEROV, ADAMW, ADAM, RMSPROP, RMSPROP_MOMENTUM, RULES };

/* Constants of Adam and AdamW, at the first update. */
#define MOMENTS .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8
#define CORRECTIONS .correction1 = 0.1, .correction2_sqrt = 0.0316227766

static const cgp_update rules[RULES] = {
    [PLAIN] = {.rule = CGP_UPDATE_SGD},
    [DECAYED] = {.rule = CGP_UPDATE_SGD, .weight_decay = 0.01},
    [MOMENTUM] = {.rule = CGP_UPDATE_SGD, .weight_decay = 0.01, .momentum = 0.9},
    [NESTEROV] = {.rule = CGP_UPDATE_SGD, .weight_decay = 0.01, .momentum = 0.9, .nesterov = true},
    [ADAMW] = {.rule = CGP_UPDATE_ADAMW, .weight_decay = 0.01, MOMENTS},
    [ADAM] = {.rule = CGP_UPDATE_ADAM, .weight_decay = 0.01, MOMENTS},
    [RMSPROP] = {.rule = CGP_UPDATE_RMSPROP, .weight_decay = 0.01, .alpha = 0.99, .eps = 1e-8},
    [RMSPROP_MOMENTUM] = {.rule = CGP_UPDATE_RMSPROP,
                          .weight_decay = 0.01,
                          .momentum = 0.9,
                          .alpha = 0.9,
                          .eps = 1e-8},
};

static const cgp_update_values values[RULES] = {
    [PLAIN] = {.lr = 0.1, .gradient_scale = 1},
    [DECAYED] = {.lr = 0.1, .gradient_scale = 1},
    [MOMENTUM] = {.lr = 0.1, .gradient_scale = 1},
    [NESTEROV] = {.lr = 0.1, .gradient_scale = 0.3},
    [ADAMW] = {.lr = 0.001, .gradient_scale = 1, CORRECTIONS},
    [ADAM] = {.lr = 0.001, .gradient_scale = 0.7, CORRECTIONS},
    [RMSPROP] = {.lr = 0.01, .gradient_scale = 1},
    [RMSPROP_MOMENTUM] = {.lr = 0.01, .gradient_scale = 0.2},
};

/* Make an update of `n` elements of `s`, starting at element `shift`. The buffer `second` is a mean
 * of squares, so it is never negative. */
static cgp_update update_of(sides *s, int rule, int64_t n, int shift) {
    cgp_update u = rules[rule];
    float *const first = s->first + shift, *const second = s->second + shift;
    const bool moments = u.rule == CGP_UPDATE_ADAMW || u.rule == CGP_UPDATE_ADAM;
    float *const buffer = u.momentum > 0 ? first : NULL;
    u.n = n;
    u.param = s->param + shift;
    u.grad = s->grad + shift;
    u.state[0] = moments ? first : u.rule == CGP_UPDATE_RMSPROP ? second : buffer;
    u.state[1] = moments ? second : u.rule == CGP_UPDATE_RMSPROP ? buffer : NULL;
    u.values = &values[rule];
    return u;
}

/* A runner on backend ref, which needs no device. */
static const runner ref = {.backend = &cgp__backend_ref, .threads = 1};
static runner cpu;

/* Update n parts of `s` in one call. The per-step constants of each update are an element of
 * `now`. */
static void update_list(const runner *on, sides *s, const cgp_update *list, int n,
                        cgp_update_values now[2]) {
    cgp_update *moved = malloc((size_t)n * sizeof *moved);
    there t = {.on = on};
    there_put(&t, s, sizeof *s);
    there_put(&t, now, 2 * sizeof *now);
    for (int i = 0; i < n; i++) {
        moved[i] = list[i];
        moved[i].param = there_of(&t, list[i].param);
        moved[i].grad = there_of(&t, list[i].grad);
        moved[i].state[0] = there_of(&t, list[i].state[0]);
        moved[i].state[1] = there_of(&t, list[i].state[1]);
        moved[i].values = (cgp_update_values *)there_of(&t, now) + (list[i].values - now);
    }
    assert_ok(on->backend->kernels.update(on->device, moved, n));
    there_end(&t);
    free(moved);
}

static void update(const runner *on, const cgp_update *u) {
    cgp_update moved = *u;
    cgp_update_values now = *u->values;
    const size_t bytes = (size_t)u->n * sizeof *u->param;
    there t = {.on = on};
    there_put(&t, u->param, bytes);
    there_put(&t, (float *)(uintptr_t)u->grad, bytes);
    there_put(&t, u->state[0], bytes);
    there_put(&t, u->state[1], bytes);
    there_put(&t, &now, sizeof now);
    moved.param = there_of(&t, u->param);
    moved.grad = there_of(&t, u->grad);
    moved.state[0] = there_of(&t, u->state[0]);
    moved.state[1] = there_of(&t, u->state[1]);
    moved.values = there_of(&t, &now);
    assert_ok(on->backend->kernels.update(on->device, &moved, 1));
    there_end(&t);
}

static void assert_close(double got, double want) {
    if (!(fabs(got - want) <= 4e-7 * fabs(want))) fail_msg("%.9g, expected %.9g", got, want);
}

/* Compare with PyTorch's formulas, worked out by hand for p = 1, g = 0.5 and a momentum buffer of
 * 0.2. */
TEST_CASE(sgd_is_as_on_paper) {
    static sides s;
    s = (sides){.param = {1}, .grad = {0.5f}, .first = {0.2f}};
    cgp_update u = update_of(&s, DECAYED, 1, 0);
    update(&ref, &u);
    assert_close(s.param[0], 1 - 0.1 * 0.51);

    s = (sides){.param = {1}, .grad = {0.5f}, .first = {0.2f}};
    u = update_of(&s, MOMENTUM, 1, 0);
    update(&ref, &u);
    assert_close(s.first[0], 0.9 * 0.2 + 0.51);
    assert_close(s.param[0], 1 - 0.1 * (0.9 * 0.2 + 0.51));

    s = (sides){.param = {1}, .grad = {0.5f}, .first = {0.2f}};
    u = update_of(&s, NESTEROV, 1, 0);
    cgp_update_values unscaled = values[NESTEROV];
    unscaled.gradient_scale = 1;
    u.values = &unscaled;
    update(&ref, &u);
    assert_close(s.param[0], 1 - 0.1 * (0.51 + 0.9 * (0.9 * 0.2 + 0.51)));
}

/* In the first update both corrected moments depend only on g, so p changes by lr, after the weight
 * decay. */
TEST_CASE(adamw_is_as_on_paper) {
    static sides s;
    s = (sides){.param = {1}, .grad = {-0.5f}};
    const cgp_update u = update_of(&s, ADAMW, 1, 0);
    update(&ref, &u);
    assert_close(s.first[0], -0.05);
    assert_close(s.second[0], 0.00025);
    assert_close(s.param[0], 1 - 0.001 * 0.01 + 0.001);
    assert_true(s.grad[0] == -0.5f);
}

/* Adam adds the weight decay to the gradient, and thereby to the moments. In the first update p
 * changes by lr. */
TEST_CASE(adam_is_as_on_paper) {
    static sides s;
    s = (sides){.param = {1}, .grad = {0.5f}};
    const cgp_update u = update_of(&s, ADAM, 1, 0);
    update(&ref, &u);
    const double g = 0.7 * 0.5 + 0.01;
    assert_close(s.first[0], 0.1 * g);
    assert_close(s.second[0], 0.001 * g * g);
    assert_close(s.param[0], 1 - 0.001);
}

/* Compare with PyTorch's formulas, worked out by hand for p = 1, g = 0.5, a mean square of 0.04 and
 * a buffer of 0.2. */
TEST_CASE(rmsprop_is_as_on_paper) {
    static sides s;
    s = (sides){.param = {1}, .grad = {0.5f}, .first = {0.2f}, .second = {0.04f}};
    cgp_update u = update_of(&s, RMSPROP, 1, 0);
    update(&ref, &u);
    double square = 0.99 * 0.04 + 0.01 * 0.51 * 0.51;
    assert_close(s.second[0], square);
    assert_close(s.param[0], 1 - 0.01 * 0.51 / sqrt(square));

    s = (sides){.param = {1}, .grad = {0.5f}, .first = {0.2f}, .second = {0.04f}};
    u = update_of(&s, RMSPROP_MOMENTUM, 1, 0);
    update(&ref, &u);
    square = 0.9 * 0.04 + 0.1 * 0.11 * 0.11;
    const double buffer = 0.9 * 0.2 + 0.11 / sqrt(square);
    assert_close(s.second[0], square);
    assert_close(s.first[0], buffer);
    assert_close(s.param[0], 1 - 0.01 * buffer);
}

static bool near(float got, float want) {
    return fabs((double)got - want) <= 8 * FLT_EPSILON * (fabs((double)want) + 1.0);
}

/* An update has about 10 float operations, so the bound is 8 u, relative to the size of the step.
 * Adam's step is at most lr / sqrt(v) / correction. In RMSprop, a gradient divided by the root of
 * its mean square is at most 10, and so is the buffer. */
TEST_CASE(cpu_updates_as_ref_does) {
    static const int64_t sizes[] = {1, 3, 16, 17, 64, 1000, MAX};
    for (int r = 0; r < RULES; r++) {
        for (int k = 0; k < 7; k++) {
            static sides a, b;
            fill(&a);
            b = a;
            const int shift = MAX - (int)sizes[k] < 3 ? 0 : (int)(test_random(&seed) % 4);
            const cgp_update on_cpu = update_of(&a, r, sizes[k], shift);
            const cgp_update on_ref = update_of(&b, r, sizes[k], shift);
            update(&cpu, &on_cpu);
            update(&ref, &on_ref);
            for (int i = 0; i < MAX; i++) {
                if (!near(a.param[i], b.param[i]) || !near(a.first[i], b.first[i]) ||
                    !near(a.second[i], b.second[i]) || a.grad[i] != b.grad[i])
                    fail_msg("rule %d, n %" PRId64 " [%d]: %.9g, ref has %.9g", r, sizes[k], i,
                             (double)a.param[i], (double)b.param[i]);
            }
        }
    }
}

TEST_CASE(an_element_does_not_depend_on_its_place) {
    for (int r = 0; r < RULES; r++) {
        static sides a, b;
        fill(&a);
        b = a;
        const cgp_update whole = update_of(&a, r, MAX, 0);
        update(&cpu, &whole);
        for (int at = 0; at < MAX;) {
            int n = test_between(&seed, 1, 40);
            n = n > MAX - at ? MAX - at : n;
            const cgp_update part = update_of(&b, r, n, at);
            update(&cpu, &part);
            at += n;
        }
        assert_memory_equal(a.param, b.param, sizeof a.param);
        assert_memory_equal(a.first, b.first, sizeof a.first);
        assert_memory_equal(a.second, b.second, sizeof a.second);
    }
}

/* The test updates a list of more tensors than one kernel call takes. The tensors have any
 * alignment, and some tensors are empty. */
TEST_CASE(a_list_of_updates_is_one_after_the_other) {
    enum { PARTS = 300 };
    const runner *const on[] = {&ref, &cpu};
    for (int r = 0; r < 2 * RULES; r++) {
        static sides a, b;
        cgp_update list[PARTS];
        cgp_update_values now[2] = {values[r / 2], values[r / 2]};
        int n = 0;
        now[0].lr *= 3;
        fill(&a);
        b = a;
        for (int at = 0; at < MAX && n < PARTS; n++) {
            const int most = n % 100 == 7 ? MAX - at : 8, left = MAX - at;
            const int count = test_between(&seed, 0, most < left ? most : left);
            list[n] = update_of(&a, r / 2, count, at);
            if (n % 3 == 0) list[n].weight_decay = 0;
            list[n].values = &now[n % 2 == 0]; /* use both elements of `now` */
            cgp_update part = update_of(&b, r / 2, count, at);
            part.weight_decay = list[n].weight_decay;
            part.values = list[n].values;
            update(on[r % 2], &part);
            at += count;
        }
        update_list(on[r % 2], &a, list, n, now);
        assert_memory_equal(&a, &b, sizeof a);
    }
}

/* The gradient is scaled by a power of two, so that scaling is exact. */
TEST_CASE(a_scaled_gradient_is_one_that_came_so) {
    const runner *const on[] = {&ref, &cpu};
    for (int r = 0; r < 2 * RULES; r++) {
        static sides a, b;
        fill(&a);
        b = a;
        for (int i = 0; i < MAX; i++)
            b.grad[i] *= 0.25f;
        cgp_update scaled = update_of(&a, r / 2, MAX, 0);
        cgp_update as_it_is = update_of(&b, r / 2, MAX, 0);
        cgp_update_values quarter = values[r / 2], whole = values[r / 2];
        quarter.gradient_scale = 0.25;
        whole.gradient_scale = 1;
        scaled.values = &quarter;
        as_it_is.values = &whole;
        update(on[r % 2], &scaled);
        update(on[r % 2], &as_it_is);
        assert_memory_equal(a.param, b.param, sizeof a.param);
        assert_memory_equal(a.first, b.first, sizeof a.first);
        assert_memory_equal(a.second, b.second, sizeof a.second);
    }
}

/* The tensors have all lengths up to 50. The test puts a number that is not finite at each index,
 * after numbers at the limits of the finite range. */
TEST_CASE(the_first_number_that_is_not_finite_is_found) {
    const runner *const on[] = {&ref, &cpu};
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY},
                good[] = {FLT_MAX, -FLT_MAX, 0, -0.0f, FLT_MIN / 2};
    for (int k = 0; k < 2; k++) {
        for (int n = 0; n <= 50; n++) {
            float x[51];
            for (int i = 0; i < 51; i++)
                x[i] = i < n ? good[i % 5] : NAN; /* NaN after the end must not be found */
            assert_int_equal(find_nonfinite(on[k], x, n), -1);
            for (int i = n - 1; i >= 0; i--) {
                x[i] = bad[i % 4];
                assert_int_equal(find_nonfinite(on[k], x, n), i);
            }
        }
    }
}

TEST_CASE(memory_is_aligned_and_zero) {
    const runner *const on[] = {&ref, &cpu};
    static const size_t sizes[] = {1, 63, 64, 4097, 1 << 20};
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 5; i++) {
            void *memory = NULL;
            assert_ok(on[k]->backend->device.memory_create(on[k]->device, sizes[i], &memory));
            assert_int_equal((uintptr_t)memory % CGP__ALIGN, 0);
            char *bytes = malloc(sizes[i]), letter = 'x';
            const cgp_place here = {NULL, bytes}, device = {on[k]->device, memory};
            there_copy(on[k], here, device, sizes[i]);
            for (size_t b = 0; b < sizes[i]; b++)
                assert_int_equal(bytes[b], 0);
            there_copy(on[k], device, (cgp_place){NULL, &letter}, 1);
            there_copy(on[k], here, device, 1);
            assert_int_equal(bytes[0], 'x');
            free(bytes);
            on[k]->backend->device.memory_destroy(on[k]->device, memory, sizes[i]);
        }
    }
}

int main(void) {
    seed = test_seed();
    cpu = runner_open(backend_under_test(), 1);
    const int failed = test_run();
    runner_close(&cpu);
    return failed;
}
