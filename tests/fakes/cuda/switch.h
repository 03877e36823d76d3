/* SPDX-License-Identifier: Apache-2.0 */
/* switch.h -- fiber stacks, and switching between them. */
#ifndef CGP_TESTS_FAKES_CUDA_SWITCH_H
#define CGP_TESTS_FAKES_CUDA_SWITCH_H

#include <stdbool.h>
#include <stddef.h>

typedef struct cgp__shim_stack {
    void *top;                    /* saved stack pointer */
    void *memory;                 /* NULL if it is a host thread's stack */
    struct cgp__shim_stack *next; /* link in the owner's list */
    void (*run)(void *stack);
    /* Data for sanitizers: the address sanitizer needs the bounds of each stack, and the thread
     * sanitizer has a handle for each stack. */
    const void *bottom;
    size_t bytes;
    void *fake, *tsan;
    bool ends;
} cgp__shim_stack;

/* Create a fiber that will call `run`, which must never return. Return NULL if out of memory. */
cgp__shim_stack *cgp__shim_stack_create(void (*run)(void *stack));
/* Destroy a fiber that has run at least once and is not running. The caller must be on a host
 * thread's stack. */
void cgp__shim_stack_destroy(cgp__shim_stack *stack);

/* Save the running stack in `from`, and continue on `to`. */
void cgp__shim_switch_to(cgp__shim_stack *from, cgp__shim_stack *to);

#endif
