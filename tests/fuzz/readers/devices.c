/* SPDX-License-Identifier: Apache-2.0 */
/* devices.c -- parses arbitrary lists of devices. A list is refused or accepted. If it is accepted,
 * the first name alone is also a valid list, and the names joined with commas give the same
 * list. */
#include "fuzz.h"

#include <cgpipe/devices.h>

/* Join the names with commas. The caller owns the result. */
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
    char *text = fuzz_text(bytes, size);
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

const fuzz_reader fuzz_devices = {
    .take = try_input,
    .words = FUZZ_WORDS("cpu", "cuda", ":", "@", ",", "*", "0", "1", "2", "9", "K", "MiB", "GiB",
                        "T", "iB", "65536", "-1", " ", "3,", "*2,", ":0@", "2147483647",
                        "2147483648", "9223372036854775807"),
    .mutations = 20000,
    .corpus = 6,
};
