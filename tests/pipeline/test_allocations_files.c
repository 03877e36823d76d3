/* SPDX-License-Identifier: Apache-2.0 */
/* test_allocations_files.c -- make every allocation of checkpoints, tensor files, published
 * weights, data sets and tokenizers fail once. support/scenario.h has the checks;
 * test_allocations.c tests the other parts. */
#define _GNU_SOURCE
#include "scenario.h"

#include "bpe.h"
#include "checkpoints.h"
#include "pictures.h"

#include <cgpipe/models/spec.h>
#include <cgpipe/models/weights.h>
#include <cgpipe/data.h>
#include <cgpipe/images.h>
#include <cgpipe/tokenizer.h>

#include <png.h>

enum { STEPS = 3, SEQUENCE = 3 };

static cgp_model *model;
static cgp_plan *plans[2]; /* the first has two stages, the second one stage */

/* --- checkpoints of a pipeline --- */

static cgp_status create_model(cgp_model **out) {
    cgp_model *m = NULL;
    const cgp_init init = {CGP_INIT_NORMAL, 0.2};
    CGP_TRY(cgp_model_create(&m, "small"));
    const cgp_value x = cgp_model_input(m, "x", CGP_I32, 1, (int64_t[]){SEQUENCE});
    cgp_model_layer(m, "embed");
    const cgp_value y =
        cgp_batch_norm(m, cgp_embedding(m, x, "embed", 4, 2, init), "norm", 0.1, 0.1);
    cgp_model_layer(m, "head");
    cgp_model_loss_cross_entropy(
        m, cgp_linear(m, y, "head", (cgp_linear_options){.out = 4, .bias = true, .init = init}), x,
        -100, 1);
    *out = m;
    return cgp_model_finish(m);
}

static cgp_status create_plan(cgp_plan **out, int stages) {
    static const char *const devices[] = {"ref", "ref"};
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = stages;
    o.devices = devices;
    o.optim = cgp_optim_adamw(1e-2, 0);
    return cgp_plan_create(out, model, &o);
}

static cgp_status train_one_step(cgp_pipeline *pipeline) {
    int32_t data[SEQUENCE] = {0, 3, 1};
    const cgp_tensor x = {CGP_I32, cgp_shape_make(2, (int64_t[]){1, SEQUENCE}), data};
    CGP_TRY(cgp_pipeline_step(pipeline, (const cgp_tensor *[]){&x}, 1, NULL));
    return cgp_optim_step(pipeline);
}

static cgp_status find(const char *directory, outcome *out) {
    char *path = NULL, *text = NULL;
    int64_t step = -1;
    CGP_TRY(cgp_checkpoint_find(&path, &step, &text, directory));
    note(out, "%s %lld %s\n", path + strlen(test_directory), (long long)step, text);
    free(text);
    free(path);
    return CGP_OK;
}

/* Create the run directory and a checkpoint. Then replace the checkpoint, and delete an older
 * checkpoint. */
static cgp_status save(outcome *out) {
    cgp_status status = CGP_OK;
    cgp_pipeline *pipeline = NULL;
    char older[160];
    DO(cgp_pipeline_create(&pipeline, plans[0], 7));
    DO(train_one_step(pipeline));
    DO(cgp_pipeline_save(pipeline, run, 1, "one"));
    snprintf(older, sizeof older, "%s/step-00000000", run);
    if (status == CGP_OK) assert_int_equal(mkdir(older, 0700), 0);
    DO(cgp_pipeline_save(pipeline, run, 1, "two"));
    DO(find(run, out));
    cgp_pipeline_destroy(pipeline);
    return status;
}

static char saved[128], newer[128], damaged[128]; /* directories; see make_directories() */

