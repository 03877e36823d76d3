/* SPDX-License-Identifier: Apache-2.0 */
/* graph.c -- reads and writes the attributes of built-in ops in graph files. A new op needs a line
 * in `lines`; a new attribute needs a line in `fields`. */
#include "model/graph.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* --- tables --- */

/* An entry of `fields`; `at` is the place of the field in cgp__attributes. */
#define FIELD(type, of, at, text)                                                                  \
    {                                                                                              \
        .name = #text, .kind = CGP__FIELD_##type, .family = CGP_OP_FAMILY_##of,                    \
        .offset = offsetof(cgp__attributes, at), .bytes = sizeof(((cgp__attributes *)NULL)->at)    \
    }

/* The fields of cgp__attributes, in the order in which they are written. */
static const cgp__field fields[] = {
    FIELD(NONE, PLAIN, kind, kind),         /* the file stores the kind as the node's `op` */
    FIELD(NONE, PLAIN, n_inputs, n_inputs), /* the file stores the number as the length of the
                                             * node's `inputs` */
    FIELD(NONE, PLAIN, init, init),         /* the file stores initializations in `parameters` */
    FIELD(INT64, PLAIN, size, size),
    FIELD(INT64, PLAIN, width, width),
    FIELD(INT64, ATTENTION, attention.heads, heads),
    FIELD(INT64, ATTENTION, attention.kv_heads, kv_heads),
    FIELD(INT64, ATTENTION, attention.window, window),
    FIELD(REAL, PLAIN, p, p),
    FIELD(REAL, PLAIN, slope, slope),
    FIELD(BOOL, PLAIN, bias, bias),
    FIELD(BOOL, PLAIN, sum, sum),
    FIELD(REAL, ATTENTION, attention.scale, scale),
    FIELD(BOOL, ATTENTION, attention.fused, fused),
    FIELD(BOOL, ATTENTION, attention.causal, causal),
    FIELD(INT64, ROTARY, rotary.heads, heads),
    FIELD(INT64, ROTARY, rotary.rotated, rotated),
    FIELD(INT64, ROTARY, rotary.offset, offset),
    FIELD(INT64, ROTARY, rotary.original_length, original_length),
    FIELD(REAL, ROTARY, rotary.theta, theta),
    FIELD(REAL, ROTARY, rotary.factor, factor),
    FIELD(REAL, ROTARY, rotary.low_freq_factor, low_freq_factor),
    FIELD(REAL, ROTARY, rotary.high_freq_factor, high_freq_factor),
    FIELD(INT, ROTARY, rotary.scaling, scaling),
    FIELD(BOOL, ROTARY, rotary.interleaved, interleaved),
    FIELD(INT64, NORM, norm.groups, groups),
    FIELD(REAL, NORM, norm.eps, eps),
    FIELD(REAL, NORM, norm.momentum, momentum),
    FIELD(INT, FUNCTION, function.function, function),
    FIELD(REAL, FUNCTION, function.second, second),
    FIELD(INT64, CROSS_ENTROPY, cross_entropy.ignore, ignore),
    FIELD(REAL, CROSS_ENTROPY, cross_entropy.smoothing, smoothing),
    FIELD(REAL, ELEMENT_LOSS, element_loss.beta, beta),
    FIELD(BOOL, LINEAR, linear.transposed, transposed),
    FIELD(BOOL, MATMUL, matmul.transpose, transpose),
    FIELD(BOOL, WINDOWS, windows.global, global),
    FIELD(INT, WINDOWS, windows.dim, dim),
    FIELD(INT, WINDOWS, windows.kernel, kernel),
    FIELD(INT, WINDOWS, windows.stride, stride),
    FIELD(INT, WINDOWS, windows.padding, padding),
    FIELD(INT, WINDOWS, windows.output_padding, output_padding),
    FIELD(INT64, WINDOWS, windows.groups, groups),
    FIELD(INT, WINDOWS, windows.dilation, dilation),
    FIELD(INT, PARTS, parts.rank, rank),
    FIELD(INT64, PARTS, parts.dims, dims),
    FIELD(INT, PARTS, parts.dim, dim),
    FIELD(INT64, PARTS, parts.begin, begin),
    FIELD(INT64, PARTS, parts.end, end),
};
enum { FIELDS = sizeof fields / sizeof fields[0] };

