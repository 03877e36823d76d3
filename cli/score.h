/* SPDX-License-Identifier: Apache-2.0 */
/* score.h -- how often a model is right on the validation split. */
#ifndef CGPIPE_CLI_SCORE_H
#define CGPIPE_CLI_SCORE_H

#include <cgpipe/cgpipe.h>

#include <jansson.h>
#include <stdio.h>

/* Means over the validation split; NaN: not known, not of this kind of model, or indeed no number. */
typedef struct cli_scores {
    int64_t samples; /* 0: there was no validation */
    double loss;
    double top1, top5; /* shares, of labelled images */
    double iou;        /* of masks */
} cli_scores;

extern const cli_scores cli_no_scores;

/* What is counted while batches are evaluated. */
typedef struct cli_tally {
    int64_t samples;
    double loss; /* sum over samples */
    cgp_hits hits;
    cgp_overlap overlap;
} cli_tally;

/* Tell whether predictions say more than the loss: the output is logits [classes] and the target
 * labels [1], or the output is logits of a mask, of the target's shape. */
bool cli_scored(const cgp_model *model);

/* Add a batch of `count` samples: predictions and targets as the model has them. */
void cli_tally_add(cli_tally *tally, const cgp_model *model, const float *output,
                   const void *targets, int64_t count);

cli_scores cli_tally_scores(const cli_tally *tally);

/* "  val 0.1234  top-1 95.2 %"; "" if there was no validation. */
void cli_scores_text(const cli_scores *scores, char *text, size_t size);

/* Add validation_loss (null where it is not finite), top1, top5, iou, as far as they are known. */
void cli_scores_json(json_t *object, const cli_scores *scores);

#endif
