/* SPDX-License-Identifier: Apache-2.0 */
/* custom.h -- checks of custom ops. See cgpipe/ext/op.h. */
#ifndef CGP_SRC_OP_CUSTOM_H
#define CGP_SRC_OP_CUSTOM_H

#include <cgpipe/ext/op.h>

#include "op/op.h"

/* Check the table of an op; `attributes` are the attributes of one use of the op. */
cgp_status cgp__custom_check(const cgp_op *op, const void *attributes);

/* Run the shape rule for `node`, which is one use of the op, and check the results of the rule. */
cgp_status cgp__custom_infer(cgp_op_node *node);

#endif
