/* SPDX-License-Identifier: Apache-2.0 */
/* switch.c -- fiber stacks for the x86-64 System V ABI. This file is compiled without shadow
 * stacks, because a shadow stack supports only one stack. */
#include "switch.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TSAN 1
#endif
#endif
#ifdef ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef TSAN
#include <sanitizer/tsan_interface.h>
#endif

enum { STACK_BYTES = 256 << 10, GUARD_BYTES = 4096 };

/* Push the callee-saved registers, and save the stack pointer in `*from`. Then set the stack
 * pointer to `to`, and pop the registers from the new stack. */
void cgp__shim_swap(void **from, void *to);

__asm__(".text\n"
        ".globl cgp__shim_swap\n"
        ".hidden cgp__shim_swap\n"
        ".type cgp__shim_swap, @function\n"
        "cgp__shim_swap:\n"
        "    push %rbp\n"
        "    push %rbx\n"
        "    push %r12\n"
        "    push %r13\n"
        "    push %r14\n"
        "    push %r15\n"
        "    mov %rsp, (%rdi)\n"
        "    mov %rsi, %rsp\n"
        "    pop %r15\n"
        "    pop %r14\n"
        "    pop %r13\n"
        "    pop %r12\n"
        "    pop %rbx\n"
        "    pop %rbp\n"
        "    ret\n"
        ".size cgp__shim_swap, . - cgp__shim_swap\n");

/* `left` is the stack that ran before the last switch; `entered` is the running stack. */
static __thread cgp__shim_stack *left, *entered;

/* Call this function directly after every switch, on the new stack. */
static void arrive(cgp__shim_stack *self) {
#ifdef ASAN
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(self->fake, &bottom, &bytes);
    if (!left->memory) { /* bounds of the host thread's stack are known only here */
        left->bottom = bottom;
        left->bytes = bytes;
    }
#else
    (void)self;
#endif
}

static void begin(void) {
    cgp__shim_stack *self = entered;
    arrive(self);
    self->run(self);
    abort(); /* run() never returns */
}

cgp__shim_stack *cgp__shim_stack_create(void (*run)(void *stack)) {
    cgp__shim_stack *stack = calloc(1, sizeof *stack);
    if (!stack) return NULL;
    stack->memory = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack->memory == MAP_FAILED || mprotect(stack->memory, GUARD_BYTES, PROT_NONE) != 0) {
        free(stack);
        return NULL;
    }
    stack->run = run;
    stack->bottom = (char *)stack->memory + GUARD_BYTES;
    stack->bytes = STACK_BYTES - GUARD_BYTES;
    /* The initial frame, which cgp__shim_swap() pops, has six registers and the address of begin().
     * The stack pointer is then aligned as at the entry of any called function. */
    void **top = (void **)(void *)((char *)stack->memory + STACK_BYTES) - 8;
    top[6] = (void *)(uintptr_t)begin;
    stack->top = top;
#ifdef TSAN
    stack->tsan = __tsan_create_fiber(0);
#endif
    return stack;
}

#ifdef ASAN
/* Switch away from a stack for the last time. */
static void leave(cgp__shim_stack *self) {
    const cgp__shim_stack *to = left;
    left = self;
    __sanitizer_start_switch_fiber(NULL, to->bottom, to->bytes);
    cgp__shim_swap(&self->top, to->top);
}
#endif

void cgp__shim_stack_destroy(cgp__shim_stack *stack) {
#ifdef ASAN
    /* The address sanitizer frees its data about a stack at the last switch away from the stack. */
    cgp__shim_stack here = {0};
    stack->ends = true;
    cgp__shim_switch_to(&here, stack);
    /* Frames that never returned leave poisoned redzones. Unpoison them, because another stack may
     * get the same addresses. */
    __asan_unpoison_memory_region(stack->memory, STACK_BYTES);
#endif
#ifdef TSAN
    __tsan_destroy_fiber(stack->tsan);
#endif
    munmap(stack->memory, STACK_BYTES);
    free(stack);
}

void cgp__shim_switch_to(cgp__shim_stack *from, cgp__shim_stack *to) {
    left = from;
    entered = to;
#ifdef ASAN
    __sanitizer_start_switch_fiber(&from->fake, to->bottom, to->bytes);
#endif
#ifdef TSAN
    if (!from->memory) from->tsan = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(to->tsan, 0);
#endif
    cgp__shim_swap(&from->top, to->top);
    arrive(from);
#ifdef ASAN
    if (from->ends) leave(from);
#endif
}
