/* SPDX-License-Identifier: Apache-2.0 */
/* test_devices.c -- tests names and lists of devices, ordinals, memory limits, and ops that a
 * device does not support. */
#include "custom_ops.h"
#include "graphs.h"
#include "support.h"

#include <cgpipe/cgpipe.h>

#include "backend/device_names.h"
#include "backend/registry.h"
#include "late/late.h"

/* --- names and lists --- */

TEST_CASE(a_name_is_a_kind_an_ordinal_and_a_limit) {
    static const struct {
        const char *text, *kind;
        int ordinal;
        int64_t limit;
    } good[] = {
        {"cpu", "cpu", 0, 0},
        {"cuda:3", "cuda", 3, 0},
        {"late@500M", "late", 0, 500LL << 20},
        {"cuda:2147483647@22GiB", "cuda", 2147483647, 22LL << 30},
        {"a@7", "a", 0, 7},
        {"a@1K", "a", 0, 1024},
        {"a@1TiB", "a", 0, 1LL << 40},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        cgp__device_name name = {.ordinal = -1};
        assert_ok(cgp__device_name_parse(good[i].text, &name));
        assert_string_equal(name.kind, good[i].kind);
        assert_int_equal(name.ordinal, good[i].ordinal);
        assert_int_equal(name.limit, good[i].limit);
    }
}

TEST_CASE(a_local_ordinal_is_the_launchers_number_on_the_host) {
    static const char *const launchers[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                            "SLURM_LOCALID"};
    cgp__device_name name = {.ordinal = -1};
    for (int i = 0; i < 3; i++)
        unsetenv(launchers[i]);
    assert_ok(cgp__device_name_parse("cuda:local@2G", &name));
    assert_true(name.local);
    assert_int_equal(name.ordinal, 0);
    assert_int_equal(name.limit, 2LL << 30);
    for (int i = 0; i < 3; i++) {
        setenv(launchers[i], i == 2 ? "none" : "3", 1);
        assert_ok(cgp__device_name_parse("cuda:local", &name));
        assert_int_equal(name.ordinal, i == 2 ? 0 : 3);
        unsetenv(launchers[i]);
    }
    assert_ok(cgp__device_name_parse("cuda:1", &name));
    assert_false(name.local);
}

/* The plans of all ranks must have equal hashes, because ranks compare the hashes. */
TEST_CASE(plans_of_ranks_with_local_ordinals_are_equal) {
    const test_sizes sizes = {
        .layers = 1, .sequence = 4, .width = 8, .heads = 2, .vocab = 11, .dropout = 0};
    cgp_model *model = test_gpt2(&sizes);
    char hashes[4][65];
    for (int i = 0; i < 4; i++) {
        cgp_plan_options o = cgp_plan_options_default();
        cgp_plan *plan = NULL;
        o.devices = (const char *const[]){i < 2 ? "late:local" : i == 2 ? "late:1" : "late:2"};
        setenv("SLURM_LOCALID", i == 0 ? "1" : "2", 1);
        assert_ok(cgp_plan_create(&plan, model, &o));
        assert_int_equal(cgp_plan_device_at(plan, 0)->ordinal, i == 0 || i == 2 ? 1 : 2);
        assert_ok(cgp_plan_hash(plan, hashes[i]));
        cgp_plan_destroy(plan);
    }
    unsetenv("SLURM_LOCALID");
    cgp_model_destroy(model);
    assert_string_equal(hashes[0], hashes[1]);
    assert_string_not_equal(hashes[2], hashes[3]);
}

