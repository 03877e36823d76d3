/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.c -- computes top-1 and top-5 accuracy, and intersection over union. */
#include <cgpipe/images.h>

#include "base/base.h"

#include <math.h>

/* Return the number of classes that rank before the label. */
static int64_t rank_of(const float *logits, int32_t label, int64_t classes) {
    const float logit = logits[label];
    int64_t before = 0;
    if (isnan(logit)) return classes;
    for (int64_t k = 0; k < classes; k++)
        /* If a logit is NaN, the comparison is false, and the class ranks before the label. */
        before += k < label ? !(logits[k] < logit) : !(logits[k] <= logit);
    return before;
}

void cgp_topk_add(cgp_topk *topk, const float *logits, const int32_t *labels, int64_t n,
                  int64_t classes) {
    CGP__NEED_OR(topk, );
    if (n > 0) CGP__NEED_OR(logits, );
    if (n > 0) CGP__NEED_OR(labels, );
    for (int64_t i = 0; i < n; i++) {
        if (labels[i] < 0 || labels[i] >= classes) continue;
        const int64_t before = rank_of(logits + i * classes, labels[i], classes);
        topk->samples++;
        topk->top1 += before < 1;
        topk->top5 += before < 5 && before < classes;
    }
}

void cgp_iou_add(cgp_iou *iou, const float *logits, const float *masks, int64_t n) {
    CGP__NEED_OR(iou, );
    if (n > 0) CGP__NEED_OR(logits, );
    if (n > 0) CGP__NEED_OR(masks, );
    for (int64_t i = 0; i < n; i++) {
        const bool predicted = logits[i] > 0, there = masks[i] > 0.5f;
        iou->both += predicted && there;
        iou->either += predicted || there;
    }
}

double cgp_iou_value(const cgp_iou *iou) {
    CGP__NEED_OR(iou, NAN);
    return iou->either > 0 ? (double)iou->both / (double)iou->either : 1;
}