/* Load a checkpoint into a pipeline with another number of stages. */
static cgp_status load(outcome *out) {
    cgp_status status = CGP_OK;
    cgp_pipeline *pipeline = NULL;
    char hex[65] = "", states[65] = "", *text = NULL;
    DO(cgp_pipeline_create(&pipeline, plans[1], 8));
    DO(cgp_pipeline_load(pipeline, saved, &text));
    DO(train_one_step(pipeline));
    DO(cgp_pipeline_weights_sha256(pipeline, hex));
    DO(cgp_pipeline_state_sha256(pipeline, states));
    note(out, "%s %s %s\n", text ? text : "", hex, states);
    free(text);
    cgp_pipeline_destroy(pipeline);
    return status;
}

/* Search for a checkpoint in a run whose last checkpoint is damaged. The message names the damage
 * and the last complete checkpoint. If memory runs out, the message may omit that checkpoint. */
static cgp_status find_damage(const char *directory, outcome *out) {
    const cgp_status status = cgp_checkpoint_find(NULL, NULL, NULL, directory);
    const char *reported = strstr(cgp_message(), "damaged");
    if (status != CGP_EFORMAT || !reported) return status == CGP_OK ? CGP_EINVAL : status;
    if (strstr(reported, "no whole")) return CGP_EINVAL; /* wrong: a complete checkpoint exists */
    note(out, "%.20s\n", reported);
    return CGP_OK;
}

/* If memory runs out, find() fails. It never returns a wrong checkpoint. */
static cgp_status find_all(outcome *out) {
    cgp_status status = CGP_OK;
    char path[160];
    DO(find(saved, out)); /* without a link `latest`, finds the highest step */
    DO(find(newer, out)); /* `latest` is not the highest step */
    snprintf(path, sizeof path, "%s/step-00000002", newer);
    DO(find(path, out));
    DO(find_damage(damaged, out));
    return status;
}

/* Make three run directories, each with checkpoints of three steps. "saved" has no link `latest`.
 * In "newer", `latest` points to step 1. In "damaged", one byte of step 3 is wrong. */
static void make_directories(void) {
    char *const directories[] = {saved, newer, damaged};
    const char *const names[] = {"saved", "newer", "damaged"};
    char path[192];
    for (int f = 0; f < 3; f++) {
        cgp_pipeline *pipeline = NULL;
        snprintf(directories[f], sizeof saved, "%s/%s", test_directory, names[f]);
        assert_ok(cgp_pipeline_create(&pipeline, plans[0], 7));
        for (int step = 1; step <= STEPS; step++) {
            assert_ok(train_one_step(pipeline));
            assert_ok(cgp_pipeline_save(pipeline, directories[f], 0, "a note"));
        }
        cgp_pipeline_destroy(pipeline);
    }
    snprintf(path, sizeof path, "%s/latest", saved);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/latest", newer);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("step-00000001", path), 0);
    snprintf(path, sizeof path, "%s/latest/weights.safetensors", damaged);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, -1, SEEK_END), 0);
    assert_int_not_equal(fputc(0x55, file), EOF);
    assert_int_equal(fclose(file), 0);
}

/* --- files of tensors --- */

static cgp_status write_tensors(const char *path) {
    static const char *const names[] = {"a", "b"}, *const metadata[] = {"key", "value"};
    static const cgp_dtype types[] = {CGP_F32, CGP_I32};
    const cgp_shape shapes[] = {cgp_shape_make(2, (int64_t[]){2, 1}),
                                cgp_shape_make(1, (int64_t[]){1})};
    const float data[] = {1.5f, -2};
    const int32_t number = 42;
    cgp_safetensors_writer *writer = NULL;
    CGP_TRY(cgp_safetensors_create(&writer, path, 2, names, types, shapes, metadata, 1));
    cgp_status status = cgp_safetensors_append(writer, data, sizeof data);
    if (status == CGP_OK) status = cgp_safetensors_append(writer, &number, sizeof number);
    if (status == CGP_OK) return cgp_safetensors_commit(writer);
    cgp_safetensors_abandon(writer);
    return status;
}