TEST_CASE(a_name_of_another_form_is_refused_with_the_place) {
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"", "expected KIND[:ORDINAL][@LIMIT]"},
        {":0", "expected KIND[:ORDINAL][@LIMIT]"},
        {"@1G", "expected KIND[:ORDINAL][@LIMIT]"},
        {"cuda:", "expected a number >= 0 behind \":\", got \"\""},
        {"cuda:x", "behind \":\", got \"x\""},
        {"cuda:-1", "behind \":\", got \"-1\""},
        {"cuda:2147483648", "behind \":\", got \"2147483648\""},
        {"cuda:1:2", "behind \":\", got \"1:2\""},
        {"cpu@", "expected bytes >= 1 behind \"@\", got \"\""},
        {"cpu@0", "got \"0\""},
        {"cpu@2Q", "got \"2Q\" (as in cpu@2GiB or @500M)"},
        {"cpu@GiB", "got \"GiB\""},
        {"cpu@2iB", "got \"2iB\""},
        {"cpu@-2G", "got \"-2G\""},
        {"cpu@2G:0", "got \"2G:0\""},
        {"cpu@9223372036854775808", "behind \"@\""},
        {"cpu@9999999T", "behind \"@\""},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cgp__device_name name;
        assert_status(cgp__device_name_parse(bad[i].text, &name), CGP_EINVAL);
        assert_message("devices: \"");
        assert_message(bad[i].text);
        assert_message(bad[i].message);
    }
}

TEST_CASE(a_list_repeats_a_name_as_often_as_it_says) {
    static const char *const expected[] = {"cpu", "cpu", "cpu", "late@2GiB", "cuda:1"};
    cgp_device_list list = {0};
    assert_ok(cgp_device_list_parse(&list, "cpu*3,late@2GiB,cuda:1*1"));
    assert_int_equal(list.count, 5);
    for (int d = 0; d < 5; d++)
        assert_string_equal(list.names[d], expected[d]);
    cgp_device_list_release(&list);
    assert_int_equal(list.count, 0);
    assert_null(list.names);
    cgp_device_list_release(&list); /* release an empty list */
    assert_ok(cgp_device_list_parse(&list, "cpu*65536"));
    assert_int_equal(list.count, CGP_MAX_DEVICES);
    assert_string_equal(list.names[CGP_MAX_DEVICES - 1], "cpu");
    cgp_device_list_release(&list);
}

TEST_CASE(a_list_of_another_form_is_refused_and_leaves_the_result) {
    static const struct {
        const char *text;
        cgp_status status;
        const char *message;
    } bad[] = {
        {"", CGP_EINVAL, "got no name in one place"},
        {"cpu,", CGP_EINVAL, "got no name in one place"},
        {"cpu,,ref", CGP_EINVAL, "got no name in one place"},
        {"*3", CGP_EINVAL, "expected KIND"},
        {"cpu*", CGP_EINVAL, "devices: \"cpu*\": expected a number >= 1 behind \"*\", got \"\""},
        {"cpu*0", CGP_EINVAL, "got \"0\" (as in cpu*3)"},
        {"cpu*2*3", CGP_EINVAL, "got \"2*3\""},
        {"ref,cpu*x", CGP_EINVAL, "devices: \"cpu*x\""},
        {"cpu*2@1G", CGP_EINVAL, "got \"2@1G\""},
        {"cpu*65537", CGP_ELIMIT, "expected at most 65536"},
        {"cpu*65536,ref", CGP_ELIMIT, "expected at most 65536"},
        {"cpu*9223372036854775807,cpu*9223372036854775807", CGP_ELIMIT, "at most 65536"},
        {"cpu*99999999999999999999", CGP_EINVAL, "behind \"*\""},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cgp_device_list list = {NULL, 77};
        assert_status(cgp_device_list_parse(&list, bad[i].text), bad[i].status);
        assert_message(bad[i].message);
        assert_int_equal(list.count, 77);
    }
}

/* --- plans --- */

/* Make four linear layers of equal size. If `op` is given, the second layer also has this custom
 * op. */
