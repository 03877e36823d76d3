/* SPDX-License-Identifier: Apache-2.0 */
/* test_graph_files.c -- tests models in JSON files. Every op and attribute has an entry in the
 * tables. If a model is written and read back, it trains to bit-identical weights. The message
 * about an invalid file states the position of the error. */
#include "graphs.h"

#include "custom_ops.h"

#include <cgpipe/graph.h>
#include <cgpipe/models/spec.h>

#include "model/graph.h"
#include "model/model.h"

static const cgp_op *const customs[] = {
    &test_custom_scale, &test_custom_rms,     &test_custom_sigmoid, &test_custom_product,
    &test_custom_noise, &test_custom_meter,   &test_custom_bias,    &test_custom_bucket,
    &test_custom_gain,  &test_custom_squares, &test_custom_weighted};
enum { CUSTOMS = sizeof customs / sizeof customs[0] };

/* --- the tables --- */

TEST_CASE(every_op_has_its_line) {
    for (int kind = 0; kind < CGP_OP_KINDS; kind++) {
        const char *name = cgp_op_name((cgp_op_kind)kind);
        if (!cgp__graph_attributes((cgp_op_kind)kind)) {
            print_error("%s: no line in src/model/graph.c\n", name);
            fail();
        }
        assert_int_equal(cgp__graph_kind(name), kind);
    }
    assert_int_equal(cgp__graph_kind("nothing"), CGP_OP_KINDS);
}

TEST_CASE(a_line_has_attributes_that_there_are) {
    for (int kind = 0; kind < CGP_OP_KINDS; kind++) {
        const char *line = cgp__graph_attributes((cgp_op_kind)kind);
        int words = 0, known = 0;
        for (const char *at = line; *at; at += strcspn(at, " "), at += strspn(at, " "))
            words++;
        for (int i = 0; cgp__graph_field(i); i++)
            known += cgp__graph_has((cgp_op_kind)kind, cgp__graph_field(i), NULL);
        if (words != known) print_error("%s: \"%s\"\n", cgp_op_name((cgp_op_kind)kind), line);
        assert_int_equal(words, known);
    }
}

/* The table's fields cover every byte of the structs, except padding for alignment. */
TEST_CASE(the_fields_cover_the_structs) {
#define SIZE(family, name) sizeof(cgp__##name##_attributes),
    static const size_t sizes[] = {CGP_OP_FAMILIES(SIZE)};
    for (int family = 0; family < CGP_OP_FAMILY_PLAIN; family++) {
        bool covered[sizeof(cgp__attributes)] = {false};
        const cgp__field *field;
        for (int i = 0; (field = cgp__graph_field(i)); i++) {
            if ((int)field->family == family || field->family == CGP_OP_FAMILY_PLAIN)
                memset(covered + field->offset, 1, field->bytes);
        }
        size_t gap = 0;
        for (size_t i = 0; i < sizes[family]; i++) {
            gap = covered[i] ? 0 : gap + 1;
            if (gap > 7) print_error("family %d, byte %zu: no field in graph.c\n", family, i);
            assert_true(gap <= 7);
        }
    }
}

/* --- written and read --- */

static char *text_of(const cgp_model *model) {
    char *text = NULL;
    assert_ok(cgp_model_to_json(&text, model));
    return text;
}

static void hash_of(const cgp_model *model, const char *schedule, int stages, char hex[65]) {
    cgp_plan_options options = cgp_plan_options_default();
    cgp_plan *plan = NULL;
    options.stages = stages;
    options.schedule = schedule;
    options.batch = 4;
    options.chunks = 2;
    options.external_loss = model->n_losses == 0;
    if (options.external_loss) options.schedule = "gpipe";
    assert_ok(cgp_plan_create(&plan, model, &options));
    assert_ok(cgp_plan_hash(plan, hex));
    cgp_plan_destroy(plan);
}

