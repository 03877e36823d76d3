/* SPDX-License-Identifier: Apache-2.0 */
/* json.c -- a report as JSON text. */
#include "report_page/page.h"

#include "text.h"

#include <stdlib.h>

char *cli_page_json(json_t *const *runs, int n) {
    json_t *list = NULL;
    const json_t *root = runs[0];
    if (n > 1) {
        list = json_array();
        for (int i = 0; i < n; i++)
            json_array_append(list, runs[i]);
        root = list;
    }
    char *dump = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(CLI_PAGE_DIGITS));
    char *text = dump ? cli_text("%s\n", dump) : NULL;
    free(dump);
    json_decref(list);
    if (!text) (void)!cgp_fail(CGP_ENOMEM, "report: out of memory");
    return text;
}
