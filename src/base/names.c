/* SPDX-License-Identifier: Apache-2.0 */
/* names.c -- a name out of a list, and the nearest one, for "did you mean". */
#include "base/base.h"

#include <limits.h>
#include <string.h>

#define LONGEST 48

/* Edit distance (insert, delete, replace, each 1), one row of the table at a time. */
static int distance(const char *a, const char *b) {
    const int n = (int)strlen(a), m = (int)strlen(b);
    if (n > LONGEST || m > LONGEST) return INT_MAX;
    int row[LONGEST + 1];
    for (int j = 0; j <= m; j++)
        row[j] = j;
    for (int i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            const int above = row[j];
            int best = diagonal + (a[i - 1] != b[j - 1]);
            if (above + 1 < best) best = above + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            diagonal = above;
            row[j] = best;
        }
    }
    return row[m];
}

const char *cgp_nearest(const char *text, const char *const *names, int count) {
    const char *best = NULL;
    int least = (int)strlen(text) / 2 + 1;
    for (int i = 0; i < count; i++) {
        const int d = distance(text, names[i]);
        if (d <= least && (!best || d < least)) {
            least = d;
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