/* Write a model, read it back, and compare both models; return the model that was read. */
static cgp_model *again(const cgp_model *model) {
    char before[65], after[65];
    cgp_model *read = NULL;
    char *text = text_of(model);
    assert_ok(cgp_model_from_json(&read, "text", text, strlen(text), customs, CUSTOMS));
    char *rewritten = text_of(read);
    assert_string_equal(text, rewritten);
    const int layers = cgp_model_layers(model), stages = layers < 3 ? layers : 3;
    for (int n = 1; n <= stages; n++) {
        hash_of(model, "1f1b", n, before);
        hash_of(read, "1f1b", n, after);
        assert_string_equal(before, after);
    }
    for (int l = 0; l < layers; l++)
        assert_string_equal(cgp_model_layer_name(model, l), cgp_model_layer_name(read, l));
    free(rewritten);
    free(text);
    return read;
}

TEST_CASE(families_are_the_same) {
    static const char *const texts[] = {
        "gpt2:layers=2,width=16,heads=2,vocab=32,seq=8",
        "gpt2:layers=2,width=16,heads=2,vocab=32,seq=8,tied=1,gelu=tanh",
        "resnet:depth=8,width=4,image=12",
        "resnet:depth=50,width=2,image=64,classes=5",
        "amoebanetd:L=3,D=8,image=64,classes=5",
        "amoebanetd:L=1,D=8,image=64,maxpool=max,old=1",
        "unet:B=2,C=4,depth=2,image=13",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        cgp_model_spec spec = cgp_model_spec_default();
        cgp_model *model = NULL;
        assert_ok(cgp_model_spec_parse(&spec, texts[i]));
        spec.gpt2.dropout = 0.1;
        assert_ok(cgp_model_spec_create(&model, &spec));
        cgp_model_destroy(again(model));
        cgp_model_destroy(model);
    }
}

TEST_CASE(random_graphs_are_the_same) {
    uint64_t state = test_seed();
    for (int i = 0; i < test_scaled(60); i++) {
        const test_sizes sizes = {.layers = test_between(&state, 1, 6),
                                  .sequence = test_between(&state, 1, 6),
                                  .width = 8,
                                  .heads = 2,
                                  .vocab = 7,
                                  .dropout = i % 2 ? 0.25 : 0,
                                  .rough = i % 3 == 0,
                                  .no_loss = i % 5 == 0};
        cgp_model *model =
            i % 2 ? test_random_images(&state, &sizes) : test_random_graph(&state, &sizes);
        cgp_model_destroy(again(model));
        cgp_model_destroy(model);
    }
}

/* Initial weights depend on the parameter's number, and dropout depends on the op's number. Removed
 * parameters and ops have numbers too, so a file must keep all numbers. */
TEST_CASE(they_train_to_the_same_bits) {
    uint64_t state = test_seed();
    const test_sizes sizes = {
        .layers = 4, .sequence = 4, .width = 8, .heads = 2, .vocab = 7, .dropout = 0.25};
    for (int i = 0; i < test_scaled(4); i++) {
        cgp_plan_options options = cgp_plan_options_default();
        cgp_model *model =
            i % 2 ? test_random_images(&state, &sizes) : test_random_graph(&state, &sizes);
        cgp_model *read = again(model);
        test_outcome a, b;
        test_batch batches[2];
        options.batch = 4;
        options.chunks = 2;
        for (int k = 0; k < 2; k++)
            test_batch_fill(&batches[k], model, &sizes, 4, &state);
        test_train(model, &options, 3, batches, 2, &a);
        options.stages = 2;
        test_train(read, &options, 3, batches, 2, &b);
        assert_string_equal(a.sha256, b.sha256);
        assert_string_equal(a.state_sha256, b.state_sha256);
        for (int k = 0; k < 2; k++)
            test_batch_release(&batches[k]);
        cgp_model_destroy(read);
        cgp_model_destroy(model);
    }
}

/* Removed ops leave gaps in the numbers of ops and values. If a parameter's first op was removed,
 * the numbers of parameters have a gap too. */
