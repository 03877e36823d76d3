/* SPDX-License-Identifier: Apache-2.0 */
/* kinds.h -- the kinds of actions: their properties and names. */
#ifndef CGP_SRC_SCHEDULE_KINDS_H
#define CGP_SRC_SCHEDULE_KINDS_H

#include <cgpipe/schedule.h>

#define CGP__KINDS (CGP_ACTION_RECV_B + 1)

static inline bool cgp__is_transfer(cgp_action_kind kind) {
    return kind >= CGP_ACTION_SEND_F;
}

static inline bool cgp__is_send(cgp_action_kind kind) {
    return kind == CGP_ACTION_SEND_F || kind == CGP_ACTION_SEND_B;
}

static inline bool cgp__is_receive(cgp_action_kind kind) {
    return kind == CGP_ACTION_RECV_F || kind == CGP_ACTION_RECV_B;
}

static inline cgp_action_kind cgp__transfer_kind(bool gradient, bool is_send) {
    if (gradient) return is_send ? CGP_ACTION_SEND_B : CGP_ACTION_RECV_B;
    return is_send ? CGP_ACTION_SEND_F : CGP_ACTION_RECV_F;
}

/* Return true for kinds of actions that need gradients from later stages and make gradients for
 * earlier stages. */
static inline bool cgp__starts_backward(cgp_action_kind kind) {
    return kind == CGP_ACTION_B || kind == CGP_ACTION_I;
}

static inline bool cgp__is_gradient(cgp_edge edge) {
    return edge.from > edge.to;
}

/* Return the index of `word`, which has `length` bytes, among `count` words; -1: it is none of
 * them. */
int cgp__find_word(const char *const *words, int count, const char *word, size_t length);

/* The names that cgp_action_text() writes. */
extern const char *const cgp__action_names[CGP__KINDS];

#endif
