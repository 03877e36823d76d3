/* SPDX-License-Identifier: Apache-2.0 */
/* op.test.c -- tests each op of @NAME@.c. Its gradients must equal finite differences, and the op
 * must read and write only what its table of functions and flags says. If your op has other inputs
 * or attributes, change them here. */
#include <cgpipe/ext/model_plugin.h>

#include <stdio.h>

int main(void) {
    const cgp_op_type row = {.dtype = CGP_F32, .shape = cgp_shape_make(1, (int64_t[]){24})};
    /* Types of inputs; an op with fewer inputs uses the first ones. */
    const cgp_op_type inputs[CGP_OP_MAX_INPUTS] = {row, row, row, row};
    const float attributes[] = {1.5F}; /* snake's attribute `a` */
    for (int i = 0; cgpipe_model_ops[i]; i++) {
        const cgp_op *op = cgpipe_model_ops[i];
        printf("%s: ", op->name); /* a crash here means a NULL operand: see the guide on ops */
        fflush(stdout);
        if (cgp_op_check(op, op->attribute_bytes > 0 ? attributes : NULL, inputs, NULL) != CGP_OK) {
            fprintf(stderr, "%s\n", cgp_message());
            return 1;
        }
        printf("keeps its contract\n");
    }
    return 0;
}
