/* SPDX-License-Identifier: Apache-2.0 */
/* switch.h -- stacks of fibers, and the way from one to another. */
#ifndef CGP_SRC_CUDA_HOST_SWITCH_H
#define CGP_SRC_CUDA_HOST_SWITCH_H

#include <stdbool.h>
#include <stddef.h>

typedef struct cgp__shim_stack {
    void *top;                    /* saved stack pointer */
    void *memory;                 /* NULL: of a thread of the host */
    struct cgp__shim_stack *next; /* for the owner's list */
    void (*run)(void *stack);
    /* For the address sanitizer, which is told where stacks lie; for the thread sanitizer, which
     * has a name for each. */
    const void *bottom;
    size_t bytes;
    void *fake, *tsan;
    bool ends;
} cgp__shim_stack;

/* A fiber that will call `run`, which never returns. NULL: no memory. */
cgp__shim_stack *cgp__shim_stack_create(void (*run)(void *stack));
/* Of a fiber that was switched to, and from. On a thread of the host. */
void cgp__shim_stack_destroy(cgp__shim_stack *stack);

/* Save the running stack in `from`, and go on in `to`. */
void cgp__shim_switch_to(cgp__shim_stack *from, cgp__shim_stack *to);

#endif