static cgp_model *make_model(const cgp_op *op) {
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "model"));
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (const int64_t[]){8});
    cgp_value target = cgp_model_input(model, "target", CGP_I32, 1, (const int64_t[]){1});
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "layer%d", i);
        cgp_model_layer(model, name);
        x = cgp_linear(model, x, name, (cgp_linear_options){.out = 8});
        if (op && i == 1) x = cgp_op_apply(model, op, &x, "mine", NULL);
    }
    cgp_model_loss_cross_entropy(model, x, target, -100, 1);
    assert_ok(cgp_model_finish(model));
    return model;
}

static cgp_status plan_on(cgp_plan **plan, const cgp_model *model, const char *const *devices,
                          int64_t limit) {
    cgp_plan_options options = cgp_plan_options_default();
    options.stages = 2;
    options.batch = options.chunks = 4;
    options.devices = devices;
    options.memory_limit = limit;
    return cgp_plan_create(plan, model, &options);
}

TEST_CASE(each_device_has_its_limit_and_the_smaller_one_counts) {
    static const struct {
        const char *devices[2];
        int64_t limit;
        const char *refused; /* message; NULL: accepted */
        int64_t limits[2];
    } cases[] = {
        {{"cpu", "cpu"}, 0, NULL, {0, 0}},
        {{"cpu@1M", "cpu@2MiB"}, 0, NULL, {1 << 20, 2 << 20}},
        {{"cpu@1M", "cpu"}, 3 << 20, NULL, {1 << 20, 3 << 20}},
        {{"cpu@4M", "cpu"}, 3 << 20, NULL, {3 << 20, 3 << 20}},
        {{"cpu@1K", "cpu"}, 0, "device cpu:0: needs ", {0}},
        {{"cpu", "ref@100"}, 1 << 20, "device ref:1: needs ", {0}},
        {{"cpu@1M", "cpu@1M"}, 1024, "its memory is limited to 1.00 KiB", {0}},
    };
    cgp_model *model = make_model(NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cgp_plan *plan = NULL;
        const cgp_status status = plan_on(&plan, model, cases[i].devices, cases[i].limit);
        assert_int_equal(status, cases[i].refused ? CGP_ELIMIT : CGP_OK);
        if (cases[i].refused) assert_message(cases[i].refused);
        for (int d = 0; plan && d < 2; d++)
            assert_int_equal(cgp_plan_device_at(plan, d)->limit_bytes, cases[i].limits[d]);
        cgp_plan_destroy(plan);
    }
    cgp_model_destroy(model);
}

TEST_CASE(a_plan_over_its_limit_names_sections_that_add_up) {
    static const struct {
        const char *devices[2], *section; /* only this message has it */
        int ranks;
    } cases[] = {
        {{"cpu", "cpu"}, NULL, 1}, {{"late", "late"}, "step", 1}, {{"cpu", "cpu"}, "receive", 2}};
    cgp_model *model = make_model(NULL);
    assert_ok(cgp__backend_add(&cgp__backend_late));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cgp_plan *plan = NULL;
        cgp_plan_options options = cgp_plan_options_default();
        char sections[64] = "", number[32];
        options.stages = 2;
        options.batch = options.chunks = 4;
        options.devices = cases[i].devices;
        options.ranks = cases[i].ranks;
        assert_ok(cgp_plan_create(&plan, model, &options));
        const cgp_plan_device d = *cgp_plan_device_at(plan, 0);
        assert_int_equal(d.parameter_bytes + d.gradient_bytes + d.optimizer_bytes + d.state_bytes +
                             d.slot_bytes + d.workspace_bytes + d.transfer_bytes + d.step_bytes +
                             d.receive_bytes,
                         d.planned_bytes);
        if (cases[i].section)
            snprintf(sections, sizeof sections, ", %s %s", cases[i].section,
                     cgp_bytes_text(d.step_bytes + d.receive_bytes, number, sizeof number));
        cgp_plan_destroy(plan);
        options.memory_limit = 1;
        assert_status(cgp_plan_create(&plan, model, &options), CGP_ELIMIT);
        char expected[160];
        snprintf(expected, sizeof expected, ", transfer %s%s) but its memory is limited to 1 B",
                 cgp_bytes_text(d.transfer_bytes, number, sizeof number), sections);
        assert_message(expected);
    }
    cgp_model_destroy(model);
}

