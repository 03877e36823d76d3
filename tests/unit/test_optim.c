/* SPDX-License-Identifier: Apache-2.0 */
/* test_optim.c -- tests the options of optimizers: names, checks and bytes of state. The file also
 * tests the constants of an update, and the learning rate at the corners of every schedule.
 *
 *     factor 1 |    ....                warmup 4, cosine to 0.1 at update 12
 *              |   /    '.
 *              |  /       '.
 *         0.25 | /          '.......    then 0.1
 *              +-1--4-------12----> t */
#include <cgpipe/cgpipe.h>

#include "optim/optim.h"
#include "support.h"

TEST_CASE(names_are_read_as_they_are_written) {
    static const char *const names[] = {"sgd", "adamw", "adam", "rmsprop"};
    static const char *const rates[] = {"constant", "cosine", "step", "milestones"};
    for (int i = 0; i < 4; i++) {
        cgp_optim_kind kind = CGP_OPTIM_SGD;
        assert_ok(cgp_optim_kind_parse(&kind, names[i]));
        assert_int_equal(kind, i);
        assert_string_equal(cgp_optim_kind_name(kind), names[i]);
    }
    for (int i = 0; i < 4; i++) {
        cgp_lr_kind kind = CGP_LR_CONSTANT;
        assert_ok(cgp_lr_kind_parse(&kind, rates[i]));
        assert_int_equal(kind, i);
        assert_string_equal(cgp_lr_kind_name(kind), rates[i]);
    }
}

TEST_CASE(an_unknown_name_gets_the_nearest) {
    cgp_optim_kind kind = CGP_OPTIM_ADAM;
    cgp_lr_kind lr = CGP_LR_STEP;
    assert_status(cgp_optim_kind_parse(&kind, "rmsprob"), CGP_EINVAL);
    assert_string_equal(cgp_message(), "optimizer: expected sgd, adamw, adam or rmsprop, got "
                                       "\"rmsprob\" (did you mean rmsprop?)");
    assert_status(cgp_lr_kind_parse(&lr, "cosin"), CGP_EINVAL);
    assert_string_equal(cgp_message(),
                        "lr schedule: expected constant, cosine, step or milestones, got "
                        "\"cosin\" (did you mean cosine?)");
    assert_status(cgp_lr_kind_parse(&lr, "wsd-something"), CGP_EINVAL);
    assert_int_equal(kind, CGP_OPTIM_ADAM);
    assert_int_equal(lr, CGP_LR_STEP);
}

static cgp_optim of_kind(int kind) {
    switch (kind) {
    case CGP_OPTIM_SGD:
        return cgp_optim_sgd(0.1, 0.9, true, 0.01);
    case CGP_OPTIM_ADAMW:
        return cgp_optim_adamw(0.1, 0.01);
    case CGP_OPTIM_ADAM:
        return cgp_optim_adam(0.1, 0.01);
    default:
        return cgp_optim_rmsprop(0.1, 0.9, 0.01);
    }
}

TEST_CASE(the_usual_constants_are_accepted) {
    for (int kind = 0; kind < 4; kind++) {
        cgp_optim optim = of_kind(kind);
        assert_int_equal(optim.kind, kind);
        assert_ok(cgp_optim_check(&optim));
        assert_false(optim.decay_all);
        optim.clip_norm = 1;
        optim.lr = optim.weight_decay = 0;
        optim.schedule = (cgp_lr_schedule){.kind = CGP_LR_COSINE, .steps = 1};
        assert_ok(cgp_optim_check(&optim));
        optim.schedule =
            (cgp_lr_schedule){.kind = CGP_LR_STEP, .warmup = 100, .step_size = 1, .gamma = 1e-3};
        assert_ok(cgp_optim_check(&optim));
    }
}

TEST_CASE(state_is_counted_as_the_rules_need_it) {
    static const int states[4] = {1, 2, 2, 2};
    for (int kind = 0; kind < 4; kind++) {
        const cgp_optim optim = of_kind(kind);
        assert_int_equal(cgp_optim_states(&optim), states[kind]);
    }
    cgp_optim optim = cgp_optim_sgd(0.1, 0, false, 0.01);
    assert_int_equal(cgp_optim_states(&optim), 0);
    optim = cgp_optim_rmsprop(0.1, 0, 0.01);
    assert_int_equal(cgp_optim_states(&optim), 1);
}

