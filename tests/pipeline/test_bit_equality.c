/* SPDX-License-Identifier: Apache-2.0 */
/* test_bit_equality.c -- losses, weights and running statistics are bit-equal for all stages,
 * balances, schedules, recompute modes and thread counts.
 *
 * Shapes, graphs, balances and seeds are random in each run and printed. Two variables replace the
 * default draws:
 *
 * - CGP_TEST_TRANSPORT=mpi: all processes that mpirun started run the random cases of `loopback`
 *   over the transport mpi. CGP_TEST_SEED must be the same in all processes.
 * - CGP_TEST_DEVICES=cuda-host: all devices use the backend cuda-host, which runs no custom ops.
 *   Its results may differ in the last bits from the results of cpu. */
#include "graphs.h"
#include "processes.h"

#include <inttypes.h>
#include <math.h>

enum { MODES = CGP_RECOMPUTE_BUDGET + 1 };
enum { STEPS = 3 };

static void print_case(const char *what, const cgp_plan_options *o, const test_outcome *outcome) {
    print_message("%s: %s, stages %d, batch %d, chunks %d, %s (%d, %d, %d), %s%s, groups %d, "
                  "balance",
                  what, cgp_precision_name(o->precision), o->stages, (int)o->batch, o->chunks,
                  o->schedule, o->virtual_stages, o->group, o->in_flight,
                  cgp_recompute_name(o->recompute), o->deferred_batch_norm ? ", deferred" : "",
                  o->gradient_groups);
    for (int j = 0; o->balance && j < cgp_plan_options_stages(o); j++)
        print_message(" %d", o->balance[j]);
    print_message(", losses %.9g %.9g %.9g, %.12s\n", outcome->losses[0], outcome->losses[1],
                  outcome->losses[2], outcome->sha256);
}

/* Compare sums. If the training diverged, both sums are NaN, which counts as equal. */
static bool same_sum(double a, double b) {
    return a == b || (isnan(a) && isnan(b));
}

static void assert_same(const cgp_plan_options *o, const test_outcome *a, const test_outcome *b) {
    if (memcmp(a->losses, b->losses, sizeof a->losses) == 0 &&
        same_sum(a->evaluation, b->evaluation) &&
        (same_sum(a->prediction, b->prediction) || (test_transport && isnan(b->prediction))) &&
        same_sum(a->gradients, b->gradients) && strcmp(a->sha256, b->sha256) == 0 &&
        strcmp(a->state_sha256, b->state_sha256) == 0 &&
        memcmp(a->roots, b->roots, sizeof a->roots) == 0)
        return;
    print_case("differs", o, b);
    print_message("expected losses %.9g %.9g %.9g, evaluation %.9g (got %.9g), prediction "
                  "%.17g (got %.17g), %.12s, states %.12s (got %.12s), digests %s\n",
                  a->losses[0], a->losses[1], a->losses[2], a->evaluation, b->evaluation,
                  a->prediction, b->prediction, a->sha256, a->state_sha256, b->state_sha256,
                  memcmp(a->roots, b->roots, sizeof a->roots) == 0 ? "equal" : "differ");
    fail();
}

/* Number of random cases that ran on the transport between processes, with one rank in each
 * process. */
static int drawn_on_ranks;

/* Draw the devices and ranks of a run. In general, `what` names the backend of all devices. There
 * are three exceptions: "late" puts most devices on `late` and the others on the cpu, "loopback"
 * draws several ranks on the cpu, and "late on loopback" does both. */
static void draw_devices(const char *what, uint64_t *state, cgp_plan_options *o,
                         const char *devices[5]) {
    const bool late = strncmp(what, "late", 4) == 0, ranks = strstr(what, "loopback");
    for (int d = 0; d < 5; d++) {
        devices[d] = late ? "late" : ranks ? "cpu" : what;
        if (late && test_between(state, 0, 3) == 0) devices[d] = "cpu";
    }
    o->ranks = ranks && o->stages > 1 ? test_between(state, 2, o->stages) : 1;
    if (!test_transport || !ranks) return;
    const int n = test_transport->ranks(test_communicator);
    o->ranks = n <= o->stages ? n : 1;
    drawn_on_ranks += o->ranks > 1;
}

/* Return the backend of the reference run. */
static const char *plain_device(const char *what) {
    return strncmp(what, "late", 4) != 0 && strcmp(what, "loopback") != 0 ? what : "cpu";
}

/* Draw a memory limit. A plan that recomputes by budget always has a limit. Other plans have one at
 * random. With a limit, the cpu backend prepacks bf16 weights. */
static void draw_limit(uint64_t *state, const cgp_model *model, cgp_plan_options *o) {
    o->memory_limit = test_between(state, 0, 1) ? (int64_t)1 << 40 : 0;
    if (o->recompute == CGP_RECOMPUTE_BUDGET) test_random_budget(state, model, o);
}

/* Train a model on one stage without recomputation. Compare the results with runs of the same model
 * in random layouts, with the same number of micro-batches. */
