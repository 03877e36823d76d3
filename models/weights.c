/* SPDX-License-Identifier: Apache-2.0 */
/* weights.c -- loads published weights into a pipeline, and saves them. It matches all names first,
 * then copies one tensor at a time.
 *
 * The tensors of a model are its parameters, then its states. */
#include <cgpipe/models/weights.h>
#include <cgpipe/parameters.h>

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "zoo.h"
#include "base/json.h"
#include "weights_files.h"

/* Prefixes of the parameters of GPT-2 and Llama; files of models without a head may omit them. */
static const char *const prefixes[] = {"transformer.", "model."};

/* Position embeddings that are published without ".weight", and with a leading dimension of 1. */
static const char *const bare_names[] = {"vit.embeddings.cls_token",
                                         "vit.embeddings.position_embeddings"};

/* --- the tensors of a model --- */

typedef struct tensor {
    const char *name; /* name in the file */
    cgp_shape shape;  /* shape in the model */
    bool counter;     /* the tensor is a counter of batches (num_batches_tracked) */
    bool convolution; /* the tensor has another layout in the file */
    bool bare;        /* the name is in bare_names */
} tensor;

static int count_of(const cgp_model *model) {
    return cgp_model_parameters(model) + cgp_model_states(model);
}

/* Return the entry of bare_names for a parameter's name; NULL if there is none. */
static const char *bare_name(const char *name) {
    for (int i = 0; i < 2; i++) {
        const size_t length = strlen(bare_names[i]);
        if (strncmp(name, bare_names[i], length) == 0 && strcmp(name + length, ".weight") == 0)
            return bare_names[i];
    }
    return NULL;
}

static tensor parameter_at(const cgp_model *model, int i) {
    const char *name = cgp_model_parameter_name(model, i), *bare = bare_name(name);
    const cgp_shape *shape = cgp_model_parameter_shape(model, i);
    return (tensor){.name = bare ? bare : name,
                    .shape = *shape,
                    .convolution = shape->rank == 4,
                    .bare = bare && shape->rank == 2};
}

static tensor tensor_at(const cgp_model *model, int i) {
    const int s = i - cgp_model_parameters(model);
    if (s < 0) return parameter_at(model, i);
    return (tensor){.name = cgp_model_state_name(model, s),
                    .shape = *cgp_model_state_shape(model, s),
                    .counter = cgp_model_state_dtype(model, s) == CGP_I32};
}

/* Check that every counter is one number. */
static cgp_status check_counters(const cgp_model *model) {
    for (int i = 0; i < count_of(model); i++) {
        const tensor t = tensor_at(model, i);
        char text[96];
        if (t.counter && cgp_shape_count(&t.shape) != 1)
            return cgp_fail(CGP_EINVAL, "%.200s: expected one i32, got %s (no published form)",
                            t.name, cgp_shape_text(&t.shape, text, sizeof text));
    }
    return CGP_OK;
}

/* Return the published shape: [height, width, in, out] becomes [out, in, height, width], a counter
 * becomes a scalar, and a tensor of bare_names gets a leading dimension of 1. */
static cgp_shape published_shape(const tensor *t) {
    const int64_t *d = t->shape.dims;
    if (t->counter) return cgp_shape_make(0, d);
    if (t->bare) return cgp_shape_make(3, (const int64_t[]){1, d[0], d[1]});
    if (!t->convolution) return t->shape;
    return cgp_shape_make(4, (const int64_t[]){d[3], d[2], d[0], d[1]});
}

/* Allocate twice the size of the largest tensor; NULL, with a message, if memory is short. */
static float *make_buffer(const cgp_model *model) {
    int64_t max = 1;
    for (int i = 0; i < count_of(model); i++) {
        const tensor t = tensor_at(model, i);
        const int64_t count = cgp_shape_count(&t.shape);
        max = count > max ? count : max;
    }
    float *buffer = calloc((size_t)max, 2 * sizeof *buffer);
    if (!buffer) (void)cgp__short_of_memory("weights");
    return buffer;
}

