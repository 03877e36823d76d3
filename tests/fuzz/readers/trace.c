/* SPDX-License-Identifier: Apache-2.0 */
/* trace.c -- reads damaged traces of measured steps. A trace is accepted, or refused with a message
 * that states its file name. An accepted trace can be drawn, and is unchanged when written and read
 * again. When the trace is compared with its plan, each device's time is split into parts that add
 * up to the makespan. */
#include "fuzz.h"

#include <math.h>

#include <cgpipe/compare.h>

#include "schedule/simulator/timeline.h"

/* --- the property --- */

static bool same_times(const cgp_schedule *s, double *const *a, double *const *b) {
    for (int d = 0; d < cgp_schedule_devices(s); d++) {
        int n;
        (void)cgp_schedule_actions(s, d, &n);
        if (n > 0 && memcmp(a[d], b[d], (size_t)n * sizeof **a) != 0) return false;
    }
    return true;
}

static void check_round_trip(const cgp_schedule *s, const cgp_schedule_timeline *t) {
    char *text = NULL;
    cgp_schedule *back = NULL;
    cgp_schedule_timeline again = {0};
    REQUIRE(cgp_schedule_trace(s, t, 1e6, &text) == CGP_OK);
    REQUIRE(cgp_schedule_from_trace(&back, &again, "again", text, strlen(text)) == CGP_OK);
    REQUIRE(again.devices == t->devices && same_times(s, again.start, t->start) &&
            same_times(s, again.end, t->end) && same_times(s, again.released, t->released) &&
            same_times(s, again.ready, t->ready));
    cgp_schedule_timeline_release(&again);
    cgp_schedule_destroy(back);
    free(text);
}

static void check_parts(const cgp_schedule *s, const cgp_schedule_timeline *t) {
    cgp_schedule_comparison c = {0};
    REQUIRE(cgp_schedule_compare(s, t, &c) == CGP_OK);
    for (int d = 0; d < c.devices; d++) {
        double sum = 0;
        for (int part = 0; part < CGP_PARTS; part++) {
            REQUIRE(c.parts[d][part] >= 0);
            sum += c.parts[d][part];
        }
        REQUIRE(fabs(sum - t->makespan) <= 1e-6 * t->makespan);
    }
    cgp_schedule_comparison_release(&c);
}

static bool try_input(const uint8_t *bytes, size_t size) {
    cgp_schedule *s = NULL;
    cgp_schedule_timeline t = {0};
    char *svg = NULL;
    const cgp_status status = cgp_schedule_from_trace(&s, &t, "x.json", (const char *)bytes, size);
    if (status != CGP_OK) {
        REQUIRE(!s && status == CGP_EFORMAT && strncmp(cgp_message(), "x.json: ", 8) == 0);
        return false;
    }
    REQUIRE(cgp_schedule_svg(s, &t, &svg) == CGP_OK);
    free(svg);
    check_parts(s, &t);
    check_round_trip(s, &t);
    cgp_schedule_timeline_release(&t);
    cgp_schedule_destroy(s);
    return true;
}

/* --- mutations --- */

/* Draw a random schedule, simulate a step, and return the step's trace as if the step had been
 * measured. */
static char *draw_trace(uint64_t *random) {
    cgp_schedule *s = NULL;
    cgp_schedule_timeline simulated, t;
    char *text = NULL;
    do {
        const cgp_schedule_info *info = cgp_schedule_info_at(test_between(random, 0, 13));
        (void)!cgp_schedule_create(&s, info->name, test_between(random, 1, 2),
                                   test_between(random, 1, 3), NULL);
    } while (!s);
    assert_ok(cgp_schedule_lower_chain(s));
    assert_ok(cgp_schedule_simulate(s, NULL, &simulated));
    assert_ok(cgp__timeline_create(&t, s, true));
    for (int d = 0; d < cgp_schedule_devices(s); d++) {
        int n;
        const cgp_action *actions = cgp_schedule_actions(s, d, &n);
        for (int i = 0; i < n; i++) {
            t.start[d][i] = t.ready[d][i] = simulated.start[d][i];
            t.end[d][i] = simulated.end[d][i];
            if (actions[i].edge >= 0) t.released[d][i] = t.start[d][i];
        }
    }
    assert_ok(cgp__timeline_complete(&t, s));
    assert_ok(cgp_schedule_trace(s, &t, 1e6, &text));
    cgp_schedule_timeline_release(&t);
    cgp_schedule_timeline_release(&simulated);
    cgp_schedule_destroy(s);
    return text;
}

static const char *const *const words = FUZZ_WORDS(
    ",", "[", "]", "{", "}", "\"cgpipe\"", "null", "1e999", "-1", "0.5", "1e-300", "true", "[[]]",
    "2147483648", "\"start\"", "\\n", "0F0", "1e300", "\"csv\"", "\"edges\":[]", "[0,1],", "0.0,");

static void mutate(fuzz_input *in, uint64_t *random) {
    size_t at = fuzz_below(random, in->size);
    switch (fuzz_below(random, 4)) {
    case 0:
        fuzz_flip_bit(in, at, random);
        break;
    case 1: /* truncate */
        if (fuzz_below(random, 8) == 0) in->size = fuzz_below(random, in->size + 1);
        break;
    case 2:
        fuzz_replace_word(in, at, 4, words, random);
        break;
    default: /* replace the next digit */
        while (at < in->size && (in->bytes[at] < '0' || in->bytes[at] > '9'))
            at++;
        if (at < in->size) in->bytes[at] = (uint8_t)('0' + fuzz_below(random, 10));
    }
}

/* Draw a trace and mutate it `times` - 1 times (`times` = 1 tests a valid trace). */
static bool play(int times, uint64_t *random) {
    static fuzz_input in;
    char *text = draw_trace(random);
    in.size = strlen(text);
    assert_true(in.size < FUZZ_CAPACITY);
    memcpy(in.bytes, text, in.size);
    free(text);
    for (; times > 1; times--)
        mutate(&in, random);
    return fuzz_take_exact(try_input, in.bytes, in.size);
}

const fuzz_reader fuzz_trace = {
    .take = try_input,
    .play = play,
    .mutations = 4000,
    .accepted_in = 100,
    .refused_in = 100,
    .corpus = 3,
};
