/* SPDX-License-Identifier: Apache-2.0 */
/* json_value.c -- see json_value.h. */
#include "json_value.h"

#include "files.h"
#include "text.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

json_t *cli_text_json(const char *text) {
    json_t *string = text ? json_string(text) : NULL;
    return string ? string : json_null();
}

json_t *cli_integers_json(const int *values, int count) {
    json_t *list = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(list, json_integer(values[i]));
    return list;
}

json_t *cli_real_json(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

void cli_json_add(json_t *object, const char *format, ...) {
    va_list values;
    va_start(values, format);
    json_t *more = json_vpack_ex(NULL, 0, format, values);
    va_end(values);
    json_object_update(object, more);
    json_decref(more);
}

char *cli_json_text(json_t *object) {
    char *dump = json_dumps(object, JSON_INDENT(2));
    json_decref(object);
    if (!dump) (void)cgp_fail(CGP_ENOMEM, "json: out of memory");
    char *text = dump ? cli_text("%s\n", dump) : NULL;
    free(dump);
    return text;
}

cgp_status cli_json_replace(const char *path, json_t *object) {
    char *text = cli_json_text(object);
    return text ? cli_text_write(path, text) : CGP_ENOMEM;
}
