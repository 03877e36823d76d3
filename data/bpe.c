/* SPDX-License-Identifier: Apache-2.0 */
/* bpe.c -- merges the bytes of a word into tokens: byte-pair encoding (Sennrich et al. 2016,
 * arXiv:1508.07909).
 *
 *     l - o - w - e - r      a doubly linked list of symbols, and a heap of merges of neighbours.
 *     lo  - w - e - r        The merge with the least (rank, position) is done. Its right symbol
 *     lo  - w - er           leaves the list, and merges of the new symbol with its neighbours
 *     low - er               are pushed.
 *
 * A merge in the heap is stale if its symbols have changed since it was pushed. To detect this,
 * compare the token that the merge makes with the token that the symbols would make. If both tokens
 * are equal, they have the same bytes, so the pair has not changed. For a word of n bytes, at most
 * (n - 1) + 2 (n - 1) merges are pushed. */
#include "data/bpe.h"

#include "base/base.h"

#include <stdlib.h>

typedef struct cgp__symbol {
    /* `previous` or `next` is -1 if there is no such symbol. `id` is -1 if the symbol has left the
     * list. */
    int32_t id, previous, next;
} symbol;

typedef struct cgp__merge {
    int32_t rank, position, made;
} merge;

/* --- heap of merges, the least (rank, position) first --- */

static bool comes_first(const merge *a, const merge *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->position < b->position;
}

static void push(cgp__bpe *m, merge new) {
    int64_t at = m->n_heap++;
    while (at > 0 && comes_first(&new, &m->heap[(at - 1) / 2])) {
        m->heap[at] = m->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    m->heap[at] = new;
}

static merge pop(cgp__bpe *m) {
    const merge first = m->heap[0], last = m->heap[--m->n_heap];
    int64_t at = 0;
    for (int64_t child = 1; child < m->n_heap; child = 2 * at + 1) {
        if (child + 1 < m->n_heap && comes_first(&m->heap[child + 1], &m->heap[child])) child++;
        if (!comes_first(&m->heap[child], &last)) break;
        m->heap[at] = m->heap[child];
        at = child;
    }
    m->heap[at] = last;
    return first;
}

/* --- symbols --- */

/* Push the merge of a symbol and the next symbol, if the two merge. */
static void push_pair(cgp__bpe *m, const cgp__vocab *v, int32_t position) {
    const symbol *left = &m->symbols[position];
    if (left->next < 0) return;
    const cgp__pair *pair = cgp__vocab_slot(v, left->id, m->symbols[left->next].id);
    if (pair->made >= 0) push(m, (merge){pair->rank, position, pair->made});
}

static void apply(cgp__bpe *m, const cgp__vocab *v, merge chosen) {
    symbol *left = &m->symbols[chosen.position];
    if (left->id < 0 || left->next < 0) return;
    symbol *right = &m->symbols[left->next];
    if (cgp__vocab_slot(v, left->id, right->id)->made != chosen.made) return;
    left->id = chosen.made;
    left->next = right->next;
    right->id = -1;
    if (left->next >= 0) m->symbols[left->next].previous = chosen.position;
    if (left->previous >= 0) push_pair(m, v, left->previous);
    push_pair(m, v, chosen.position);
}

static cgp_status ensure_capacity(cgp__bpe *m, int64_t size) {
    if (size <= m->capacity) return CGP_OK;
    int64_t capacity = m->capacity ? m->capacity : 64;
    while (capacity < size)
        capacity *= 2;
    cgp__bpe_release(m);
    m->symbols = cgp__calloc((size_t)capacity, sizeof *m->symbols);
    m->heap = cgp__calloc((size_t)capacity, 3 * sizeof *m->heap);
    m->capacity = m->symbols && m->heap ? capacity : 0;
    if (m->capacity > 0) return CGP_OK;
    cgp__bpe_release(m);
    return cgp__no_memory("tokenizer: a word", (size_t)capacity * 3 * sizeof *m->heap);
}

cgp_status cgp__bpe_encode(cgp__bpe *m, const cgp__vocab *v, const uint8_t *word, int64_t size,
                           int32_t *ids, int64_t *count) {
    CGP_TRY(ensure_capacity(m, size));
    m->n_heap = 0;
    for (int32_t i = 0; i < size; i++)
        m->symbols[i] = (symbol){v->of_byte[word[i]], i - 1, i + 1 < size ? i + 1 : -1};
    for (int32_t i = 0; i < size; i++)
        push_pair(m, v, i);
    while (m->n_heap > 0)
        apply(m, v, pop(m));
    *count = 0;
    for (int32_t i = 0; i >= 0; i = m->symbols[i].next)
        ids[(*count)++] = m->symbols[i].id;
    return CGP_OK;
}

void cgp__bpe_release(cgp__bpe *m) {
    free(m->heap);
    free(m->symbols);
    *m = (cgp__bpe){0};
}
