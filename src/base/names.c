/* SPDX-License-Identifier: Apache-2.0 */
/* names.c -- finds a name in a list. If the name is not in the list, finds the nearest name, for
 * "did you mean" in a message. */
#include "base/base.h"

#include <limits.h>
#include <string.h>

#define LONGEST 48

/* Return `c` in lower case; if `c` is '_', return '-'. (tolower() depends on the locale.) */
static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c == '_' ? '-' : c;
}

/* Return true if two characters are equal apart from case; _ and - count as equal. */
static bool alike(char a, char b) {
    return lower(a) == lower(b);
}

/* Return the edit distance between `a` and `b`, with insertions, deletions, replacements and swaps
 * of neighbours (optimal string alignment). Only three rows of the table are kept. */
static int distance(const char *a, const char *b) {
    const int n = (int)strlen(a), m = (int)strlen(b);
    if (n > LONGEST || m > LONGEST) return INT_MAX;
    int rows[3][LONGEST + 1];
    for (int j = 0; j <= m; j++)
        rows[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *row = rows[i % 3];
        const int *above = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            int best = above[j - 1] + !alike(a[i - 1], b[j - 1]);
            if (above[j] + 1 < best) best = above[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            const bool exchanged =
                i > 1 && j > 1 && alike(a[i - 1], b[j - 2]) && alike(a[i - 2], b[j - 1]);
            if (exchanged && before[j - 2] + 1 < best) best = before[j - 2] + 1;
            row[j] = best;
        }
    }
    return rows[n % 3][m];
}

/* Return the largest accepted distance: a third of the length of the longer word, but 1 for words
 * of 2 or 3 characters. */
static int near_enough(const char *text, const char *name) {
    const int n = (int)strlen(text), m = (int)strlen(name);
    const int longer = n > m ? n : m;
    return longer > 3 ? longer / 3 : longer > 1;
}

const char *cgp_nearest(const char *text, const char *const *names, int count) {
    CGP__NEED_OR(text, NULL);
    if (count > 0) CGP__NEED_OR(names, NULL);
    const char *best = NULL;
    int min = INT_MAX;
    for (int i = 0; i < count; i++) {
        const int d = distance(text, names[i]);
        if (d < min && d <= near_enough(text, names[i])) {
            min = d;
            best = names[i];
        }
    }
    return best;
}

cgp_status cgp__parse_name(int *index, const char *text, const char *object, const char *list,
                           const char *const *names, int count) {
    if (!text) text = "";
    for (int i = 0; i < count; i++) {
        if (strcmp(text, names[i]) == 0) {
            *index = i;
            return CGP_OK;
        }
    }
    const char *near = cgp_nearest(text, names, count);
    return cgp_fail(CGP_EINVAL, "%s: expected %s, got \"%s\"%s%s%s", object, list, text,
                    near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
}