TEST_CASE(what_was_left_out_leaves_its_numbers) {
    const cgp_init init = {CGP_INIT_NORMAL, 0.1};
    const cgp_linear_options options = {.out = 4, .init = init};
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "holes"));
    cgp_model_layer(model, "one");
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){4});
    (void)cgp_relu(model, cgp_linear(model, x, "gone", options));
    const cgp_value y = cgp_linear(model, x, "kept", options);
    const cgp_value t = cgp_model_input(model, "t", CGP_F32, 1, (int64_t[]){4});
    cgp_model_layer(model, "two");
    cgp_model_loss_bce_with_logits(model, y, t, 0.5);
    cgp_model_tie(model, "last.weight", "gone.weight");
    x = cgp_linear(model, cgp_dropout(model, y, 0.5), "last", options);
    cgp_model_layer(model, "empty");
    cgp_model_loss_bce_with_logits(model, x, t, 0.25);
    assert_ok(cgp_model_finish(model));
    assert_string_equal(cgp_model_parameter_name(model, 0), "gone.weight");
    cgp_model *read = again(model);
    assert_string_equal(cgp_model_parameter_name(read, 0), "gone.weight");
    cgp_model_destroy(read);
    cgp_model_destroy(model);
}

TEST_CASE(two_custom_ops_of_one_name_are_refused) {
    cgp_op copy = test_custom_bias, *op = &copy;
    cgp_model *model = NULL;
    char *text = NULL;
    assert_ok(cgp_model_create(&model, "twins"));
    assert_status(cgp_model_to_json(&text, model), CGP_ESTATE);
    cgp_model_layer(model, "one");
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){4});
    x = cgp_op_apply(model, &test_custom_bias, &x, "a", NULL);
    x = cgp_op_apply(model, op, &x, "b", NULL);
    cgp_model_output(model, x);
    assert_ok(cgp_model_finish(model));
    assert_status(cgp_model_to_json(&text, model), CGP_EINVAL);
    assert_message("two custom ops are named bias");
    cgp_model_destroy(model);
    const cgp_op *const twice[] = {op, &test_custom_bias};
    assert_status(cgp_model_from_json(&model, "text", "{}", 2, twice, 2), CGP_EINVAL);
    assert_message("ops[1]: bias is the name of ops[0], too");
}

/* --- refused --- */

/* The text of a complete file. Each test case replaces a part of this text. */
static const char whole[] =
    "{\"format\": \"cgpipe-graph\", \"version\": 2, \"name\": \"small\",\n"
    " \"values\": [{\"dtype\": \"f32\", \"shape\": [4]}, {\"dtype\": \"i32\", \"shape\": "
    "[1]},\n"
    "  {\"dtype\": \"f32\", \"shape\": [3]}, {\"dtype\": \"f32\", \"shape\": [3]}],\n"
    " \"inputs\": [{\"name\": \"x\", \"value\": 0}, {\"name\": \"t\", \"value\": 1}],\n"
    " \"layers\": [\"head\"],\n"
    " \"parameters\": [{\"name\": \"w\", \"shape\": [3, 4], \"init\": \"normal\", \"scale\": "
    "0.1, \"decays\": "
    "true}],\n"
    " \"nodes\": [{\"op\": \"linear\", \"layer\": 0, \"inputs\": [0], \"output\": 2, "
    "\"parameters\": [0],\n"
    "   \"attributes\": {\"size\": 3, \"bias\": false, \"transposed\": false}},\n"
    "  {\"op\": \"relu\", \"layer\": 0, \"inputs\": [2], \"output\": 3, \"attributes\": "
    "{\"slope\": 0}}],\n"
    " \"losses\": [{\"op\": \"cross_entropy\", \"inputs\": [3, 1], \"weight\": 1, "
    "\"attributes\": {\"ignore\": "
    "-100}}],\n"
    " \"outputs\": [3]}";

static cgp_status try_with(const char *from, const char *to) {
    char text[4096];
    cgp_model *model = NULL;
    const char *at = strstr(whole, from);
    assert_non_null(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - whole), whole, to, at + strlen(from));
    const cgp_status status =
        cgp_model_from_json(&model, "small.json", text, strlen(text), customs, CUSTOMS);
    if (status == CGP_OK)
        cgp_model_destroy(model);
    else
        assert_null(model);
    return status;
}