static const char rotary[] = "heads rotated? offset? theta? scaling? factor? low_freq_factor? "
                             "high_freq_factor? original_length? interleaved? n_inputs";

/* The attributes of each op. */
static const char *const lines[CGP_OP_KINDS] = {
    [CGP_OP_GELU] = "",
    [CGP_OP_GELU_TANH] = "",
    [CGP_OP_SILU] = "",
    [CGP_OP_RELU] = "slope",
    [CGP_OP_SCALE] = "slope",
    [CGP_OP_SIGMOID] = "",
    [CGP_OP_TANH] = "",
    [CGP_OP_EMBEDDING] = "size width",
    [CGP_OP_POSITION] = "",
    [CGP_OP_ADD] = "",
    [CGP_OP_LINEAR] = "size bias transposed",
    [CGP_OP_LAYER_NORM] = "eps",
    [CGP_OP_ATTENTION] = "heads kv_heads? window? p scale? fused? causal? n_inputs",
    [CGP_OP_CACHED_ATTENTION] = "size heads kv_heads? window? scale?",
    [CGP_OP_ROTARY] = rotary,
    [CGP_OP_DROPOUT] = "p",
    [CGP_OP_CROSS_ENTROPY] = "ignore smoothing? sum? n_inputs",
    [CGP_OP_ARGMAX] = "",
    [CGP_OP_BCE_WITH_LOGITS] = "sum?",
    [CGP_OP_DROPOUT2D] = "p",
    [CGP_OP_RESHAPE] = "rank dims",
    [CGP_OP_TRANSPOSE] = "dim",
    [CGP_OP_SLICE] = "dim begin end",
    [CGP_OP_MATMUL] = "transpose",
    [CGP_OP_CONV2D] = "size bias kernel stride padding groups? dilation?",
    [CGP_OP_CONV_TRANSPOSE2D] = ("size bias kernel stride padding output_padding groups? "
                                 "dilation?"),
    [CGP_OP_MAX_POOL] = "kernel stride padding",
    [CGP_OP_AVERAGE_POOL] = "global kernel stride padding",
    [CGP_OP_UPSAMPLE] = "stride",
    [CGP_OP_PAD] = "kernel stride padding",
    [CGP_OP_CONCAT] = "n_inputs",
    [CGP_OP_BATCH_NORM] = "eps momentum",
    [CGP_OP_INSTANCE_NORM] = "eps",
    [CGP_OP_RMS_NORM] = "eps",
    [CGP_OP_MULTIPLY] = "",
    [CGP_OP_SUBTRACT] = "",
    [CGP_OP_SOFTMAX] = "",
    [CGP_OP_GROUP_NORM] = "groups eps",
    [CGP_OP_MEAN] = "dim",
    [CGP_OP_DETACH] = "",
    [CGP_OP_MSE] = "sum?",
    [CGP_OP_SMOOTH_L1] = "beta sum?",
    [CGP_OP_FUNCTION] = "function slope? second?",
    [CGP_OP_FUNCTION_OF_Y] = "function slope? second?",
    [CGP_OP_LOG_SOFTMAX] = "",
    [CGP_OP_WEIGHTED_MEAN] = "sum? n_inputs",
};

static const char *const inits[] = {[CGP_INIT_ZERO] = "zero",
                                    [CGP_INIT_ONE] = "one",
                                    [CGP_INIT_NORMAL] = "normal",
                                    [CGP_INIT_UNIFORM] = "uniform",
                                    [CGP_INIT_TRUNCATED_NORMAL] = "truncated_normal"};
enum { INITS = sizeof inits / sizeof inits[0] };

const cgp__field *cgp__graph_field(int i) {
    return i >= 0 && i < FIELDS ? &fields[i] : NULL;
}

