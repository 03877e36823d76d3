/* SPDX-License-Identifier: Apache-2.0 */
/* test_staging.c -- if a device has its own memory, it copies from and to the host only through
 * planned memory. The size of that memory does not depend on the caller's data. (`late` refuses to
 * copy from or to other host memory, so all tests on `late` check this.) */
#include "graphs.h"

#include "backend/registry.h"
#include "base/base.h"
#include "late/late.h"
#include "plan/links.h"

/* --- a copy of `late` that counts --- */

static _Atomic int64_t host_bytes;

static cgp_status counted_create(cgp_device *device, size_t bytes, void **out) {
    host_bytes += (int64_t)bytes;
    return cgp__backend_late.device.host_memory_create(device, bytes, out);
}

static void add_counted(void) {
    static cgp_backend counted;
    counted = cgp__backend_late;
    counted.name = "counted";
    counted.device.host_memory_create = counted_create;
    assert_ok(cgp__backend_add(&counted));
}

TEST_CASE(the_hosts_memory_is_what_was_planned) {
    static const char *const lists[][3] = {{"counted"},
                                           {"counted", "counted"},
                                           {"cpu", "counted", "cpu"},
                                           {"counted", "cpu", "counted"}};
    static const int stages[] = {1, 2, 3, 3};
    uint64_t state = test_seed();
    test_sizes sizes = {.layers = 4, .sequence = 6, .width = 8, .heads = 2, .vocab = 11};
    add_counted();
    for (int i = 0; i < 4; i++) {
        cgp_model *model = test_random_graph(&state, &sizes);
        cgp_plan_options o = cgp_plan_options_default();
        cgp_plan *plan = NULL;
        cgp_pipeline *pipeline = NULL;
        int64_t planned = 0;
        o.stages = stages[i];
        o.batch = o.chunks = 4;
        o.devices = lists[i];
        assert_ok(cgp_plan_create(&plan, model, &o));
        for (int d = 0; d < o.stages; d++) {
            const cgp_plan_device *device = cgp_plan_device_at(plan, d);
            assert_int_equal(device->host_bytes > 0, strncmp(lists[i][d], "cpu", 3) != 0);
            planned += device->host_bytes;
        }
        host_bytes = 0;
        assert_ok(cgp_pipeline_create(&pipeline, plan, 1));
        assert_int_equal(host_bytes, planned);
        cgp_pipeline_destroy(pipeline);
        cgp_plan_destroy(plan);
        cgp_model_destroy(model);
    }
}

/* --- data larger than the planned memory --- */

enum { SAMPLES = 3, IDS = 256, WIDTH = 16384, VOCAB = 5 };

/* Make a model of an embedding and a relu. The output of each takes 16 MiB per sample. */
static cgp_model *wide(void) {
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "wide"));
    cgp_model_layer(model, "rows");
    const cgp_value ids = cgp_model_input(model, "ids", CGP_I32, 1, (int64_t[]){IDS});
    const cgp_value rows =
        cgp_embedding(model, ids, "rows", VOCAB, WIDTH, (cgp_init){CGP_INIT_NORMAL, 1});
    cgp_model_layer(model, "relu");
    cgp_model_output(model, cgp_relu(model, rows));
    assert_ok(cgp_model_finish(model));
    return model;
}

/* Predict on a device and return the output; the caller frees it. */
static float *predict(const char *device, const cgp_model *model, const cgp_tensor *ids) {
    const size_t bytes = sizeof(float) * SAMPLES * IDS * WIDTH;
    const cgp_tensor output = {CGP_F32, {3, {SAMPLES, IDS, WIDTH}}, malloc(bytes)};
    cgp_plan_options o = cgp_plan_options_default();
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    o.inference = true;
    o.batch = o.chunks = SAMPLES;
    o.devices = &device;
    assert_non_null(output.data);
    assert_ok(cgp_plan_create(&plan, model, &o));
    assert_true(cgp_plan_device_at(plan, 0)->host_bytes < (int64_t)bytes / SAMPLES);
    assert_ok(cgp_pipeline_create(&pipeline, plan, 1));
    assert_ok(cgp_pipeline_predict(pipeline, &ids, 1, (const cgp_tensor *[]){&output}, 1));
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    return output.data;
}

