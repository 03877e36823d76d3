/* SPDX-License-Identifier: Apache-2.0 */
/* utf8.c -- checks for UTF-8, and escapes untrusted text for a terminal. */
#include "base/utf8.h"

#include "base/base.h"

#include <stdio.h>

enum { MAX_CHARACTER = 4 }; /* a text ends with a 0 byte, so no character extends past its end */

/* Return 0 for overlong forms, surrogates and code points above U+10FFFF, because they are not
 * well-formed (The Unicode Standard, table 3-7). */
int cgp__utf8_character(const unsigned char *c, int64_t left) {
    if (c[0] < 0x80) return 1;
    if (c[0] < 0xc2 || c[0] > 0xf4) return 0;
    const int more = c[0] < 0xe0 ? 1 : c[0] < 0xf0 ? 2 : 3;
    if (left <= more) return 0;
    const unsigned char low = c[0] == 0xe0 ? 0xa0 : c[0] == 0xf0 ? 0x90 : 0x80;
    const unsigned char high = c[0] == 0xed ? 0x9f : c[0] == 0xf4 ? 0x8f : 0xbf;
    if (c[1] < low || c[1] > high) return 0;
    for (int i = 2; i <= more; i++) {
        if (c[i] < 0x80 || c[i] > 0xbf) return 0;
    }
    return 1 + more;
}

bool cgp__is_utf8(const char *text) {
    const unsigned char *c = (const unsigned char *)text;
    while (*c) {
        const int bytes = cgp__utf8_character(c, MAX_CHARACTER);
        if (bytes == 0) return false;
        c += bytes;
    }
    return true;
}

/* Return true for a control character: U+0000 .. U+001F, U+007F, or U+0080 .. U+009F. (Characters
 * of the last range are two bytes long.) */
static bool is_control(const unsigned char *c) {
    return c[0] < 0x20 || c[0] == 0x7f || (c[0] == 0xc2 && c[1] < 0xa0);
}

bool cgp__is_name(const char *text) {
    if (!cgp__is_utf8(text)) return false;
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (is_control(c)) return false;
    }
    return true;
}

char *cgp_escape(const char *text, char *out, size_t size) {
    CGP__NEED_OR(text, NULL);
    CGP__NEED_OR(out, NULL);
    const unsigned char *c = (const unsigned char *)text;
    size_t used = 0;
    if (size == 0) return out;
    while (*c) {
        char shown[20] = "";
        const int found = cgp__utf8_character(c, MAX_CHARACTER), bytes = found ? found : 1;
        const bool plain = found && !is_control(c);
        int length = 0;
        for (int i = 0; i < bytes; i++)
            length += snprintf(shown + length, sizeof shown - (size_t)length,
                               plain ? "%c" : "\\x%02x", (unsigned)c[i]);
        if (used + (size_t)length + 1 > size) break;
        for (int i = 0; i < length; i++)
            out[used++] = shown[i];
        c += bytes;
    }
    out[used] = '\0';
    return out;
}
