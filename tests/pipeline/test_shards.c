/* SPDX-License-Identifier: Apache-2.0 */
/* test_shards.c -- tests checkpoints that several ranks write, each rank its own files. Any number
 * of ranks can load such a checkpoint. The loaded values are bit-identical to those of a single
 * process. The index has Hugging Face's format. Loading damaged or inconsistent files fails and
 * changes nothing on any rank.
 *
 * Graphs, layouts and numbers of ranks are random in each run and printed. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* nftw */
#endif
#include "resign.h"
#include "training.h"

#include <cgpipe/models/weights.h>

enum { MAX_STAGES = 4 };

static double train(training *t, const test_batch *batch, int steps) {
    double loss = 0;
    for (int s = 0; s < steps; s++)
        loss = training_step(t, batch);
    return loss;
}

static char *step_directory(int64_t step) {
    static char path[200];
    snprintf(path, sizeof path, "%s/step-%08d", run, (int)step);
    return path;
}

/* --- saved by n ranks, loaded by m ranks --- */

static void draw_layout(cgp_plan_options *o, const cgp_model *model, int *balance, uint64_t *state,
                        const char *what) {
    static const char *const schedules[] = {"gpipe", "1f1b"};
    const int layers = cgp_model_layers(model);
    o->stages = test_between(state, 1, layers < MAX_STAGES ? layers : MAX_STAGES);
    o->ranks = test_between(state, 1, o->stages);
    o->schedule = schedules[test_between(state, 0, 1)];
    o->balance = balance;
    test_random_balance(state, layers, o->stages, balance);
    print_message("%s: %d ranks, %d stages\n", what, o->ranks, o->stages);
}

static cgp_optim optimizer(int i) {
    const cgp_optim optims[] = {cgp_optim_sgd(0.05, 0, false, 1e-4),
                                cgp_optim_sgd(0.05, 0.9, true, 1e-4), cgp_optim_adamw(1e-3, 0.01),
                                cgp_optim_rmsprop(1e-3, 0.9, 1e-4)};
    return optims[i % 4];
}

/* Expect one or two files of each rank, the index, the manifest, and the manifest's checksum. A
 * single process writes no index. */
static void check_files(const cgp_plan_options *o, int64_t step) {
    const int kinds = cgp_optim_states(&o->optim) > 0 ? 2 : 1;
    const char *directory = step_directory(step);
    assert_int_equal(count_names(directory, ""), o->ranks == 1 ? kinds + 2 : kinds * o->ranks + 3);
    assert_int_equal(count_names(directory, "weights."), o->ranks == 1);
    assert_int_equal(count_names(directory, "model-"), o->ranks == 1 ? 0 : o->ranks);
}

static void check_resume(const cgp_model *model, const test_sizes *sizes, int optim,
                         uint64_t *state) {
    int balance[MAX_STAGES];
    char *note = NULL;
    test_batch batch;
    cgp_plan_options o = cgp_plan_options_default();
    o.batch = test_between(state, 1, 4);
    o.chunks = test_between(state, 1, (int)o.batch);
    o.optim = optimizer(optim);
    test_batch_fill(&batch, model, sizes, o.batch, state);
    draw_layout(&o, model, balance, state, "saved by");
    training saved = training_start(model, &o, test_random(state));
    train(&saved, &batch, 2);
    assert_ok(cgp_pipeline_save(saved.pipeline, run, 1, "after 2"));
    check_files(&o, 2);
    const hashes before = hashes_of(&saved);
    draw_layout(&o, model, balance, state, "loaded by");
    training loaded = training_start(model, &o, test_random(state));
    train(&loaded, &batch, test_between(state, 0, 1));
    assert_ok(cgp_pipeline_load(loaded.pipeline, run, &note));
    assert_string_equal(note, "after 2");
    free(note);
    hashes got = hashes_of(&loaded);
    assert_same(&got, &before);
    const double expected = train(&saved, &batch, 2), loss = train(&loaded, &batch, 2);
    assert_memory_equal(&loss, &expected, sizeof loss);
    got = hashes_of(&loaded);
    const hashes after = hashes_of(&saved);
    assert_same(&got, &after);
    training_stop(&loaded);
    training_stop(&saved);
    test_batch_release(&batch);
    remove_tree(run);
}

