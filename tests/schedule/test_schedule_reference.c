/* SPDX-License-Identifier: Apache-2.0 */
/* test_schedule_reference.c -- reads, checks and simulates the tables that PyTorch writes for all
 * its schedules (tests/data/schedules, made by tools/reference_schedules.py). The step of a table
 * must be the same with PyTorch's transfers and with inserted transfers. */
#include "schedules.h"

#include <dirent.h>

enum { MAX_BYTES = 1 << 17, MAX_TABLES = 200 };

typedef struct table {
    char file[64], name[64], format[32];
    int devices, stages, chunks;
    char *text; /* points into `files` */
} table;

static char files[8][MAX_BYTES];
static table tables[MAX_TABLES];
static int n_files, n_tables;

/* Split a file at its empty lines. Each part is a table, and its first line has the table's name
 * and sizes. */
static void split(const char *name, char *text) {
    for (char *part = text, *next; part; part = next) {
        table *t = &tables[n_tables++];
        next = strstr(part, "\n\n");
        if (next) {
            next[1] = '\0';
            next += 2;
        }
        assert_in_range(n_tables, 1, MAX_TABLES);
        assert_int_equal(sscanf(part, "# %63s devices=%d stages=%d chunks=%d format=%31s", t->name,
                                &t->devices, &t->stages, &t->chunks, t->format),
                         5);
        snprintf(t->file, sizeof t->file, "%.63s", name);
        t->text = strchr(part, '\n') + 1;
    }
}

static int read_all(void **state) {
    (void)state;
    static const char directory[] = TEST_DATA "/schedules";
    DIR *all = opendir(directory);
    assert_non_null(all);
    for (struct dirent *entry; (entry = readdir(all));) {
        char path[600];
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        FILE *file = fopen(path, "rb");
        assert_non_null(file);
        assert_in_range(n_files, 0, 7);
        const size_t size = fread(files[n_files], 1, MAX_BYTES - 1, file);
        fclose(file);
        assert_in_range(size, 1, MAX_BYTES - 2);
        split(entry->d_name, files[n_files++]);
    }
    closedir(all);
    return 0;
}

static bool is(const char *a, const char *b) {
    return strcmp(a, b) == 0;
}

/* Make a lowered schedule from a table. If the table has no transfers, they are added. */
static cgp_schedule *lowered(const char *name, const char *text) {
    cgp_schedule *s = NULL;
    int edges;
    assert_ok(cgp_schedule_from_csv(&s, name, text, strlen(text)));
    (void)cgp_schedule_edges(s, &edges);
    if (edges == 0) test_lower(s);
    return s;
}

static const table *find(const char *file, const char *name, int devices, int chunks,
                         const char *format) {
    for (int k = 0; k < n_tables; k++) {
        const table *t = &tables[k];
        if (is(t->file, file) && is(t->name, name) && t->devices == devices &&
            t->chunks == chunks && is(t->format, format))
            return t;
    }
    return NULL;
}

/* --- all tables --- */

TEST_CASE(every_table_is_read_and_accepted) {
    int older = 0, orders = 0;
    for (int k = 0; k < n_tables; k++) {
        const table *t = &tables[k];
        cgp_schedule_report report;
        cgp_schedule_timeline timeline;
        cgp_schedule *s = lowered(t->name, t->text);
        assert_int_equal(cgp_schedule_devices(s), t->devices);
        assert_int_equal(cgp_schedule_stages(s), t->stages);
        assert_int_equal(cgp_schedule_chunks(s), t->chunks);
        assert_ok(cgp_schedule_check(s, &report));
        assert_ok(cgp_schedule_simulate(s, NULL, &timeline));
        assert_true(timeline.makespan >= 3.0 * t->chunks - 1e-9);
        older += is(t->file, "torch-2.5.1.txt");
        orders += is(t->name, "Schedule1F1B") || is(t->name, "ScheduleGPipe");
        cgp_schedule_timeline_release(&timeline);
        cgp_schedule_report_release(&report);
        cgp_schedule_destroy(s);
    }
    print_message("%d tables, %d in older letters, %d of schedules without transfers\n", n_tables,
                  older, orders);
    assert_true(n_files == 4 && n_tables >= 60 && older >= 8 && orders >= 10);
}

/* Return a table's text with each overlapped forward/backward pair split into two cells, as PyTorch
 * 2.9 does when it inserts transfers. */
