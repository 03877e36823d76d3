/* SPDX-License-Identifier: Apache-2.0 */
/* index.c -- a hash index with open addressing and linear probing; the table is at most half full.
 * Entries are the caller's numbers, and the caller compares the keys. The table stores the hashes,
 * so it can grow without the keys. The hash function is FNV-1a on words of 8 bytes, with additional
 * shifts. */
#include "base/base.h"

#include <stdlib.h>
#include <string.h>

#define FNV_BASIS 14695981039346656037u
#define FNV_PRIME 1099511628211u

uint64_t cgp__hash(const void *bytes, size_t n) {
    const unsigned char *at = bytes;
    uint64_t hash = FNV_BASIS;
    for (; n >= sizeof(uint64_t); n -= sizeof(uint64_t), at += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        hash = (hash ^ word) * FNV_PRIME;
        hash ^= hash >> 32; /* a multiplication moves bits only upwards */
    }
    for (; n > 0; n--, at++)
        hash = (hash ^ *at) * FNV_PRIME;
    return hash ^ hash >> 29;
}

int cgp__index_next(const cgp__index *index, uint64_t hash, uint32_t *tried) {
    const uint32_t mask = (uint32_t)index->capacity - 1;
    while (index->capacity > 0) {
        const uint32_t slot = ((uint32_t)hash + (*tried)++) & mask;
        if (index->entries[slot] == 0) break;
        if (index->hashes[slot] == hash) return index->entries[slot] - 1;
    }
    return -1;
}

static void insert(cgp__index *index, uint64_t hash, int stored) {
    const uint32_t mask = (uint32_t)index->capacity - 1;
    uint32_t slot = (uint32_t)hash & mask;
    while (index->entries[slot] != 0)
        slot = (slot + 1) & mask;
    index->entries[slot] = stored;
    index->hashes[slot] = hash;
}

static bool grow(cgp__index *index) {
    cgp__index larger = {.capacity = index->capacity ? 2 * index->capacity : 16, .n = index->n};
    larger.entries = cgp__calloc((size_t)larger.capacity, sizeof *larger.entries);
    larger.hashes = cgp__calloc((size_t)larger.capacity, sizeof *larger.hashes);
    if (!larger.entries || !larger.hashes) {
        cgp__index_release(&larger);
        return false;
    }
    for (int i = 0; i < index->capacity; i++) {
        if (index->entries[i] != 0) insert(&larger, index->hashes[i], index->entries[i]);
    }
    cgp__index_release(index);
    *index = larger;
    return true;
}

bool cgp__index_add(cgp__index *index, uint64_t hash, int entry) {
    if (index->n >= 1 << 29) return false;
    if (2 * (index->n + 1) > index->capacity && !grow(index)) return false;
    insert(index, hash, entry + 1);
    index->n++;
    return true;
}

void cgp__index_release(cgp__index *index) {
    free(index->hashes);
    free(index->entries);
    *index = (cgp__index){0};
}
