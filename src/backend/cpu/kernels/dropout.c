/* dropout.c -- y[e] = x[e] / (1 - p) if element e lives, else 0 (the rule is in backend.h).
 *
 * The same loop serves backward: dx from dy. The mask is made again, not saved. y may be x. */
#include "backend/cpu/kernels/philox.h"

/* A dropped element is 0 even if x is not finite. */
INLINE vec apply(uvec words, const cgp__cpu_mask *mask, vec x) {
    return keep((ivec)(words >= mask->threshold), x * mask->scale);
}

INLINE void part(float *y, const float *x, int64_t n, uvec words, const cgp__cpu_mask *mask,
                 bool add) {
    if (n >= LANES) {
        const vec kept = apply(words, mask, load(x));
        store(y, add ? load(y) + kept : kept);
    } else if (n > 0) {
        const vec kept = apply(words, mask, load_part(x, n));
        store_part(y, add ? load_part(y, n) + kept : kept, n);
    }
}

INLINE void dropout(float *y, const float *x, int64_t e, int64_t n, const cgp__cpu_mask *mask,
                    bool add) {
    uvec words[2];
    for (; e + 2 * LANES <= n; e += 2 * LANES) {
        philox(words, mask, mask->group, (uint64_t)e / 4);
        part(y + e, x + e, LANES, words[0], mask, add);
        part(y + e + LANES, x + e + LANES, LANES, words[1], mask, add);
    }
    if (e == n) return;
    philox(words, mask, mask->group, (uint64_t)e / 4);
    part(y + e, x + e, n - e, words[0], mask, add);
    if (n - e > LANES) part(y + e + LANES, x + e + LANES, n - e - LANES, words[1], mask, add);
}

void CGP__CPU_NAME(dropout)(float *y, const float *x, int64_t begin, int64_t end,
                            const cgp__cpu_mask *mask, bool add) {
    const cgp__cpu_mask own = *mask; /* stays in registers: stores to y cannot reach it */
    if (add)
        dropout(y, x, begin, end, &own, true);
    else
        dropout(y, x, begin, end, &own, false);
}