TEST_CASE(any_number_of_ranks_loads_what_any_number_saved) {
    uint64_t state = test_seed();
    for (int i = 0; i < test_scaled(24); i++) {
        test_sizes sizes = {.layers = test_between(&state, 1, 5)};
        sizes.sequence = test_between(&state, 1, 8);
        sizes.heads = test_between(&state, 1, 3);
        sizes.width = sizes.heads * test_between(&state, 1, 5);
        sizes.vocab = test_between(&state, 2, 20);
        sizes.dropout = 0.3;
        cgp_model *model = i % 3 == 0   ? test_random_images(&state, &sizes)
                           : i % 3 == 1 ? test_random_graph(&state, &sizes)
                                        : test_gpt2(&sizes);
        check_resume(model, &sizes, i / 3, &state);
        cgp_model_destroy(model);
    }
}

/* --- the files --- */

static const test_sizes small = {
    .layers = 2, .sequence = 8, .width = 12, .heads = 2, .vocab = 20, .dropout = 0.2};

static cgp_plan_options options_of(int ranks) {
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = 3;
    o.ranks = ranks;
    o.batch = 4;
    o.chunks = 2;
    o.optim = cgp_optim_adamw(1e-2, 0.1);
    return o;
}

/* Train a small GPT-2 for `steps` steps, save a checkpoint on `ranks` ranks, and return its
 * hashes. */
static hashes save_by(int ranks, int steps) {
    uint64_t state = 7;
    test_batch batch;
    cgp_model *model = test_gpt2(&small);
    const cgp_plan_options o = options_of(ranks);
    test_batch_fill(&batch, model, &small, 4, &state);
    training t = training_start(model, &o, 5);
    train(&t, &batch, steps);
    assert_ok(cgp_pipeline_save(t.pipeline, run, 0, "n"));
    const hashes h = hashes_of(&t);
    training_stop(&t);
    test_batch_release(&batch);
    cgp_model_destroy(model);
    return h;
}

/* Every tensor is in the file that the index names, and in no other file. */
TEST_CASE(the_index_is_that_of_hugging_face) {
    const char *tensor = NULL;
    json_t *file = NULL;
    int64_t bytes = 0;
    int there = 0;
    (void)save_by(3, 0);
    const char *directory = step_directory(0);
    json_t *root = read_json(directory, CGP__INDEX), *map = json_object_get(root, "weight_map");
    assert_int_equal(json_object_size(root), 2);
    json_object_foreach(map, tensor, file) {
        cgp_safetensors *shard = NULL;
        const char *path = cgp__path_text_of(directory, json_string_value(file)).text;
        assert_ok(cgp_safetensors_open(&shard, path));
        const int index = cgp_safetensors_find(shard, tensor);
        assert_true(index >= 0);
        bytes += 4 * cgp_shape_count(cgp_safetensors_shape(shard, index));
        cgp_safetensors_close(shard);
    }
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(root, "metadata"), "total_size")),
        bytes);
    for (int s = 1; s <= 3; s++) {
        cgp_safetensors *shard = NULL;
        char name[48];
        snprintf(name, sizeof name, "model-%05d-of-00003.safetensors", s);
        assert_ok(cgp_safetensors_open(&shard, cgp__path_text_of(directory, name).text));
        assert_string_equal(cgp_safetensors_metadata(shard, "format"), "pt");
        there += cgp_safetensors_count(shard);
        cgp_safetensors_close(shard);
    }
    assert_int_equal(there, json_object_size(map));
    json_decref(root);
}

/* cgp_weights, which reads published weights, can read the checkpoint's directory by its index. */
TEST_CASE(a_reader_of_published_weights_reads_the_directory) {
    cgp_weights *weights = NULL;
    const hashes expected = save_by(3, 1);
    cgp_model *model = test_gpt2(&small);
    cgp_plan_options o = options_of(1);
    o.inference = true;
    training t = training_start(model, &o, 1);
    assert_ok(cgp_weights_open(&weights, model, test_path_of("run/latest")));
    assert_ok(cgp_weights_load(weights, t.pipeline));
    cgp_weights_close(weights);
    const hashes got = hashes_of(&t);
    assert_same(&got, &expected);
    training_stop(&t);
    cgp_model_destroy(model);
}

static int count_tensors(const char *name) {
    cgp_safetensors *file = NULL;
    assert_ok(cgp_safetensors_open(&file, cgp__path_text_of(step_directory(0), name).text));
    const int count = cgp_safetensors_count(file);
    cgp_safetensors_close(file);
    return count;
}