static void check_model(const cgp_model *model, const test_sizes *sizes, const char *device,
                        cgp_precision precision, uint64_t *state, int max) {
    const char *devices[5] = {plain_device(device)};
    cgp_plan_options o = cgp_plan_options_default();
    o.batch = test_between(state, 1, 7);
    o.chunks = test_between(state, 1, (int)o.batch + 2);
    o.schedule = "gpipe";
    o.optim = test_between(state, 0, 1) ? cgp_optim_adamw(1e-3, 0.01)
                                        : cgp_optim_sgd(0.05, 0.9, true, 1e-4);
    o.devices = devices;
    o.precision = precision;
    o.deferred_batch_norm = test_between(state, 0, 1);
    o.gradient_groups = test_between(state, 0, 1) ? 1 << test_between(state, 1, 4) : 1;
    const uint64_t seed = test_random(state);
    test_batch batches[STEPS];
    for (int s = 0; s < STEPS; s++) /* the second mini-batch may be smaller than planned */
        test_batch_fill(&batches[s], model, sizes,
                        s == 1 ? test_between(state, 1, (int)o.batch) : o.batch, state);
    test_outcome expected, got;
    test_train(model, &o, seed, batches, STEPS, &expected);
    print_case(cgp_model_name(model), &o, &expected);
    int balance[64];
    const int layers = cgp_model_layers(model);
    o.balance = balance;
    for (int k = 0; k < max * MODES; k++) {
        o.recompute = (cgp_recompute)(k % MODES);
        o.threads_per_device = test_between(state, 1, 2);
        test_random_schedule(state, layers, max, &o);
        test_random_balance(state, layers, cgp_plan_options_stages(&o), balance);
        draw_devices(device, state, &o, devices);
        draw_limit(state, model, &o);
        test_train(model, &o, seed, batches, STEPS, &got);
        assert_same(&o, &expected, &got);
    }
    for (int s = 0; s < STEPS; s++)
        test_batch_release(&batches[s]);
}

static test_sizes draw_sizes(uint64_t *state) {
    test_sizes sizes = {.layers = test_between(state, 1, 6)};
    sizes.sequence = test_between(state, 1, 20);
    sizes.heads = test_between(state, 1, 3);
    sizes.width = sizes.heads * test_between(state, 1, 9);
    sizes.vocab = test_between(state, 2, 40);
    sizes.dropout = 0.3;
    sizes.rough = test_between(state, 0, 1);
    return sizes;
}

static void random_graphs_are_bit_equal(const char *device, cgp_precision precision, int graphs) {
    uint64_t state = test_seed();
    for (int i = 0; i < graphs; i++) {
        const test_sizes sizes = draw_sizes(&state);
        print_message("graph of %d layers, T %d, C %d, %d heads, V %d\n", sizes.layers,
                      (int)sizes.sequence, (int)sizes.width, (int)sizes.heads, (int)sizes.vocab);
        cgp_model *model = test_random_graph(&state, &sizes);
        check_model(model, &sizes, device, precision, &state, 5);
        cgp_model_destroy(model);
    }
}

static void random_graphs_are_bit_equal_on_the_reference(void **unused) {
    (void)unused;
    random_graphs_are_bit_equal("ref", CGP_PRECISION_F32, test_scaled(12));
}

static void random_graphs_are_bit_equal_in_bf16_on_the_reference(void **unused) {
    (void)unused;
    random_graphs_are_bit_equal("ref", CGP_PRECISION_BF16, test_scaled(12));
}

static void random_graphs_are_bit_equal_on_the_cpu(void **unused) {
    (void)unused;
    random_graphs_are_bit_equal("cpu", CGP_PRECISION_F32, test_scaled(12));
}

static void random_graphs_are_bit_equal_in_bf16_on_the_cpu(void **unused) {
    (void)unused;
    random_graphs_are_bit_equal("cpu", CGP_PRECISION_BF16, test_scaled(12));
}

static void random_images_are_bit_equal(const char *device, int graphs) {
    uint64_t state = test_seed();
    for (int i = 0; i < graphs; i++) {
        test_sizes sizes = draw_sizes(&state);
        sizes.rough = true;
        cgp_model *model = test_random_images(&state, &sizes);
        print_message("%d layers over images, %d states\n", sizes.layers, cgp_model_states(model));
        check_model(model, &sizes, device, i % 2 ? CGP_PRECISION_BF16 : CGP_PRECISION_F32, &state,
                    5);
        cgp_model_destroy(model);
    }
}

static void random_images_are_bit_equal_on_the_reference(void **unused) {
    (void)unused;
    random_images_are_bit_equal("ref", test_scaled(12));
}

static void random_images_are_bit_equal_on_the_cpu(void **unused) {
    (void)unused;
    random_images_are_bit_equal("cpu", test_scaled(12));
}