TEST_CASE(an_output_larger_than_the_planned_memory_arrives) {
    static int32_t numbers[SAMPLES * IDS];
    const cgp_tensor ids = {CGP_I32, {2, {SAMPLES, IDS}}, numbers};
    uint64_t state = test_seed();
    for (int i = 0; i < SAMPLES * IDS; i++)
        numbers[i] = (int32_t)(test_random(&state) % VOCAB);
    cgp_model *model = wide();
    float *expected = predict("cpu", model, &ids), *got = predict("late", model, &ids);
    assert_memory_equal(expected, got, sizeof(float) * SAMPLES * IDS * WIDTH);
    free(expected);
    free(got);
    cgp_model_destroy(model);
}

/* --- messages between ranks --- */

/* Create a plan of two ranks; the message between them takes 16 MiB per sample. */
static cgp_plan *plan_ranks(const char *from, const char *to, const cgp_model *model) {
    cgp_plan_options o = cgp_plan_options_default();
    cgp_plan *plan = NULL;
    o.inference = true;
    o.stages = o.ranks = 2;
    o.balance = (const int[]){1, 1};
    o.batch = o.chunks = SAMPLES;
    o.devices = (const char *const[]){from, to};
    assert_ok(cgp_plan_create(&plan, model, &o));
    return plan;
}

static void check_pieces(const cgp_plan *plan, int pieces, int64_t most) {
    const cgp__link_plan *first = &cgp__plan_links(plan)->list[0];
    int64_t bytes = 0, placed = 0;
    assert_int_equal(first->pieces, pieces);
    for (int k = 0; k < pieces; k++) {
        const cgp__link_plan *link = &cgp__plan_links(plan)->list[cgp__plan_piece(plan, 0, k)];
        assert_int_equal(link->bytes, cgp__min(most, first->message_bytes - bytes));
        assert_int_equal(link->capacity, first->capacity);
        assert_int_equal(link->offset, first->offset + placed);
        bytes += link->bytes;
        placed += link->capacity * (CGP_LINK_HEADER_BYTES + link->bytes);
    }
    assert_int_equal(bytes, cgp_plan_edge_at(plan, 0).bytes);
}

TEST_CASE(large_messages_of_ranks_are_planned_in_pieces) {
    enum { MESSAGE = 4 * IDS * WIDTH };
    static const char *const devices[][2] = {
        {"late", "late"}, {"late", "cpu"}, {"cpu", "late"}, {"cpu", "cpu"}};
    cgp_model *model = wide();
    for (int i = 0; i < 4; i++) {
        cgp_plan *plan = plan_ranks(devices[i][0], devices[i][1], model);
        check_pieces(plan, i < 3 ? MESSAGE / CGP__PIECE_BYTES : 1,
                     i < 3 ? CGP__PIECE_BYTES : MESSAGE);
        cgp_plan_destroy(plan);
    }
    setenv("CGP_PIECE_BYTES", "6400000", 1);
    cgp_plan *plan = plan_ranks("late", "late", model);
    check_pieces(plan, 3, 6400000);
    cgp_plan_destroy(plan);
    cgp_plan_options o = cgp_plan_options_default();
    o.inference = true;
    setenv("CGP_PIECE_BYTES", "100", 1);
    assert_status(cgp_plan_create(&plan, model, &o), CGP_EINVAL);
    assert_message("CGP_PIECE_BYTES: expected a multiple of 64, got \"100\"");
    unsetenv("CGP_PIECE_BYTES");
    cgp_model_destroy(model);
}

/* --- the contract --- */

TEST_CASE(other_memory_of_the_host_is_refused) {
    const cgp_backend *b = &cgp__backend_late;
    const cgp_device_options options = {.struct_size = sizeof options, .threads = 1};
    cgp_device *device = NULL;
    void *there = NULL;
    char here[64];
    assert_ok(b->device.create(&device, &options));
    assert_ok(b->device.memory_create(device, sizeof here, &there));
    assert_status(b->device.copy(device, CGP_QUEUE_COMPUTE, (cgp_place){device, there},
                                 (cgp_place){NULL, here}, sizeof here),
                  CGP_EINVAL);
    assert_message("late: copy from: expected the host's memory of host_memory_create()");
    b->device.memory_destroy(device, there, sizeof here);
    b->device.destroy(device);
}
