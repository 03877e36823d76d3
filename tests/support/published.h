/* SPDX-License-Identifier: Apache-2.0 */
/* published.h -- loads published weights into a pipeline, and modifies copies of the weights'
 * files. Include this header after `#define _GNU_SOURCE`. */
#ifndef CGP_TESTS_PUBLISHED_H
#define CGP_TESTS_PUBLISHED_H

#include "checkpoints.h"
#include "reference.h"

#include <cgpipe/cgpipe.h>
#include <cgpipe/models/spec.h>
#include <cgpipe/models/weights.h>

#define DATA TEST_DATA "/weights/"
#define RESNET "resnet20:width=4,classes=7,image=16"

/* --- a pipeline of published weights --- */

typedef struct network {
    cgp_model_spec spec;
    cgp_model *model;
    cgp_plan *plan;
    cgp_pipeline *pipeline;
} network;

static inline void make_network(network *net, int stages) {
    cgp_plan_options o = cgp_plan_options_default();
    net->spec.gpt2.loss = net->spec.llama.loss = net->spec.resnet.loss = false;
    net->spec.vit.loss = false;
    o.inference = true;
    o.stages = stages;
    o.batch = 3;
    o.chunks = 2;
    assert_ok(cgp_model_spec_create(&net->model, &net->spec));
    assert_ok(cgp_plan_create(&net->plan, net->model, &o));
    assert_ok(cgp_pipeline_create(&net->pipeline, net->plan, 0));
}

static inline void release(network *net) {
    cgp_pipeline_destroy(net->pipeline);
    cgp_plan_destroy(net->plan);
    cgp_model_destroy(net->model);
}

static inline cgp_status load(network *net, const char *path) {
    cgp_weights *weights = NULL;
    CGP_TRY(cgp_weights_open(&weights, net->model, path));
    const cgp_status status = cgp_weights_load(weights, net->pipeline);
    cgp_weights_close(weights);
    return status;
}

/* Open the weights at `path`: a directory of a GPT-2, Llama or ViT, or a file of the ResNet that
 * RESNET specifies. */
static inline network open_network(const char *path, int stages) {
    network net = {.spec = cgp_model_spec_default()};
    if (strstr(path, ".safetensors"))
        assert_ok(cgp_model_spec_parse(&net.spec, RESNET));
    else
        assert_ok(cgp_huggingface_read(&net.spec, path));
    make_network(&net, stages);
    assert_ok(load(&net, path));
    return net;
}

/* --- numbers computed by PyTorch --- */

/* Read a tensor of I32 or F32. The caller owns the data. */
static inline cgp_tensor read_tensor(cgp_safetensors *file, const char *name) {
    const int index = cgp_safetensors_find(file, name);
    assert_true(index >= 0);
    const bool real = strcmp(cgp_safetensors_type(file, index), "F32") == 0;
    cgp_tensor tensor = {real ? CGP_F32 : CGP_I32, *cgp_safetensors_shape(file, index), NULL};
    tensor.data = calloc((size_t)cgp_shape_count(&tensor.shape), 4);
    assert_ok(cgp_safetensors_read(file, index, tensor.data));
    return tensor;
}

/* Return the largest difference between an output and its expected value, or NaN. `largest` gets
 * the largest magnitude of the expected outputs. */
static inline double outputs_differ(network *net, const cgp_tensor *input,
                                    const cgp_tensor *expected, double *largest) {
    const int64_t count = cgp_shape_count(&expected->shape);
    cgp_tensor got = *expected;
    double far = 0;
    *largest = 0;
    got.data = calloc((size_t)count, sizeof(float));
    assert_ok(cgp_pipeline_predict(net->pipeline, (const cgp_tensor *[]){input}, 1,
                                   (const cgp_tensor *[]){&got}, 1));
    for (int64_t i = 0; i < count; i++) {
        const double e = (double)((float *)expected->data)[i];
        const double d = fabs((double)((float *)got.data)[i] - e);
        if (!(d <= far) && !isnan(far)) far = d;
        *largest = fmax(*largest, fabs(e));
    }
    free(got.data);
    return far;
}