static char *without_pairs(const char *text) {
    char *copy = malloc(strlen(text) + 1), *to = copy;
    assert_non_null(copy);
    for (const char *from = text; *from; from++) {
        if (strncmp(from, ")OVERLAP_F_B", 12) == 0)
            from += 11;
        else if (*from != '(')
            *to++ = (char)(*from == ';' ? ',' : *from);
    }
    *to = '\0';
    return copy;
}

static void assert_same_step(const table *plain, const table *with, bool pairs) {
    char *text = pairs ? NULL : without_pairs(plain->text);
    cgp_schedule *a = lowered("plain", text ? text : plain->text);
    cgp_schedule *b = lowered("with transfers", with->text);
    cgp_schedule_timeline x, y;
    cgp_schedule_report r, q;
    assert_ok(cgp_schedule_simulate(a, NULL, &x));
    assert_ok(cgp_schedule_simulate(b, NULL, &y));
    assert_ok(cgp_schedule_check(a, &r));
    assert_ok(cgp_schedule_check(b, &q));
    if (x.makespan != y.makespan)
        print_error("%s %s %dx%d: %g without transfers, %g with\n", with->file, with->name,
                    with->devices, with->chunks, x.makespan, y.makespan);
    assert_float_equal(x.makespan, y.makespan, 0.0);
    assert_float_equal(x.span, y.span, 0.0);
    assert_float_equal(x.bubble_makespan, y.bubble_makespan, 0.0);
    assert_float_equal(x.bubble_span, y.bubble_span, 0.0);
    int min[2] = {0, 0};
    for (int e = 0; e < x.edges; e++) {
        assert_true(y.free_capacity[e] >= x.free_capacity[e]);
        min[0] = r.min_capacity[e] > min[0] ? r.min_capacity[e] : min[0];
        min[1] = q.min_capacity[e] > min[1] ? q.min_capacity[e] : min[1];
    }
    /* compare the maxima over edges; a single edge may need fewer buffers */
    assert_true(min[1] >= min[0]);
    char *picture = cgp_schedule_draw(a), *same = cgp_schedule_draw(b);
    assert_string_equal(picture, same);
    free(same);
    free(picture);
    cgp_schedule_report_release(&q);
    cgp_schedule_report_release(&r);
    cgp_schedule_timeline_release(&y);
    cgp_schedule_timeline_release(&x);
    cgp_schedule_destroy(b);
    cgp_schedule_destroy(a);
    free(text);
}

TEST_CASE(a_table_is_the_same_step_with_transfers_and_without) {
    int compared = 0;
    for (int k = 0; k < n_tables; k++) {
        const table *t = &tables[k];
        if (is(t->format, "compute_only")) continue;
        const table *plain = find(t->file, t->name, t->devices, t->chunks, "compute_only");
        assert_non_null(plain);
        assert_same_step(plain, t, strstr(t->text, "OVERLAP") != NULL);
        compared++;
    }
    assert_true(compared >= 25);
}

/* In this test, messages take time, either in flight or on the receiving device. */
TEST_CASE(a_table_is_the_same_step_where_messages_take_time) {
    static const char file[] = "torch-2.15.0.txt", name[] = "ScheduleInterleaved1F1B";
    for (int blocking = 0; blocking < 2; blocking++) {
        double makespan[2];
        for (int k = 0; k < 2; k++) {
            const table *t = find(file, name, 4, 8, k ? "compute_comms" : "compute_only");
            cgp_schedule *s = lowered(name, t->text);
            cgp_schedule_timeline timeline;
            double latency[14], transfer[14];
            for (int e = 0; e < 14; e++) {
                latency[e] = 0.25;
                transfer[e] = 0.125 * (1 + e % 3);
            }
            const cgp_schedule_costs costs = {
                .latency = latency, .transfer = transfer, .transfers_block = blocking};
            assert_ok(cgp_schedule_simulate(s, &costs, &timeline));
            makespan[k] = timeline.makespan;
            assert_true(timeline.makespan > 28.5);
            cgp_schedule_timeline_release(&timeline);
            cgp_schedule_destroy(s);
        }
        assert_float_equal(makespan[0], makespan[1], 0.0);
    }
}

/* --- figures --- */

static double bubble_of(const table *t) {
    assert_non_null(t);
    cgp_schedule_timeline timeline;
    cgp_schedule *s = lowered(t->name, t->text);
    assert_ok(cgp_schedule_simulate(s, NULL, &timeline));
    const double bubble = timeline.bubble_makespan;
    cgp_schedule_timeline_release(&timeline);
    cgp_schedule_destroy(s);
    return 100.0 * bubble;
}

