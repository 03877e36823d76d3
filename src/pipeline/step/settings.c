/* SPDX-License-Identifier: Apache-2.0 */
/* settings.c -- compares what a program sets on each rank alone: such calls have no exchange of
 * their own. Each rank sends its settings in the exchange before a training step (inputs.c). If
 * they differ, the parameters of the ranks would come apart without an error. */
#include "pipeline/step/settings.h"

#include "model/model.h"
#include "pipeline/pipeline.h"
#include "pipeline/step/step.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The words of a rank's settings; TARGETS: [losses]. */
enum { ACCUMULATION, WAITING, UPDATES, SEED, STEPS, LR, TARGETS };

static const struct {
    const char *name, *call;
} known[] = {
    [ACCUMULATION] = {"accumulation", "cgp_pipeline_set_accumulation"},
    [WAITING] = {"gradients that wait", "cgp_optim_step or cgp_pipeline_zero_grad"},
    [UPDATES] = {"updates", "cgp_optim_step or cgp_pipeline_set_updates"},
    [SEED] = {"dropout seed", "cgp_pipeline_set_seed"},
    [STEPS] = {"steps of dropout", "cgp_pipeline_set_seed"},
    [LR] = {"learning rate", "cgp_pipeline_set_lr"},
    [TARGETS] = {"targets", "cgp_pipeline_set_targets"},
};

int cgp__settings_words(const cgp_model *model) {
    return TARGETS + model->n_losses;
}

void cgp__settings_write(const cgp_pipeline *pipeline, int64_t *words) {
    const cgp__step *step = pipeline->step;
    const double lr = isnan(step->lr) ? -1 : fabs(step->lr); /* one number for 0 and -0 */
    words[ACCUMULATION] = step->accumulation.on;
    words[WAITING] = step->shared->update_due;
    words[UPDATES] = step->shared->updates;
    words[SEED] = (int64_t)step->seed;
    words[STEPS] = step->steps;
    memcpy(&words[LR], &lr, sizeof lr);
    for (int l = 0; l < pipeline->model->n_losses; l++)
        words[TARGETS + l] = step->accumulation.targets[l];
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
        snprintf(text, size, "%s", k == LR ? "the optimizer's" : "their count");
    else
        snprintf(text, size, "%" PRId64, word);
}

cgp_status cgp__settings_compare(const cgp_model *model, int rank, const int64_t *words,
                                 const int64_t *of_rank_0) {
    char got[64], expected[64];
    for (int i = 0; i < cgp__settings_words(model); i++) {
        if (words[i] == of_rank_0[i]) continue;
        const int k = i < TARGETS ? i : TARGETS;
        describe(got, sizeof got, k, words[i]);
        describe(expected, sizeof expected, k, of_rank_0[i]);
        return cgp_fail(CGP_EINVAL,
                        "%s: expected the same on all ranks, got %s on rank %d, %s on rank 0 "
                        "(call %s on all)",
                        known[k].name, got, rank, expected, known[k].call);
    }
    return CGP_OK;
}
