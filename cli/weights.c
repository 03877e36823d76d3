/* weights.c -- see weights.h. */
#include "weights.h"

#include "common.h"

#include <stdlib.h>
#include <string.h>

static const char prefix[] = "transformer.";

/* Room for the largest parameter. */
static float *make_buffer(const cgp_model *model) {
    int64_t most = 1;
    for (int i = 0; i < cgp_model_parameters(model); i++) {
        const int64_t count = cgp_shape_count(cgp_model_parameter_shape(model, i));
        most = count > most ? count : most;
    }
    return cli_calloc((size_t)most, sizeof(float));
}

/* --- the file --- */

static bool same_name(const char *a, const char *b) {
    const size_t skip = sizeof prefix - 1;
    return strcmp(strncmp(a, prefix, skip) == 0 ? a + skip : a,
                  strncmp(b, prefix, skip) == 0 ? b + skip : b) == 0;
}

/* The published files carry the causal mask of each block. */
static bool is_mask(const char *name) {
    static const char *const masks[] = {".attn.bias", ".attn.masked_bias"};
    const size_t length = strlen(name);
    for (int i = 0; i < 2; i++) {
        const size_t tail = strlen(masks[i]);
        if (length > tail && strcmp(name + length - tail, masks[i]) == 0) return true;
    }
    return false;
}

static cgp_status check_tensor(const cli_weights *w, int parameter, int index,
                               const char *path) {
    const char *name = cgp_safetensors_name(w->file, index);
    const cgp_shape *expected = cgp_model_parameter_shape(w->model, parameter);
    const cgp_shape *got = cgp_safetensors_shape(w->file, index);
    if (strcmp(cgp_safetensors_type(w->file, index), "F32") != 0)
        return cgp_fail(CGP_EFORMAT, "%s: %s: expected type F32, got %s", path, name,
                        cgp_safetensors_type(w->file, index));
    if (cgp_shape_equal(expected, got)) return CGP_OK;
    char expected_text[96], got_text[96];
    return cgp_fail(CGP_EFORMAT, "%s: %s: expected shape %s, got %s", path, name,
                    cgp_shape_text(expected, expected_text, sizeof expected_text),
                    cgp_shape_text(got, got_text, sizeof got_text));
}

static int find_parameter(const cgp_model *model, const char *name) {
    for (int i = 0; i < cgp_model_parameters(model); i++) {
        if (same_name(cgp_model_parameter_name(model, i), name)) return i;
    }
    return -1;
}

static cgp_status match(cli_weights *w, const char *path) {
    const int count = cgp_model_parameters(w->model);
    for (int i = 0; i < cgp_safetensors_count(w->file); i++) {
        const char *name = cgp_safetensors_name(w->file, i);
        const int parameter = find_parameter(w->model, name);
        if (parameter < 0 && is_mask(name)) continue;
        if (parameter < 0)
            return cgp_fail(CGP_EFORMAT, "%s: %s: the model has no such parameter", path, name);
        if (w->index[parameter] >= 0)
            return cgp_fail(CGP_EFORMAT, "%s: %s: is there twice, with and without \"%s\"",
                            path, name, prefix);
        CGP_TRY(check_tensor(w, parameter, i, path));
        w->index[parameter] = i;
    }
    for (int i = 0; i < count; i++) {
        if (w->index[i] < 0)
            return cgp_fail(CGP_EFORMAT, "%s: %s: is missing", path,
                            cgp_model_parameter_name(w->model, i));
    }
    return CGP_OK;
}

cgp_status cli_weights_open(cli_weights *weights, const cgp_model *model, const char *path) {
    const int count = cgp_model_parameters(model);
    *weights = (cli_weights){.model = model};
    CGP_TRY(cgp_safetensors_open(&weights->file, path));
    weights->index = cli_calloc((size_t)count, sizeof *weights->index);
    for (int i = 0; i < count; i++)
        weights->index[i] = -1;
    return match(weights, path);
}

cgp_status cli_weights_load(cli_weights *weights, cgp_pipeline *pipeline) {
    cgp_status status = CGP_OK;
    float *data = make_buffer(weights->model);
    for (int i = 0; i < cgp_model_parameters(weights->model) && status == CGP_OK; i++) {
        status = cgp_safetensors_read(weights->file, weights->index[i], data);
        if (status == CGP_OK) status = cgp_pipeline_set_parameter(pipeline, i, data);
    }
    free(data);
    return status;
}

void cli_weights_close(cli_weights *weights) {
    free(weights->index);
    cgp_safetensors_close(weights->file);
    *weights = (cli_weights){0};
}

cgp_status cli_weights_copy(cgp_pipeline *from, cgp_pipeline *to, const cgp_model *model) {
    cgp_status status = CGP_OK;
    float *data = make_buffer(model);
    for (int i = 0; i < cgp_model_parameters(model) && status == CGP_OK; i++) {
        status = cgp_pipeline_get_parameter(from, i, data);
        if (status == CGP_OK) status = cgp_pipeline_set_parameter(to, i, data);
    }
    free(data);
    return status;
}
