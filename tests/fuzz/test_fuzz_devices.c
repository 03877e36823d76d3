/* SPDX-License-Identifier: Apache-2.0 */
/* test_fuzz_devices.c -- arbitrary lists of devices. One is refused; or each of its names is a list
 * of one, and the names joined with commas are the same list.
 *
 * As a test it mutates its own inputs; with CGP_LIBFUZZER it is a libFuzzer target (make fuzz
 * READERS=devices). */
#include "fuzz.h"

#include <cgpipe/devices.h>

/* Join the names. Owned. */
static char *join(const cgp_device_list *list) {
    size_t bytes = 1, at = 0;
    for (int d = 0; d < list->count; d++)
        bytes += strlen(list->names[d]) + 1;
    char *text = malloc(bytes);
    REQUIRE(text);
    for (int d = 0; d < list->count; d++)
        at += (size_t)snprintf(text + at, bytes - at, "%s%s", d > 0 ? "," : "", list->names[d]);
    return text;
}

static void check_list(const cgp_device_list *list) {
    cgp_device_list again = {0}, one = {0};
    REQUIRE(list->count >= 1 && list->count <= CGP_MAX_DEVICES);
    char *text = join(list);
    REQUIRE(cgp_device_list_parse(&again, text) == CGP_OK && again.count == list->count);
    for (int d = 0; d < list->count; d++)
        REQUIRE(strcmp(again.names[d], list->names[d]) == 0 && !strpbrk(list->names[d], "*,"));
    REQUIRE(cgp_device_list_parse(&one, list->names[0]) == CGP_OK && one.count == 1);
    cgp_device_list_release(&one);
    cgp_device_list_release(&again);
    free(text);
}

static bool try_input(const uint8_t *bytes, size_t size) {
    cgp_device_list list = {NULL, -1};
    char *text = malloc(size + 1);
    REQUIRE(text);
    memcpy(text, bytes, size);
    text[size] = '\0';
    const cgp_status status = cgp_device_list_parse(&list, text);
    free(text);
    if (status != CGP_OK) {
        REQUIRE((status == CGP_EINVAL || status == CGP_ELIMIT) && *cgp_message());
        REQUIRE(!list.names && list.count == -1);
        return false;
    }
    check_list(&list);
    cgp_device_list_release(&list);
    return true;
}

#ifdef CGP_LIBFUZZER

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    (void)try_input(bytes, size);
    return 0;
}

#else

static const char *const words[] = {
    "cpu", "cuda", ":",  "@",   ",",   "*",          "0",          "1",
    "2",   "9",    "K",  "MiB", "GiB", "T",          "iB",         "65536",
    "-1",  " ",    "3,", "*2,", ":0@", "2147483647", "2147483648", "9223372036854775807",
};
static const fuzz_reader reader = {"devices", try_input, words, sizeof words / sizeof words[0],
                                   20000};

static void mutated_lists_are_refused_or_come_back(void **state) {
    (void)state;
    fuzz_run(&reader);
}

static void the_corpus_is_refused_or_comes_back(void **state) {
    (void)state;
    assert_true(fuzz_corpus(reader.name, FUZZ_CAPACITY, try_input) >= 6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mutated_lists_are_refused_or_come_back),
        cmocka_unit_test(the_corpus_is_refused_or_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