/* Copy [out, in, pixels] to [pixels, in, out], or back. */
static void swap_ends(float *to, const float *from, int64_t first, int64_t middle, int64_t last) {
    for (int64_t a = 0; a < first; a++) {
        for (int64_t i = 0; i < middle; i++) {
            for (int64_t b = 0; b < last; b++)
                to[(b * middle + i) * first + a] = from[(a * middle + i) * last + b];
        }
    }
}

/* --- matching --- */

typedef struct place {
    const cgp__weights_file *file; /* NULL: no file has the tensor */
    int index;
} place;

struct cgp_weights {
    const cgp_model *model;
    cgp__weights_files files;
    place *places; /* [count_of(model)] */
    place head;    /* lm_head.weight in the file, if the model's head is tied */
    int tied_to;   /* the parameter that the head is tied to */
};

static const char *without_prefix(const char *name) {
    for (int i = 0; i < 2; i++) {
        const size_t skip = strlen(prefixes[i]);
        if (strncmp(name, prefixes[i], skip) == 0) return name + skip;
    }
    return name;
}

static int find_tensor(const cgp_model *model, const char *name) {
    for (int i = 0; i < count_of(model); i++) {
        const tensor t = tensor_at(model, i);
        if (strcmp(without_prefix(t.name), without_prefix(name)) == 0) return i;
    }
    return -1;
}

/* Return true if a tensor is a constant that some published files have: the causal mask of a block,
 * or the frequencies of a block's rotary embedding. */
static bool is_constant(const char *name) {
    static const char *const constants[] = {".attn.bias", ".attn.masked_bias",
                                            ".rotary_emb.inv_freq"};
    const size_t length = strlen(name);
    for (int i = 0; i < 3; i++) {
        const size_t tail = strlen(constants[i]);
        if (length > tail && strcmp(name + length - tail, constants[i]) == 0) return true;
    }
    return false;
}

