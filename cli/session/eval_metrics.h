/* SPDX-License-Identifier: Apache-2.0 */
/* eval_metrics.h -- loss, top-k accuracy and IoU on the validation split. */
#ifndef CGPIPE_CLI_EVAL_METRICS_H
#define CGPIPE_CLI_EVAL_METRICS_H

#include <cgpipe/cgpipe.h>
#include <cgpipe/images.h>

#include <jansson.h>

/* Means over the validation split. NaN: the value is unknown, not defined for this kind of model,
 * or not finite. */
typedef struct cli_eval_metrics {
    int64_t samples; /* number of samples; 0: there was no validation */
    double loss;
    /* Fraction of labelled images whose label is the likeliest class, or among the 5 likeliest. */
    double top1, top5;
    double iou; /* intersection over union of the masks */
} cli_eval_metrics;

extern const cli_eval_metrics cli_no_eval_metrics;

/* Sums over the mini-batches evaluated so far. */
typedef struct cli_eval_sums {
    int64_t samples;
    cgp_topk topk;
    cgp_iou iou;
} cli_eval_sums;

/* Tell whether a model has metrics in addition to the loss. Two kinds of models have: models with
 * logits [classes] (cli_model_logits) and labels [1], and models whose logits and targets are masks
 * of the same shape. */
bool cli_has_eval_metrics(const cgp_model *model);

/* Add a batch of `count` samples: the model's logits and targets. */
void cli_eval_sums_add(cli_eval_sums *sums, const cgp_model *model, const float *output,
                       const void *targets, int64_t count);

/* Return the means. `parts` has the sums of the model's losses; its last entry has weight 0. */
cli_eval_metrics cli_eval_metrics_of(const cli_eval_sums *sums, const cgp_loss_part *parts);

/* Write "  val 0.1234  top-1 95.2 %"; "" if there was no validation. */
void cli_eval_metrics_text(const cli_eval_metrics *metrics, char *text, size_t size);

/* Add validation_loss (null where it is not finite), and top1, top5, iou if known. */
void cli_eval_metrics_json(json_t *object, const cli_eval_metrics *metrics);

#endif
