/* SPDX-License-Identifier: Apache-2.0 */
/* graphs.h -- models for tests: a small GPT-2, and random graphs with skips over any number of
 * layers. */
#ifndef CGP_TESTS_GRAPHS_H
#define CGP_TESTS_GRAPHS_H

#include <cgpipe/cgpipe.h>

#include "support.h"

/* Sizes of a test model. */
typedef struct test_sizes {
    int layers; /* layers of a random graph, blocks of a GPT-2 */
    int64_t sequence, width, heads, vocab;
    double dropout;
    /* a random graph's loss may be non-smooth: computed integers may index tables, and image graphs
     * may have maximum pools */
    bool rough;
    bool no_loss; /* random graphs have outputs but no loss */
} test_sizes;

/* Optional features of random graphs; all are off unless a test sets them. */
typedef struct test_extras {
    int outputs;          /* largest number of outputs after the first */
    bool input_gradients; /* float inputs except masks get gradients */
    bool frozen;          /* half of the graphs have frozen parameters */
} test_extras;
extern test_extras test_graph_extras;

/* Build and finish a GPT-2 of these sizes. Fail the test on error. */
cgp_model *test_gpt2(const test_sizes *sizes);

/* Build and finish a random graph, with `layers` layers between an embedding and a head. `state` is
 * the random generator's state. The graph's ops are linears, norms, products, activations,
 * attention, dropout, sums and differences of values from any earlier layer, and custom ops
 * (custom_ops.h). Values may have several uses, and ops may share parameters. The graph may compute
 * integers. It may also have a second integer input, a float input, and further losses in the
 * middle. */
cgp_model *test_random_graph(uint64_t *state, const test_sizes *sizes);

/* Build and finish a random graph over small images, with `layers` layers between a stem and a
 * head. It has convolutions, batch norms (some share parameters), instance and group norms,
 * activations, dropouts, pools, upsampling, padding, concatenations and additions of earlier
 * values. The loss is over classes, sometimes also over pixels. From `sizes`, the graph uses only
 * layers, vocab (classes), dropout, rough and no_loss. */
cgp_model *test_random_images(uint64_t *state, const test_sizes *sizes);

/* If test_graph_extras.frozen is set, freeze parameters in half of the models. These are a random
 * subset, or all parameters of the first layers. At least one parameter stays trainable.
 * test_random_graph() and test_random_images() call this function. */
void test_random_freeze(uint64_t *state, cgp_model *model);

/* Random inputs for a model of graphs.c or images.c. Some targets are ignored. A mask has numbers
 * from 0 to 1; all other floats are from -1 to 1. Integers other than ignored targets are below the
 * vocabulary size. */
typedef struct test_batch {
    cgp_tensor tensors[4];
    const cgp_tensor *inputs[4];
    int n;
} test_batch;
void test_batch_fill(test_batch *batch, const cgp_model *model, const test_sizes *sizes,
                     int64_t samples, uint64_t *state);
void test_batch_release(test_batch *batch);

/* Zeroed tensors for a model's outputs and input gradients, and the lists of tensors that the API's
 * functions take. */
enum { TEST_MOST_OUTPUTS = 4 };
typedef struct test_results {
    cgp_tensor outputs[TEST_MOST_OUTPUTS], gradients[4];
    const cgp_tensor *output_list[TEST_MOST_OUTPUTS], *gradient_list[4];
    int n_outputs, n_inputs;
} test_results;
void test_results_make(test_results *results, const cgp_model *model, int64_t samples);
void test_results_release(test_results *results);

/* Return a checksum of the outputs, or of the input gradients. A checksum depends on the position
 * of each element. */
double test_results_outputs(const test_results *results);
double test_results_gradients(const test_results *results);

/* Draw a balance of `layers` layers over `stages` stages, with no empty stage. */
void test_random_balance(uint64_t *state, int layers, int stages, int *balance);

/* Set the recompute mode to `budget`, and draw a memory limit within which a plan exists. */
void test_random_budget(uint64_t *state, const cgp_model *model, cgp_plan_options *o);

/* Draw a schedule that can train `layers` layers on at most `max` devices. Set schedule, stages,
 * virtual stages and group in the options. Keep the number of micro-batches in the options. */
void test_random_schedule(uint64_t *state, int layers, int max, cgp_plan_options *options);

/* Draw options to train a model on up to 4 devices, in micro-batches of one sample. Precision,
 * recompute mode, schedule and `balance` [layers] are drawn. The options then point to
 * `balance`. */
void test_random_training(uint64_t *state, const cgp_model *model, cgp_plan_options *options,
                          int *balance);

/* The results of a training run: losses, checksums and hashes. test_train() trains `steps` steps,
 * one with each batch. */
typedef struct test_outcome {
    double losses[8];
    double evaluation;
    double prediction; /* checksum of all outputs */
    double gradients;  /* checksum of all input gradients, over all steps */
    char sha256[65], state_sha256[65];
    unsigned char roots[8][32]; /* roots of the steps' digests */
} test_outcome;
void test_train(const cgp_model *model, const cgp_plan_options *options, uint64_t seed,
                const test_batch *batches, int steps, test_outcome *outcome);

#endif
