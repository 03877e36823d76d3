/* SPDX-License-Identifier: Apache-2.0 */
/* reference.h -- reads numbers that PyTorch computed (with tools/reference_numbers.py and similar
 * scripts). The header also declares the hash function from which the scripts and the tests compute
 * initial values. */
#ifndef CGP_TESTS_REFERENCE_H
#define CGP_TESTS_REFERENCE_H

#include <jansson.h>

#include "support.h"

/* Compute hash(p, i) as in tools/reference_numbers.py. */
uint32_t test_hash(uint64_t p, uint64_t i);

/* Load a file of numbers; fail the test on error. The caller releases it with json_decref(). */
json_t *test_reference_load(const char *path);

/* Return the integer member `key` of an object; 0 if the object has no such member. */
int test_integer(const json_t *object, const char *key);
double test_number(const json_t *object, const char *key);

#endif
