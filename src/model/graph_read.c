/* SPDX-License-Identifier: Apache-2.0 */
/* graph_read.c -- makes a model from JSON. Values are numbered in the order in which the builder
 * makes them, so inputs and nodes are added in the order of their values. The builder checks shapes
 * and attributes; if it fails, the reader refuses the file with the builder's message. */
#include "model/graph_reader.h"

#include "base/json.h"
#include "base/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- messages --- */

cgp_status cgp__reader_refuse(const cgp__reader *r, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    cgp__vprint(text, sizeof text, format, args);
    va_end(args);
    return cgp_fail(CGP_EFORMAT, "%s: %s%s", r->name, r->place, text);
}

cgp_status cgp__reader_unexpected(const cgp__reader *r, const char *key, const char *expected,
                                  const json_t *value) {
    char got[80];
    return cgp__reader_refuse(r, "%s: expected %s, got %s", key, expected,
                              cgp__graph_show(value, got, sizeof got));
}

/* Refuse the text with the builder's first error. If memory is short, return CGP_ENOMEM instead. */
cgp_status cgp__reader_refuse_stuck(const cgp__reader *r) {
    const cgp_model *model = r->model;
    if (model->status == CGP_ENOMEM || !model->error)
        return cgp_fail(CGP_ENOMEM, "%s: out of memory", r->name);
    return cgp__reader_refuse(r, "%s", model->error);
}

void cgp__reader_set_place(cgp__reader *r, const char *list, size_t i) {
    snprintf(r->place, sizeof r->place, "%s[%zu]: ", list, i);
}

/* --- keys --- */

static bool is_word(const char *words, const char *word) {
    const size_t length = strlen(word);
    for (const char *at = words; *at; at += strcspn(at, " "), at += strspn(at, " ")) {
        if (strcspn(at, " ") == length && strncmp(at, word, length) == 0) return true;
    }
    return false;
}

/* Check that an object has only these keys, which are separated by blanks. */
cgp_status cgp__reader_check_keys(const cgp__reader *r, const json_t *object, const char *keys) {
    const char *key;
    json_t *value;
    char got[80];
    if (!json_is_object(object))
        return cgp__reader_refuse(r, "expected an object, got %s",
                                  cgp__graph_show(object, got, sizeof got));
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        (void)value;
        if (!is_word(keys, key))
            return cgp__reader_refuse(r, "%.80s: unknown key (keys: %s)", key, keys);
    }
    return CGP_OK;
}

cgp_status cgp__reader_take_text(const cgp__reader *r, const json_t *object, const char *key,
                                 const char **out) {
    *out = json_string_value(json_object_get(object, key));
    return *out ? CGP_OK : cgp__reader_unexpected(r, key, "a text", json_object_get(object, key));
}

static cgp_status take_list(const cgp__reader *r, const char *key, const json_t **out) {
    *out = json_object_get(r->root, key);
    return json_is_array(*out) ? CGP_OK : cgp__reader_unexpected(r, key, "a list", *out);
}

/* Read a whole number in 0 .. below - 1. */
cgp_status cgp__reader_take_index(const cgp__reader *r, const json_t *value, const char *key,
                                  int64_t below, int64_t *out) {
    char expected[64];
    *out = json_integer_value(value);
    if (json_is_integer(value) && *out >= 0 && *out < below) return CGP_OK;
    snprintf(expected, sizeof expected, "a whole number from 0 to %" PRId64, below - 1);
    return cgp__reader_unexpected(r, key, below > 0 ? expected : "nothing, as there is none",
                                  value);
}

static cgp_status take_shape(const cgp__reader *r, const json_t *object, cgp_shape *out) {
    const json_t *list = json_object_get(object, "shape");
    const size_t rank = json_array_size(list);
    int64_t dims[CGP_MAX_RANK], count = 1;
    bool good = json_is_array(list) && rank >= 1 && rank < CGP_MAX_RANK;
    for (size_t i = 0; good && i < rank; i++) {
        dims[i] = json_integer_value(json_array_get(list, i));
        good = json_is_integer(json_array_get(list, i)) && dims[i] >= 1 &&
               dims[i] <= ((int64_t)1 << 40) / count;
        if (good) count *= dims[i];
    }
    if (!good)
        return cgp__reader_unexpected(
            r, "shape", "1 to 5 numbers from 1 on, with a product of at most 2^40", list);
    *out = cgp_shape_make((int)rank, dims);
    return CGP_OK;
}

