/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_orders.c -- results of every op of cuda are bit-identical for all orders of blocks, and
 * for all orders of threads between barriers. This shows that no kernel lacks a barrier, and that
 * no block depends on another block. Each order runs on a device with a different number of
 * multiprocessors, which must not change a result either. */
#include "../op/harness.h"

#include "in_program.h"

static uint64_t seed;
/* One device for each order of threads and blocks. */
static runner on[CGP__SHIM_SHUFFLED + 1];
static const int multiprocessors[] = {132, 1, 9};

static void run_all(operands *o, cgp__shim_order order) {
    cgp__shim_get_settings()->order = order;
    for (int d = 0; d < CGP_OP_DIRECTIONS; d++) {
        if (case_has(&o->c, (cgp_op_direction)d)) op_run(&on[order], o, (cgp_op_direction)d);
    }
}

static void check_orders(const op_case *c) {
    operands first, other;
    operands_create_bent(&first, c, &seed);
    for (int order = CGP__SHIM_DESCENDING; order <= CGP__SHIM_SHUFFLED; order++) {
        operands begin;
        operands_copy(&begin, &first);
        operands_copy(&other, &first);
        run_all(&begin, CGP__SHIM_ASCENDING);
        run_all(&other, (cgp__shim_order)order);
        for (int slot = SLOT_Y; slot < SLOTS; slot++)
            assert_same_bits(&other, &begin, slot, 0,
                             "another order of threads, or other multiprocessors");
        assert_memory_equal(&other.loss, &begin.loss, sizeof other.loss);
        operands_destroy(&begin);
        operands_destroy(&other);
    }
    operands_destroy(&first);
}

static void orders_do_not_matter(void **state) {
    for_each_case(*(const cgp_op_kind *)*state, 6, check_orders, &seed);
}

int main(void) {
    static cgp_op_kind kinds[CGP_OP_KINDS];
    for (int op = 0; op < CGP_OP_KINDS; op++) {
        kinds[op] = (cgp_op_kind)op;
        test_add(__LINE__, &(const struct CMUnitTest){.name = cgp__op_find(kinds[op])->op.name,
                                                      .test_func = orders_do_not_matter,
                                                      .initial_state = &kinds[op]});
    }
    seed = test_seed();
    for (int i = 0; i <= CGP__SHIM_SHUFFLED; i++) {
        cgp__shim_get_settings()->multiprocessors = multiprocessors[i];
        on[i] = runner_open(cuda_host(), 1);
    }
    const int failed = test_run();
    for (int i = 0; i <= CGP__SHIM_SHUFFLED; i++)
        runner_close(&on[i]);
    return failed;
}
