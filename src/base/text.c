/* SPDX-License-Identifier: Apache-2.0 */
/* text.c -- a text in memory that is written like a file. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* declares open_memstream() also under -std=c11 */
#endif
#include "base/base.h"
#include "base/json.h"

#include <stdlib.h>

cgp_status cgp__text_open(cgp__text *text, const char *name) {
    *text = (cgp__text){.name = name};
    text->file = open_memstream(&text->bytes, &text->size);
    if (!text->file) return cgp__no_memory(name, 1);
    cgp__c_locale_begin();
    return CGP_OK;
}

cgp_status cgp__text_close(cgp__text *text, cgp_status status, char **out) {
    const bool failed = ferror(text->file) != 0;
    const bool closed = fclose(text->file) == 0;
    cgp__c_locale_end();
    if (status == CGP_OK && (failed || !closed)) status = cgp__no_memory(text->name, text->size);
    if (status == CGP_OK)
        *out = text->bytes;
    else
        free(text->bytes);
    *text = (cgp__text){.name = text->name};
    return status;
}
