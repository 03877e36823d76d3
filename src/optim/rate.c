/* SPDX-License-Identifier: Apache-2.0 */
/* rate.c -- the learning rate over the updates, as a factor of the optimizer's. With w = warmup,
 * from update w on:
 *
 *     1 |    ..........        |    ....              |    ....
 *       |   /   constant       |   /    '.   cosine   |   /    |    step
 *       |  /                   |  /       '.          |  /     '....
 *       | /              least | /          '......   | /           |
 *       |/                     |/                     |/            '....
 *       +---w----------> t     +---w-------steps--->  +---w----+----+---->
 *                                                          interval
 *
 * A warm-up may begin above 0 and rise in stairs, say one an epoch; milestones are steps at given updates. */
#include "optim/optim.h"

#include "base/base.h"

#include <math.h>

static const char *const kinds[] = {
    [CGP_RATE_CONSTANT] = "constant",
    [CGP_RATE_COSINE] = "cosine",
    [CGP_RATE_STEP] = "step",
    [CGP_RATE_MILESTONES] = "milestones",
};
#define KINDS (int)(sizeof kinds / sizeof *kinds)

cgp_status cgp_rate_kind_parse(cgp_rate_kind *out, const char *text) {
    CGP__NEED(out);
    CGP__NEED(text);
    int i = 0;
    CGP_TRY(cgp__parse_name(&i, text, "rate schedule", "constant, cosine, step or milestones",
                            kinds, KINDS));
    *out = (cgp_rate_kind)i;
    return CGP_OK;
}

const char *cgp_rate_kind_name(cgp_rate_kind kind) {
    return (int)kind >= 0 && (int)kind < KINDS ? kinds[kind] : "?";
}

static cgp_status check_cosine(const cgp_rate_schedule *schedule) {
    if (schedule->steps <= schedule->warmup)
        return cgp_fail(CGP_EINVAL,
                        "rate schedule: steps is expected above the warm-up's %lld, got %lld",
                        (long long)schedule->warmup, (long long)schedule->steps);
    if (schedule->least >= 0 && schedule->least <= 1) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "rate schedule: least is expected in [0, 1], got %g",
                    schedule->least);
}

static cgp_status check_factor(const cgp_rate_schedule *schedule) {
    if (schedule->factor > 0 && schedule->factor <= 1) return CGP_OK; /* above 1: to infinity */
    return cgp_fail(CGP_EINVAL, "rate schedule: factor is expected in (0, 1], got %g",
                    schedule->factor);
}

static cgp_status check_step(const cgp_rate_schedule *schedule) {
    if (schedule->interval >= 1) return check_factor(schedule);
    return cgp_fail(CGP_EINVAL, "rate schedule: interval is expected to be 1 or more, got %lld",
                    (long long)schedule->interval);
}

static cgp_status check_milestones(const cgp_rate_schedule *schedule) {
    const int n = schedule->n_milestones;
    if (n < 0 || n > CGP_MAX_MILESTONES)
        return cgp_fail(CGP_EINVAL, "rate schedule: expected 0 to %d milestones, got %d",
                        CGP_MAX_MILESTONES, n);
    for (int i = 0; i < n; i++) {
        const int64_t before = i > 0 ? schedule->milestones[i - 1] : 0;
        if (schedule->milestones[i] <= before)
            return cgp_fail(
                CGP_EINVAL,
                "rate schedule: milestones are expected to rise from 1 on, got %lld "
                "after %lld",
                (long long)schedule->milestones[i], (long long)before);
    }
    return check_factor(schedule);
}

static cgp_status check_warmup(const cgp_rate_schedule *schedule) {
    if (schedule->warmup < 0)
        return cgp_fail(CGP_EINVAL,
                        "rate schedule: warmup is expected to be 0 or more, got %lld",
                        (long long)schedule->warmup);
    if (schedule->stairs < 0)
        return cgp_fail(CGP_EINVAL,
                        "rate schedule: stairs is expected to be 0 or more, got %lld",
                        (long long)schedule->stairs);
    if (schedule->start >= 0 && schedule->start <= 1) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "rate schedule: start is expected in [0, 1], got %g",
                    schedule->start);
}

cgp_status cgp__rate_check(const cgp_rate_schedule *schedule) {
    if ((int)schedule->kind < 0 || (int)schedule->kind >= KINDS)
        return cgp_fail(CGP_EINVAL,
                        "rate schedule: unknown kind %d (constant, cosine, step, milestones)",
                        (int)schedule->kind);
    CGP_TRY(check_warmup(schedule));
    if (isnan(schedule->least) || isnan(schedule->factor))
        return cgp_fail(CGP_EINVAL, "rate schedule: %s is expected to be a number, got nan",
                        isnan(schedule->least) ? "least" : "factor");
    if (schedule->kind == CGP_RATE_COSINE) return check_cosine(schedule);
    if (schedule->kind == CGP_RATE_STEP) return check_step(schedule);
    if (schedule->kind == CGP_RATE_MILESTONES) return check_milestones(schedule);
    return CGP_OK;
}

static double warmup_at(const cgp_rate_schedule *schedule, int64_t update) {
    if (schedule->stairs > 0) update -= (update - 1) % schedule->stairs + 1;
    return schedule->start +
           (1 - schedule->start) * ((double)update / (double)schedule->warmup);
}

static double factor_at(const cgp_rate_schedule *schedule, int64_t update) {
    const bool stairs =
        schedule->stairs > 0; /* then the last update of the warm-up is on one */
    if (schedule->warmup > 0 &&
        (stairs ? update <= schedule->warmup : update < schedule->warmup))
        return warmup_at(schedule, update);
    if (schedule->kind == CGP_RATE_MILESTONES) {
        int passed = 0;
        while (passed < schedule->n_milestones && update > schedule->milestones[passed])
            passed++;
        return pow(schedule->factor, passed);
    }
    const int64_t s = update - schedule->warmup;
    if (schedule->kind == CGP_RATE_STEP)
        return pow(schedule->factor, (double)(s / schedule->interval));
    if (schedule->kind == CGP_RATE_CONSTANT) return 1;
    const double share = (double)s / (double)(schedule->steps - schedule->warmup);
    const double wave = (1 + cos(acos(-1) * fmin(1, share))) / 2;
    return schedule->least + (1 - schedule->least) * wave;
}

double cgp_optim_rate_at(const cgp_optim *optim, int64_t update) {
    CGP__NEED_OR(optim, NAN);
    return optim->rate * factor_at(&optim->schedule, update);
}
