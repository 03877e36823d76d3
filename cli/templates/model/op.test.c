/* SPDX-License-Identifier: Apache-2.0 */
/* op.test.c -- tests each op of @NAME@.c: gradients against differences, and that it reads and writes what its table says. */
#include <cgpipe/ext/model_plugin.h>

#include <stdio.h>

int main(void) {
    const cgp_op_type input = {.dtype = CGP_F32, .shape = cgp_shape_make(1, (int64_t[]){24})};
    const float attributes[] = {1.5F}; /* of snake: a */
    for (int i = 0; cgpipe_model_ops[i]; i++) {
        const cgp_op *op = cgpipe_model_ops[i];
        if (cgp_op_check(op, attributes, &input, NULL) != CGP_OK) {
            fprintf(stderr, "%s\n", cgp_message());
            return 1;
        }
        printf("%s keeps its contract\n", op->name);
    }
    return 0;
}
