/* SPDX-License-Identifier: Apache-2.0 */
/* graphs.h -- models for tests: a small GPT-2, and random graphs with skips over any number of
 * layers. */
#ifndef CGP_TESTS_GRAPHS_H
#define CGP_TESTS_GRAPHS_H

#include <cgpipe/cgpipe.h>

#include "support.h"

/* Sizes of a test model. */
typedef struct test_sizes {
    int layers; /* of a random graph; blocks of a GPT-2 */
    int64_t sequence, width, heads, vocab;
    double dropout;
    bool rough;   /* a random graph makes integers and looks them up: its loss has jumps; one over
                     images has maxima */
    bool no_loss; /* a random graph ends in its outputs */
} test_sizes;

/* What random graphs have besides; nothing, unless a test sets it. */
typedef struct test_extras {
    int outputs;          /* at most, besides the first */
    bool input_gradients; /* of float inputs, but masks */
} test_extras;
extern test_extras test_graph_extras;

/* A GPT-2 of these sizes, finished. Fails the test on error. */
cgp_model *test_gpt2(const test_sizes *sizes);

/* A random graph of `layers` layers between an embedding and a head, drawn from *state:
 * linears, norms, products, activations, attention, dropout, sums and differences of values from
 * any earlier layer, values used several times, parameters shared by several ops, integers made by
 * the graph, a second integer input, a float input, ops from outside (custom_ops.h) and sometimes
 * other losses in the middle. Finished. */
cgp_model *test_random_graph(uint64_t *state, const test_sizes *sizes);

/* A random graph over small images, `layers` layers between a stem and a head: convolutions, batch
 * norms (some share parameters), instance and group norms, activations, dropouts, pools,
 * upsampling, padding, concatenations and additions of earlier values, values used several times; a
 * loss over classes, sometimes another over pixels. Of the sizes it takes layers, vocabulary
 * (classes), dropout, rough and no_loss. Finished. */
cgp_model *test_random_images(uint64_t *state, const test_sizes *sizes);

/* Random inputs for a model of graphs.c or images.c: targets (some ignored), a mask of numbers from
 * 0 to 1, other floats from -1 to 1, other integers below the vocabulary. */
typedef struct test_batch {
    cgp_tensor tensors[4];
    const cgp_tensor *inputs[4];
    int n;
} test_batch;
void test_batch_fill(test_batch *batch, const cgp_model *model, const test_sizes *sizes,
                     int64_t samples, uint64_t *state);
void test_batch_release(test_batch *batch);

/* Tensors for a model's outputs, and for the gradients of inputs that have one, all zero; the lists
 * for calls. */
enum { TEST_MOST_OUTPUTS = 4 };
typedef struct test_results {
    cgp_tensor outputs[TEST_MOST_OUTPUTS], gradients[4];
    const cgp_tensor *output_list[TEST_MOST_OUTPUTS], *gradient_list[4];
    int n_outputs, n_inputs;
} test_results;
void test_results_make(test_results *results, const cgp_model *model, int64_t samples);
void test_results_release(test_results *results);

/* Sums that tell elements apart by their places. */
double test_results_outputs(const test_results *results);
double test_results_gradients(const test_results *results);

/* Draw a balance of `layers` over `stages`, no stage empty. */
void test_random_balance(uint64_t *state, int layers, int stages, int *balance);

/* Draw a schedule that trains `layers` layers on up to `most` devices, and set it, stages, virtual
 * stages and group; the micro-batches are those of the options. */
void test_random_schedule(uint64_t *state, int layers, int max, cgp_plan_options *options);

/* Draw how a model is trained on up to 4 devices, in micro-batches of one sample: precision,
 * recomputation, schedule, and `balance` [layers], which the options then point to. */
void test_random_training(uint64_t *state, const cgp_model *model, cgp_plan_options *options,
                          int *balance);

/* Train `steps` steps on the same batches and tell losses and the weights' hash. */
typedef struct test_outcome {
    double losses[8];
    double evaluation;
    double prediction; /* a checksum of all outputs */
    double gradients;  /* of those of inputs, in all steps */
    char sha256[65], state_sha256[65];
} test_outcome;
void test_train(const cgp_model *model, const cgp_plan_options *options, uint64_t seed,
                const test_batch *batches, int steps, test_outcome *outcome);

#endif
