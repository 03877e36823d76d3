/* SPDX-License-Identifier: Apache-2.0 */
/* profile.c -- measures the costs of layers in whole steps. Temporary pipelines train on random
 * data, and each worker adds up the times of its kernels (layer_times.c).
 *
 *     caller's thread     plans[0]    warm-up │ step  step  step   medians
 *     a thread for each   plans[1]    warm-up │ step  step  step  step ...  until the caller ends
 *
 * Timing one kernel in a loop would give misleading results: the operands would stay in a cache,
 * and the device would have the whole memory bandwidth. */
#include "pipeline/profile.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "partition/partition.h"
#include "plan/memory/devices.h"
#include "plan/setup.h"

/* Number of different random numbers; inputs with more elements repeat these numbers. */
#define BLOCK 65536

typedef struct trainer trainer;

/* State that all trainers share. Each trainer trains one pipeline. The first trainer uses the
 * caller's thread, and each other trainer has its own thread. */
typedef struct profile {
    int n;
    trainer *trainers; /* [n] trainers; the caller's thread runs the first */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int ready; /* number of trainers whose warm-up is over or that have failed */
    bool ends;
} profile;

/* A pipeline and the mini-batch that it trains on. */
struct trainer {
    profile *all;
    const cgp_plan *plan;
    const cgp__setup *setup; /* the plan's setup */
    cgp_pipeline *pipeline;
    /* `inputs`: one per input of the model. `outputs`, `gradients`: one per output, for an external
     * loss. */
    cgp_tensor *inputs, *outputs, *gradients;
    const cgp_tensor **input_list, **output_list, **gradient_list;
    bool started;
    pthread_t thread;
    cgp_status status;
    char message[1024];
};

/* --- the mini-batch --- */

/* Return the upper bound for the random integers of input k, which is the lowest limit among the
 * ops that read this input. */
static int64_t upper_bound_of(const cgp_model *model, int k) {
    int64_t bound = INT32_MAX;
    bool found = false;
    for (int i = 0; i < model->n_nodes; i++) {
        const cgp__node *node = &model->nodes[i];
        const cgp_op *op = node->use.op;
        for (int j = 0; op->upper_bound && j < node->n_inputs; j++) {
            const int64_t most = op->upper_bound(&node->use, j);
            if (node->inputs[j] != model->input_values[k] || most < 1) continue;
            bound = cgp__min(bound, most);
            found = true;
        }
    }
    return found ? bound : 2; /* if no op limits the integers, 0 and 1 are the safest */
}

static cgp_status make_tensor(cgp_tensor *tensor, const cgp_op_type *type, int64_t n) {
    tensor->dtype = type->dtype;
    tensor->shape = (cgp_shape){.rank = type->shape.rank + 1, .dims = {n}};
    memcpy(tensor->shape.dims + 1, type->shape.dims,
           (size_t)type->shape.rank * sizeof type->shape.dims[0]);
    char *data = NULL;
    CGP_TRY(CGP__NEW(data, cgp__type_bytes(type, n), "profile"));
    tensor->data = data;
    return CGP_OK;
}

/* Fill a tensor with numbers from 0 to 1, or with integers below a bound. */
static void fill(cgp_tensor *tensor, int64_t upper_bound) {
    const cgp__rng_key key = cgp__rng_derive(0, CGP__RNG_DATA, 0, 0);
    const int64_t count = cgp_shape_count(&tensor->shape);
    uint32_t words[4] = {0};
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = i % BLOCK;
        if (at % 4 == 0) cgp__philox(words, (const uint32_t[]){(uint32_t)at, 0, 0, 0}, key);
        const uint32_t word = words[at % 4];
        if (tensor->dtype == CGP_I32)
            ((int32_t *)tensor->data)[i] = (int32_t)(word % (uint64_t)upper_bound);
        else
            ((float *)tensor->data)[i] = (float)(word >> 8) * 0x1p-24f;
    }
}

static cgp_status make_tensors(trainer *t) {
    const cgp_model *model = t->setup->model;
    const int inputs = model->n_inputs, outputs = model->n_losses ? 0 : model->n_outputs;
    CGP_TRY(CGP__NEW(t->inputs, inputs, "profile"));
    CGP_TRY(CGP__NEW(t->input_list, inputs, "profile"));
    CGP_TRY(CGP__NEW(t->outputs, outputs, "profile"));
    CGP_TRY(CGP__NEW(t->output_list, outputs, "profile"));
    CGP_TRY(CGP__NEW(t->gradients, outputs, "profile"));
    CGP_TRY(CGP__NEW(t->gradient_list, outputs, "profile"));
    for (int k = 0; k < inputs; k++) {
        const cgp_op_type *type = &model->values[model->input_values[k]].type;
        CGP_TRY(make_tensor(&t->inputs[k], type, t->setup->batch));
        fill(&t->inputs[k], upper_bound_of(model, k));
        t->input_list[k] = &t->inputs[k];
    }
    for (int k = 0; k < outputs; k++) {
        const int output = model->outputs[k];
        const cgp_op_type *type = &model->values[output].type;
        CGP_TRY(make_tensor(&t->outputs[k], type, t->setup->batch));
        t->output_list[k] = &t->outputs[k];
        if (!model->values[output].has_grad) continue;
        CGP_TRY(make_tensor(&t->gradients[k], type, t->setup->batch));
        fill(&t->gradients[k], 1);
        t->gradient_list[k] = &t->gradients[k];
    }
    return CGP_OK;
}