static cgp_status write_and_read_tensors(outcome *out) {
    cgp_status status = CGP_OK;
    cgp_safetensors *file = NULL;
    int32_t number = 0;
    DO(cgp_file_replace(test_path_of("link"), "text", 4)); /* the target of link.safetensors */
    DO(write_tensors(test_path_of("link")));
    DO(cgp_safetensors_open(&file, test_path_of("link.safetensors")));
    DO(cgp_safetensors_read(file, 1, &number));
    if (status == CGP_OK)
        note(out, "%s %d %s\n", cgp_safetensors_name(file, 0), number,
             cgp_safetensors_metadata(file, "key"));
    cgp_safetensors_close(file);
    return status;
}

/* --- published weights --- */

#define PUBLISHED TEST_DATA "/weights/gpt2-shards"

static cgp_model_spec published;
static cgp_model *published_model;
static cgp_plan *published_plan;

static void make_published(void) {
    cgp_plan_options o = cgp_plan_options_default();
    published = cgp_model_spec_default();
    assert_ok(cgp_huggingface_read(&published, PUBLISHED));
    published.gpt2.loss = false;
    o.inference = true;
    assert_ok(cgp_model_spec_create(&published_model, &published));
    assert_ok(cgp_plan_create(&published_plan, published_model, &o));
}

static cgp_status load_published(outcome *out) {
    cgp_status status = CGP_OK;
    cgp_model_spec spec = cgp_model_spec_default();
    cgp_pipeline *pipeline = NULL;
    cgp_weights *weights = NULL;
    char hex[65] = "";
    DO(cgp_huggingface_read(&spec, PUBLISHED));
    DO(cgp_pipeline_create(&pipeline, published_plan, 0));
    DO(cgp_weights_open(&weights, published_model, PUBLISHED));
    DO(cgp_weights_load(weights, pipeline));
    DO(cgp_pipeline_weights_sha256(pipeline, hex));
    note(out, "%d %s\n", spec.gpt2.layers, hex);
    cgp_weights_close(weights);
    cgp_pipeline_destroy(pipeline);
    return status;
}

static cgp_status write_published(outcome *out) {
    cgp_status status = CGP_OK;
    cgp_pipeline *pipeline = NULL;
    DO(cgp_pipeline_create(&pipeline, published_plan, 0));
    assert_int_equal(mkdir(run, 0700), 0);
    DO(cgp_huggingface_write(&published, pipeline, published_model, run));
    note(out, "%d\n", access(test_path_of("run/config.json"), F_OK));
    cgp_pipeline_destroy(pipeline);
    return status;
}

/* --- data sets --- */

static cgp_status read_data(cgp_data *data, outcome *out) {
    int32_t tokens[2 * SEQUENCE], targets[2 * SEQUENCE];
    char hex[65];
    CGP_TRY(cgp_data_read(data, CGP_SPLIT_TRAIN, 1, 2, tokens, targets));
    CGP_TRY(cgp_data_identity(data, hex));
    note(out, "%d %d %s\n", tokens[0], targets[5], hex);
    return CGP_OK;
}

static cgp_status read_texts(outcome *out) {
    cgp_status status = CGP_OK;
    cgp_data *text = NULL, *random = NULL;
    const char *const paths[] = {test_path_of("texts"), test_path_of("text")};
    cgp_text_options o = cgp_text_options_default();
    o.sequence = SEQUENCE;
    o.validation_paths = paths;
    o.n_validation_paths = 1;
    DO(cgp_data_text(&text, paths, 2, &o));
    DO(read_data(text, out));
    DO(cgp_data_random(&random, 256, SEQUENCE, 1));
    DO(read_data(random, out));
    cgp_data_destroy(random);
    cgp_data_destroy(text);
    return status;
}

static cgp_status read_tokens(outcome *out) {
    cgp_status status = CGP_OK;
    cgp_data *data = NULL;
    const char *const paths[] = {test_path_of("text"), test_path_of("tokens")};
    cgp_token_options o = cgp_token_options_default();
    o.sequence = SEQUENCE;
    DO(cgp_data_tokens(&data, paths, 2, &o));
    DO(read_data(data, out));
    cgp_data_destroy(data);
    return status;
}