/* An optimizer in which one constant is just outside the allowed range, and the expected
 * message. */
typedef struct wrong {
    int kind;
    size_t offset;
    double value;
    const char *message;
} wrong;

#define WRONG(kind, field, value, text)                                                            \
    { CGP_OPTIM_##kind, offsetof(cgp_optim, field), value, "optimizer: " text }

TEST_CASE(a_wrong_constant_is_named_with_its_range) {
    static const wrong cases[] = {
        WRONG(SGD, lr, -1, "lr is expected in [0, inf), got -1"),
        WRONG(ADAM, lr, INFINITY, "lr is expected in [0, inf), got inf"),
        WRONG(ADAMW, weight_decay, -0.1, "weight_decay is expected in [0, inf), got -0.1"),
        WRONG(SGD, momentum, 1, "momentum is expected in [0, 1), got 1"),
        WRONG(RMSPROP, momentum, -0.5, "momentum is expected in [0, 1), got -0.5"),
        WRONG(SGD, momentum, 0, "nesterov needs momentum above 0, got 0"),
        WRONG(ADAMW, beta1, 1, "beta1 is expected in [0, 1), got 1"),
        WRONG(ADAM, beta2, -0.5, "beta2 is expected in [0, 1), got -0.5"),
        WRONG(ADAM, eps, 0, "eps is expected in [1e-45, inf), got 0"),
        WRONG(RMSPROP, eps, 0, "eps is expected in [1e-45, inf), got 0"),
        WRONG(RMSPROP, alpha, 1, "alpha is expected in [0, 1), got 1"),
        WRONG(SGD, clip_norm, -1, "clip_norm is expected in [0, inf), got -1"),
        WRONG(ADAM, clip_norm, INFINITY, "clip_norm is expected in [0, inf), got inf"),
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cgp_optim optim = of_kind(cases[i].kind);
        memcpy((char *)&optim + cases[i].offset, &cases[i].value, sizeof(double));
        assert_status(cgp_optim_check(&optim), CGP_EINVAL);
        assert_string_equal(cgp_message(), cases[i].message);
    }
    cgp_optim optim = of_kind(CGP_OPTIM_RMSPROP);
    optim.nesterov = true;
    assert_status(cgp_optim_check(&optim), CGP_EINVAL);
    assert_string_equal(cgp_message(), "optimizer: nesterov needs sgd, got rmsprop");
    optim.kind = (cgp_optim_kind)4;
    assert_status(cgp_optim_check(&optim), CGP_EINVAL);
    assert_message("unknown kind 4");
}

/* The range is checked even if this kind of optimizer does not use the constant. */
TEST_CASE(nan_is_refused_everywhere) {
    static const size_t fields[] = {offsetof(cgp_optim, lr),
                                    offsetof(cgp_optim, weight_decay),
                                    offsetof(cgp_optim, momentum),
                                    offsetof(cgp_optim, beta1),
                                    offsetof(cgp_optim, beta2),
                                    offsetof(cgp_optim, eps),
                                    offsetof(cgp_optim, alpha),
                                    offsetof(cgp_optim, clip_norm),
                                    offsetof(cgp_optim, schedule.min_ratio),
                                    offsetof(cgp_optim, schedule.gamma)};
    const double nan = NAN;
    for (int kind = 0; kind < 4; kind++) {
        for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
            cgp_optim optim = of_kind(kind);
            memcpy((char *)&optim + fields[i], &nan, sizeof nan);
            assert_status(cgp_optim_check(&optim), CGP_EINVAL);
            assert_message("got nan");
        }
    }
}