static void release(trainer *t) {
    const cgp_model *model = t->setup->model;
    cgp_pipeline_destroy(t->pipeline);
    for (int k = 0; t->inputs && k < model->n_inputs; k++)
        free(t->inputs[k].data);
    for (int k = 0; model->n_losses == 0 && k < model->n_outputs; k++) {
        if (t->outputs) free(t->outputs[k].data);
        if (t->gradients) free(t->gradients[k].data);
    }
    free(t->gradient_list);
    free(t->gradients);
    free(t->output_list);
    free(t->outputs);
    free(t->input_list);
    free(t->inputs);
}

/* --- steps --- */

/* Run a step and an update. Set *seconds to the time of the update. If the random numbers led to a
 * loss that is not finite, the update is refused, and *seconds is 0. */
static cgp_status step(const trainer *t, double *seconds) {
    const cgp_model *model = t->setup->model;
    *seconds = 0;
    if (model->n_losses > 0) {
        CGP_TRY(cgp_pipeline_step(t->pipeline, t->input_list, model->n_inputs, NULL));
    } else {
        CGP_TRY(cgp_pipeline_forward(t->pipeline, t->input_list, model->n_inputs, t->output_list,
                                     model->n_outputs));
        CGP_TRY(cgp_pipeline_backward(t->pipeline, t->gradient_list, model->n_outputs));
    }
    const int64_t start = cgp__now_ns();
    const cgp_status status = cgp_optim_step(t->pipeline);
    if (status == CGP_ESTATE) return CGP_OK;
    *seconds = 1e-9 * (double)(cgp__now_ns() - start);
    return status;
}

static cgp_status begin(trainer *t) {
    double unused;
    cgp_status status = make_tensors(t);
    if (status == CGP_OK) status = cgp_pipeline_create(&t->pipeline, t->plan, 0);
    if (status == CGP_OK) status = step(t, &unused);
    return status;
}

static void tell(profile *all, bool ready, bool ends) {
    pthread_mutex_lock(&all->lock);
    all->ready += ready;
    all->ends = all->ends || ends;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
}

static bool ends(profile *all) {
    pthread_mutex_lock(&all->lock);
    const bool result = all->ends;
    pthread_mutex_unlock(&all->lock);
    return result;
}

/* Thread function of a trainer that is not measured. It trains until the caller has finished
 * measuring. */
static void *train_on(void *argument) {
    trainer *t = argument;
    double unused;
    t->status = begin(t);
    tell(t->all, true, t->status != CGP_OK);
    while (t->status == CGP_OK && !ends(t->all))
        t->status = step(t, &unused);
    if (t->status != CGP_OK) {
        snprintf(t->message, sizeof t->message, "%s", cgp_message());
        tell(t->all, false, true);
    }
    cgp_pipeline_destroy(t->pipeline); /* this thread created the pipeline, so this thread destroys
                                        * it */
    t->pipeline = NULL;
    return NULL;
}

static void wait_until_all_train(profile *all) {
    pthread_mutex_lock(&all->lock);
    while (all->ready < all->n - 1 && !all->ends)
        pthread_cond_wait(&all->changed, &all->lock);
    pthread_mutex_unlock(&all->lock);
}

/* --- costs --- */

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, by_size);
    return 0.5 * (values[(n - 1) / 2] + values[n / 2]);
}

static double *seconds_of(cgp_layer_cost *cost, int part) {
    double *const parts[] = {&cost->forward_seconds, &cost->input_seconds, &cost->weight_seconds,
                             &cost->recompute_seconds, &cost->selective_seconds};
    return parts[part];
}
enum { PARTS = 5 };

/* Replace the first row of `rows` [steps][layers] with the medians of the times over all steps.
 * Split the time of the update among the layers in proportion to their parameter bytes. `column`:
 * scratch [steps]. */
