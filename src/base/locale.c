/* SPDX-License-Identifier: Apache-2.0 */
/* locale.c -- formats and parses numbers with a decimal point. printf(), strtod() and jansson use
 * the program's locale, which may have a decimal comma. So the calling thread uses the C locale
 * while this library writes or reads a text.
 *
 * For "C", newlocale() of glibc and musl returns a constant, so it neither fails nor allocates. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* uselocale() */
#endif
#include "base/json.h"

#include <locale.h>
#include <stdlib.h>

static _Thread_local struct {
    int depth; /* nesting depth of begin/end pairs */
    locale_t before;
} kept;

void cgp__c_locale_begin(void) {
    if (kept.depth++ == 0) kept.before = uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
}

void cgp__c_locale_end(void) {
    if (--kept.depth == 0) (void)uselocale(kept.before);
}

void cgp__vprint(char *text, size_t size, const char *format, va_list args) {
    cgp__c_locale_begin();
    vsnprintf(text, size, format, args);
    cgp__c_locale_end();
}

void cgp__print(char *text, size_t size, const char *format, ...) {
    va_list args;
    va_start(args, format);
    cgp__vprint(text, size, format, args);
    va_end(args);
}

double cgp__read_real(const char *text, char **end) {
    cgp__c_locale_begin();
    const double value = strtod(text, end);
    cgp__c_locale_end();
    return value;
}