static cgp_status count_up(void *context, cgp_split split, int64_t index, int64_t position,
                           void *input, void *target) {
    (void)context, (void)split;
    for (int t = 0; t < SEQUENCE; t++) {
        ((int32_t *)input)[t] = (int32_t)(index + t);
        ((int32_t *)target)[t] = (int32_t)(position + t);
    }
    return CGP_OK;
}

/* Read the whole validation split, so that the data worker prepares nothing else and its
 * allocations can be counted. */
static cgp_status read_custom(outcome *out) {
    cgp_status status = CGP_OK;
    cgp_data *alone = NULL, *threaded = NULL;
    int32_t tokens[2 * SEQUENCE], targets[2 * SEQUENCE];
    cgp_data_source source = cgp_data_source_default();
    source.input = (cgp_data_field){CGP_I32, cgp_shape_make(1, (int64_t[]){SEQUENCE})};
    source.target = source.input;
    source.training = 5;
    source.validation = 2;
    source.identity = "counted";
    source.fill = count_up;
    DO(cgp_data_create(&alone, &source));
    DO(read_data(alone, out));
    source.threads = 1;
    DO(cgp_data_create(&threaded, &source));
    DO(cgp_data_read(threaded, CGP_SPLIT_VALIDATION, 0, 2, tokens, targets));
    if (status == CGP_OK) note(out, "%d %d\n", tokens[0], targets[2 * SEQUENCE - 1]);
    cgp_data_destroy(threaded);
    cgp_data_destroy(alone);
    return status;
}

/* Read samples and return the number of allocations in all threads. */
static int count_reading(cgp_data *data, int64_t first, int32_t *tokens, int32_t *targets) {
    int asked = 0;
    shortage_begin((shortage){.thread = -1});
    assert_ok(cgp_data_read(data, CGP_SPLIT_TRAIN, first, 4, tokens, targets));
    shortage_end();
    for (int t = 0; t < SHORTAGE_THREADS; t++)
        asked += shortage_asked(t);
    return asked;
}

/* Read only inputs, as the rank of the first stage does. Then read only targets, as the rank of the
 * last stage does. Only the first batch may allocate buffers. */
TEST_CASE(reading_one_part_of_custom_samples_asks_for_no_memory) {
    int32_t tokens[4 * SEQUENCE], targets[4 * SEQUENCE];
    cgp_data_source source = cgp_data_source_default();
    source.input = (cgp_data_field){CGP_I32, cgp_shape_make(1, (int64_t[]){SEQUENCE})};
    source.target = source.input;
    source.training = INT64_MAX;
    source.fill = count_up;
    for (source.threads = 0; source.threads < 3; source.threads++) {
        cgp_data *data = NULL;
        assert_ok(cgp_data_create(&data, &source));
        (void)count_reading(data, 0, NULL, targets);
        assert_int_equal(count_reading(data, 4, NULL, targets), 0);
        assert_int_equal(targets[0], 4);
        (void)count_reading(data, 8, tokens, NULL);
        assert_int_equal(count_reading(data, 12, tokens, NULL), 0);
        assert_int_equal(tokens[0], 12);
        cgp_data_destroy(data);
    }
}

/* --- images --- */

enum { SIDE = 28 };

/* Read a batch of two training samples, or the whole validation split. */
static cgp_status read_two(cgp_data *data, cgp_split split, outcome *out) {
    static float pictures[2 * SIDE * SIDE * 3];
    int32_t labels[2];
    char hex[65];
    CGP_TRY(cgp_data_read(data, split, 0, 2, pictures, labels));
    CGP_TRY(cgp_data_identity(data, hex));
    note(out, "%a %d %d %s\n", (double)pictures[SIDE * SIDE], labels[0], labels[1], hex);
    return CGP_OK;
}

static cgp_status read_digits_and_shapes(outcome *out) {
    cgp_status status = CGP_OK;
    cgp_data *digits = NULL, *shapes = NULL;
    cgp_shapes_options o = cgp_shapes_options_default();
    o.size = SIDE;
    DO(cgp_data_mnist(&digits, test_directory, NULL));
    DO(read_two(digits, CGP_SPLIT_TRAIN, out));
    DO(cgp_data_shapes(&shapes, &o));
    DO(read_two(shapes, CGP_SPLIT_TRAIN, out));
    cgp_data_destroy(shapes);
    cgp_data_destroy(digits);
    return status;
}

