/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.c -- reads damaged schedules in CSV. If a schedule is refused, the message names a
 * position or a rule. An accepted schedule is unchanged when it is written and read again. The
 * checker and the simulator agree, and no function crashes.
 */
#include "fuzz.h"

#include <cgpipe/schedule.h>

enum { MUTATIONS = 20000, SEED_BYTES = 4096 };

/* --- the property --- */

static bool starts_with(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

/* Check that the row and column in a refusal's message exist in the text. */
static void check_refusal(cgp_status status, size_t size) {
    int row = 0, column = 0;
    REQUIRE(status == CGP_EFORMAT || status == CGP_EINVAL);
    REQUIRE(status == CGP_EINVAL || starts_with(cgp_message(), "x.csv: "));
    if (sscanf(cgp_message(), "x.csv: row %d, column %d, ", &row, &column) == 2)
        REQUIRE(row >= 1 && column >= 1 && (size_t)row + (size_t)column <= size + 2);
}

static bool is_same(const cgp_schedule *a, const cgp_schedule *b) {
    if (cgp_schedule_stages(a) != cgp_schedule_stages(b) ||
        cgp_schedule_chunks(a) != cgp_schedule_chunks(b) ||
        cgp_schedule_devices(a) != cgp_schedule_devices(b))
        return false;
    for (int d = 0; d < cgp_schedule_devices(a); d++) {
        int n, m;
        const cgp_action *x = cgp_schedule_actions(a, d, &n);
        const cgp_action *y = cgp_schedule_actions(b, d, &m);
        if (n != m) return false;
        for (int i = 0; i < n; i++) {
            if (x[i].kind != y[i].kind || x[i].stage != y[i].stage ||
                x[i].microbatch != y[i].microbatch || x[i].edge != y[i].edge)
                return false;
        }
    }
    return true;
}

/* Check that a schedule without deadlock is unchanged when written and read back. */
static void check_round_trip(const cgp_schedule *lowered) {
    char *text = NULL;
    cgp_schedule *back = NULL;
    REQUIRE(cgp_schedule_to_csv(lowered, CGP_CSV_TRANSFERS, &text) == CGP_OK);
    REQUIRE(cgp_schedule_from_csv(&back, "again", text, strlen(text)) == CGP_OK);
    int edges;
    (void)cgp_schedule_edges(back, &edges);
    /* all stages are on one device */
    if (edges == 0) REQUIRE(cgp_schedule_lower_chain(back) == CGP_OK);
    free(text);
    /* The reader restores transfers between stages of one device. It puts each transfer next to the
     * action that the transfer belongs to. */
    REQUIRE(cgp_schedule_check(back, NULL) == CGP_OK);
    bool local = false;
    for (int j = 0; j + 1 < cgp_schedule_stages(lowered); j++)
        local =
            local || cgp_schedule_device_of(lowered, j) == cgp_schedule_device_of(lowered, j + 1);
    REQUIRE(local || is_same(lowered, back));
    cgp_schedule_destroy(back);
}

/* Check a schedule without deadlock. Replacing its transfers by the transfers of
 * cgp_schedule_lower_chain() must not increase the makespan, even if the schedule posts receives
 * early. */
static void check_compute(const cgp_schedule *lowered, double makespan) {
    char *text = NULL;
    cgp_schedule *back = NULL;
    cgp_schedule_timeline timeline = {0};
    REQUIRE(cgp_schedule_to_csv(lowered, CGP_CSV_COMPUTE, &text) == CGP_OK);
    REQUIRE(cgp_schedule_from_csv(&back, "again", text, strlen(text)) == CGP_OK);
    REQUIRE(cgp_schedule_lower_chain(back) == CGP_OK);
    REQUIRE(cgp_schedule_simulate(back, NULL, &timeline) == CGP_OK);
    REQUIRE(timeline.makespan <= makespan * (1.0 + 1e-12));
    cgp_schedule_timeline_release(&timeline);
    cgp_schedule_destroy(back);
    free(text);
}

static void check_accepted(cgp_schedule *s) {
    cgp_schedule_report report = {0};
    cgp_schedule_timeline timeline = {0};
    int edges;
    (void)cgp_schedule_edges(s, &edges);
    if (edges == 0) REQUIRE(cgp_schedule_lower_chain(s) == CGP_OK);
    char *picture = cgp_schedule_draw(s), *grid = cgp_schedule_draw_diagnostic(s), *svg = NULL;
    const bool runs = cgp_schedule_check(s, &report) == CGP_OK;
    REQUIRE((cgp_schedule_simulate(s, NULL, &timeline) == CGP_OK) == runs);
    REQUIRE((picture != NULL) == runs && (grid == NULL) == runs);
    if (runs) {
        REQUIRE(cgp_schedule_svg(s, &timeline, &svg) == CGP_OK);
        check_round_trip(s);
        check_compute(s, timeline.makespan);
    } else {
        REQUIRE(starts_with(cgp_message(), "schedule: "));
        REQUIRE(strchr(grid, '['));
    }
    free(svg);
    free(grid);
    free(picture);
    cgp_schedule_timeline_release(&timeline);
    cgp_schedule_report_release(&report);
}

/* Three counts of inputs: refused by the reader, refused by the checker, and accepted by both. */
static int outcomes[3];

static bool try_input(const uint8_t *bytes, size_t size) {
    cgp_schedule *s = NULL;
    const cgp_status status = cgp_schedule_from_csv(&s, "x.csv", (const char *)bytes, size);
    if (status != CGP_OK) {
        REQUIRE(!s);
        check_refusal(status, size);
        outcomes[0]++;
        return false;
    }
    check_accepted(s);
    outcomes[cgp_schedule_check(s, NULL) == CGP_OK ? 2 : 1]++;
    cgp_schedule_destroy(s);
    return true;
}

/* --- mutations --- */

/* Draw a valid schedule, as CSV in one of the dialects. */
static void draw_seed(fuzz_input *in, uint64_t *random) {
    const cgp_schedule_info *info;
    int schedules = 0;
    while (cgp_schedule_info_at(schedules))
        schedules++;
    for (;;) {
        const int n = test_between(random, 1, 3), m = test_between(random, 1, 6);
        cgp_schedule *s = NULL;
        char *text = NULL;
        info = cgp_schedule_info_at(test_between(random, 0, schedules - 1));
        if (cgp_schedule_create(&s, info->name, n, m, NULL) != CGP_OK) continue;
        assert_ok(cgp_schedule_to_csv(
            s, fuzz_below(random, 2) ? CGP_CSV_COMPUTE : CGP_CSV_TRANSFERS, &text));
        in->size = strlen(text);
        const bool fits = in->size <= SEED_BYTES;
        if (fits) memcpy(in->bytes, text, in->size);
        free(text);
        cgp_schedule_destroy(s);
        if (fits) return;
    }
}

static const char *const *const words =
    FUZZ_WORDS(",", "\n", ",,", "\r\n", "0F0", "1B0", "0I1,0W1", "1SEND_F0", "1RECV_F0", "0BW0",
               "0UNSHARD", "(0F0;1B0)OVERLAP_F_B", "99999999F0", "0R0", " ", "\t1F1 ", "F", ";",
               "(", "REDUCE_GRAD", "2147483648", "B", "I", "W", "SEND_B", "RECV_B", "_", ";0R0;",
               "\"", "\"\"", "\"0F0\"", "\"\n\"", "\xef\xbb\xbf", "\xff\xfe", "WAIT_",
               "0WAIT_SEND_F0", "0F1,0B0", "BW", "0B0,0W0", "WAIT_REDUCE_GRAD");

/* Return the start of the first CSV cell at or after position `at`; `size` gets the cell's size. */
static size_t find_cell(const fuzz_input *in, size_t at, size_t *size) {
    while (at > 0 && in->bytes[at - 1] != ',' && in->bytes[at - 1] != '\n')
        at--;
    *size = 0;
    while (at + *size < in->size && in->bytes[at + *size] != ',' && in->bytes[at + *size] != '\n')
        ++*size;
    return at;
}

static void mutate(fuzz_input *in, uint64_t *random) {
    const size_t at = fuzz_below(random, in->size);
    size_t size = 0, other_size = 0;
    const size_t cell = find_cell(in, at, &size),
                 other = find_cell(in, fuzz_below(random, in->size), &other_size);
    uint8_t copy[FUZZ_CAPACITY];
    switch (fuzz_below(random, 8)) {
    case 0:
        fuzz_flip_bit(in, at, random);
        break;
    case 1: /* truncate */
        in->size = fuzz_below(random, in->size + 1);
        break;
    case 2: /* insert a word */
    case 3:
        fuzz_replace_word(in, at, 3, words, random);
        break;
    case 4: /* replace a digit */
        if (in->size > 0 && in->bytes[at] >= '0' && in->bytes[at] <= '9')
            in->bytes[at] = (uint8_t)('0' + fuzz_below(random, 10));
        break;
    case 5: /* remove a CSV cell */
        fuzz_replace(in, cell, size, "", 0);
        break;
    case 6: /* replace a CSV cell by another */
        memcpy(copy, in->bytes + other, other_size);
        fuzz_replace(in, cell, size, copy, other_size);
        break;
    default: /* swap two neighbouring cells */
        if (cell + size < in->size && in->bytes[cell + size] == ',') {
            memcpy(copy, in->bytes + cell, size);
            copy[size] = ',';
            fuzz_replace(in, cell, size + 1, "", 0);
            const size_t to = find_cell(in, cell, &other_size) + other_size;
            if (to < in->size && in->bytes[to] == ',') fuzz_replace(in, to + 1, 0, copy, size + 1);
        }
    }
}

static bool play(int times, uint64_t *random) {
    static fuzz_input in;
    draw_seed(&in, random);
    for (; times > 1; times--)
        mutate(&in, random);
    return fuzz_take_exact(try_input, in.bytes, in.size);
}

static void mutated_texts_have_every_outcome(void **state) {
    (void)state;
    uint64_t random = test_seed();
    memset(outcomes, 0, sizeof outcomes);
    for (int i = 0; i < MUTATIONS; i++)
        (void)play(test_between(&random, 1, 3), &random);
    print_message("%d refused, %d stopped by the checker, %d run\n", outcomes[0], outcomes[1],
                  outcomes[2]);
    for (int k = 0; k < 3; k++)
        assert_in_range(outcomes[k], MUTATIONS / 100, MUTATIONS);
}

static void bytes_at_random_are_refused(void **state) {
    (void)state;
    uint64_t random = test_seed();
    for (int i = 0; i < 2000; i++) {
        fuzz_input in;
        fuzz_draw_bytes(&in, 200, &random);
        assert_false(fuzz_take_exact(try_input, in.bytes, in.size));
    }
}

static void the_corpus_has_every_outcome(void **state) {
    (void)state;
    memset(outcomes, 0, sizeof outcomes);
    (void)fuzz_corpus("schedule", try_input);
    assert_true(outcomes[0] > 0 && outcomes[1] > 0 && outcomes[2] > 10);
}

const fuzz_reader fuzz_schedule = {
    .take = try_input,
    .tests = {cmocka_unit_test(mutated_texts_have_every_outcome),
              cmocka_unit_test(the_corpus_has_every_outcome),
              cmocka_unit_test(bytes_at_random_are_refused)},
};
