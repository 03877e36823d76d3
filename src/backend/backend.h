/* SPDX-License-Identifier: Apache-2.0 */
/* backend.h -- the backends of this library, and functions for all of them. The contract is
 * cgpipe/ext/backend.h.
 *
 * `ref` runs plain loops with double sums and is the oracle; `cpu` runs vector kernels. */
#ifndef CGP_SRC_BACKEND_H
#define CGP_SRC_BACKEND_H

#include <cgpipe/ext/backend.h>

#include "base/base.h"

/* Operands of forward that a direction of backward reads. Bit k stands for x[k] or saved[k]. */
typedef struct cgp__op_needs {
    uint32_t x, saved;
    bool y;
} cgp__op_needs;

static inline cgp__op_needs cgp__op_needs_of(const cgp_op *op, cgp_op_direction direction) {
    if (direction == CGP_OP_BACKWARD_INPUT)
        return (cgp__op_needs){op->input_needs_x, op->input_needs_saved, op->input_needs_y};
    return (cgp__op_needs){op->weight_needs_x, op->weight_needs_saved, op->weight_needs_y};
}

/* Return the dropout threshold: an element is set to zero if its random word is below the
 * threshold. */
static inline uint32_t cgp__dropout_threshold(float p) {
    return (uint32_t)((double)p * 4294967296.0);
}

/* Return the key of an op's dropout in the current step. */
static inline cgp__rng_key cgp__dropout_key(const cgp_kernel_args *args) {
    return cgp__rng_derive(args->values->seed, CGP__RNG_DROPOUT, args->values->step, args->id);
}

/* Return the loss scale of a loss kernel. The second function sets the kernel's loss slot. */
static inline float cgp__loss_scale(const cgp_kernel_args *args) {
    return cgp_step_loss_scale(args->values, args->loss);
}
static inline void cgp__set_loss(const cgp_kernel_args *args, double loss) {
    if (args->losses) args->losses[args->values->loss_word + args->loss] = loss;
}

/* Run items begin .. end - 1 of a parallel_for; `begin` is a multiple of the block size. `thread`
 * is 0 for the owner. */
typedef void cgp__range(const void *work, int64_t begin, int64_t end, int thread);

/* Return the name of an instruction set, as in CGP_CPU_ISA; NULL for CGP_ISA_NONE. The text is
 * static. */
const char *cgp__isa_name(cgp_isa isa);

extern const cgp_backend cgp__backend_ref;
extern const cgp_backend cgp__backend_cpu;

/* Check that a spec has one of CGP_OPS, a direction, and 1 or more samples and rows. @retval
 * CGP_EINVAL "BACKEND: expects ..." */
cgp_status cgp__kernel_check(const char *backend, const cgp_kernel_spec *spec);
/* Return CGP_EINVAL: the op of a checked spec has no kernel for its direction. */
cgp_status cgp__kernel_missing(const char *backend, const cgp_kernel_spec *spec);

/* A device name, KIND[:ORDINAL][@LIMIT], as in cgpipe/devices.h. */
typedef struct cgp__device_name {
    char kind[64];
    int ordinal;
    int64_t limit; /* bytes; 0: no limit */
} cgp__device_name;

/* Parse a name. @retval CGP_EINVAL Threads: any. */
cgp_status cgp__device_name_parse(const char *text, cgp__device_name *out);

/* For device.create(): check that the ordinal exists on this machine. @retval CGP_EINVAL @retval
 * CGP_EDEVICE Threads: any. */
cgp_status cgp__device_check_ordinal(const cgp_backend *backend, const cgp_device_options *options);

/* Add a backend for the life of the process; adding the same table again is no error. Threads: any.
 * @retval CGP_EINVAL  The table has another version, a function is missing, or another backend has
 * the same name.
 * @retval CGP_ELIMIT  There are 16 backends already. */
cgp_status cgp__backend_add(const cgp_backend *backend);

/* Return backend i; NULL: there are no more. Threads: any. */
const cgp_backend *cgp__backend_at(int i);

#endif