/* Train a network of net->spec with AdamW, starting from the weights at `path`. The options give
 * stages, schedule and so on. Return the largest relative difference between a step's loss and the
 * expected loss. */
static inline double losses_differ(network *net, const char *path, cgp_plan_options *o,
                                   const cgp_tensor *inputs, const cgp_tensor *targets,
                                   const cgp_tensor *losses) {
    double far = 0;
    o->batch = 3;
    o->optim = cgp_optim_adamw(1e-3, 0.01);
    assert_ok(cgp_model_spec_create(&net->model, &net->spec));
    assert_ok(cgp_plan_create(&net->plan, net->model, o));
    assert_ok(cgp_pipeline_create(&net->pipeline, net->plan, 0));
    assert_ok(load(net, path));
    for (int64_t s = 0; s < cgp_shape_count(&losses->shape); s++) {
        double loss = 0;
        assert_ok(
            cgp_pipeline_step(net->pipeline, (const cgp_tensor *[]){inputs, targets}, 2, &loss));
        assert_ok(cgp_optim_step(net->pipeline));
        const double d = fabs(loss / (double)((float *)losses->data)[s] - 1);
        if (!(d <= far)) far = d;
    }
    return far;
}

/* --- modified files --- */

enum { MOST = 160 };

/* The contents of a tensor file in memory; tensors are F32 or I64. */
typedef struct tensors {
    int count;
    char names[MOST][96];
    cgp_shape shapes[MOST];
    cgp_dtype types[MOST];
    void *data[MOST];
} tensors;

static inline void add_tensor(tensors *t, const char *name, cgp_shape shape, cgp_dtype type) {
    assert_true(t->count < MOST);
    snprintf(t->names[t->count], sizeof t->names[0], "%s", name);
    t->shapes[t->count] = shape;
    t->types[t->count] = type;
    t->data[t->count++] = calloc((size_t)cgp_shape_count(&shape) + 1, 8);
}

static inline void read_tensors(tensors *t, const char *path) {
    cgp_safetensors *file = NULL;
    t->count = 0;
    assert_ok(cgp_safetensors_open(&file, path));
    for (int i = 0; i < cgp_safetensors_count(file); i++) {
        const bool real = strcmp(cgp_safetensors_type(file, i), "F32") == 0;
        add_tensor(t, cgp_safetensors_name(file, i), *cgp_safetensors_shape(file, i),
                   real ? CGP_F32 : CGP_I64);
        assert_ok(cgp_safetensors_read(file, i, t->data[i]));
    }
    cgp_safetensors_close(file);
}

static inline void write_tensors(const tensors *t, const char *path) {
    const char *names[MOST];
    cgp_safetensors_writer *writer = NULL;
    for (int i = 0; i < t->count; i++)
        names[i] = t->names[i];
    assert_ok(cgp_safetensors_create(&writer, path, t->count, names, t->types, t->shapes, NULL, 0));
    for (int i = 0; i < t->count; i++)
        assert_ok(cgp_safetensors_append(writer, t->data[i],
                                         (size_t)cgp_shape_count(&t->shapes[i]) *
                                             cgp_dtype_bytes(t->types[i])));
    assert_ok(cgp_safetensors_commit(writer));
}

static inline void drop_tensor(tensors *t, int i) {
    free(t->data[i]);
    t->count--;
    memmove(t->names[i], t->names[i + 1], (size_t)(t->count - i) * sizeof t->names[0]);
    memmove(&t->shapes[i], &t->shapes[i + 1], (size_t)(t->count - i) * sizeof t->shapes[0]);
    memmove(&t->types[i], &t->types[i + 1], (size_t)(t->count - i) * sizeof t->types[0]);
    memmove(&t->data[i], &t->data[i + 1], (size_t)(t->count - i) * sizeof t->data[0]);
}

static inline void release_tensors(tensors *t) {
    while (t->count > 0)
        drop_tensor(t, t->count - 1);
}

static inline int index_of(const tensors *t, const char *name) {
    for (int i = 0; i < t->count; i++) {
        if (strcmp(t->names[i], name) == 0) return i;
    }
    fail_msg("no tensor %s", name);
    return -1;
}

#endif