TEST_CASE(a_rank_without_tensors_writes_files_without_any) {
    cgp_model *model = NULL;
    const cgp_linear_options linear = {.out = 5, .bias = true, .init = {CGP_INIT_NORMAL, 0.5}};
    assert_ok(cgp_model_create(&model, "a middle without weights"));
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (const int64_t[]){5});
    cgp_model_layer(model, "first");
    x = cgp_linear(model, x, "first", linear);
    cgp_model_layer(model, "middle");
    x = cgp_gelu(model, x);
    cgp_model_layer(model, "last");
    x = cgp_linear(model, x, "last", linear);
    cgp_model_loss_cross_entropy(model, x, cgp_argmax(model, x), -100, 1);
    assert_ok(cgp_model_finish(model));
    const cgp_plan_options o = options_of(3);
    training t = training_start(model, &o, 5);
    assert_ok(cgp_pipeline_save(t.pipeline, run, 0, NULL));
    assert_int_equal(count_tensors("model-00001-of-00003.safetensors"), 2);
    assert_int_equal(count_tensors("model-00002-of-00003.safetensors"), 0);
    assert_int_equal(count_tensors("optimizer-00002-of-00003.safetensors"), 0);
    assert_int_equal(count_tensors("optimizer-00003-of-00003.safetensors"), 4);
    const hashes expected = hashes_of(&t);
    assert_ok(cgp_pipeline_load(t.pipeline, run, NULL));
    const hashes got = hashes_of(&t);
    assert_same(&got, &expected);
    training_stop(&t);
    cgp_model_destroy(model);
}

/* --- damage --- */

/* Pipelines with 1, 2 and 3 ranks. Their values differ from the checkpoint's values, and a refused
 * load must not change them. */
typedef struct witnesses {
    cgp_model *model;
    training t[3];
    hashes h[3];
} witnesses;

static void make_witnesses(witnesses *w) {
    w->model = test_gpt2(&small);
    for (int i = 0; i < 3; i++) {
        const cgp_plan_options o = options_of(i + 1);
        w->t[i] = training_start(w->model, &o, 90 + (uint64_t)i);
        w->h[i] = hashes_of(&w->t[i]);
    }
}

static void free_witnesses(witnesses *w) {
    for (int i = 0; i < 3; i++)
        training_stop(&w->t[i]);
    cgp_model_destroy(w->model);
}

/* Assert that 1, 2 and 3 ranks refuse the checkpoint with this message, and that their pipelines do
 * not change. */
static void assert_refused(const witnesses *w, const char *message) {
    for (int i = 0; i < 3; i++) {
        char *note = NULL;
        assert_status(cgp_pipeline_load(w->t[i].pipeline, run, &note), CGP_EFORMAT);
        assert_message(message);
        assert_null(note);
        const hashes h = hashes_of(&w->t[i]);
        assert_same(&h, &w->h[i]);
    }
}

