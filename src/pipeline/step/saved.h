/* SPDX-License-Identifier: Apache-2.0 */
/* saved.h -- the tensors and files of a checkpoint. The tensors' names come from the model, so they
 * do not depend on how the plan places tensors:
 *
 *     weights      wte.weight, h.0.ln_1.weight, ...; states: bn1.running_mean, ...
 *     optimizer    wte.weight.exp_avg, wte.weight.exp_avg_sq, h.0.ln_1.weight.exp_avg, ...
 *
 * A frozen parameter has no optimizer state. All tensors are numbered in this order. If there is
 * only one process, it writes one file of each kind. If there are several ranks, each rank writes
 * the tensors that it owns. A parameter belongs to the rank of its first use, and an op's state
 * belongs to the rank of the op's stage. A rank may own no tensors.
 *
 *     one process   weights.safetensors                 optimizer.safetensors
 *     rank 0 of 2   model-00001-of-00002.safetensors    optimizer-00001-of-00002.safetensors
 *     rank 1 of 2   model-00002-of-00002.safetensors    optimizer-00002-of-00002.safetensors
 *     all           model.safetensors.index.json        - */
#ifndef CGP_SRC_PIPELINE_SAVED_H
#define CGP_SRC_PIPELINE_SAVED_H

#include <cgpipe/save.h>

#include "checkpoint/checkpoint.h"

typedef struct cgp__step cgp__step;

typedef struct cgp__saved_tensor {
    int parameter, number; /* parameter: index of the parameter. number: number of its optimizer
                            * state, or CGP__VALUES for its values. */
    int state;             /* number of an op's state; -1: the tensor belongs to a parameter */
    int device;            /* device of the tensor's owner */
    cgp_dtype type;
    const cgp_shape *shape;
} cgp__saved_tensor;

/* The kinds of files. A plan without optimizer state has only files of weights. */
enum { CGP__SAVED_WEIGHTS, CGP__SAVED_OPTIMIZER, CGP__SAVED_KINDS };

/* A range of tensors of a kind: `begin` .. `end` - 1. */
typedef struct cgp__saved_range {
    int begin, end;
} cgp__saved_range;

int cgp__saved_kinds(const cgp_plan *plan);
cgp__saved_range cgp__saved_range_of(const cgp_plan *plan, int kind);

cgp__saved_tensor cgp__saved_at(const cgp_plan *plan, int i);
size_t cgp__saved_bytes(const cgp__saved_tensor *tensor);

/* Return the name of an optimizer state of the plan, such as "exp_avg". The string is static. */
const char *cgp__saved_state_name(const cgp_plan *plan, int number);

/* Return the name of tensor `i`, which the caller frees; NULL if memory runs out. */
char *cgp__saved_name(const cgp_plan *plan, int i);

typedef struct cgp__saved_file_name {
    char text[48];
} cgp__saved_file_name;

/* Return the file name of a shard; shards count from 0. For shard -1, return a pattern of all file
 * names, for messages. */
cgp__saved_file_name cgp__saved_file(int kind, int shard, int shards);

/* Return the data that a checkpoint stores in addition to tensors. A plan for inference saves only
 * weights and states; training with any optimizer can start from such a checkpoint. */
#define CGP__SAVED_NO_OPTIMIZER "none"
cgp__checkpoint_info cgp__saved_info(const cgp_plan *plan, const cgp__step *step, const char *note);

#endif
