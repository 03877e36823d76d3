/* SPDX-License-Identifier: Apache-2.0 */
/* test_fuzz.c -- the driver of all readers. It runs the tests of the reader that the argument
 * names. Without an argument, it runs the tests of all readers. With CGP_LIBFUZZER it is a
 * libFuzzer target for one reader. The macro FUZZ_READERS, which the build defines, has
 * READER(NAME) for each reader that is linked. */
#include "fuzz.h"

#include <dirent.h>
#include <time.h>

#define READER(name) extern const fuzz_reader fuzz_##name;
FUZZ_READERS
#undef READER
#define READER(name) {#name, &fuzz_##name},
static const struct {
    const char *name;
    const fuzz_reader *reader;
} readers[] = {FUZZ_READERS};

static const fuzz_reader *fuzzed;

/* --- inputs --- */

void *fuzz_exact(const void *bytes, size_t size) {
    void *copy = malloc(size ? size : 1);
    REQUIRE(copy);
    if (size > 0) memcpy(copy, bytes, size);
    return copy;
}

bool fuzz_take_exact(fuzz_take *take, const void *bytes, size_t size) {
    void *copy = fuzz_exact(bytes, size);
    const bool accepted = take(copy, size);
    free(copy);
    return accepted;
}

char *fuzz_text(const uint8_t *bytes, size_t size) {
    char *text = malloc(size + 1);
    REQUIRE(text);
    if (size > 0) memcpy(text, bytes, size);
    text[size] = '\0';
    return text;
}

size_t fuzz_below(uint64_t *random, size_t bound) {
    return bound ? (size_t)(test_random(random) % bound) : 0;
}

const char *fuzz_word(const char *const *words, uint64_t *random) {
    size_t count = 0;
    while (words[count])
        count++;
    return words[fuzz_below(random, count)];
}

void fuzz_draw_bytes(fuzz_input *in, size_t bound, uint64_t *random) {
    in->size = fuzz_below(random, bound);
    for (size_t k = 0; k < in->size; k++)
        in->bytes[k] = (uint8_t)test_random(random);
}

void fuzz_replace(fuzz_input *in, size_t at, size_t out, const void *with, size_t count) {
    if (at + out > in->size || in->size - out + count > FUZZ_CAPACITY) return;
    memmove(in->bytes + at + count, in->bytes + at + out, in->size - at - out);
    memcpy(in->bytes + at, with, count);
    in->size += count - out;
}

void fuzz_append(fuzz_input *in, const void *bytes, size_t count) {
    fuzz_replace(in, in->size, 0, bytes, count);
}

void fuzz_append_vocabulary(fuzz_input *in) {
    int others = 256;
    for (int b = 0; b < 256; b++) {
        const bool itself = (b > 0x20 && b < 0x7f) || (b > 0xa0 && b != 0xad);
        char text[32];
        fuzz_append(
            in, text,
            (size_t)sprintf(text, "%s\"\\u%04x\":%d", b ? "," : "", itself ? b : others++, b));
    }
}

void fuzz_replace_word(fuzz_input *in, size_t at, size_t out, const char *const *words,
                       uint64_t *random) {
    const char *word = fuzz_word(words, random);
    fuzz_replace(in, at, fuzz_below(random, out), word, strlen(word));
}

void fuzz_copy_piece(fuzz_input *in, size_t from, size_t bound, size_t to, size_t out,
                     uint64_t *random) {
    const size_t length = fuzz_below(random, bound);
    if (from + length > in->size) return;
    void *piece = fuzz_exact(in->bytes + from, length);
    fuzz_replace(in, to, fuzz_below(random, out), piece, length);
    free(piece);
}

void fuzz_flip_bit(fuzz_input *in, size_t at, uint64_t *random) {
    if (at < in->size) in->bytes[at] ^= (uint8_t)(1u << fuzz_below(random, 8));
}

void fuzz_check_plan(const cgp_model *model, const cgp_plan_options *options) {
    cgp_plan *plan = NULL;
    const cgp_status status = cgp_plan_create(&plan, model, options);
    REQUIRE(status == CGP_OK ? plan != NULL : !plan && *cgp_message());
    for (int d = 0; plan && d < cgp_plan_devices(plan); d++) {
        const cgp_plan_device *device = cgp_plan_device_at(plan, d);
        REQUIRE(device->parameter_bytes >= 0 && device->slot_bytes >= 0 &&
                device->workspace_bytes >= 0);
        REQUIRE(device->planned_bytes >= device->parameter_bytes &&
                device->planned_bytes >= device->activation_bytes);
    }
    cgp_plan_destroy(plan);
}