static void flip_a_bit(const char *path, uint64_t *state) {
    const int fd = open(path, O_RDWR);
    const off_t at = test_between(state, 0, (int)lseek(fd, 0, SEEK_END) - 1);
    unsigned char byte = 0;
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= (unsigned char)(1 << test_between(state, 0, 7));
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void append_a_byte(const char *path) {
    FILE *file = fopen(path, "ab");
    assert_non_null(file);
    assert_int_equal(fputc(0, file), 0);
    fclose(file);
}

TEST_CASE(damage_of_any_file_is_refused_on_all_ranks) {
    static const char *const files[] = {"model-00001-of-00002.safetensors",
                                        "model-00002-of-00002.safetensors",
                                        "optimizer-00001-of-00002.safetensors",
                                        "optimizer-00002-of-00002.safetensors",
                                        CGP__INDEX,
                                        CGP__MANIFEST,
                                        CGP__MANIFEST_SUM};
    uint64_t state = test_seed();
    static char bytes[1 << 20];
    witnesses w;
    make_witnesses(&w);
    (void)save_by(2, 0);
    for (int f = 0; f < 7; f++) {
        const cgp__path_text path = cgp__path_text_of(step_directory(0), files[f]);
        FILE *file = fopen(path.text, "rb");
        assert_non_null(file);
        const size_t size = fread(bytes, 1, sizeof bytes, file);
        fclose(file);
        for (int what = 0; what < 4; what++) {
            if (what == 0) flip_a_bit(path.text, &state);
            if (what == 1) assert_int_equal(truncate(path.text, test_between(&state, 0, 60)), 0);
            if (what == 2) append_a_byte(path.text);
            if (what == 3) assert_int_equal(unlink(path.text), 0);
            assert_refused(&w, files[f]);
            test_write_file(path.text, bytes, size);
        }
    }
    assert_ok(cgp_pipeline_load(w.t[1].pipeline, run, NULL)); /* intact again */
    free_witnesses(&w);
}

TEST_CASE(the_checkpoint_before_a_damaged_one_is_named) {
    uint64_t state = test_seed();
    witnesses w;
    make_witnesses(&w);
    (void)save_by(3, 1);
    (void)save_by(2, 2);
    flip_a_bit(test_path_of("run/latest/model-00002-of-00002.safetensors"), &state);
    assert_refused(&w, "; step-00000001 is whole (load ");
    free_witnesses(&w);
}

/* --- more files than descriptors --- */

static cgp_model *chain(int layers) {
    cgp_model *model = NULL;
    const cgp_linear_options linear = {.out = 5, .bias = true, .init = {CGP_INIT_NORMAL, 0.5}};
    assert_ok(cgp_model_create(&model, "a chain"));
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (const int64_t[]){5});
    for (int l = 0; l < layers; l++) {
        char name[16];
        snprintf(name, sizeof name, "layer%d", l);
        cgp_model_layer(model, name);
        x = cgp_linear(model, x, name, linear);
    }
    cgp_model_loss_cross_entropy(model, x, cgp_argmax(model, x), -100, 1);
    assert_ok(cgp_model_finish(model));
    return model;
}

TEST_CASE(a_checkpoint_of_more_files_than_descriptors_is_loaded) {
    enum { RANKS = 8, SPARE = 10 };
    cgp_model *model = chain(RANKS);
    cgp_plan_options o = options_of(RANKS);
    o.stages = RANKS;
    training saved = training_start(model, &o, 5);
    assert_ok(cgp_pipeline_save(saved.pipeline, run, 0, NULL));
    const hashes expected = hashes_of(&saved);
    training_stop(&saved);
    o.stages = o.ranks = 1;
    training loaded = training_start(model, &o, 6);
    leave_descriptors(SPARE);
    assert_ok(cgp_pipeline_load(loaded.pipeline, run, NULL));
    leave_descriptors(-1);
    const hashes got = hashes_of(&loaded);
    assert_same(&got, &expected);
    training_stop(&loaded);
    cgp_model_destroy(model);
}

/* --- files that are intact but inconsistent --- */

static json_t *index_and_map(json_t **map) {
    json_t *root = read_json(step_directory(0), CGP__INDEX);
    *map = json_object_get(root, "weight_map");
    return root;
}

TEST_CASE(an_index_that_lies_is_refused) {
    static const char *const lies[] = {"which has it, got model-00002-of-00002.safetensors",
                                       "which has it, got no file",
                                       "weight_map: \"more\" is in no file",
                                       "metadata: total_size: expected",
                                       "weight_map: expected names with their files",
                                       "model.safetensors.index.json: is not JSON"};
    const char *directory = step_directory(0);
    json_t *map = NULL;
    witnesses w;
    make_witnesses(&w);
    for (int lie = 0; lie < 6; lie++) {
        (void)save_by(2, 0);
        json_t *root = index_and_map(&map);
        const char *first = json_object_iter_key(json_object_iter(map));
        if (lie == 0)
            json_object_set_new(map, first, json_string("model-00002-of-00002.safetensors"));
        if (lie == 1) json_object_del(map, first);
        if (lie == 2)
            json_object_set_new(map, "more", json_string("model-00002-of-00002.safetensors"));
        if (lie == 3)
            json_object_set_new(json_object_get(root, "metadata"), "total_size", json_integer(7));
        if (lie == 4) json_object_set_new(root, "weight_map", json_array());
        write_json(directory, CGP__INDEX, root);
        if (lie == 5)
            assert_int_equal(truncate(cgp__path_text_of(directory, CGP__INDEX).text, 40), 0);
        resign(directory);
        assert_refused(&w, lies[lie]);
    }
    free_witnesses(&w);
}

