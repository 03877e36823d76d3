/* SPDX-License-Identifier: Apache-2.0 */
/* test_clocks.c -- tests clocks of ranks. If a clock is read several times, the reading with the
 * shortest round trip is kept. Times are mapped to rank 0's clock with an error within the
 * uncertainty. */
#include "support.h"

#include "pipeline/run/clocks.h"

enum { RANKS = 3 };

/* Clock of a rank. It shows `offset` ns more than rank 0's clock, and runs `ppm` millionths
 * faster. */
typedef struct rank_clock {
    int64_t offset;
    double ppm;
} rank_clock;

static const rank_clock made_up[RANKS] = {{0, 0}, {86400000000000, 40}, {-5000000000, -60}};

/* Return the time on the rank's clock when rank 0's clock shows `ns`. */
static int64_t clock_at(int rank, int64_t ns) {
    return ns + made_up[rank].offset + (int64_t)(made_up[rank].ppm * 1e-6 * (double)ns);
}

static int64_t below(uint64_t *state, int64_t n) {
    return (int64_t)(test_random(state) % (uint64_t)n);
}

/* Starting at time `ns`, read the clocks by sixteen round trips. A round trip takes up to 1 ms in
 * each direction, but one of the sixteen is short in both directions. */
static void read_clocks(cgp__reading *reading, int64_t ns, uint64_t *state) {
    reading->uncertainty_ns = INT64_MAX;
    const int best = (int)below(state, 16);
    for (int i = 0; i < 16; i++, ns += 10000000) {
        int64_t times[RANKS], last = ns;
        for (int r = 0; r < RANKS; r++) {
            const int64_t there = i == best ? 5000 : 20000 + below(state, 1000000);
            const int64_t back = i == best ? 3000 : 20000 + below(state, 1000000);
            times[r] = clock_at(r, ns + there);
            last = cgp__max(last, ns + there + back);
        }
        cgp__reading_take(reading, RANKS, ns, last, times);
    }
    assert_int_equal(reading->uncertainty_ns, 4000);
}

static cgp__clocks *new_clocks(void) {
    cgp__clocks *clocks = NULL;
    assert_ok(cgp__clocks_create(&clocks, RANKS));
    clocks->differ = true;
    return clocks;
}

TEST_CASE(times_are_within_the_uncertainty) {
    uint64_t state = test_seed();
    const int64_t begin = 7000000000, second = 1000000000;
    cgp__clocks *clocks = new_clocks();
    read_clocks(clocks->first, begin, &state);
    read_clocks(clocks->last, begin + 100 * second, &state);
    assert_int_equal(cgp__clocks_uncertainty(clocks), 4000);
    for (int i = 0; i < 1000; i++) {
        const int64_t ns = begin + second + below(&state, 98 * second);
        for (int r = 0; r < RANKS; r++) {
            const int64_t mapped = cgp__clocks_map(clocks, r, clock_at(r, ns));
            if (llabs(mapped - ns) <= 4002) continue; /* uncertainty and roundings */
            print_error("rank %d: %lld ns became %lld\n", r, (long long)ns, (long long)mapped);
            fail();
        }
    }
    cgp__clocks_destroy(clocks);
}

/* Mapping to rank 0's clock keeps the order of a rank's times. Times are before, between and after
 * the readings. */
TEST_CASE(a_rank_keeps_its_order) {
    uint64_t state = test_seed();
    cgp__clocks *clocks = new_clocks();
    read_clocks(clocks->first, 1000000000, &state);
    read_clocks(clocks->last, 3000000000, &state);
    for (int r = 0; r < RANKS; r++) {
        int64_t before = INT64_MIN;
        for (int64_t ns = 0; ns < 5000000000; ns += 1000001) {
            const int64_t mapped = cgp__clocks_map(clocks, r, clock_at(r, ns));
            assert_true(mapped >= before);
            before = mapped;
        }
    }
    cgp__clocks_destroy(clocks);
}

TEST_CASE(one_clock_and_no_time_stay_as_they_are) {
    uint64_t state = 1;
    cgp__clocks *clocks = new_clocks();
    read_clocks(clocks->first, 1000, &state);
    read_clocks(clocks->last, 2000000000, &state);
    assert_int_equal(cgp__clocks_map(clocks, 1, 0), 0);
    clocks->differ = false;
    assert_int_equal(cgp__clocks_map(clocks, 1, 12345), 12345);
    assert_int_equal(cgp__clocks_uncertainty(clocks), 0);
    cgp__clocks_destroy(clocks);
}