/* Running out of memory does not mark an image as broken, so the samples stay the same. The data
 * worker prepares exactly the validation split, so its allocations can be counted. */
static cgp_status read_images(outcome *out) {
    cgp_status status = CGP_OK;
    cgp_data *alone = NULL, *threaded = NULL;
    char validation[128];
    cgp_image_folder_options o = cgp_image_folder_options_default();
    snprintf(validation, sizeof validation, "%s", test_path_of("pictures"));
    o.size = SIDE;
    o.workers = 0;
    o.validation_directory = validation;
    DO(cgp_data_image_folder(&alone, test_path_of("pictures"), &o));
    DO(read_two(alone, CGP_SPLIT_TRAIN, out));
    o.workers = 1;
    DO(cgp_data_image_folder(&threaded, test_path_of("pictures"), &o));
    DO(read_two(threaded, CGP_SPLIT_VALIDATION, out));
    cgp_data_destroy(threaded);
    cgp_data_destroy(alone);
    return status;
}

static cgp_status use_tokenizer(outcome *out) {
    static const char text[] = "It's 12 words, or\n\n so: \xff and a longer one without spaces";
    cgp_status status = CGP_OK;
    cgp_tokenizer *tokenizer = NULL;
    cgp_token_list list = {0};
    char *back = NULL;
    int64_t count = 0;
    DO(cgp_tokenizer_create(&tokenizer, test_path_of("vocab.json"), test_path_of("merges.txt")));
    DO(cgp_tokenizer_encode(tokenizer, text, sizeof text - 1, &list));
    DO(cgp_tokenizer_decode(tokenizer, list.ids, list.count, &back, &count));
    for (int64_t i = 0; i < list.count; i++)
        note(out, "%d ", (int)list.ids[i]);
    note(out, "%s\n", back ? back : "");
    free(back);
    free(list.ids);
    cgp_tokenizer_destroy(tokenizer);
    return status;
}

/* Use every part of a tokenizer.json: NFC, added tokens of both kinds, a template, leading and
 * trailing white space. */
static cgp_status use_tokenizer_json(outcome *out) {
    static const char text[] = "<s> e\xcc\x81t wo  <m> s\xcc\x87\xcc\xa3\xff wor";
    cgp_status status = CGP_OK;
    cgp_tokenizer *tokenizer = NULL;
    cgp_token_list list = {0};
    int64_t count = 0;
    DO(cgp_tokenizer_open(&tokenizer, test_path_of("tokenizer.json")));
    DO(cgp_tokenizer_encode(tokenizer, text, sizeof text - 1, &list));
    for (int64_t i = 0; i < list.count; i++)
        note(out, "%d ", (int)list.ids[i]);
    const int32_t *suffix = tokenizer ? cgp_tokenizer_suffix(tokenizer, &count) : NULL;
    for (int64_t i = 0; i < count; i++)
        note(out, "%d\n", (int)suffix[i]);
    free(list.ids);
    cgp_tokenizer_destroy(tokenizer);
    return status;
}

static void make_tokenizer(void) {
    static test_bpe bpe;
    static char vocab[BPE_TEXT], merges[BPE_TEXT];
    test_bpe_start(&bpe);
    assert_true(test_bpe_merge(&bpe, 255 - 'o', 255 - 'r'));
    assert_true(test_bpe_merge(&bpe, 255 - 'w', 256));
    test_bpe_texts(&bpe, vocab, merges);
    test_write_file(test_path_of("vocab.json"), vocab, strlen(vocab));
    test_write_file(test_path_of("merges.txt"), merges, strlen(merges));
    static char json[BPE_JSON];
    test_bpe_json(&bpe, json);
    test_write_file(test_path_of("tokenizer.json"), json, strlen(json));
}