/* Read the next input of a corpus; return false at its end. */
static bool next_input(FILE *corpus, fuzz_input *in) {
    uint8_t length[4];
    if (fread(length, 1, 4, corpus) != 4) return false;
    in->size =
        length[0] | (size_t)length[1] << 8 | (size_t)length[2] << 16 | (size_t)length[3] << 24;
    return in->size <= sizeof in->bytes && fread(in->bytes, 1, in->size, corpus) == in->size;
}

int fuzz_corpus(const char *name, fuzz_take *take) {
    static fuzz_input in;
    char path[600];
    int accepted = 0;
    snprintf(path, sizeof path, "%s/../fuzz/corpus/%s", TEST_DATA, name);
    FILE *corpus = fopen(path, "rb");
    assert_non_null(corpus);
    while (next_input(corpus, &in)) {
        fuzz_empty();
        accepted += fuzz_take_exact(take, in.bytes, in.size);
    }
    assert_true(feof(corpus)); /* all inputs fit into the buffer */
    fclose(corpus);
    return accepted;
}

#ifdef CGP_LIBFUZZER

/* libFuzzer needs a directory of files. Environment variables make a fuzz target write that
 * directory before it starts, or pack the directory into a corpus file. */

/* Unpack the corpus file FUZZ_CORPUS into the directory FUZZ_INTO. */
static void unpack(const char *corpus, const char *into) {
    static fuzz_input in;
    FILE *from = fopen(corpus, "rb");
    for (int i = 0; from && next_input(from, &in); i++) {
        char path[600];
        snprintf(path, sizeof path, "%s/seed-%04d", into, i);
        FILE *out = fopen(path, "wb");
        REQUIRE(out && fwrite(in.bytes, 1, in.size, out) == in.size && fclose(out) == 0);
    }
    if (from) fclose(from);
}

/* Pack the inputs in the directory FUZZ_FROM into the file FUZZ_PACK. */
static void pack(const char *corpus, const char *from) {
    static fuzz_input in;
    struct dirent **items = NULL;
    const int count = scandir(from, &items, NULL, alphasort);
    FILE *out = fopen(corpus, "wb");
    REQUIRE(out && count >= 0);
    for (int i = 0; i < count; i++) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", from, items[i]->d_name);
        FILE *file = items[i]->d_name[0] == '.' ? NULL : fopen(path, "rb");
        const size_t size = file ? fread(in.bytes, 1, sizeof in.bytes, file) : 0;
        const uint8_t length[4] = {(uint8_t)size, (uint8_t)(size >> 8), (uint8_t)(size >> 16), 0};
        if (size > 0)
            REQUIRE(fwrite(length, 1, 4, out) == 4 && fwrite(in.bytes, 1, size, out) == size);
        if (file) fclose(file);
        free(items[i]);
    }
    free(items);
    REQUIRE(fclose(out) == 0);
}

static void leave_nothing(void) {
    if (fuzzed->tear_down) (void)fuzzed->tear_down(NULL);
    (void)fuzz_remove_directory();
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    fuzzed = readers[0].reader;
    cgp_log_set_level(CGP_LOG_ERROR);
    if (getenv("FUZZ_PACK")) {
        pack(getenv("FUZZ_PACK"), getenv("FUZZ_FROM"));
        exit(0);
    }
    if (getenv("FUZZ_INTO")) unpack(getenv("FUZZ_CORPUS"), getenv("FUZZ_INTO"));
    REQUIRE(fuzz_make_directory() == 0 && (!fuzzed->set_up || fuzzed->set_up(NULL) == 0));
    atexit(leave_nothing);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    fuzz_empty();
    (void)fuzzed->take(bytes, size);
    return 0;
}

#else

enum { SEEDS = 2048, SECONDS = 5 };

static const char *name; /* name of the reader */
static struct {
    uint8_t *bytes[SEEDS];
    size_t size[SEEDS], count;
} seeds;

static bool keep_seed(const uint8_t *bytes, size_t size) {
    assert_true(seeds.count < SEEDS);
    seeds.bytes[seeds.count] = fuzz_exact(bytes, size);
    seeds.size[seeds.count++] = size;
    return true;
}

