/* SPDX-License-Identifier: Apache-2.0 */
/* eval_metrics.c -- see eval_metrics.h. */
#include "session/eval_metrics.h"

#include "json_value.h"
#include "session/model.h"
#include "text.h"

#include <math.h>
#include <string.h>

const cli_eval_metrics cli_no_eval_metrics = {0, NAN, NAN, NAN, NAN};

/* --- kinds of models --- */

typedef enum eval_kind { NONE, LABELS, MASKS } eval_kind;

static eval_kind kind_of(const cgp_model *model) {
    const int logits = cli_model_logits(model);
    if (cgp_model_inputs(model) != 2 || cgp_model_output_dtype(model, logits) != CGP_F32)
        return NONE;
    const cgp_shape output = cgp_model_output_shape(model, logits);
    const cgp_shape target = cgp_model_input_shape(model, 1);
    const cgp_dtype dtype = cgp_model_input_dtype(model, 1);
    if (dtype == CGP_I32 && output.rank == 1 && cgp_shape_count(&target) == 1) return LABELS;
    return dtype == CGP_F32 && cgp_shape_equal(&output, &target) ? MASKS : NONE;
}

bool cli_has_eval_metrics(const cgp_model *model) {
    return kind_of(model) != NONE;
}

/* --- sums --- */

void cli_eval_sums_add(cli_eval_sums *sums, const cgp_model *model, const float *output,
                       const void *targets, int64_t count) {
    const cgp_shape shape = cgp_model_output_shape(model, cli_model_logits(model));
    const int64_t each = cgp_shape_count(&shape);
    if (kind_of(model) == LABELS)
        cgp_topk_add(&sums->topk, output, targets, count, each);
    else
        cgp_iou_add(&sums->iou, output, targets, count * each);
}

/* Return the loss per target, summed over all mini-batches. A mean of mini-batch means would be
 * wrong, because mini-batches differ in how many targets are ignored. */
static double loss_of(const cgp_loss_part *parts) {
    double loss = 0;
    for (const cgp_loss_part *p = parts; p->weight > 0; p++)
        loss += p->weight * p->sum / p->divisor;
    return loss;
}

cli_eval_metrics cli_eval_metrics_of(const cli_eval_sums *sums, const cgp_loss_part *parts) {
    cli_eval_metrics metrics = cli_no_eval_metrics;
    const double labelled = (double)sums->topk.samples;
    metrics.samples = sums->samples;
    if (sums->samples > 0) metrics.loss = loss_of(parts);
    if (sums->topk.samples > 0) {
        metrics.top1 = (double)sums->topk.top1 / labelled;
        metrics.top5 = (double)sums->topk.top5 / labelled;
    }
    if (sums->iou.either > 0) metrics.iou = cgp_iou_value(&sums->iou);
    return metrics;
}

/* --- output --- */

void cli_eval_metrics_text(const cli_eval_metrics *metrics, char *text, size_t size) {
    *text = '\0';
    if (metrics->samples == 0) return;
    snprintf(text, size, "  val %.4f", cli_plain(metrics->loss));
    const size_t used = strlen(text);
    if (!isnan(metrics->top1))
        snprintf(text + used, size - used, "  top-1 %.1f %%", 100 * metrics->top1);
    if (!isnan(metrics->iou)) snprintf(text + used, size - used, "  IoU %.3f", metrics->iou);
}

void cli_eval_metrics_json(json_t *object, const cli_eval_metrics *metrics) {
    if (metrics->samples == 0) return;
    json_object_set_new(object, "validation_loss", cli_real_json(metrics->loss));
    if (!isnan(metrics->top1))
        cli_json_add(object, "{s:f, s:f}", "top1", metrics->top1, "top5", metrics->top5);
    if (!isnan(metrics->iou)) json_object_set_new(object, "iou", cli_real_json(metrics->iou));
}
