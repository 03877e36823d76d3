/* SPDX-License-Identifier: Apache-2.0 */
/* reference.h -- numbers computed by PyTorch (tools/reference_numbers.py and its siblings), and the
 * formulas from which both sides start. */
#ifndef CGP_TESTS_REFERENCE_H
#define CGP_TESTS_REFERENCE_H

#include <jansson.h>

#include "support.h"

/* Compute hash(p, i) as in tools/reference_numbers.py. */
uint32_t test_hash(uint64_t p, uint64_t i);

/* Load a file of numbers; fail the test on error. The caller releases it with json_decref(). */
json_t *test_reference_load(const char *path);

/* Return a member of an object; 0 if it is absent. */
int test_integer(const json_t *object, const char *key);
double test_number(const json_t *object, const char *key);

#endif