TEST_CASE(a_text_by_hand_is_read) {
    cgp_model *model = NULL;
    assert_ok(cgp_model_from_json(&model, "small.json", whole, strlen(whole), NULL, 0));
    assert_int_equal(cgp_model_parameter_count(model), 12);
    cgp_model_destroy(again(model));
    cgp_model_destroy(model);
}

TEST_CASE(what_is_wrong_is_named_with_its_place) {
    static const struct {
        const char *from, *to, *message;
    } cases[] = {
        {"cgpipe-graph", "onnx", "small.json: format: expected \"cgpipe-graph\", got \"onnx\""},
        {"\"version\": 2", "\"version\": 1", "version: expected 2 (cgpipe " CGP_VERSION},
        {"\"name\": \"small\"", "\"nam\": \"small\"", "nam: unknown key (keys: format version"},
        {"\"name\": \"small\"", "\"name\": \"a\\u0007\"", "model: expected a name in UTF-8"},
        {"\"layers\"", "\"weights\": [], \"layers\"", "weights: unknown key"},
        {"\"linear\"", "\"liner\"", "nodes[0]: op: unknown op liner (did you mean linear?)"},
        {"\"op\": \"relu\"", "\"custom\": \"mine\"", "nodes[1]: custom: unknown custom op mine"},
        {"\"op\": \"relu\"", "\"op\": \"relu\", \"custom\": \"bias\"",
         "expected op or custom, got both"},
        {"\"size\": 3", "\"sizes\": 3",
         "nodes[0]: attributes: sizes: unknown attribute of linear, which has size"},
        {"\"size\": 3, ", "", "nodes[0]: attributes: size: is missing"},
        {"\"size\": 3", "\"size\": \"3\"", "attributes: size: expected a whole number, got \"3\""},
        {"\"bias\": false", "\"bias\": 0", "attributes: bias: expected true or false, got 0"},
        {"\"slope\": 0", "\"slope\": 2", "nodes[1]: layer head, relu: "},
        {"\"inputs\": [0]", "\"inputs\": [3]",
         "nodes[0]: inputs: expected a whole number from 0 to 1, got 3"},
        {"\"inputs\": [0]", "\"inputs\": [0, 0]",
         "nodes[0]: inputs: expected a list of 1, got [0,0]"},
        {"\"inputs\": [0]", "\"inputs\": [1]", "nodes[0]: layer head, linear: "},
        {"\"output\": 2", "\"output\": 1", "nodes[0]: output: value 1 is that of inputs[1]"},
        {"\"output\": 2", "\"output\": 0", "nodes[0]: output: value 0 is that of inputs[0]"},
        {"\"output\": 3,", "\"output\": 2,",
         "nodes[1]: output: value 2 is made before, or out of order"},
        {"\"output\": 2", "\"output\": 9",
         "nodes[0]: output: expected a whole number from 0 to 3, got 9"},
        {"\"layer\": 0", "\"layer\": 1",
         "nodes[0]: layer: expected a whole number from 0 to 0, got 1"},
        {"\"parameters\": [0]", "\"parameters\": [1]",
         "nodes[0]: parameters: expected a whole number from 0 to 0"},
        {"\"parameters\": [0]", "\"parameters\": []",
         "linear: expected 1 parameters and 0 states, got 0 and 0"},
        {"[3, 4]", "[4, 3]", "linear: parameter w: expected shape [3, 4], got [4, 3]"},
        {"[3, 4]", "[3, 0]", "parameters[0]: shape: expected 1 to 5 numbers from 1 on"},
        {"[3, 4]", "[1099511627776, 4]", "parameters[0]: shape: expected"},
        {"\"normal\"", "\"gauss\"", "parameters[0]: init: expected"},
        {"0.1", "-1", "parameters[0]: w: init: expected a scale of 0 or more"},
        {"\"decays\": true", "\"decays\": 1",
         "parameters[0]: decays: expected true or false, got 1"},
        {"{\"name\": \"w\"",
         "{\"name\": \"v\", \"shape\": [1], \"init\": \"one\", \"scale\": 0, \"decays\": "
         "true}, "
         "{\"name\": \"w\"",
         "nodes[0]: layer head, linear: parameter v: expected"},
        {"{\"dtype\": \"f32\", \"shape\": [3]}", "{\"dtype\": \"f32\", \"shape\": [2]}",
         "values[2]: expected f32 [3], which nodes[0] makes, got f32 [2]"},
        {"\"dtype\": \"i32\"", "\"dtype\": \"f32\"",
         "losses[0]: layer head, cross_entropy: expects i32 targets"},
        {"\"dtype\": \"i32\"", "\"dtype\": \"bf16\"",
         "values[1]: dtype: expected \"f32\" or \"i32\", got \"bf16\""},
        {"\"name\": \"t\"", "\"name\": \"x\"", "inputs[1]: "},
        {"\"weight\": 1", "\"weight\": 0", "losses[0]: "},
        {"cross_entropy", "linear", "losses[0]: linear: is not a loss, so it stands in nodes"},
        {"\"weight\": 1", "\"weight\": 1, \"id\": 1", "losses[0]: id: 1 is that of nodes[1]"},
        {"\"output\": 2", "\"output\": 2, \"id\": 5", "nodes[1]: id: expected one above 5"},
        {"\"outputs\": [3]", "\"outputs\": [0]",
         "outputs[0]: layer head, output: is an input of the model, not a result"},
        {"\"outputs\": [3]", "\"outputs\": [2, 3, 2]",
         "outputs[2]: layer head, output: the value is an output already"},
        {"\"outputs\": [3]", "\"outputs\": [3, 4]",
         "outputs[1]: value: expected a whole number from 0 to 3, got 4"},
        {"\"outputs\": [3]", "\"outputs\": 3", "outputs: expected a list, got 3"},
        {"\"outputs\": [3]}", "\"outputs\": [3]", "at byte "},
        {"\"version\": 2", "\"version\": 2, \"version\": 2", "duplicate"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const cgp_status status = try_with(cases[i].from, cases[i].to);
        if (status != CGP_EFORMAT) print_error("%s -> %s\n", cases[i].from, cases[i].to);
        assert_int_equal(status, CGP_EFORMAT);
        assert_int_equal(strncmp(cgp_message(), "small.json: ", 12), 0);
        assert_message(cases[i].message);
    }
}

TEST_CASE(a_parameter_that_no_node_has_is_refused) {
    assert_status(try_with("\"decays\": true}",
                           "\"decays\": true}, {\"name\": \"v\", \"shape\": [1], \"init\": "
                           "\"one\", \"scale\": 0, \"decays\": true}"),
                  CGP_EFORMAT);
    assert_message("small.json: parameters[1]: v: no node has it");
}

TEST_CASE(a_large_file_is_refused) {
    cgp_model *model = NULL;
    assert_int_equal(setenv("CGP_LIMITS", "header=100", 1), 0);
    assert_status(cgp_model_from_json(&model, "large", whole, strlen(whole), NULL, 0), CGP_EFORMAT);
    assert_message("large: expected a graph of at most 100 bytes, got ");
    assert_int_equal(setenv("CGP_LIMITS", "json=100", 1), 0);
    assert_status(cgp_model_from_json(&model, "large", whole, strlen(whole), NULL, 0), CGP_EFORMAT);
    assert_message("of memory");
    assert_int_equal(unsetenv("CGP_LIMITS"), 0);
    assert_status(cgp_model_read(&model, "/nowhere/model.json", NULL, 0), CGP_EIO);
    assert_status(cgp_model_read(&model, "/", NULL, 0), CGP_EIO);
    assert_message("is not a regular file");
}

int main(void) {
    test_graph_extras = (test_extras){.outputs = 2, .input_gradients = true, .frozen = true};
    return test_run();
}