/* --- values --- */

static cgp_status take_type(const cgp__reader *r, const json_t *object, cgp_op_type *out) {
    const char *dtype = NULL;
    CGP_TRY(cgp__reader_check_keys(r, object, "dtype shape"));
    CGP_TRY(cgp__reader_take_text(r, object, "dtype", &dtype));
    *out = (cgp_op_type){.dtype = strcmp(dtype, "i32") == 0 ? CGP_I32 : CGP_F32};
    if (strcmp(dtype, "f32") != 0 && strcmp(dtype, "i32") != 0)
        return cgp__reader_unexpected(r, "dtype", "\"f32\" or \"i32\"",
                                      json_object_get(object, "dtype"));
    return take_shape(r, object, &out->shape);
}

/* Check that the type of `value`, which nodes[i] computes, equals its type in the file. */
static cgp_status check_value(cgp__reader *r, size_t i, int64_t value) {
    const cgp_model *model = r->model;
    const cgp_op_type *made = &model->values[value].type;
    cgp_op_type type;
    char expected[96], got[96];
    cgp__reader_set_place(r, "values", (size_t)value);
    CGP_TRY(take_type(r, json_array_get(r->values, (size_t)value), &type));
    if (type.dtype == made->dtype && cgp_shape_equal(&type.shape, &made->shape)) return CGP_OK;
    return cgp__reader_refuse(
        r, "expected %s %s, which nodes[%zu] makes, got %s %s", cgp_dtype_name(made->dtype),
        cgp_shape_text(&made->shape, expected, sizeof expected), i, cgp_dtype_name(type.dtype),
        cgp_shape_text(&type.shape, got, sizeof got));
}

/* Add the values with numbers below `value` that neither an input nor a node makes. */
static cgp_status add_unused(cgp__reader *r, int64_t value) {
    while (r->model->n_values < value) {
        cgp_op_type type;
        const size_t v = (size_t)r->model->n_values;
        cgp__reader_set_place(r, "values", v);
        CGP_TRY(take_type(r, json_array_get(r->values, v), &type));
        cgp__builder_add_unused(r->model, &type);
        if (r->model->status != CGP_OK) return cgp__reader_refuse_stuck(r);
    }
    return CGP_OK;
}

/* Read the number of the value that an entry makes. */
static cgp_status take_made(const cgp__reader *r, const json_t *object, const char *key,
                            int64_t *out) {
    return cgp__reader_take_index(r, json_object_get(object, key), key,
                                  (int64_t)json_array_size(r->values), out);
}

static cgp_status add_input(cgp__reader *r, size_t i, int64_t value) {
    const json_t *object = json_array_get(r->inputs, i);
    const char *name = NULL;
    cgp_op_type type;
    CGP_TRY(cgp__reader_take_text(r, object, "name", &name));
    cgp__reader_set_place(r, "values", (size_t)value);
    CGP_TRY(take_type(r, json_array_get(r->values, (size_t)value), &type));
    cgp__reader_set_place(r, "inputs", i);
    const json_t *gradient = json_object_get(object, "gradient");
    if (gradient && !json_is_boolean(gradient))
        return cgp__reader_unexpected(r, "gradient", "true or false", gradient);
    const cgp_value input =
        cgp_model_input(r->model, name, type.dtype, type.shape.rank, type.shape.dims);
    if (json_is_true(gradient)) cgp_model_input_gradient(r->model, input);
    return r->model->status == CGP_OK ? CGP_OK : cgp__reader_refuse_stuck(r);
}

/* --- parameters, layers --- */

