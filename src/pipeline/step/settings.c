/* SPDX-License-Identifier: Apache-2.0 */
/* settings.c -- checks that all ranks have the same settings. A program calls functions on each
 * rank to change the settings, and these functions do not communicate. Instead, each rank sends its
 * settings in the exchange before a training step (inputs.c). Without this check, different
 * settings would silently make the ranks' parameters diverge. */
#include "pipeline/step/settings.h"

#include "model/model.h"
#include "pipeline/pipeline.h"
#include "pipeline/step/step.h"
#include "plan/setup.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The kinds of words in a rank's settings. There is one word of each kind, except that LR has [1 +
 * groups] words and TARGETS has [losses] words. */
enum { ACCUMULATION, WAITING, UPDATES, SEED, STEPS, LR, TARGETS };

static const struct {
    const char *name, *call;
} known[] = {
    [ACCUMULATION] = {"accumulation", "cgp_pipeline_set_accumulation"},
    [WAITING] = {"gradients that wait", "cgp_optim_step or cgp_pipeline_zero_grad"},
    [UPDATES] = {"updates", "cgp_optim_step or cgp_pipeline_set_updates"},
    [SEED] = {"dropout seed", "cgp_pipeline_set_seed"},
    [STEPS] = {"steps of dropout", "cgp_pipeline_set_seed"},
    [LR] = {"learning rate", "cgp_pipeline_set_lr or cgp_pipeline_set_group_lr"},
    [TARGETS] = {"targets", "cgp_pipeline_set_targets"},
};

int cgp__settings_words(const cgp__setup *setup) {
    return TARGETS + setup->groups.n + setup->model->n_losses;
}

void cgp__settings_write(const cgp_pipeline *pipeline, int64_t *words) {
    const cgp__step *step = pipeline->step;
    const int n_groups = pipeline->setup->groups.n;
    words[ACCUMULATION] = step->accumulation.on;
    words[WAITING] = step->shared->update_due;
    words[UPDATES] = step->shared->updates;
    words[SEED] = (int64_t)step->seed;
    words[STEPS] = step->steps;
    for (int g = 0; g <= n_groups; g++) {
        /* fabs() gives 0 and -0 the same word. */
        const double lr = isnan(step->lr[g]) ? -1 : fabs(step->lr[g]);
        memcpy(&words[LR + g], &lr, sizeof lr);
    }
    for (int l = 0; l < pipeline->model->n_losses; l++)
        words[TARGETS + n_groups + l] = step->accumulation.targets[l];
}

static void describe(char *text, size_t size, int k, int64_t word) {
    double lr = 0;
    memcpy(&lr, &word, sizeof lr);
    if (k == ACCUMULATION)
        snprintf(text, size, "%s", word ? "on" : "off");
    else if (k == WAITING)
        snprintf(text, size, "%s", word ? "some" : "none");
    else if (k == SEED)
        snprintf(text, size, "%" PRIu64, (uint64_t)word);
    else if (k == LR && lr >= 0)
        snprintf(text, size, "%.15g", lr);
    else if (k == LR || (k == TARGETS && word == 0))
        snprintf(text, size, "%s", k == LR ? "the plan's" : "their count");
    else
        snprintf(text, size, "%" PRId64, word);
}

cgp_status cgp__settings_compare(const cgp__setup *setup, int rank, const int64_t *words,
                                 const int64_t *of_rank_0) {
    char got[64], expected[64];
    const int end = LR + 1 + setup->groups.n; /* index of the first word after the learning rates */
    for (int i = 0; i < cgp__settings_words(setup); i++) {
        if (words[i] == of_rank_0[i]) continue;
        const int k = i < LR ? i : i < end ? LR : TARGETS;
        describe(got, sizeof got, k, words[i]);
        describe(expected, sizeof expected, k, of_rank_0[i]);
        return cgp_fail(CGP_EINVAL,
                        "%s: expected the same on all ranks, got %s on rank %d, %s on rank 0 "
                        "(call %s on all)",
                        known[k].name, got, rank, expected, known[k].call);
    }
    return CGP_OK;
}