/* Fail with CGP_EFORMAT, "<path>: <tensor>: <reason>". */
CGP_PRINTF(2, 3)
static cgp_status refuse(place at, const char *format, ...) {
    char reason[300];
    va_list arguments;
    va_start(arguments, format);
    cgp__vprint(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return cgp_fail(CGP_EFORMAT, "%s: %.200s: %s", at.file->path,
                    cgp_safetensors_name(at.file->tensors, at.index), reason);
}

/* Assign a tensor of the file to tensor i of the model, after checking type and shape. */
static cgp_status take(const cgp_model *model, place at, int i, place *to) {
    const tensor t = tensor_at(model, i);
    const cgp_shape expected = published_shape(&t);
    const cgp_shape *got = cgp_safetensors_shape(at.file->tensors, at.index);
    const char *type = cgp_safetensors_type(at.file->tensors, at.index);
    const bool real =
        strcmp(type, "F32") == 0 || strcmp(type, "F16") == 0 || strcmp(type, "BF16") == 0;
    char expected_text[96], got_text[96];
    if (to->file)
        return refuse(at, "is there twice, with and without \"%.*s\"",
                      (int)(without_prefix(t.name) - t.name), t.name);
    if (t.counter ? strcmp(type, "I64") != 0 : !real)
        return refuse(at, "expected type %s, got %s", t.counter ? "I64" : "F32, F16 or BF16", type);
    if (!cgp_shape_equal(&expected, got))
        return refuse(at, "expected shape %s, got %s",
                      cgp_shape_text(&expected, expected_text, sizeof expected_text),
                      cgp_shape_text(got, got_text, sizeof got_text));
    *to = at;
    return CGP_OK;
}

static cgp_status match_one(cgp_weights *w, place at) {
    const char *name = cgp_safetensors_name(at.file->tensors, at.index);
    const int i = find_tensor(w->model, name);
    if (i >= 0) return take(w->model, at, i, &w->places[i]);
    if (is_constant(name)) return CGP_OK;
    if (strcmp(without_prefix(name), "lm_head.weight") == 0 && w->tied_to >= 0)
        return take(w->model, at, w->tied_to, &w->head);
    return refuse(at, "the model has no such parameter");
}

/* Return the name of the weight that a head may be tied to. */
static const char *embedding_name(const cgp_weights *w) {
    return without_prefix(tensor_at(w->model, w->tied_to).name);
}

static cgp_status check_missing(const cgp_weights *w) {
    for (int i = 0; i < count_of(w->model); i++) {
        const tensor t = tensor_at(w->model, i);
        if (w->places[i].file || t.counter) continue;
        const bool head = strcmp(t.name, "lm_head.weight") == 0;
        char hint[300] = "";
        if (head && w->tied_to >= 0)
            snprintf(hint, sizeof hint, " (is the head tied to %s? tied=1 in the model)",
                     embedding_name(w));
        return cgp_fail(CGP_EFORMAT, "%s%s: %.200s: is missing%s", w->files.files[0].path,
                        w->files.count > 1 ? " and the other files" : "", t.name, hint);
    }
    return CGP_OK;
}

static cgp_status match(cgp_weights *w) {
    w->places = calloc((size_t)count_of(w->model) + 1, sizeof *w->places);
    if (!w->places) return cgp__short_of_memory("weights");
    w->tied_to = find_tensor(w->model, "wte.weight");
    if (w->tied_to < 0) w->tied_to = find_tensor(w->model, "embed_tokens.weight");
    for (int f = 0; f < w->files.count; f++) {
        const cgp__weights_file *file = &w->files.files[f];
        for (int t = 0; t < cgp_safetensors_count(file->tensors); t++)
            CGP_TRY(match_one(w, (place){file, t}));
    }
    return check_missing(w);
}

cgp_status cgp_weights_open(cgp_weights **out, const cgp_model *model, const char *path) {
    CGP__NEED(out);
    CGP__NEED(model);
    CGP__NEED(path);
    CGP_TRY(check_counters(model));
    cgp_weights *w = calloc(1, sizeof *w);
    if (!w) return cgp__short_of_memory(path);
    w->model = model;
    cgp_status status = cgp__weights_files_open(&w->files, path);
    if (status == CGP_OK) status = match(w);
    if (status == CGP_OK)
        *out = w;
    else
        cgp_weights_close(w);
    return status;
}

void cgp_weights_close(cgp_weights *weights) {
    if (!weights) return;
    cgp__weights_files_close(&weights->files);
    free(weights->places);
    free(weights);
}

/* --- loading --- */

/* Read a tensor in the file's layout. Fail if an element is not finite. */
static cgp_status read_floats(place at, float *data, int64_t count) {
    CGP_TRY(cgp_safetensors_read_f32(at.file->tensors, at.index, data));
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(data[i]))
            return refuse(at, "expected finite numbers, element %" PRId64 " is %g", i,
                          (double)data[i]);
    }
    return CGP_OK;
}

static cgp_status read_counter(place at, int32_t *counter) {
    int64_t wide = 0;
    if (at.file) CGP_TRY(cgp_safetensors_read(at.file->tensors, at.index, &wide));
    *counter = (int32_t)wide;
    if (wide >= 0 && wide <= INT32_MAX) return CGP_OK;
    return refuse(at, "expected 0 to %d, got %" PRId64, INT32_MAX, wide);
}

/* Load tensor i. `buffer` has room for two copies of the tensor: one in the file's layout, one in
 * the model's. */
static cgp_status load_one(const cgp_weights *w, int i, cgp_pipeline *pipeline, float *buffer) {
    const tensor t = tensor_at(w->model, i);
    const int state = i - cgp_model_parameters(w->model);
    const int64_t count = cgp_shape_count(&t.shape), *d = t.shape.dims;
    int32_t counter = 0;
    if (t.counter) {
        CGP_TRY(read_counter(w->places[i], &counter));
        return cgp_pipeline_set_state(pipeline, state, &counter);
    }
    CGP_TRY(read_floats(w->places[i], buffer, count));
    if (state >= 0) return cgp_pipeline_set_state(pipeline, state, buffer);
    if (t.convolution) swap_ends(buffer + count, buffer, d[3], d[2], d[0] * d[1]);
    return cgp_pipeline_set_parameter(pipeline, i, t.convolution ? buffer + count : buffer);
}