const char *cgp__graph_attributes(cgp_op_kind kind) {
    return lines[kind];
}

cgp_op_kind cgp__graph_kind(const char *name) {
    int kind = 0;
    while (kind < CGP_OP_KINDS && strcmp(cgp_op_name((cgp_op_kind)kind), name) != 0)
        kind++;
    return (cgp_op_kind)kind;
}

int cgp__graph_init(const char *name) {
    int kind = INITS - 1;
    while (kind >= 0 && strcmp(inits[kind], name) != 0)
        kind--;
    return kind;
}

const char *cgp__graph_init_name(cgp_init_kind kind) {
    return (int)kind >= 0 && (int)kind < INITS ? inits[kind] : NULL;
}

/* Return true if the attributes struct of an op has this field. */
static bool can_have(cgp_op_kind kind, const cgp__field *field) {
    return field->family == CGP_OP_FAMILY_PLAIN || field->family == cgp_op_family_of(kind);
}

bool cgp__graph_has(cgp_op_kind kind, const cgp__field *field, bool *optional) {
    const char *at = can_have(kind, field) ? lines[kind] : NULL;
    const size_t length = strlen(field->name);
    while (at && *at) {
        const size_t word = strcspn(at, " "), name = strcspn(at, "? ");
        if (optional) *optional = name < word;
        if (name == length && strncmp(at, field->name, length) == 0) return true;
        at += word + strspn(at + word, " ");
    }
    return false;
}

/* --- one element --- */

static size_t element_bytes(cgp__field_kind kind) {
    switch (kind) {
    case CGP__FIELD_INT:
        return sizeof(int);
    case CGP__FIELD_BOOL:
        return sizeof(bool);
    default:
        return sizeof(int64_t);
    }
}

static json_t *write_element(cgp__field_kind kind, const void *at) {
    switch (kind) {
    case CGP__FIELD_INT:
        return json_integer(*(const int *)at);
    case CGP__FIELD_INT64:
        return json_integer(*(const int64_t *)at);
    case CGP__FIELD_BOOL:
        return json_boolean(*(const bool *)at);
    default:
        return json_real(*(const double *)at);
    }
}

static bool read_element(cgp__field_kind kind, void *at, const json_t *value) {
    const json_int_t whole = json_integer_value(value);
    switch (kind) {
    case CGP__FIELD_INT:
        if (!json_is_integer(value) || whole < INT_MIN || whole > INT_MAX) return false;
        *(int *)at = (int)whole;
        return true;
    case CGP__FIELD_INT64:
        *(int64_t *)at = whole;
        return json_is_integer(value);
    case CGP__FIELD_BOOL:
        *(bool *)at = json_is_true(value);
        return json_is_boolean(value);
    default:
        *(double *)at = json_number_value(value);
        return json_is_number(value);
    }
}

/* --- all attributes of an op --- */

static bool is_zero(const cgp__field *field, const cgp__attributes *attributes) {
    const char *at = (const char *)attributes + field->offset;
    for (size_t i = 0; i < field->bytes; i++) {
        if (at[i]) return false;
    }
    return true;
}