TEST_CASE(bubbles_are_those_of_the_schedules) {
    static const struct {
        const char *name;
        int chunks;
        double percent;
    } known[] = {{"ScheduleInterleaved1F1B", 8, 15.79},
                 {"ScheduleZBVZeroBubble", 8, 5.88},
                 {"ScheduleDualPipeV", 10, 9.09}};
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
        static const char *const formats[] = {"compute_only", "compute_comms"};
        for (int f = 0; f < 2; f++)
            assert_float_equal(
                bubble_of(find("torch-2.15.0.txt", known[k].name, 4, known[k].chunks, formats[f])),
                known[k].percent, 0.005);
    }
}

/* PyTorch 2.6 changed the letters of actions, but not the schedules. */
TEST_CASE(older_letters_are_the_same_schedule) {
    static const char name[] = "ScheduleInterleavedZeroBubble";
    for (int chunks = 4; chunks <= 8; chunks += 4) {
        const table *older = find("torch-2.5.1.txt", name, chunks / 2, chunks, "compute_only");
        const table *now = find("torch-2.6.0.txt", name, chunks / 2, chunks, "compute_only");
        assert_null(strchr(older->text, 'I'));
        assert_non_null(strchr(now->text, 'I'));
        cgp_schedule *a = lowered(name, older->text), *b = lowered(name, now->text);
        char *x = NULL, *y = NULL;
        assert_ok(cgp_schedule_to_csv(a, CGP_CSV_TRANSFERS, &x));
        assert_ok(cgp_schedule_to_csv(b, CGP_CSV_TRANSFERS, &y));
        assert_string_equal(x, y);
        free(y);
        free(x);
        cgp_schedule_destroy(b);
        cgp_schedule_destroy(a);
    }
}

/* Compare our schedules with PyTorch's schedules of the same names, action by action. */
TEST_CASE(our_schedules_of_the_same_name_are_equal) {
    static const char *const pairs[][2] = {{"ScheduleGPipe", "gpipe"},
                                           {"Schedule1F1B", "1f1b"},
                                           {"ScheduleInterleaved1F1B", "interleaved"},
                                           {"ScheduleInterleavedZeroBubble", "interleaved-zb"},
                                           {"ScheduleZBVZeroBubble", "zb-v"},
                                           {"ScheduleDualPipeV", "dualpipe-v"}};
    int compared = 0;
    for (int k = 0; k < n_tables; k++) {
        const table *t = &tables[k];
        for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++) {
            if (!is(t->name, pairs[p][0]) || !is(t->format, "compute_only")) continue;
            cgp_schedule *theirs = lowered(t->name, t->text);
            cgp_schedule *ours = test_generate(pairs[p][1], t->devices, t->chunks, 0);
            char *x = cgp_schedule_draw(theirs), *y = cgp_schedule_draw(ours);
            if (strcmp(x, y) != 0)
                print_error("%s %s %dx%d\n%s\n%s\n", t->file, t->name, t->devices, t->chunks, x, y);
            assert_string_equal(x, y);
            compared++;
            free(y);
            free(x);
            cgp_schedule_destroy(ours);
            cgp_schedule_destroy(theirs);
        }
    }
    assert_true(compared >= 25);
}

/* If a table is read with its transfers and written again, the text is the same, except for skipped
 * actions. */
TEST_CASE(receives_stay_where_they_were_posted) {
    const table *t = find("torch-2.6.0.txt", "ScheduleInterleaved1F1B", 2, 4, "compute_comms");
    cgp_schedule *s = lowered(t->name, t->text);
    char *text = NULL, expected[4096] = "";
    size_t n = 0;
    assert_ok(cgp_schedule_to_csv(s, CGP_CSV_TRANSFERS, &text));
    for (const char *at = t->text; *at;) {
        const size_t length = strcspn(at, ",\n"), first = strspn(at, "0123456789");
        const bool shard =
            strncmp(at + first, "UNSHARD", 7) == 0 || strncmp(at + first, "RESHARD", 7) == 0;
        if (!shard) {
            if (n > 0 && expected[n - 1] != '\n') expected[n++] = ',';
            memcpy(expected + n, at, length);
            n += length;
        }
        at += length;
        if (*at == '\n') expected[n++] = '\n';
        at += *at != '\0';
    }
    assert_string_equal(text, expected);
    assert_non_null(strstr(text, "1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1"));
    assert_non_null(strstr(text, "SEND_F0,2RECV_F0,0F1")); /* posted before 0F1 */
    free(text);
    cgp_schedule_destroy(s);
}

TEST_GROUP(.set_up = read_all);
