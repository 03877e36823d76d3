/* SPDX-License-Identifier: Apache-2.0 */
/* score.c -- how often a model is right: top-1, top-5, intersection over union. */
#include <cgpipe/images.h>

#include "base/base.h"

#include <math.h>

/* How many classes come before the label's. */
static int64_t rank_of(const float *logits, int32_t label, int64_t classes) {
    const float own = logits[label];
    int64_t before = 0;
    if (isnan(own)) return classes;
    for (int64_t k = 0; k < classes; k++)
        before += k < label ? !(logits[k] < own) : !(logits[k] <= own); /* NaN: comes before */
    return before;
}

void cgp_topk_add(cgp_topk *hits, const float *logits, const int32_t *labels, int64_t n,
                  int64_t classes) {
    CGP__NEED_OR(hits, );
    if (n > 0) CGP__NEED_OR(logits, );
    if (n > 0) CGP__NEED_OR(labels, );
    for (int64_t i = 0; i < n; i++) {
        if (labels[i] < 0 || labels[i] >= classes) continue;
        const int64_t before = rank_of(logits + i * classes, labels[i], classes);
        hits->samples++;
        hits->top1 += before < 1;
        hits->top5 += before < 5 && before < classes;
    }
}

void cgp_iou_add(cgp_iou *overlap, const float *logits, const float *masks, int64_t n) {
    CGP__NEED_OR(overlap, );
    if (n > 0) CGP__NEED_OR(logits, );
    if (n > 0) CGP__NEED_OR(masks, );
    for (int64_t i = 0; i < n; i++) {
        const bool predicted = logits[i] > 0, there = masks[i] > 0.5f;
        overlap->both += predicted && there;
        overlap->either += predicted || there;
    }
}

double cgp_iou_value(const cgp_iou *overlap) {
    CGP__NEED_OR(overlap, NAN);
    return overlap->either > 0 ? (double)overlap->both / (double)overlap->either : 1;
}