/* Return the JSON value of a field; NULL if memory is short. */
static json_t *write_field(const cgp__field *field, const cgp__attributes *attributes) {
    const char *at = (const char *)attributes + field->offset;
    const size_t bytes = element_bytes(field->kind);
    if (field->bytes == bytes) return write_element(field->kind, at);
    json_t *list = json_array();
    for (size_t i = 0; list && i < field->bytes; i += bytes) {
        if (json_array_append_new(list, write_element(field->kind, at + i)) == 0) continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

cgp_status cgp__graph_attributes_write(json_t **out, const cgp__attributes *attributes) {
    const cgp_op_kind kind = attributes->kind;
    json_t *object = json_object();
    bool good = object != NULL;
    for (int i = 0; i < FIELDS && good; i++) {
        const cgp__field *field = &fields[i];
        bool optional = false;
        const bool has = cgp__graph_has(kind, field, &optional);
        if (!has && field->kind != CGP__FIELD_NONE && can_have(kind, field) &&
            !is_zero(field, attributes)) {
            json_decref(object);
            return cgp_fail(CGP_EINVAL, "%s: graph files have no attribute %s of this op",
                            cgp_op_name(kind), field->name);
        }
        if (!has || field->kind == CGP__FIELD_NONE || (optional && is_zero(field, attributes)))
            continue;
        good = json_object_set_new(object, field->name, write_field(field, attributes)) == 0;
    }
    if (good) {
        *out = object;
        return CGP_OK;
    }
    json_decref(object);
    return cgp__no_memory("graph", sizeof *attributes);
}

const char *cgp__graph_show(const json_t *value, char *text, size_t size) {
    char *whole = value ? cgp__json_text(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    snprintf(text, size, "%.*s", (int)size - 1, whole ? whole : value ? "?" : "none");
    free(whole);
    return text;
}

static cgp_status read_field(const cgp__field *field, cgp__attributes *attributes,
                             const json_t *value) {
    static const char *const kinds[] = {[CGP__FIELD_INT] = "whole number",
                                        [CGP__FIELD_INT64] = "whole number",
                                        [CGP__FIELD_REAL] = "number",
                                        [CGP__FIELD_BOOL] = "true or false"};
    char *at = (char *)attributes + field->offset, got[80];
    const size_t bytes = element_bytes(field->kind), n = field->bytes / bytes;
    bool good = n == 1 ? read_element(field->kind, at, value) : json_array_size(value) == n;
    for (size_t i = 0; n > 1 && good && i < n; i++)
        good = read_element(field->kind, at + i * bytes, json_array_get(value, i));
    if (good) return CGP_OK;
    (void)cgp__graph_show(value, got, sizeof got);
    if (n == 1)
        return cgp_fail(CGP_EFORMAT, "%s: expected %s%s, got %s", field->name,
                        field->kind == CGP__FIELD_BOOL ? "" : "a ", kinds[field->kind], got);
    return cgp_fail(CGP_EFORMAT, "%s: expected a list of %zu values, each a %s, got %s",
                    field->name, n, kinds[field->kind], got);
}

static cgp_status unknown_attribute(cgp_op_kind kind, const char *key) {
    char list[256] = "";
    for (int i = 0; i < FIELDS; i++) {
        const size_t used = strlen(list);
        if (fields[i].kind != CGP__FIELD_NONE && cgp__graph_has(kind, &fields[i], NULL))
            snprintf(list + used, sizeof list - used, " %s", fields[i].name);
    }
    return cgp_fail(CGP_EFORMAT, "%.80s: unknown attribute of %s, which has%s", key,
                    cgp_op_name(kind), *list ? list : " none");
}

cgp_status cgp__graph_attributes_read(cgp__attributes *attributes, cgp_op_kind kind,
                                      const json_t *object) {
    const char *key;
    json_t *value;
    char got[80];
    memset(attributes, 0, sizeof *attributes);
    attributes->kind = kind;
    if (object && !json_is_object(object))
        return cgp_fail(CGP_EFORMAT, "expected an object, got %s",
                        cgp__graph_show(object, got, sizeof got));
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        bool known = false;
        for (int i = 0; i < FIELDS && !known; i++)
            known = fields[i].kind != CGP__FIELD_NONE && strcmp(fields[i].name, key) == 0 &&
                    cgp__graph_has(kind, &fields[i], NULL);
        if (!known) return unknown_attribute(kind, key);
    }
    for (int i = 0; i < FIELDS; i++) {
        bool optional = false;
        if (fields[i].kind == CGP__FIELD_NONE || !cgp__graph_has(kind, &fields[i], &optional))
            continue;
        value = json_object_get(object, fields[i].name);
        if (!value && !optional) return cgp_fail(CGP_EFORMAT, "%s: is missing", fields[i].name);
        if (value) CGP_TRY(read_field(&fields[i], attributes, value));
    }
    return CGP_OK;
}