static cgp_status add_parameter(cgp__reader *r, size_t i) {
    const json_t *object = json_array_get(r->parameters, i);
    const json_t *scale = json_object_get(object, "scale"),
                 *decays = json_object_get(object, "decays"),
                 *frozen = json_object_get(object, "frozen");
    const char *name = NULL, *init = NULL;
    cgp_op_parameter param = {.decays = json_is_true(decays)};
    cgp__reader_set_place(r, "parameters", i);
    CGP_TRY(cgp__reader_check_keys(r, object, "name shape init scale decays frozen"));
    CGP_TRY(cgp__reader_take_text(r, object, "name", &name));
    CGP_TRY(take_shape(r, object, &param.shape));
    CGP_TRY(cgp__reader_take_text(r, object, "init", &init));
    const int kind = cgp__graph_init(init);
    if (kind < 0)
        return cgp__reader_unexpected(r, "init", "zero, one, normal, uniform or truncated_normal",
                                      json_object_get(object, "init"));
    if (!json_is_number(scale)) return cgp__reader_unexpected(r, "scale", "a number", scale);
    if (!json_is_boolean(decays))
        return cgp__reader_unexpected(r, "decays", "true or false", decays);
    if (frozen && !json_is_boolean(frozen))
        return cgp__reader_unexpected(r, "frozen", "true or false", frozen);
    param.init = (cgp_init){(cgp_init_kind)kind, json_number_value(scale)};
    if (!cgp__builder_add_parameter(r->model, name, &param)) return cgp__reader_refuse_stuck(r);
    r->model->params[r->model->n_params - 1].frozen = json_is_true(frozen);
    return CGP_OK;
}

/* Begin layers up to number `last`. */
cgp_status cgp__reader_begin_layers(cgp__reader *r, int64_t last) {
    while (r->model->n_layers <= last) {
        const size_t l = (size_t)r->model->n_layers;
        const json_t *name = json_array_get(r->layers, l);
        cgp__reader_set_place(r, "layers", l);
        if (!json_is_string(name)) return cgp__reader_unexpected(r, "name", "a text", name);
        cgp_model_layer(r->model, json_string_value(name));
        if (r->model->status != CGP_OK) return cgp__reader_refuse_stuck(r);
    }
    return CGP_OK;
}

/* Check that no loss has the id of a node. Losses may have been built between the nodes. */
static cgp_status check_ids(cgp__reader *r) {
    const cgp_model *model = r->model;
    const int losses = model->n_nodes - model->n_losses;
    for (int l = losses, i = 0; l < model->n_nodes; l++) {
        const uint32_t id = model->nodes[l].id;
        while (i < losses && model->nodes[i].id < id)
            i++;
        if (i == losses || model->nodes[i].id != id) continue;
        cgp__reader_set_place(r, "losses", (size_t)(l - losses));
        return cgp__reader_refuse(r, "id: %" PRIu32 " is that of nodes[%d]", id, i);
    }
    return CGP_OK;
}

/* --- the model --- */

/* Add inputs and nodes in the order of their values. */
static cgp_status add_all(cgp__reader *r) {
    const size_t inputs = json_array_size(r->inputs), nodes = json_array_size(r->nodes);
    for (size_t k = 0, i = 0; k < inputs || i < nodes;) {
        int64_t of_input = INT64_MAX, of_node = INT64_MAX;
        if (k < inputs) {
            cgp__reader_set_place(r, "inputs", k);
            CGP_TRY(cgp__reader_check_keys(r, json_array_get(r->inputs, k), "name value gradient"));
            CGP_TRY(take_made(r, json_array_get(r->inputs, k), "value", &of_input));
        }
        if (i < nodes) {
            cgp__reader_set_place(r, "nodes", i);
            CGP_TRY(cgp__reader_check_keys(r, json_array_get(r->nodes, i), CGP__NODE_KEYS));
            CGP_TRY(take_made(r, json_array_get(r->nodes, i), "output", &of_node));
        }
        if (of_input == of_node)
            return cgp__reader_refuse(r, "output: value %" PRId64 " is that of inputs[%zu]",
                                      of_node, k);
        const bool input = of_input < of_node;
        const int64_t value = input ? of_input : of_node;
        cgp__reader_set_place(r, input ? "inputs" : "nodes", input ? k : i);
        if (value < r->model->n_values)
            return cgp__reader_refuse(r,
                                      "%s: value %" PRId64
                                      " is made before, or out of order (values are "
                                      "numbered in the order in which inputs and nodes make them)",
                                      input ? "value" : "output", value);
        CGP_TRY(add_unused(r, value));
        cgp__reader_set_place(r, input ? "inputs" : "nodes", input ? k : i);
        if (input) {
            CGP_TRY(add_input(r, k++, value));
            continue;
        }
        CGP_TRY(cgp__reader_add_node(r, i));
        CGP_TRY(check_value(r, i++, value));
    }
    return add_unused(r, (int64_t)json_array_size(r->values));
}

