/* dropout.c -- y[e] = x[e] / (1 - p) if element e lives, else 0 (the rule is in backend.h).
 *
 * The same loop serves backward: dx from dy. The mask is made again, not saved. y may be x. */
#include "backend/cpu/kernels/philox.h"

/* A dropped element is 0 even if x is not finite. */
INLINE vec apply(uvec words, const cgp__cpu_mask *mask, vec x) {
    return keep((ivec)(words >= mask->threshold), x * mask->scale);
}

/* Up to LANES elements of n, from number e on. */
INLINE void part(cgp_dtype type, void *y, const void *x, int64_t e, int64_t n, uvec words,
                 const cgp__cpu_mask *mask, bool add) {
    if (n - e >= LANES) {
        const vec kept = apply(words, mask, load_as(type, x, e));
        store_as(type, y, e, add ? load_as(type, y, e) + kept : kept);
    } else if (n > e) {
        const vec kept = apply(words, mask, load_part_as(type, x, e, n - e));
        store_part_as(type, y, e, add ? load_part_as(type, y, e, n - e) + kept : kept, n - e);
    }
}

INLINE void dropout(cgp_dtype type, void *y, const void *x, int64_t e, int64_t n,
                    const cgp__cpu_mask *mask, bool add) {
    uvec words[2];
    for (; e + 2 * LANES <= n; e += 2 * LANES) {
        philox(words, mask, mask->group, (uint64_t)e / 4);
        part(type, y, x, e, e + LANES, words[0], mask, add);
        part(type, y, x, e + LANES, e + 2 * LANES, words[1], mask, add);
    }
    if (e == n) return;
    philox(words, mask, mask->group, (uint64_t)e / 4);
    part(type, y, x, e, n, words[0], mask, add);
    if (n - e > LANES) part(type, y, x, e + LANES, n, words[1], mask, add);
}

void CGP__CPU_NAME(dropout)(cgp_dtype type, void *y, const void *x, int64_t begin, int64_t end,
                            const cgp__cpu_mask *mask, bool add) {
    const cgp__cpu_mask own = *mask; /* stays in registers: stores to y cannot reach it */
    if (add)
        FOR_TYPE(type, dropout, y, x, begin, end, &own, true);
    else
        FOR_TYPE(type, dropout, y, x, begin, end, &own, false);
}
