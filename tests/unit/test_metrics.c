/* SPDX-License-Identifier: Apache-2.0 */
/* test_metrics.c -- top-1, top-5 and the overlap of masks, counted by hand. */
#include "support.h"

#include <cgpipe/images.h>

static void a_label_is_a_hit_where_it_stands_among_the_largest(void **state) {
    (void)state;
    static const float logits[4][7] = {{9, 8, 7, 6, 5, 4, 3},
                                       {9, 8, 7, 6, 5, 4, 3},
                                       {9, 8, 7, 6, 5, 4, 3},
                                       {-1, -2, -3, -4, -5, -6, 0}};
    const int32_t labels[4] = {0 /* first */, 4 /* fifth */, 5 /* sixth */, 6 /* first */};
    cgp_topk hits = {0};
    cgp_topk_add(&hits, logits[0], labels, 3, 7);
    assert_int_equal(hits.samples, 3);
    assert_int_equal(hits.top1, 1);
    assert_int_equal(hits.top5, 2);
    cgp_topk_add(&hits, logits[3], labels + 3, 1, 7); /* adds */
    assert_int_equal(hits.samples, 4);
    assert_int_equal(hits.top1, 2);
    assert_int_equal(hits.top5, 3);
}

static void of_equal_logits_the_lower_class_comes_first(void **state) {
    (void)state;
    static const float same[7] = {1, 1, 1, 1, 1, 1, 1};
    for (int32_t label = 0; label < 7; label++) {
        cgp_topk hits = {0};
        cgp_topk_add(&hits, same, &label, 1, 7);
        assert_int_equal(hits.top1, label < 1);
        assert_int_equal(hits.top5, label < 5);
    }
}

static void what_is_no_number_is_no_hit_and_takes_a_place(void **state) {
    (void)state;
    const float logits[3] = {NAN, 2, 1}, few[3] = {NAN, NAN, NAN};
    for (int32_t label = 0; label < 3; label++) {
        cgp_topk hits = {0};
        cgp_topk_add(&hits, logits, &label, 1, 3);
        assert_int_equal(hits.top1, 0); /* the NaN is first, and never right */
        assert_int_equal(hits.top5, label > 0);
        cgp_topk_add(&hits, few, &label, 1, 3);
        assert_int_equal(hits.top1, 0);
        assert_int_equal(hits.samples, 2);
    }
}

static void labels_that_do_not_count_are_no_samples(void **state) {
    (void)state;
    static const float logits[3][2] = {{1, 0}, {1, 0}, {1, 0}};
    const int32_t labels[3] = {-100, 2, 0};
    cgp_topk hits = {0};
    cgp_topk_add(&hits, logits[0], labels, 3, 2);
    assert_int_equal(hits.samples, 1);
    assert_int_equal(hits.top1, 1);
    assert_int_equal(hits.top5, 1); /* fewer than five classes */
}

/* Any order of any logits: the place by sorting is the place by counting. */
static void places_are_those_of_a_sorted_list(void **state) {
    (void)state;
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
            cgp_topk hits = {0};
            cgp_topk_add(&hits, logits, &best, 1, classes);
            assert_int_equal(hits.top1, place < 1);
            assert_int_equal(hits.top5, place < 5);
        }
    }
}

static void overlap_is_the_share_of_pixels_in_both_masks(void **state) {
    (void)state;
    const float logits[8] = {3, 0.1f, 0, -1, 2, NAN, 5, -9};
    const float masks[8] = {1, 1, 1, 1, 0, 1, 0.5f, 0};
    /* predicted: 0 1 4 6; true: 0 1 2 3 5; both: 0 1; either: 0 1 2 3 4 5 6 */
    cgp_iou overlap = {0};
    assert_true(cgp_iou_value(&overlap) == 1); /* nothing seen: nothing wrong */
    cgp_iou_add(&overlap, logits, masks, 4);
    cgp_iou_add(&overlap, logits + 4, masks + 4, 4);
    assert_int_equal(overlap.both, 2);
    assert_int_equal(overlap.either, 7);
    assert_true(cgp_iou_value(&overlap) == 2.0 / 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_label_is_a_hit_where_it_stands_among_the_largest),
        cmocka_unit_test(of_equal_logits_the_lower_class_comes_first),
        cmocka_unit_test(what_is_no_number_is_no_hit_and_takes_a_place),
        cmocka_unit_test(labels_that_do_not_count_are_no_samples),
        cmocka_unit_test(places_are_those_of_a_sorted_list),
        cmocka_unit_test(overlap_is_the_share_of_pixels_in_both_masks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