static void make_images(void) {
    static test_image file;
    static uint8_t pixels[32 * 32 * 4], digits[16 + 2 * SIDE * SIDE];
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(i * i / 64);
    assert_int_equal(mkdir(test_path_of("pictures"), 0700), 0);
    assert_int_equal(mkdir(test_path_of("pictures/a"), 0700), 0);
    assert_int_equal(mkdir(test_path_of("pictures/b"), 0700), 0);
    test_make_png(&file, &(test_png){32, 32, PNG_COLOR_TYPE_RGB_ALPHA, 8, true}, pixels);
    test_write_file(test_path_of("pictures/a/1.png"), file.bytes, file.size);
    test_make_jpeg(&file, &(test_jpeg){32, 32, 4, 80, true}, pixels);
    test_write_file(test_path_of("pictures/b/1.jpg"), file.bytes, file.size);
    for (int s = 0; s < 2; s++) {
        char name[64];
        memcpy(digits, (uint8_t[16]){0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 28, 0, 0, 0, 28}, 16);
        snprintf(name, sizeof name, "%s-images-idx3-ubyte", s ? "t10k" : "train");
        test_write_file(test_path_of(name), digits, sizeof digits);
        memcpy(digits, (uint8_t[10]){0, 0, 8, 1, 0, 0, 0, 2, 7, 3}, 10);
        snprintf(name, sizeof name, "%s-labels-idx1-ubyte", s ? "t10k" : "train");
        test_write_file(test_path_of(name), digits, 10);
    }
}

static void make_data(void) {
    int32_t shard[256 + 8] = {20240520, 1, 16};
    assert_int_equal(symlink("link.safetensors", test_path_of("link")), 0);
    test_write_file(test_path_of("link.safetensors"), "", 0);
    test_write_file(test_path_of("text"), "a text of 26 bytes, or so.", 26);
    test_write_file(test_path_of("tokens"), shard, sizeof shard);
    assert_int_equal(mkdir(test_path_of("texts"), 0700), 0);
    assert_int_equal(mkdir(test_path_of("texts/more"), 0700), 0);
    test_write_file(test_path_of("texts/b"), "text in a directory", 16);
    test_write_file(test_path_of("texts/more/a"), "text in a directory of it", 22);
}

/* --- tests --- */

TEST_CASE(every_allocation_of_saving_fails_cleanly) {
    scenario_check("save", save);
}

TEST_CASE(every_allocation_of_loading_fails_cleanly) {
    scenario_check("load", load);
}

TEST_CASE(every_allocation_of_finding_a_checkpoint_fails_cleanly) {
    scenario_check("find", find_all);
}

TEST_CASE(every_allocation_of_a_file_of_tensors_fails_cleanly) {
    scenario_check("tensors", write_and_read_tensors);
}

TEST_CASE(every_allocation_of_a_data_set_fails_cleanly) {
    scenario_check("texts", read_texts);
    scenario_check("tokens", read_tokens);
    scenario_check("own-data", read_custom);
    scenario_check("digits", read_digits_and_shapes);
    scenario_check("images", read_images);
}

TEST_CASE(every_allocation_of_a_tokenizer_fails_cleanly) {
    scenario_check("tokenizer", use_tokenizer);
    scenario_check("tokenizer.json", use_tokenizer_json);
}

TEST_CASE(every_allocation_of_published_weights_fails_cleanly) {
    scenario_check("load published", load_published);
    scenario_check("write published", write_published);
}

static int set_up(void **state) {
    if (scenario_set_up(state)) return -1;
    snprintf(run, sizeof run, "%s/run", test_directory);
    assert_ok(create_model(&model));
    assert_ok(create_plan(&plans[0], 2));
    assert_ok(create_plan(&plans[1], 1));
    make_directories();
    make_data();
    make_images();
    make_tokenizer();
    make_published();
    return 0;
}

static int tear_down(void **state) {
    cgp_plan_destroy(published_plan);
    cgp_model_destroy(published_model);
    cgp_plan_destroy(plans[1]);
    cgp_plan_destroy(plans[0]);
    cgp_model_destroy(model);
    return scenario_tear_down(state);
}

TEST_GROUP(.set_up = set_up, .tear_down = tear_down);