/* Write a file `to` with all tensors of the two files `from`. */
static void merge(const char *to, const char *const from[2]) {
    enum { MOST = 64 };
    const char *names[MOST];
    cgp_dtype types[MOST];
    cgp_shape shapes[MOST];
    cgp_safetensors *files[2];
    cgp_safetensors_writer *out = NULL;
    int n = 0;
    for (int f = 0; f < 2; f++) {
        assert_ok(
            cgp_safetensors_open(&files[f], cgp__path_text_of(step_directory(0), from[f]).text));
        for (int i = 0; i < cgp_safetensors_count(files[f]) && n < MOST; i++) {
            names[n] = cgp_safetensors_name(files[f], i);
            shapes[n] = *cgp_safetensors_shape(files[f], i);
            types[n++] = CGP_F32;
        }
    }
    const cgp__path_text path = cgp__path_text_of(step_directory(0), to);
    assert_ok(cgp_safetensors_create(&out, path.text, n, names, types, shapes, NULL, 0));
    for (int f = 0; f < 2; f++) {
        for (int i = 0; i < cgp_safetensors_count(files[f]); i++) {
            const size_t bytes = 4 * (size_t)cgp_shape_count(cgp_safetensors_shape(files[f], i));
            float *data = malloc(bytes);
            assert_ok(cgp_safetensors_read(files[f], i, data));
            assert_ok(cgp_safetensors_append(out, data, bytes));
            free(data);
        }
    }
    assert_ok(cgp_safetensors_commit(out));
    cgp_safetensors_close(files[0]);
    cgp_safetensors_close(files[1]);
}

static void exchange(const char *one, const char *other) {
    const char *directory = step_directory(0);
    const cgp__path_text a = cgp__path_text_of(directory, one),
                         b = cgp__path_text_of(directory, other),
                         c = cgp__path_text_of(directory, "c");
    assert_int_equal(rename(a.text, c.text) || rename(b.text, a.text) || rename(c.text, b.text), 0);
}

#define MODEL_1 "model-00001-of-00002.safetensors"
#define MODEL_2 "model-00002-of-00002.safetensors"
#define STATES_1 "optimizer-00001-of-00002.safetensors"
#define STATES_2 "optimizer-00002-of-00002.safetensors"

/* Make a checkpoint of two shards inconsistent: change its files, or the list of files in the
 * manifest. Return the changed manifest, which the caller frees. */
static json_t *change_shards(int what) {
    json_t *root = read_json(step_directory(0), CGP__MANIFEST);
    json_t *files = json_object_get(root, "files");
    if (what == 0) json_object_set_new(root, "shards", json_integer(3));
    if (what == 1) json_object_set_new(root, "shards", json_integer(1));
    if (what == 2) json_array_remove(files, 2); /* removes a file of rank 1 */
    if (what == 3) {
        merge("more.safetensors", (const char *const[]){MODEL_1, MODEL_2});
        json_array_append_new(files, json_pack("{s:s}", "name", "more.safetensors"));
    }
    if (what == 4) exchange(MODEL_1, MODEL_2);
    if (what == 5) merge(MODEL_2, (const char *const[]){MODEL_1, MODEL_2});
    if (what == 6) merge(MODEL_2, (const char *const[]){STATES_1, MODEL_2});
    if (what == 7) exchange(MODEL_1, STATES_1);
    if (what == 8) merge(STATES_2, (const char *const[]){STATES_1, STATES_2});
    return root;
}

TEST_CASE(shards_that_do_not_belong_together_are_refused) {
    static const char *const messages[] = {
        "checkpoint.json: has no file model-00001-of-00003.safetensors",
        "checkpoint.json: shards: expected 2 to 1024, got 1",
        "checkpoint.json: has no file " MODEL_2,
        "step-00000000: expected 5 files of 2 shards, got 6",
        "which has it, got " MODEL_1,
        MODEL_2 ": \"transformer.wte.weight\" is in " MODEL_1 " too",
        MODEL_2 ": model gpt2 has no \"transformer.wte.weight.exp_avg\" (is it of another model?)",
        "model-*-of-00002.safetensors: \"transformer.wte.weight\" of model gpt2 is missing",
        STATES_2 ": \"transformer.wte.weight.exp_avg\" is in " STATES_1 " too",
    };
    witnesses w;
    make_witnesses(&w);
    for (int what = 0; what < 9; what++) {
        (void)save_by(2, 0);
        resign_as(step_directory(0), change_shards(what));
        assert_refused(&w, messages[what]);
    }
    free_witnesses(&w);
}

TEST_GROUP(.set_up = test_make_directory, .tear_down = remove_tree_after,
           .before = empty_tree_before);