TEST_CASE(an_ordinal_is_looked_up_when_the_pipeline_is_created) {
    cgp_model *model = make_model(NULL);
    for (int i = 0; i < 2; i++) {
        const char *const devices[] = {"cpu", i == 0 ? "cpu:5@1G" : "ref:5@1G"};
        cgp_plan *plan = NULL;
        cgp_pipeline *pipeline = NULL;
        assert_ok(plan_on(&plan, model, devices, 0));
        assert_int_equal(cgp_plan_device_at(plan, 1)->ordinal, 5);
        assert_string_equal(cgp_plan_device_at(plan, 1)->name, i == 0 ? "cpu:1" : "ref:1");
        assert_status(cgp_pipeline_create(&pipeline, plan, 0), CGP_EINVAL);
        assert_message(":5: expected an ordinal below 1 on this machine, got 5");
        cgp_plan_destroy(plan);
    }
    cgp_model_destroy(model);
}

TEST_CASE(an_unknown_kind_or_form_is_refused) {
    cgp_model *model = make_model(NULL);
    cgp_plan *plan = NULL;
    assert_status(plan_on(&plan, model, (const char *const[]){"cpu", "cqu:1@2G"}, 0), CGP_EINVAL);
    assert_message("got \"cqu\" (did you mean cpu?)");
    assert_status(plan_on(&plan, model, (const char *const[]){"cpu", "cpu:one"}, 0), CGP_EINVAL);
    assert_message("devices: \"cpu:one\"");
    assert_status(plan_on(&plan, model, (const char *const[]){"cpu", NULL}, 0), CGP_EINVAL);
    cgp_model_destroy(model);
}

/* --- ops --- */

static cgp_status only_linear(const cgp_device_options *options, const cgp_kernel_spec *spec,
                              int64_t *bytes) {
    if (spec->op == CGP_OP_LINEAR) return cgp__backend_ref.kernels.workspace(options, spec, bytes);
    return cgp_fail(CGP_EINVAL, "small: has no kernel but linear's");
}

static cgp_backend small;

TEST_CASE(a_custom_op_on_a_device_without_them_is_refused_by_the_plan) {
    cgp_model *model = make_model(&test_custom_scale);
    cgp_plan *plan = NULL;
    assert_status(plan_on(&plan, model, (const char *const[]){"small", "cpu"}, 0), CGP_EINVAL);
    assert_message("layer layer1, op ");
    assert_message("device small:0 runs no custom ops (put that layer on a cpu device)");
    assert_null(plan);
    assert_ok(plan_on(&plan, model, (const char *const[]){"ref", "cpu"}, 0));
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
}

TEST_CASE(a_kernel_that_a_backend_lacks_is_refused_with_layer_and_op) {
    cgp_model *model = make_model(NULL);
    cgp_plan *plan = NULL;
    assert_ok(plan_on(&plan, model, (const char *const[]){"small:9", "cpu"}, 0));
    cgp_plan_destroy(plan);
    plan = NULL;
    assert_status(plan_on(&plan, model, (const char *const[]){"cpu", "small"}, 0), CGP_EINVAL);
    assert_message("op cross_entropy, device small:1: small: has no kernel but linear's (put that "
                   "layer on a cpu device)");
    assert_message("layer ");
    assert_null(plan);
    cgp_model_destroy(model);
}

static int add_small(void **state) {
    (void)state;
    small = cgp__backend_ref;
    small.name = "small";
    small.custom_ops = false;
    small.kernels.workspace = only_linear;
    return cgp__backend_add(&small) != CGP_OK;
}

TEST_GROUP(.set_up = add_small);