static void random_graphs_are_bit_equal_on_late(void **unused) {
    (void)unused;
    random_graphs_are_bit_equal("late", CGP_PRECISION_F32, test_scaled(4));
    random_graphs_are_bit_equal("late", CGP_PRECISION_BF16, test_scaled(4));
}

static void random_images_are_bit_equal_on_late(void **unused) {
    (void)unused;
    random_images_are_bit_equal("late", test_scaled(4));
}

static void random_graphs_are_bit_equal_on_loopback(void **unused) {
    (void)unused;
    random_graphs_are_bit_equal("loopback", CGP_PRECISION_F32, test_scaled(4));
    random_graphs_are_bit_equal("loopback", CGP_PRECISION_BF16, test_scaled(4));
}

static void random_images_are_bit_equal_on_loopback(void **unused) {
    (void)unused;
    random_images_are_bit_equal("loopback", test_scaled(4));
}

static void random_graphs_are_bit_equal_on_late_on_loopback(void **unused) {
    (void)unused;
    random_graphs_are_bit_equal("late on loopback", CGP_PRECISION_F32, test_scaled(4));
    random_graphs_are_bit_equal("late on loopback", CGP_PRECISION_BF16, test_scaled(4));
}

static void random_images_are_bit_equal_on_late_on_loopback(void **unused) {
    (void)unused;
    random_images_are_bit_equal("late on loopback", test_scaled(4));
}

static void gpt2_is_bit_equal_on_the_cpu(void **unused) {
    (void)unused;
    uint64_t state = test_seed();
    for (int i = 0; i < 4; i++) {
        test_sizes sizes = draw_sizes(&state);
        sizes.layers = test_between(&state, 1, 3);
        sizes.sequence =
            i < 2 ? test_between(&state, 120, 140) : sizes.sequence; /* 120 to 140: several tiles */
        cgp_model *model = test_gpt2(&sizes);
        check_model(model, &sizes, "cpu", i % 2 ? CGP_PRECISION_BF16 : CGP_PRECISION_F32, &state,
                    5);
        cgp_model_destroy(model);
    }
}

static void random_graphs_are_bit_equal_on_the_backend(void **unused) {
    (void)unused;
    const char *device = getenv("CGP_TEST_DEVICES");
    random_graphs_are_bit_equal(device, CGP_PRECISION_F32, test_scaled(1));
    random_graphs_are_bit_equal(device, CGP_PRECISION_BF16, test_scaled(1));
}

static void random_images_are_bit_equal_on_the_backend(void **unused) {
    (void)unused;
    random_images_are_bit_equal(getenv("CGP_TEST_DEVICES"), test_scaled(1));
}

/* Run the draws on one backend. */
static int run_on_backend(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs_are_bit_equal_on_the_backend),
        cmocka_unit_test(random_images_are_bit_equal_on_the_backend),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Run the draws with several ranks on a transport between processes. */
static int run_on_transport(const char *name) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs_are_bit_equal_on_loopback),
        cmocka_unit_test(random_images_are_bit_equal_on_loopback),
        cmocka_unit_test(random_graphs_are_bit_equal_on_late_on_loopback),
        cmocka_unit_test(random_images_are_bit_equal_on_late_on_loopback),
    };
    if (cgp_transport_find(&test_transport, name) != CGP_OK ||
        test_transport->communicator_create(NULL, &test_communicator) != CGP_OK) {
        fprintf(stderr, "%s\n", cgp_message());
        return 1;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    printf("%d draws on %d ranks\n", drawn_on_ranks, test_transport->ranks(test_communicator));
    if (failed) (test_transport->failures.fail)(test_communicator, CGP_EDEVICE, "a test failed");
    test_transport->communicator_destroy(test_communicator);
    return failed;
}

int main(void) {
    if (getenv("CGP_TEST_TRANSPORT")) return run_on_transport(getenv("CGP_TEST_TRANSPORT"));
    test_graph_extras = (test_extras){.outputs = 2, .input_gradients = true, .frozen = true};
    if (getenv("CGP_TEST_DEVICES")) return run_on_backend();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs_are_bit_equal_on_the_reference),
        cmocka_unit_test(random_graphs_are_bit_equal_in_bf16_on_the_reference),
        cmocka_unit_test(random_graphs_are_bit_equal_on_the_cpu),
        cmocka_unit_test(random_graphs_are_bit_equal_in_bf16_on_the_cpu),
        cmocka_unit_test(random_images_are_bit_equal_on_the_reference),
        cmocka_unit_test(random_images_are_bit_equal_on_the_cpu),
        cmocka_unit_test(gpt2_is_bit_equal_on_the_cpu),
        cmocka_unit_test(random_graphs_are_bit_equal_on_late),
        cmocka_unit_test(random_images_are_bit_equal_on_late),
        cmocka_unit_test(random_graphs_are_bit_equal_on_loopback),
        cmocka_unit_test(random_images_are_bit_equal_on_loopback),
        cmocka_unit_test(random_graphs_are_bit_equal_on_late_on_loopback),
        cmocka_unit_test(random_images_are_bit_equal_on_late_on_loopback),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