static cgp_status check_head(cgp__reader *r) {
    const char *format = NULL;
    const json_t *version = json_object_get(r->root, "version");
    if (!json_is_object(r->root)) return cgp__reader_refuse(r, "expected an object, got a list");
    CGP_TRY(cgp__reader_take_text(r, r->root, "format", &format));
    if (strcmp(format, CGP__GRAPH_FORMAT) != 0)
        return cgp__reader_unexpected(r, "format", "\"" CGP__GRAPH_FORMAT "\"",
                                      json_object_get(r->root, "format"));
    if (!json_is_integer(version) || json_integer_value(version) != CGP__GRAPH_VERSION)
        return cgp__reader_unexpected(r, "version", "2 (cgpipe " CGP_VERSION " reads no other)",
                                      version);
    return cgp__reader_check_keys(
        r, r->root, "format version name values inputs layers parameters nodes losses outputs");
}

static cgp_status take_outputs(cgp__reader *r) {
    const json_t *outputs = NULL;
    r->place[0] = '\0';
    CGP_TRY(take_list(r, "outputs", &outputs));
    for (size_t k = 0; k < json_array_size(outputs); k++) {
        int64_t value = 0;
        cgp__reader_set_place(r, "outputs", k);
        CGP_TRY(cgp__reader_take_index(r, json_array_get(outputs, k), "value", r->model->n_values,
                                       &value));
        cgp_model_output(r->model, (cgp_value){(int)value});
        if (r->model->status != CGP_OK) return cgp__reader_refuse_stuck(r);
    }
    return CGP_OK;
}

static cgp_status check_uses(cgp__reader *r) {
    const cgp_model *model = r->model;
    bool *used = cgp__calloc((size_t)model->n_params + 1, sizeof *used);
    if (!used) return cgp__no_memory(r->name, (size_t)model->n_params);
    for (int i = 0; i < model->n_nodes; i++) {
        for (int k = 0; k < model->nodes[i].use.shapes.n_parameters; k++)
            used[model->nodes[i].params[k]] = true;
    }
    int p = 0;
    while (p < model->n_params && used[p])
        p++;
    free(used);
    if (p == model->n_params) return CGP_OK;
    cgp__reader_set_place(r, "parameters", (size_t)p);
    return cgp__reader_refuse(r, "%s: no node has it", model->params[p].name);
}

/* If a builder call has failed, refuse the text with the message of that call. If the call failed
 * because memory was short, return CGP_ENOMEM instead. */
static cgp_status refuse_with_reason(const cgp__reader *r, cgp_status status) {
    if (status == CGP_OK || status == CGP_ENOMEM) return status;
    char reason[256];
    snprintf(reason, sizeof reason, "%s", cgp_message());
    return cgp__reader_refuse(r, "%s", reason);
}

static cgp_status read_model(cgp__reader *r) {
    const char *name = NULL;
    CGP_TRY(check_head(r));
    CGP_TRY(cgp__reader_take_text(r, r->root, "name", &name));
    CGP_TRY(take_list(r, "values", &r->values));
    CGP_TRY(take_list(r, "inputs", &r->inputs));
    CGP_TRY(take_list(r, "layers", &r->layers));
    CGP_TRY(take_list(r, "parameters", &r->parameters));
    CGP_TRY(take_list(r, "nodes", &r->nodes));
    CGP_TRY(take_list(r, "losses", &r->losses));
    CGP_TRY(refuse_with_reason(r, cgp_model_create(&r->model, name)));
    for (size_t p = 0; p < json_array_size(r->parameters); p++)
        CGP_TRY(add_parameter(r, p));
    r->last_id = -1;
    CGP_TRY(add_all(r));
    CGP_TRY(cgp__reader_begin_layers(r, (int64_t)json_array_size(r->layers) - 1));
    r->last_id = -1;
    for (size_t l = 0; l < json_array_size(r->losses); l++)
        CGP_TRY(cgp__reader_add_loss(r, l));
    CGP_TRY(check_ids(r));
    CGP_TRY(check_uses(r));
    CGP_TRY(take_outputs(r));
    return refuse_with_reason(r, cgp_model_finish(r->model));
}

