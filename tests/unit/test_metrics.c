/* SPDX-License-Identifier: Apache-2.0 */
/* test_metrics.c -- compares top-1, top-5 and the IoU of masks with counts by hand. */
#include "support.h"

#include <cgpipe/images.h>

TEST_CASE(a_label_counts_if_it_is_among_the_largest) {
    static const float logits[4][7] = {{9, 8, 7, 6, 5, 4, 3},
                                       {9, 8, 7, 6, 5, 4, 3},
                                       {9, 8, 7, 6, 5, 4, 3},
                                       {-1, -2, -3, -4, -5, -6, 0}};
    const int32_t labels[4] = {0 /* first */, 4 /* fifth */, 5 /* sixth */, 6 /* first */};
    cgp_topk topk = {0};
    cgp_topk_add(&topk, logits[0], labels, 3, 7);
    assert_int_equal(topk.samples, 3);
    assert_int_equal(topk.top1, 1);
    assert_int_equal(topk.top5, 2);
    cgp_topk_add(&topk, logits[3], labels + 3, 1, 7); /* adds to the counts */
    assert_int_equal(topk.samples, 4);
    assert_int_equal(topk.top1, 2);
    assert_int_equal(topk.top5, 3);
}

TEST_CASE(of_equal_logits_the_lower_class_comes_first) {
    static const float same[7] = {1, 1, 1, 1, 1, 1, 1};
    for (int32_t label = 0; label < 7; label++) {
        cgp_topk topk = {0};
        cgp_topk_add(&topk, same, &label, 1, 7);
        assert_int_equal(topk.top1, label < 1);
        assert_int_equal(topk.top5, label < 5);
    }
}

TEST_CASE(a_nan_never_counts_and_comes_first) {
    const float logits[3] = {NAN, 2, 1}, few[3] = {NAN, NAN, NAN};
    for (int32_t label = 0; label < 3; label++) {
        cgp_topk topk = {0};
        cgp_topk_add(&topk, logits, &label, 1, 3);
        assert_int_equal(topk.top1, 0); /* NaN ranks first, but is never right */
        assert_int_equal(topk.top5, label > 0);
        cgp_topk_add(&topk, few, &label, 1, 3);
        assert_int_equal(topk.top1, 0);
        assert_int_equal(topk.samples, 2);
    }
}

TEST_CASE(ignored_labels_are_not_samples) {
    static const float logits[3][2] = {{1, 0}, {1, 0}, {1, 0}};
    const int32_t labels[3] = {-100, 2, 0};
    cgp_topk topk = {0};
    cgp_topk_add(&topk, logits[0], labels, 3, 2);
    assert_int_equal(topk.samples, 1);
    assert_int_equal(topk.top1, 1);
    assert_int_equal(topk.top5, 1); /* two classes: both are in the top 5 */
}

/* Compare the ranks of random logits with their positions in a sorted list. */
TEST_CASE(ranks_are_those_of_a_sorted_list) {
    uint64_t random = test_seed();
    for (int round = 0; round < 500; round++) {
        float logits[12];
        const int classes = test_between(&random, 1, 12);
        for (int k = 0; k < classes; k++)
            logits[k] = (float)test_between(&random, 0, 6);
        bool taken[12] = {false};
        for (int place = 0; place < classes; place++) {
            int32_t best = -1;
            for (int k = 0; k < classes; k++)
                if (!taken[k] && (best < 0 || logits[k] > logits[best])) best = k;
            taken[best] = true;
            cgp_topk topk = {0};
            cgp_topk_add(&topk, logits, &best, 1, classes);
            assert_int_equal(topk.top1, place < 1);
            assert_int_equal(topk.top5, place < 5);
        }
    }
}

TEST_CASE(iou_is_the_fraction_of_pixels_in_both_masks) {
    const float logits[8] = {3, 0.1f, 0, -1, 2, NAN, 5, -9};
    const float masks[8] = {1, 1, 1, 1, 0, 1, 0.5f, 0};
    /* pixels in the predicted mask: 0 1 4 6; in the true mask: 0 1 2 3 5; in both: 0 1; in either:
     * 0 to 6 */
    cgp_iou iou = {0};
    assert_true(cgp_iou_value(&iou) == 1); /* both masks empty */
    cgp_iou_add(&iou, logits, masks, 4);
    cgp_iou_add(&iou, logits + 4, masks + 4, 4);
    assert_int_equal(iou.both, 2);
    assert_int_equal(iou.either, 7);
    assert_true(cgp_iou_value(&iou) == 2.0 / 7);
}
