/* SPDX-License-Identifier: Apache-2.0 */
/* lr_schedule.c -- computes learning-rate schedules: the factor by which update t multiplies the
 * optimizer's lr. In the drawings, w is `warmup`:
 *
 *     1 |    ..........        |    ....              |    ....
 *       |   /   constant       |   /    '.   cosine   |   /    |    step
 *       |  /                   |  /       '.          |  /     '....
 *       | /          min_ratio | /          '......   | /           |
 *       |/                     |/                     |/            '....
 *       +---w----------> t     +---w-------steps--->  +---w----+----+---->
 *                                                          step_size
 *
 * The factor of a warm-up may start above 0, and may rise only every warmup_interval updates, for
 * example once per epoch. With milestones, the factor drops at given updates. Source: Loshchilov
 * and Hutter 2017, arXiv:1608.03983 (cosine). */
#include "optim/optim.h"

#include "base/base.h"

#include <math.h>

static const char *const kinds[] = {
    [CGP_LR_CONSTANT] = "constant",
    [CGP_LR_COSINE] = "cosine",
    [CGP_LR_STEP] = "step",
    [CGP_LR_MILESTONES] = "milestones",
};
#define KINDS (int)(sizeof kinds / sizeof *kinds)

cgp_status cgp_lr_kind_parse(cgp_lr_kind *out, const char *text) {
    CGP__NEED(out);
    CGP__NEED(text);
    int i = 0;
    CGP_TRY(cgp__parse_name(&i, text, "lr schedule", "constant, cosine, step or milestones", kinds,
                            KINDS));
    *out = (cgp_lr_kind)i;
    return CGP_OK;
}

const char *cgp_lr_kind_name(cgp_lr_kind kind) {
    return (int)kind >= 0 && (int)kind < KINDS ? kinds[kind] : "?";
}

static cgp_status check_count(const char *name, int64_t value, int64_t min) {
    if (value >= min) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "lr schedule: %s is expected to be %lld or more, got %lld", name,
                    (long long)min, (long long)value);
}

static cgp_status check_ratio(const char *name, double value) {
    if (value >= 0 && value <= 1) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "lr schedule: %s is expected in [0, 1], got %g", name, value);
}

static cgp_status check_cosine(const cgp_lr_schedule *schedule) {
    if (schedule->steps > schedule->warmup) return check_ratio("min_ratio", schedule->min_ratio);
    return cgp_fail(CGP_EINVAL, "lr schedule: steps is expected above the warm-up's %lld, got %lld",
                    (long long)schedule->warmup, (long long)schedule->steps);
}

static cgp_status check_gamma(const cgp_lr_schedule *schedule) {
    if (schedule->gamma > 0 && schedule->gamma <= 1) return CGP_OK; /* above 1, the rate diverges */
    return cgp_fail(CGP_EINVAL, "lr schedule: gamma is expected in (0, 1], got %g",
                    schedule->gamma);
}

static cgp_status check_milestones(const cgp_lr_schedule *schedule) {
    const int n = schedule->n_milestones;
    if (n < 0 || n > CGP_MAX_MILESTONES)
        return cgp_fail(CGP_EINVAL, "lr schedule: expected 0 to %d milestones, got %d",
                        CGP_MAX_MILESTONES, n);
    for (int i = 0; i < n; i++) {
        const int64_t before = i > 0 ? schedule->milestones[i - 1] : 0;
        if (schedule->milestones[i] <= before)
            return cgp_fail(CGP_EINVAL,
                            "lr schedule: milestones are expected to rise from 1 on, got %lld "
                            "after %lld",
                            (long long)schedule->milestones[i], (long long)before);
    }
    return check_gamma(schedule);
}

cgp_status cgp__lr_check(const cgp_lr_schedule *schedule) {
    if ((int)schedule->kind < 0 || (int)schedule->kind >= KINDS)
        return cgp_fail(CGP_EINVAL,
                        "lr schedule: unknown kind %d (constant, cosine, step, milestones)",
                        (int)schedule->kind);
    CGP_TRY(check_count("warmup", schedule->warmup, 0));
    CGP_TRY(check_count("warmup_interval", schedule->warmup_interval, 0));
    CGP_TRY(check_ratio("start", schedule->start));
    if (isnan(schedule->min_ratio) || isnan(schedule->gamma))
        return cgp_fail(CGP_EINVAL, "lr schedule: %s is expected to be a number, got nan",
                        isnan(schedule->min_ratio) ? "min_ratio" : "gamma");
    if (schedule->kind == CGP_LR_COSINE) return check_cosine(schedule);
    if (schedule->kind == CGP_LR_CONSTANT) return CGP_OK;
    if (schedule->kind == CGP_LR_MILESTONES) return check_milestones(schedule);
    CGP_TRY(check_count("step_size", schedule->step_size, 1));
    return check_gamma(schedule);
}

static double warmup_at(const cgp_lr_schedule *schedule, int64_t update) {
    if (schedule->warmup_interval > 0) update -= (update - 1) % schedule->warmup_interval + 1;
    return schedule->start + (1 - schedule->start) * ((double)update / (double)schedule->warmup);
}

double cgp__lr_factor(const cgp_lr_schedule *schedule, int64_t update) {
    /* If warmup_interval > 0, update number `warmup` still belongs to the warm-up. */
    const bool in_steps = schedule->warmup_interval > 0;
    if (schedule->warmup > 0 && (in_steps ? update <= schedule->warmup : update < schedule->warmup))
        return warmup_at(schedule, update);
    if (schedule->kind == CGP_LR_MILESTONES) {
        int passed = 0;
        while (passed < schedule->n_milestones && update > schedule->milestones[passed])
            passed++;
        return pow(schedule->gamma, passed);
    }
    const int64_t s = update - schedule->warmup;
    if (schedule->kind == CGP_LR_STEP) {
        const int64_t cuts = s / schedule->step_size;
        return pow(schedule->gamma, (double)cuts);
    }
    if (schedule->kind == CGP_LR_CONSTANT) return 1;
    const double fraction = (double)s / (double)(schedule->steps - schedule->warmup);
    const double wave = (1 + cos(acos(-1) * fmin(1, fraction))) / 2;
    return schedule->min_ratio + (1 - schedule->min_ratio) * wave;
}

double cgp_optim_lr_at(const cgp_optim *optim, int64_t update) {
    CGP__NEED_OR(optim, NAN);
    return optim->lr * cgp__lr_factor(&optim->schedule, update);
}