/* Check that a tied head in the file equals the weight that the model uses for it. */
static cgp_status check_head(const cgp_weights *w, float *buffer) {
    if (!w->head.file) return CGP_OK;
    const int64_t count = cgp_shape_count(cgp_model_parameter_shape(w->model, w->tied_to));
    CGP_TRY(read_floats(w->head, buffer, count));
    CGP_TRY(read_floats(w->places[w->tied_to], buffer + count, count));
    for (int64_t i = 0; i < count; i++) {
        if (buffer[i] != buffer[count + i])
            return cgp_fail(CGP_EFORMAT,
                            "%s: lm_head.weight: expected %s, which the model's head is "
                            "tied to, element %" PRId64 " is %g there, got %g (tie_word_embeddings "
                            "false, tied=0 in the model)",
                            w->head.file->path, embedding_name(w), i, (double)buffer[count + i],
                            (double)buffer[i]);
    }
    return CGP_OK;
}

cgp_status cgp_weights_load(cgp_weights *weights, cgp_pipeline *pipeline) {
    CGP__NEED(weights);
    CGP__NEED(pipeline);
    float *buffer = make_buffer(weights->model);
    if (!buffer) return CGP_ENOMEM;
    cgp_status status = check_head(weights, buffer);
    for (int i = 0; i < count_of(weights->model) && status == CGP_OK; i++)
        status = load_one(weights, i, pipeline, buffer);
    free(buffer);
    return status;
}

/* --- saving --- */

static cgp_status save_one(cgp_pipeline *pipeline, const cgp_model *model, int i,
                           cgp_safetensors_writer *writer, float *buffer) {
    const tensor t = tensor_at(model, i);
    const int state = i - cgp_model_parameters(model);
    const int64_t count = cgp_shape_count(&t.shape), *d = t.shape.dims;
    int32_t counter = 0;
    if (t.counter) {
        CGP_TRY(cgp_pipeline_get_state(pipeline, state, &counter));
        const int64_t wide = counter;
        return cgp_safetensors_append(writer, &wide, sizeof wide);
    }
    if (state >= 0)
        CGP_TRY(cgp_pipeline_get_state(pipeline, state, buffer));
    else
        CGP_TRY(cgp_pipeline_get_parameter(pipeline, i, buffer));
    if (t.convolution) swap_ends(buffer + count, buffer, d[0] * d[1], d[2], d[3]);
    return cgp_safetensors_append(writer, t.convolution ? buffer + count : buffer,
                                  (size_t)count * sizeof *buffer);
}

static cgp_status create_file(const cgp_model *model, const char *path,
                              cgp_safetensors_writer **writer) {
    static const char *const metadata[] = {"format", "pt"};
    const int n = count_of(model);
    const char **names = calloc((size_t)n + 1, sizeof *names);
    cgp_dtype *types = calloc((size_t)n + 1, sizeof *types);
    cgp_shape *shapes = calloc((size_t)n + 1, sizeof *shapes);
    cgp_status status = names && types && shapes ? CGP_OK : cgp__short_of_memory(path);
    for (int i = 0; i < n && status == CGP_OK; i++) {
        const tensor t = tensor_at(model, i);
        names[i] = t.name;
        types[i] = t.counter ? CGP_I64 : CGP_F32;
        shapes[i] = published_shape(&t);
    }
    if (status == CGP_OK)
        status = cgp_safetensors_create(writer, path, n, names, types, shapes, metadata, 1);
    free(shapes);
    free(types);
    free(names);
    return status;
}

cgp_status cgp_weights_save(cgp_pipeline *pipeline, const cgp_model *model, const char *path) {
    CGP__NEED(pipeline);
    CGP__NEED(model);
    CGP__NEED(path);
    cgp_safetensors_writer *writer = NULL;
    CGP_TRY(check_counters(model));
    float *buffer = make_buffer(model);
    if (!buffer) return CGP_ENOMEM;
    cgp_status status = create_file(model, path, &writer);
    for (int i = 0; i < count_of(model) && status == CGP_OK; i++)
        status = save_one(pipeline, model, i, writer, buffer);
    free(buffer);
    if (status == CGP_OK) return cgp_safetensors_commit(writer);
    cgp_safetensors_abandon(writer);
    return status;
}