static void summarize(cgp_layer_cost *rows, int steps, int layers, double update, double *column) {
    double bytes = 0;
    for (int i = 0; i < layers; i++) {
        bytes += (double)rows[i].parameter_bytes;
        for (int part = 0; part < PARTS; part++) {
            for (int s = 0; s < steps; s++)
                column[s] = *seconds_of(&rows[(size_t)s * (size_t)layers + (size_t)i], part);
            *seconds_of(&rows[i], part) = median(column, steps);
        }
    }
    for (int i = 0; i < layers; i++)
        rows[i].update_seconds = bytes > 0 ? update * (double)rows[i].parameter_bytes / bytes : 0;
}

/* Measure `steps` steps and set `costs` [layers]. If another trainer fails, stop and leave `costs`
 * unchanged. */
static cgp_status measure(trainer *t, int steps, cgp_layer_cost *costs) {
    const int layers = t->setup->model->n_layers;
    cgp_layer_cost *rows = NULL;
    double *updates = NULL;
    cgp_status status = CGP__NEW(rows, (int64_t)steps * layers, "profile");
    if (status == CGP_OK) status = CGP__NEW(updates, steps, "profile");
    for (int s = 0; s < steps && status == CGP_OK; s++) {
        if (ends(t->all)) break;
        status = cgp_pipeline_measure_layers(t->pipeline, true);
        if (status == CGP_OK) status = step(t, &updates[s]);
        if (status == CGP_OK)
            status = cgp_pipeline_layer_costs(t->pipeline, rows + (size_t)s * (size_t)layers);
    }
    if (status == CGP_OK && !ends(t->all)) {
        const double update = median(updates, steps);
        summarize(rows, steps, layers, update, updates);
        memcpy(costs, rows, (size_t)layers * sizeof *costs);
    }
    free(updates);
    free(rows);
    return status;
}

/* Check the memory that all pipelines need together. */
static cgp_status check_memory(const cgp_plan *const *plans, int n) {
    char needed[32], left[32];
    int64_t bytes = 0;
    for (int i = 0; i < n; i++) {
        for (int d = 0; d < cgp_plan_devices(plans[i]); d++) {
            const cgp_plan_device *device = cgp_plan_device_at(plans[i], d);
            bytes += device->host_bytes;
            if (cgp__plan_device(plans[i], d)->backend->host_addressable)
                bytes += device->planned_bytes;
        }
    }
    if (bytes <= cgp__memory_available()) return CGP_OK;
    return cgp_fail(CGP_ELIMIT,
                    "memory: the steps of a profile need %s but the machine has %s available "
                    "(fewer samples)",
                    cgp_bytes_text(bytes, needed, sizeof needed),
                    cgp_bytes_text(cgp__memory_available(), left, sizeof left));
}

static cgp_status start_others(profile *all) {
    for (int i = 1; i < all->n; i++) {
        trainer *t = &all->trainers[i];
        t->started = pthread_create(&t->thread, NULL, train_on, t) == 0;
        if (!t->started) return cgp_fail(CGP_ENOMEM, "profile: a thread could not be started");
    }
    return CGP_OK;
}

/* End the other trainers. If `status` is a failure, return `status`. Otherwise, if another trainer
 * has failed, set the message of the first such failure and return its status. */
static cgp_status end_others(profile *all, cgp_status status) {
    tell(all, false, true);
    for (int i = 1; i < all->n; i++) {
        trainer *t = &all->trainers[i];
        if (!t->started) continue;
        pthread_join(t->thread, NULL);
        if (t->status != CGP_OK && status == CGP_OK) status = cgp_fail(t->status, "%s", t->message);
    }
    return status;
}

cgp_status cgp__profile_plans(const cgp_plan *const *plans, int n_plans, int steps,
                              cgp_layer_cost *costs) {
    CGP_TRY(check_memory(plans, n_plans));
    profile all = {.n = n_plans};
    cgp_layer_cost *measured = NULL;
    const int layers = cgp__plan_setup(plans[0])->model->n_layers;
    CGP_TRY(CGP__NEW(all.trainers, n_plans, "profile"));
    for (int i = 0; i < n_plans; i++)
        all.trainers[i] =
            (trainer){.all = &all, .plan = plans[i], .setup = cgp__plan_setup(plans[i])};
    pthread_mutex_init(&all.lock, NULL);
    pthread_cond_init(&all.changed, NULL);
    trainer *own = &all.trainers[0];
    cgp_status status = CGP__NEW(measured, layers, "profile");
    if (status == CGP_OK) status = begin(own);
    if (status == CGP_OK) status = start_others(&all);
    if (status == CGP_OK) {
        wait_until_all_train(&all);
        status = measure(own, steps, measured);
    }
    status = end_others(&all, status);
    if (status == CGP_OK) memcpy(costs, measured, (size_t)layers * sizeof *costs);
    for (int i = 0; i < n_plans; i++)
        release(&all.trainers[i]);
    pthread_cond_destroy(&all.changed);
    pthread_mutex_destroy(&all.lock);
    free(all.trainers);
    free(measured);
    return status;
}
