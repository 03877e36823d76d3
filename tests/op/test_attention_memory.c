/* SPDX-License-Identifier: Apache-2.0 */
/* test_attention_memory.c -- tiled attention never stores the T x T probabilities. Its workspace
 * grows linearly in T, and stays far below the T x T floats of one head. With a window, the
 * workspace does not grow with T. */
#include "cases.h"
#include "there.h"

static int64_t workspace(int64_t sequence, int64_t samples, cgp_op_direction direction) {
    cgp_kernel_spec spec;
    memset(&spec, 0, sizeof spec);
    spec.op = CGP_OP_ATTENTION;
    spec.direction = direction;
    spec.attributes = attention_attributes(sequence, 12, 64, 0.1);
    spec.n = samples;
    int64_t bytes = 0;
    const cgp_device_options options = device_options(1);
    assert_ok(cgp__backend_cpu.kernels.workspace(&options, &spec, &bytes));
    return bytes;
}

TEST_CASE(workspace_grows_like_the_sequence) {
    for (int d = CGP_OP_FORWARD; d <= CGP_OP_BACKWARD_INPUT; d++) {
        int64_t before = workspace(512, 1, (cgp_op_direction)d);
        for (int64_t sequence = 1024; sequence <= 8192; sequence *= 2) {
            const int64_t bytes = workspace(sequence, 1, (cgp_op_direction)d);
            print_message("direction %d, T %5d: %9d bytes, T x T floats are %d\n", d, (int)sequence,
                          (int)bytes, (int)(4 * sequence * sequence));
            assert_true(bytes <= 2 * before);
            assert_true(bytes < 4 * sequence * sequence / 2);
            /* more samples need no more workspace */
            assert_int_equal(bytes, workspace(sequence, 16, (cgp_op_direction)d));
            before = bytes;
        }
    }
}

/* This test uses f32, because bf16 also needs workspace for sums. */
TEST_CASE(a_window_needs_no_more_for_a_longer_sequence) {
    for (int d = CGP_OP_FORWARD; d <= CGP_OP_BACKWARD_INPUT; d++) {
        const cgp_device_options options = device_options(1);
        cgp_kernel_spec spec = {.op = CGP_OP_ATTENTION, .direction = (cgp_op_direction)d, .n = 1};
        int64_t bytes[2];
        for (int i = 0; i < 2; i++) {
            spec.attributes = windowed_attributes(i ? 8192 : 2048, 512, 2, 3, 64, 64, 0.0);
            assert_ok(cgp__backend_cpu.kernels.workspace(&options, &spec, &bytes[i]));
        }
        assert_int_equal(bytes[0], bytes[1]);
        assert_true(bytes[1] < workspace(8192, 1, (cgp_op_direction)d) / 4);
    }
}