TEST_CASE(a_wrong_schedule_is_refused) {
    static const struct {
        cgp_lr_schedule schedule;
        const char *message;
    } cases[] = {
        {{.kind = (cgp_lr_kind)4}, "unknown kind 4 (constant, cosine, step, milestones)"},
        {{.kind = CGP_LR_CONSTANT, .warmup = -1}, "warmup is expected to be 0 or more, got -1"},
        {{.kind = CGP_LR_COSINE, .warmup = 5, .steps = 5},
         "steps is expected above the warm-up's 5, got 5"},
        {{.kind = CGP_LR_COSINE, .steps = 9, .min_ratio = 1.5},
         "min_ratio is expected in [0, 1], got 1.5"},
        {{.kind = CGP_LR_COSINE, .steps = 9, .min_ratio = -0.5},
         "min_ratio is expected in [0, 1], got -0.5"},
        {{.kind = CGP_LR_STEP, .gamma = 0.5}, "step_size is expected to be 1 or more, got 0"},
        {{.kind = CGP_LR_STEP, .step_size = 1}, "gamma is expected in (0, 1], got 0"},
        {{.kind = CGP_LR_STEP, .step_size = 1, .gamma = INFINITY},
         "gamma is expected in (0, 1], got inf"},
        {{.kind = CGP_LR_STEP, .step_size = 1, .gamma = 1.01},
         "gamma is expected in (0, 1], got 1.01"},
        {{.warmup_interval = -1}, "warmup_interval is expected to be 0 or more, got -1"},
        {{.start = 1.5}, "start is expected in [0, 1], got 1.5"},
        {{.kind = CGP_LR_MILESTONES, .n_milestones = 9, .gamma = 0.1},
         "expected 0 to 8 milestones, got 9"},
        {{.kind = CGP_LR_MILESTONES, .n_milestones = 2, .gamma = 0.1, .milestones = {5, 5}},
         "milestones are expected to rise from 1 on, got 5 after 5"},
        {{.kind = CGP_LR_MILESTONES, .n_milestones = 1, .milestones = {5}},
         "gamma is expected in (0, 1], got 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cgp_optim optim = cgp_optim_sgd(0.1, 0, false, 0);
        optim.schedule = cases[i].schedule;
        assert_status(cgp_optim_check(&optim), CGP_EINVAL);
        assert_string_equal(strstr(cgp_message(), ": ") + 2, cases[i].message);
    }
}

static double lr_at(cgp_lr_schedule schedule, int64_t update) {
    cgp_optim optim = cgp_optim_sgd(2, 0, false, 0);
    optim.schedule = schedule;
    assert_ok(cgp_optim_check(&optim));
    return cgp_optim_lr_at(&optim, update);
}

static void assert_lr(cgp_lr_schedule schedule, int64_t update, double expected) {
    const double got = lr_at(schedule, update);
    if (!(fabs(got - expected) <= 1e-15 * expected))
        fail_msg("%s, update %d: rate %.17g, expected %.17g", cgp_lr_kind_name(schedule.kind),
                 (int)update, got, expected);
}

TEST_CASE(the_lr_warms_up_in_a_line) {
    static const cgp_lr_schedule none = {.kind = CGP_LR_CONSTANT};
    assert_lr(none, 1, 2);
    assert_lr(none, 1000000, 2);
    static const cgp_lr_schedule cases[] = {
        {.kind = CGP_LR_CONSTANT, .warmup = 4},
        {.kind = CGP_LR_COSINE, .warmup = 4, .steps = 12, .min_ratio = 0.1},
        {.kind = CGP_LR_STEP, .warmup = 4, .step_size = 3, .gamma = 0.5}};
    for (int i = 0; i < 3; i++) {
        assert_lr(cases[i], 1, 0.5);
        assert_lr(cases[i], 2, 1);
        assert_lr(cases[i], 3, 1.5);
        assert_lr(cases[i], 4, 2);
    }
    assert_lr(cases[0], 5, 2);
    assert_lr((cgp_lr_schedule){.kind = CGP_LR_CONSTANT, .warmup = 1}, 1, 2);
}

TEST_CASE(cosine_ends_at_the_lowest_lr_and_stays) {
    const cgp_lr_schedule cosine = {
        .kind = CGP_LR_COSINE, .warmup = 4, .steps = 12, .min_ratio = 0.1};
    assert_lr(cosine, 6, 2 * (0.1 + 0.9 * (1 + sqrt(0.5)) / 2));
    assert_lr(cosine, 8, 2 * (0.1 + 0.9 / 2));
    assert_true(lr_at(cosine, 11) > 0.2);
    assert_lr(cosine, 12, 0.2);
    assert_lr(cosine, 13, 0.2);
    assert_lr(cosine, INT64_MAX, 0.2);
    const cgp_lr_schedule bare = {.kind = CGP_LR_COSINE, .steps = 10};
    assert_lr(bare, 1, 1 + cos(acos(-1) / 10));
    assert_lr(bare, 10, 0);
    for (int t = 5; t <= 12; t++)
        assert_true(lr_at(cosine, t) < lr_at(cosine, t - 1));
}

TEST_CASE(steps_fall_at_whole_intervals) {
    const cgp_lr_schedule step = {.kind = CGP_LR_STEP, .warmup = 4, .step_size = 3, .gamma = 0.5};
    static const double expected[] = {2, 2, 2, 1, 1, 1, 0.5, 0.5, 0.5, 0.25};
    for (int i = 0; i < 10; i++)
        assert_lr(step, 4 + i, expected[i]);
    const cgp_lr_schedule bare = {.kind = CGP_LR_STEP, .step_size = 1, .gamma = 0.1};
    assert_lr(bare, 1, 2 * 0.1);
    assert_lr(bare, 3, 2 * pow(0.1, 3));
}

/* Epochs have 10 updates. The learning rate warms up over 4 epochs and is reduced after epochs 6
 * and 8, as in the ImageNet recipe. */
TEST_CASE(milestones_cut_and_intervals_rise_by_epochs) {
    const cgp_lr_schedule epochs = {.kind = CGP_LR_MILESTONES,
                                    .warmup = 40,
                                    .start = 0.25,
                                    .warmup_interval = 10,
                                    .gamma = 0.1,
                                    .n_milestones = 2,
                                    .milestones = {60, 80}};
    static const double expected[] = {0.25, 0.4375, 0.625, 0.8125, 1, 1, 0.1, 0.1, 0.01, 0.01};
    for (int epoch = 0; epoch < 10; epoch++) {
        assert_lr(epochs, 10 * epoch + 1, 2 * expected[epoch]);
        assert_lr(epochs, 10 * epoch + 10, 2 * expected[epoch]);
    }
    const cgp_lr_schedule endless = {.warmup = INT64_MAX, .warmup_interval = 1};
    /* the last warm-up step, INT64_MAX, is not exact in double */
    assert_true(lr_at(endless, 5) < 1e-15);
    const cgp_lr_schedule uneven = {.warmup = 7, .start = 0.5, .warmup_interval = 3};
    for (int t = 1; t <= 8; t++)
        assert_lr(uneven, t, 2 * (t <= 7 ? 0.5 + 0.5 * (3 * ((t - 1) / 3)) / 7 : 1));
    const cgp_lr_schedule line = {.warmup = 4, .start = 0.5};
    assert_lr(line, 1, 2 * 0.625);
    assert_lr(line, 4, 2);
}

TEST_CASE(an_update_gets_the_lr_and_corrections_of_its_number) {
    static const cgp_update_rule rules[] = {CGP_UPDATE_SGD, CGP_UPDATE_ADAMW, CGP_UPDATE_ADAM,
                                            CGP_UPDATE_RMSPROP};
    for (int kind = 0; kind < 4; kind++) {
        cgp_optim optim = of_kind(kind);
        optim.schedule =
            (cgp_lr_schedule){.kind = CGP_LR_COSINE, .warmup = 4, .steps = 12, .min_ratio = 0.1};
        const cgp_update_values values = cgp__optim_values(&optim, 3);
        cgp_update u = {.n = 7, .values = &values};
        cgp__optim_constants(&optim, &u);
        assert_int_equal(u.rule, rules[kind]);
        assert_true(values.lr == cgp_optim_lr_at(&optim, 3) && values.lr < optim.lr);
        assert_true(u.weight_decay == 0.01);
        assert_true(u.momentum == optim.momentum && u.alpha == optim.alpha);
        assert_true(u.nesterov == optim.nesterov && u.eps == optim.eps);
        assert_true(values.correction1 == 1 - pow(optim.beta1, 3));
        assert_true(values.correction2_sqrt == sqrt(1 - pow(optim.beta2, 3)));
        assert_true(u.n == 7 && u.values == &values && values.gradient_scale == 1);
    }
}