/* Mutate a copy of an input of the corpus. */
static void mutate(fuzz_input *in, uint64_t *random) {
    const char *word = fuzz_word(fuzzed->words, random);
    const size_t at = fuzz_below(random, in->size + 1), other = fuzz_below(random, seeds.count);
    const size_t from = fuzz_below(random, seeds.size[other]);
    size_t digit = at;
    switch (fuzz_below(random, 8)) {
    case 0:
        fuzz_flip_bit(in, at, random);
        break;
    case 1: /* truncate */
        in->size = at;
        break;
    case 2: /* copy a part of another input */
        fuzz_replace(in, at, fuzz_below(random, 9), seeds.bytes[other] + from,
                     fuzz_below(random, seeds.size[other] - from) + 1);
        break;
    case 3: /* replace a digit */
    case 4: /* replace a whole number by a word */
        while (digit < in->size && (in->bytes[digit] < '0' || in->bytes[digit] > '9'))
            digit++;
        if (digit == in->size) break;
        if (fuzz_below(random, 2)) {
            in->bytes[digit] = (uint8_t)('0' + fuzz_below(random, 10));
            break;
        }
        fuzz_replace(in, digit, 1, word, strlen(word));
        break;
    default:
        fuzz_replace(in, at, fuzz_below(random, 2) ? 0 : fuzz_below(random, 12), word,
                     strlen(word));
    }
}

static bool play_seed(int times, uint64_t *random) {
    static fuzz_input in;
    const size_t seed = fuzz_below(random, seeds.count);
    memcpy(in.bytes, seeds.bytes[seed], in.size = seeds.size[seed]);
    for (; times > 0; times--)
        mutate(&in, random);
    fuzz_empty();
    return fuzz_take_exact(fuzzed->take, in.bytes, in.size);
}

/* --- tests --- */

static void mutated_inputs_are_refused_or_true(void **state) {
    (void)state;
    uint64_t random = test_seed();
    const time_t start = time(NULL);
    const int least = fuzzed->accepted_in ? fuzzed->accepted_in : 200,
              most = fuzzed->refused_in ? fuzzed->refused_in : 200;
    int accepted = 0, tried = 0;
    seeds.count = 0;
    if (!fuzzed->play) (void)fuzz_corpus(name, keep_seed);
    for (; tried < fuzzed->mutations; tried++) {
        if (!fuzzed->play && time(NULL) - start >= SECONDS) break;
        accepted += (fuzzed->play ? fuzzed->play : play_seed)(test_between(&random, 1, 3), &random);
    }
    print_message("%s: %d of %d mutated inputs were accepted\n", name, accepted, tried);
    assert_in_range(accepted, tried / least, tried - tried / most); /* both outcomes occur */
    for (size_t i = 0; i < seeds.count; i++)
        free(seeds.bytes[i]);
}

static void valid_inputs_are_accepted(void **state) {
    (void)state;
    uint64_t random = test_seed();
    for (int i = 0; i < fuzzed->valid; i++)
        assert_true(fuzzed->play(0, &random));
}

static void the_corpus_is_refused_or_true(void **state) {
    (void)state;
    assert_true(fuzz_corpus(name, fuzzed->take) >= fuzzed->corpus);
}

static int set_up(void **state) {
    return fuzz_make_directory() || (fuzzed->set_up && fuzzed->set_up(state));
}

static int tear_down(void **state) {
    const int failed = fuzzed->tear_down ? fuzzed->tear_down(state) : 0;
    return fuzz_remove_directory() || failed;
}

static int run_reader(void) {
    enum { MORE = sizeof fuzzed->tests / sizeof fuzzed->tests[0] };
    struct CMUnitTest tests[3 + MORE] = {cmocka_unit_test(the_corpus_is_refused_or_true)};
    if (fuzzed->mutations > 0)
        tests[1] = (struct CMUnitTest)cmocka_unit_test(mutated_inputs_are_refused_or_true);
    if (fuzzed->valid > 0)
        tests[2] = (struct CMUnitTest)cmocka_unit_test(valid_inputs_are_accepted);
    memcpy(tests + 3, fuzzed->tests, sizeof fuzzed->tests);
    return cmocka_run_group_tests_name(name, tests, set_up, tear_down);
}

int main(int argc, char **argv) {
    int ran = 0, failed = 0;
    cgp_log_set_level(CGP_LOG_ERROR);
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++) {
        if (argc > 1 && strcmp(argv[1], readers[i].name) != 0) continue;
        name = readers[i].name;
        fuzzed = readers[i].reader;
        failed += run_reader();
        ran++;
    }
    if (ran == 0) fprintf(stderr, "%s: no such reader\n", argv[1]);
    return failed > 0 || ran == 0;
}

#endif