static cgp_status check_ops(const cgp_op *const *ops, int n) {
    for (int i = 0; i < n; i++) {
        if (!ops[i] || !ops[i]->name)
            return cgp_fail(CGP_EINVAL, "ops[%d]: expected an op with a name, got none", i);
        for (int k = 0; k < i; k++) {
            if (strcmp(ops[k]->name, ops[i]->name) == 0)
                return cgp_fail(CGP_EINVAL, "ops[%d]: %s is the name of ops[%d], too", i,
                                ops[i]->name, k);
        }
    }
    return CGP_OK;
}

static cgp_status check_bytes(const char *name, int64_t bytes) {
    int64_t max = 0;
    CGP_TRY(cgp__limit_get(CGP__LIMIT_HEADER, &max));
    if (bytes <= max) return CGP_OK;
    return cgp_fail(CGP_EFORMAT,
                    "%s: expected a graph of at most %" PRId64 " bytes, got %" PRId64 "%s", name,
                    max, bytes, cgp__limit_hint(CGP__LIMIT_HEADER));
}

static cgp_status not_json(const char *name, const cgp__json_error *error) {
    if (error->refused != CGP_OK) return cgp_fail(error->refused, "%s: %s", name, error->reason);
    if (!*error->reason) return cgp_fail(CGP_ENOMEM, "%s: out of memory", name);
    return cgp_fail(CGP_EFORMAT, "%s: at byte %zu: is not JSON: %s", name, error->byte,
                    error->reason);
}

cgp_status cgp_model_from_json(cgp_model **out, const char *name, const char *text, size_t bytes,
                               const cgp_op *const *ops, int n_ops) {
    CGP__NEED(out);
    CGP__NEED(name);
    if (bytes > 0) CGP__NEED(text);
    if (n_ops > 0) CGP__NEED(ops);
    CGP_TRY(check_ops(ops, n_ops));
    CGP_TRY(check_bytes(name, bytes < INT64_MAX ? (int64_t)bytes : INT64_MAX));
    cgp__json_error error;
    json_t *root = cgp__json_read(bytes > 0 ? text : "", bytes, &error);
    if (!root) return not_json(name, &error);
    cgp__reader r = {.name = name, .ops = ops, .n_ops = n_ops, .root = root};
    const cgp_status status = read_model(&r);
    if (status == CGP_OK)
        *out = r.model;
    else
        cgp_model_destroy(r.model);
    json_decref(root);
    return status;
}

/* --- files --- */

static cgp_status unreadable(const char *path) {
    return cgp_fail(CGP_EIO, "%s: cannot be read (%s)", path, strerror(errno));
}

static cgp_status read_text(const char *path, int fd, char **text, size_t *bytes) {
    struct stat info;
    if (fstat(fd, &info) != 0) return unreadable(path);
    if (!S_ISREG(info.st_mode)) return cgp_fail(CGP_EIO, "%s: is not a regular file", path);
    CGP_TRY(check_bytes(path, info.st_size));
    const size_t size = (size_t)info.st_size;
    *text = cgp__calloc(size + 1, 1);
    if (!*text) return cgp__no_memory(path, size);
    while (*bytes < size) {
        const ssize_t got = read(fd, *text + *bytes, size - *bytes);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return unreadable(path);
        if (got == 0) return cgp_fail(CGP_EIO, "%s: became shorter while it was read", path);
        *bytes += (size_t)got;
    }
    return CGP_OK;
}

cgp_status cgp_model_read(cgp_model **out, const char *path, const cgp_op *const *ops, int n_ops) {
    CGP__NEED(out);
    CGP__NEED(path);
    if (n_ops > 0) CGP__NEED(ops);
    char *text = NULL;
    size_t bytes = 0;
    /* O_NONBLOCK: open() does not block on a pipe */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return unreadable(path);
    cgp_status status = read_text(path, fd, &text, &bytes);
    if (status == CGP_OK) status = cgp_model_from_json(out, path, text, bytes, ops, n_ops);
    free(text);
    close(fd);
    return status;
}
