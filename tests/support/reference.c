/* SPDX-License-Identifier: Apache-2.0 */
/* reference.c -- see reference.h. */
#include "reference.h"

uint32_t test_hash(uint64_t p, uint64_t i) {
    uint32_t h = (uint32_t)(i * 2654435761u + (p + 1) * 2246822519u);
    h ^= h >> 15;
    return h * 2654435761u;
}

json_t *test_reference_load(const char *path) {
    json_error_t error;
    json_t *numbers = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!numbers) print_error("%s: %s (line %d)\n", path, error.text, error.line);
    assert_non_null(numbers);
    return numbers;
}

int test_integer(const json_t *object, const char *key) {
    return (int)json_integer_value(json_object_get(object, key));
}

double test_number(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}
