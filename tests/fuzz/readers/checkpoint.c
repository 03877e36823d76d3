/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.c -- loads checkpoints with damaged files. In some cases the checksums match the
 * damaged files. Loading never crashes. A refused load changes nothing; after an accepted load, the
 * values equal the values in the files.
 *
 * The tests mutate the files of a small model's checkpoint. An input of libFuzzer is the text of
 * the manifest. */
#include "fuzz.h"
#include "checkpoints.h"
#include "graphs.h"
#include "resign.h"

enum { MANIFEST_BYTES = 8192 - 256, MUTATIONS = 2000, FILES = 4, MANIFEST = 2, SUM = 3 };

static const char *const names[FILES] = {"weights.safetensors", "optimizer.safetensors",
                                         CGP__MANIFEST, CGP__MANIFEST_SUM};

static fuzz_input original[FILES];
static cgp_model *model;
static cgp_plan *plan;
static cgp_pipeline *pipeline;
/* Hashes of the saved weights, and of the pipeline's own weights, which differ from the saved
 * weights. */
static char saved_sha256[65], other_sha256[65];
static float *other; /* the pipeline's own parameter 0 */

static const char *file_of(int file) {
    static char path[200];
    snprintf(path, sizeof path, "%s/step-00000002/%s", run, names[file]);
    return path;
}

static void write_back(int file, const fuzz_input *with) {
    test_write_file(file_of(file), with->bytes, with->size);
}

static void read_original(int file) {
    FILE *in = fopen(file_of(file), "rb");
    assert_non_null(in);
    original[file].size = fread(original[file].bytes, 1, FUZZ_CAPACITY, in);
    assert_in_range(original[file].size, 1, MANIFEST_BYTES);
    fclose(in);
}

/* Make a checkpoint, and a pipeline with different weights. */
static int make_checkpoint(void **state) {
    const test_sizes sizes = {.layers = 1, .sequence = 2, .width = 2, .heads = 1, .vocab = 3};
    uint64_t random = 1;
    test_batch batch;
    cgp_plan_options o = cgp_plan_options_default();
    if (test_make_directory(state) || empty_tree_before(state)) return -1;
    o.optim = cgp_optim_sgd(0.1, 0.9, false, 0);
    model = test_gpt2(&sizes);
    test_batch_fill(&batch, model, &sizes, 1, &random);
    assert_ok(cgp_plan_create(&plan, model, &o));
    assert_ok(cgp_pipeline_create(&pipeline, plan, 1));
    for (int s = 0; s < 2; s++) {
        assert_ok(cgp_pipeline_step(pipeline, batch.inputs, batch.n, NULL));
        assert_ok(cgp_optim_step(pipeline));
    }
    test_batch_release(&batch);
    assert_ok(cgp_pipeline_save(pipeline, run, 0, "12 \"of\" 34"));
    assert_ok(cgp_pipeline_weights_sha256(pipeline, saved_sha256));
    other = calloc((size_t)cgp_shape_count(cgp_model_parameter_shape(model, 0)), sizeof *other);
    assert_ok(cgp_pipeline_set_parameter(pipeline, 0, other));
    assert_ok(cgp_pipeline_weights_sha256(pipeline, other_sha256));
    for (int f = 0; f < FILES; f++)
        read_original(f);
    cgp_log_set_level(CGP_LOG_ERROR);
    return 0;
}

static int remove_checkpoint(void **state) {
    free(other);
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
    return remove_tree_after(state);
}

/* --- the property --- */

/* Check that each loaded parameter equals the tensor of the same name in the file. */
static void assert_loaded_is_true(void) {
    cgp_safetensors *file = NULL;
    assert_ok(cgp_safetensors_open(&file, file_of(0)));
    assert_int_equal(cgp_safetensors_count(file), cgp_model_parameters(model));
    for (int p = 0; p < cgp_model_parameters(model); p++) {
        const int index = cgp_safetensors_find(file, cgp_model_parameter_name(model, p));
        const cgp_shape *shape = cgp_model_parameter_shape(model, p);
        const size_t bytes = 4 * (size_t)cgp_shape_count(shape);
        float *there = malloc(bytes), *here = malloc(bytes);
        assert_true(index >= 0 && cgp_shape_equal(cgp_safetensors_shape(file, index), shape));
        assert_ok(cgp_safetensors_read(file, index, there));
        assert_ok(cgp_pipeline_get_parameter(pipeline, p, here));
        assert_memory_equal(there, here, bytes);
        free(here);
        free(there);
    }
    cgp_safetensors_close(file);
}

/* Try to load, and return true if the checkpoint is accepted. After an accepted load, the pipeline
 * has the loaded values until restore() is called. A refused load must leave the pipeline
 * unchanged. */
static bool try_load(const char *what) {
    char hex[65], *note = NULL;
    const int64_t updates = cgp_pipeline_updates(pipeline);
    const cgp_status status = cgp_pipeline_load(pipeline, run, &note);
    assert_ok(cgp_pipeline_weights_sha256(pipeline, hex));
    if (status == CGP_OK) {
        assert_non_null(note);
        assert_loaded_is_true();
        assert_true(cgp_pipeline_updates(pipeline) >= 0);
    } else if (status != CGP_EFORMAT || strcmp(hex, other_sha256) != 0 || note ||
               cgp_pipeline_updates(pipeline) != updates) {
        print_error("%s: %s (%s), weights %s\n", what, cgp_status_name(status), cgp_message(), hex);
        fail();
    }
    free(note);
    return status == CGP_OK;
}

/* Restore the checkpoint's files and the pipeline's own weights for the next case. */
static void restore(void) {
    for (int f = 0; f < FILES; f++)
        write_back(f, &original[f]);
    assert_ok(cgp_pipeline_load(pipeline, run, NULL));
    assert_ok(cgp_pipeline_set_parameter(pipeline, 0, other));
}

/* --- matching checksums --- */

/* Append the last lines of a manifest, which contain the SHA-256 of all lines above. */
static void close_manifest(fuzz_input *manifest) {
    char hex[65], tail[128];
    assert_ok(cgp__digest(manifest->bytes, manifest->size, hex));
    const int count = snprintf(tail, sizeof tail, ",\n \"sha256_above\": \"%s\"\n}\n", hex);
    fuzz_replace(manifest, manifest->size, 0, tail, (size_t)count);
}

static void write_sum(const fuzz_input *manifest) {
    char hex[65];
    fuzz_input sum;
    assert_ok(cgp__digest(manifest->bytes, manifest->size, hex));
    sum.size = (size_t)snprintf((char *)sum.bytes, sizeof sum.bytes, CGP__SUM_LINE, hex);
    write_back(SUM, &sum);
}

/* Write the bytes as a manifest with matching last lines; return true if the manifest was
 * accepted. */
static bool try_manifest(fuzz_input *in) {
    close_manifest(in);
    write_back(MANIFEST, in);
    write_sum(in);
    if (!try_load("manifest of bytes")) return false;
    restore();
    return true;
}

static bool take_manifest(const uint8_t *bytes, size_t size) {
    static fuzz_input in;
    if (size > MANIFEST_BYTES) return false;
    memcpy(in.bytes, bytes, in.size = size);
    return try_manifest(&in);
}

/* --- mutations --- */

static const char *const *const words =
    FUZZ_WORDS("{", "}", "[", "]", ",", ":", "\"", "\\", "0", "-1", "2.0", "null", "\xff",
               "\\u0000", "[[[[[[", "{\"a\":", "18446744073709551616", "F32", "\n", " ");

static void mutate_bytes(fuzz_input *in, uint64_t *random) {
    const size_t at = fuzz_below(random, in->size + 1);
    switch (fuzz_below(random, 4)) {
    case 0:
        fuzz_flip_bit(in, at, random);
        break;
    case 1:
        in->size = at;
        break;
    case 2:
        fuzz_replace_word(in, at, 8, words, random);
        break;
    default: { /* copy a part to another place */
        const size_t from = fuzz_below(random, in->size);
        fuzz_copy_piece(in, from, in->size - from, at, 1, random);
    }
    }
}

static const char *const *const texts =
    FUZZ_WORDS("", "sgd", "adamw", "momentum", "exp_avg", "0", "-1", "00", "+1", " 1",
               "18446744073709551615", "1.0", "../latest", "a/b", ".", "18446744073709551616", "..",
               "/dev/zero", ".cgpipe", "cgpipe checkpoint", "weights.safetensors", CGP__MANIFEST,
               CGP__MANIFEST_SUM, "optimizer.safetensors");

/* Draw a random JSON value, which may or may not fit a field of the manifest. */
static json_t *draw_value(uint64_t *random) {
    static const int64_t integers[] = {
        0, 1, 2, -1, 3, 1048576, 1048577, INT32_MAX, INT64_MAX, INT64_MIN, INT64_MAX - 1048575};
    switch (fuzz_below(random, 8)) {
    case 0:
    case 1:
        return json_string(fuzz_word(texts, random));
    case 2:
    case 3:
        return json_integer(integers[fuzz_below(random, sizeof integers / sizeof integers[0])]);
    case 4:
        return json_array();
    case 5:
        return json_object();
    case 6:
        return json_real(2.0);
    default:
        return fuzz_below(random, 2) ? json_null() : json_true();
    }
}

/* Follow a random path from the root to an object or a list. Delete a member of this object or
 * list, copy the member, or replace it by a random value. In some cases, add a value instead. */
static void mutate_json(json_t *at, uint64_t *random) {
    for (;;) {
        const size_t n = json_is_object(at) ? json_object_size(at) : json_array_size(at);
        size_t i = fuzz_below(random, n);
        const bool change = fuzz_below(random, 3) == 0;
        if (n == 0) return;
        if (json_is_object(at)) {
            void *member = json_object_iter(at);
            for (; i > 0; i--)
                member = json_object_iter_next(at, member);
            json_t *inside = json_object_iter_value(member);
            if (!change && json_is_array(inside) && json_array_size(inside) > 0) {
                at = inside;
                continue;
            }
            if (fuzz_below(random, 4) == 0)
                json_object_del(at, json_object_iter_key(member));
            else if (fuzz_below(random, 8) == 0)
                json_object_set_new(at, "more", draw_value(random));
            else
                json_object_set_new(at, json_object_iter_key(member), draw_value(random));
            return;
        }
        json_t *inside = json_array_get(at, i);
        if (!change && json_is_object(inside)) {
            at = inside;
            continue;
        }
        if (fuzz_below(random, 3) == 0)
            json_array_remove(at, i);
        else if (fuzz_below(random, 2))
            json_array_append(at, inside);
        else
            json_array_set_new(at, i, draw_value(random));
        return;
    }
}

/* --- matching files --- */

static json_t *manifest_json(void) {
    json_t *root =
        json_loadb((const char *)original[MANIFEST].bytes, original[MANIFEST].size, 0, NULL);
    assert_non_null(root);
    json_object_del(root, "sha256_above");
    return root;
}

static void write_manifest(const json_t *root) {
    fuzz_input manifest;
    char *text = json_dumps(root, JSON_INDENT(1));
    manifest.size = strlen(text) >= 2 ? strlen(text) - 2 : 0;
    if (manifest.size < MANIFEST_BYTES) {
        memcpy(manifest.bytes, text, manifest.size);
        close_manifest(&manifest);
        write_back(MANIFEST, &manifest);
        write_sum(&manifest);
    }
    free(text);
}

static void write_tensors(int file, const fuzz_input *in) {
    char hex[65];
    json_t *root = manifest_json();
    json_t *entry = json_array_get(json_object_get(root, "files"), (size_t)file);
    write_back(file, in);
    assert_ok(cgp__digest(in->bytes, in->size, hex));
    json_object_set_new(entry, "bytes", json_integer((json_int_t)in->size));
    json_object_set_new(entry, "sha256", in->size ? json_pack("[s]", hex) : json_array());
    write_manifest(root);
    json_decref(root);
}

/* --- tests --- */

static void without_fitting_checksums_nothing_is_accepted(void **unused) {
    (void)unused;
    uint64_t random = test_seed();
    for (int i = 0; i < MUTATIONS / 2; i++) {
        const int file = (int)fuzz_below(&random, FILES);
        fuzz_input in = original[file];
        for (int times = test_between(&random, 1, 3); times > 0; times--)
            mutate_bytes(&in, &random);
        if (in.size == original[file].size && memcmp(in.bytes, original[file].bytes, in.size) == 0)
            continue;
        write_back(file, &in);
        assert_false(try_load(names[file]));
        write_back(file, &original[file]);
    }
    restore();
}

/* The test mutates the text of the manifest, but keeps the last lines and the manifest's checksum
 * valid. */
static void a_manifest_of_any_bytes_is_refused_or_true(void **unused) {
    (void)unused;
    uint64_t random = test_seed();
    const char *text = (const char *)original[MANIFEST].bytes,
               *tail = strstr(text, ",\n \"sha256_above");
    int accepted = 0;
    for (int i = 0; i < MUTATIONS; i++) {
        fuzz_input in = original[MANIFEST];
        in.size = (size_t)(tail - text);
        for (int times = test_between(&random, 1, 2); times > 0; times--)
            mutate_bytes(&in, &random);
        if (in.size <= MANIFEST_BYTES) accepted += try_manifest(&in);
    }
    restore();
    print_message("%d of %d manifests were accepted\n", accepted, MUTATIONS);
    assert_in_range(accepted, 1, MUTATIONS / 2);
}

static void a_manifest_of_any_values_is_refused_or_true(void **unused) {
    (void)unused;
    uint64_t random = test_seed();
    int accepted = 0;
    for (int i = 0; i < MUTATIONS; i++) {
        json_t *root = manifest_json();
        for (int times = test_between(&random, 1, 2); times > 0; times--)
            mutate_json(root, &random);
        write_manifest(root);
        if (try_load("manifest of values")) {
            accepted++;
            assert_int_equal(json_integer_value(json_object_get(root, "step")),
                             cgp_pipeline_updates(pipeline));
            char hex[65];
            assert_ok(cgp_pipeline_weights_sha256(pipeline, hex));
            assert_string_equal(hex, saved_sha256);
            restore();
        }
        json_decref(root);
    }
    restore();
    print_message("%d of %d manifests were accepted\n", accepted, MUTATIONS);
    assert_in_range(accepted, 1, MUTATIONS / 2);
}

/* The test damages tensor files, and writes a manifest whose checksums match. Values from an
 * accepted checkpoint must equal the file's contents. */
static void tensors_of_any_bytes_are_refused_or_true(void **unused) {
    (void)unused;
    uint64_t random = test_seed();
    int accepted = 0;
    for (int i = 0; i < MUTATIONS; i++) {
        const int file = (int)fuzz_below(&random, 2);
        fuzz_input in = original[file];
        mutate_bytes(&in, &random);
        write_tensors(file, &in);
        if (try_load(names[file])) accepted++;
        restore();
    }
    print_message("%d of %d files of tensors were accepted\n", accepted, MUTATIONS);
    assert_in_range(accepted, 1, MUTATIONS / 2);
}

/* Each case consists of a field of the manifest, the field's new JSON value, and the expected
 * message. If the value is NULL, the field is deleted. */
static const struct {
    const char *key, *value, *message;
} wrong_fields[] = {
    {"format", "\"pt\"", "format: expected \"cgpipe checkpoint\", got \"pt\""},
    {"version", "3", "version: expected 1 or 2, got 3 (is it from a newer cgpipe?)"},
    {"version", "\"1\"", "version: expected 1 or 2, got 0"},
    {"version", "2", "shards: is missing"},
    {"shards", "2", "shards: is unknown"},
    {"step", NULL, "step"},
    {"step", "2.0", "step: expected integer, got real"},
    {"step", "-1", "step: expected 0 to 999999999999999999, got -1"},
    {"step", "3", "is of step 3, in the directory of step 2"},
    {"dropout_step", "-7", "dropout_step: expected 0 to 999999999999999999, got -7"},
    {"seed", "1", "seed: expected string, got integer"},
    {"seed", "\"01\"", "seed: expected a decimal number below 2^64, got \"01\""},
    {"seed", "\"+1\"", "seed: "},
    {"seed", "\"\"", "seed: "},
    {"seed", "\"-1\"", "seed: "},
    {"seed", "\"18446744073709551616\"", "seed: "},
    {"optimizer", "\"adam\"", "its optimizer is adam with 1 state (momentum), planned is sgd with"},
    {"states", "[]", "its optimizer is sgd with 0 states, planned is sgd with 1 state (momentum)"},
    {"states", "[\"buffer\"]", "sgd with 1 state (buffer), planned is sgd with 1 state (momentum)"},
    {"states", "[1]", "states: number 0 is not a text"},
    {"states", "[\"a\",\"b\",\"c\",\"d\",\"e\"]", "states: expected a list of at most 4 names"},
    {"note", "null", "note: expected string, got null"},
    {"block_bytes", "4096", "block_bytes: expected 1048576, got 4096"},
    {"more", "1", "more"},
    {"files", "[]", "checkpoint.json: has no file weights.safetensors"},
    {"files", "{}", "files: expected a list of at most 2049"},
    {"files", "[{\"name\": \"a\", \"bytes\": 0}]", "files: number 0: "},
    {"files", "[{\"name\": \"../a\", \"bytes\": 0, \"sha256\": []}]",
     "files: \"../a\" is not the name of a file here"},
    {"files", "[{\"name\": \"..\", \"bytes\": 0, \"sha256\": []}]", "files: \"..\" is not"},
    {"files", "[{\"name\": \"\", \"bytes\": 0, \"sha256\": []}]", "files: \"\" is not"},
    {"files", "[{\"name\": \"checkpoint.json\", \"bytes\": 0, \"sha256\": []}]",
     "files: \"checkpoint.json\" is not the name of a file here"},
    {"files",
     "[{\"name\": \"a\", \"bytes\": 0, \"sha256\": []},"
     "{\"name\": \"a\", \"bytes\": 0, \"sha256\": []}]",
     "files: a comes twice"},
    {"files", "[{\"name\": \"a\", \"bytes\": -1, \"sha256\": []}]",
     "file a: bytes: expected at least 0, got -1"},
    {"files", "[{\"name\": \"a\", \"bytes\": 1048577, \"sha256\": [\"\"]}]",
     "file a: 1048577 bytes have 2 digests, got 1"},
    {"files", "[{\"name\": \"a\", \"bytes\": 9223372036854775807, \"sha256\": []}]",
     "file a: 9223372036854775807 bytes have 8796093022208 digests, got 0"},
    {"files", "[{\"name\": \"a\", \"bytes\": 1, \"sha256\": [\"ab\"]}]",
     "file a: digest 0 is not a text of 64 digits"},
    {"files", "[{\"name\": \"a\", \"bytes\": 0, \"sha256\": []}]", "/a: no such file"},
};

static void a_field_that_is_wrong_is_named(void **unused) {
    (void)unused;
    for (size_t i = 0; i < sizeof wrong_fields / sizeof wrong_fields[0]; i++) {
        json_t *root = manifest_json();
        if (wrong_fields[i].value)
            json_object_set_new(root, wrong_fields[i].key,
                                json_loads(wrong_fields[i].value, JSON_DECODE_ANY, NULL));
        else
            json_object_del(root, wrong_fields[i].key);
        write_manifest(root);
        json_decref(root);
        assert_false(try_load(wrong_fields[i].key));
        /* the message contains the path of the file or, for an optimizer, of the directory */
        assert_message("/step-00000002");
        assert_message(wrong_fields[i].message);
    }
    restore();
}

static void tensors_of_integers_are_refused(void **unused) {
    (void)unused;
    fuzz_input in = original[0];
    uint8_t *type = memmem(in.bytes, in.size, "F32", 3);
    assert_non_null(type);
    *type = 'I';
    write_tensors(0, &in);
    assert_false(try_load("integers"));
    assert_message("weights.safetensors: \"");
    assert_message(" has F32 [");
    assert_message(", got I32 [");
    restore();
}

/* --- the index of shards --- */

/* Write every other tensor of a file, beginning with tensor `first`, to a shard. */
static void write_shard(cgp__checkpoint_writer *writer, cgp__weight_map *map, const char *from,
                        const char *name, int first) {
    static const char *const metadata[] = {"format", "pt"};
    cgp_safetensors *in = NULL;
    cgp_safetensors_writer *out = NULL;
    assert_ok(cgp_safetensors_open(&in, from));
    assert_ok(cgp__safetensors_begin(&out, name));
    assert_ok(cgp__safetensors_add_metadata(out, metadata, 1));
    for (int i = first; i < cgp_safetensors_count(in); i += 2)
        assert_ok(cgp__safetensors_add(out, cgp_safetensors_name(in, i), CGP_F32,
                                       cgp_safetensors_shape(in, i)));
    assert_ok(cgp__safetensors_create_at(out, cgp__checkpoint_directory(writer), name));
    for (int i = first; i < cgp_safetensors_count(in); i += 2) {
        const size_t bytes = 4 * (size_t)cgp_shape_count(cgp_safetensors_shape(in, i));
        float *data = malloc(bytes);
        assert_ok(cgp_safetensors_read(in, i, data));
        assert_ok(cgp_safetensors_append(out, data, bytes));
        if (map) assert_ok(cgp__weight_map_add(map, cgp_safetensors_name(in, i), name, bytes));
        free(data);
    }
    assert_ok(cgp_safetensors_commit(out));
    assert_ok(cgp__checkpoint_add(writer, name));
    cgp_safetensors_close(in);
}

/* Write the checkpoint in shards, as two ranks would write it. */
static void write_shards(const char *directory) {
    static const char *const shards[] = {
        "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
        "optimizer-00001-of-00002.safetensors", "optimizer-00002-of-00002.safetensors"};
    const cgp__checkpoint_info info = {.step = 2,
                                       .dropout_step = 2,
                                       .optimizer = "sgd",
                                       .n_states = 1,
                                       .states = {"momentum"},
                                       .note = "",
                                       .shards = 2};
    cgp__checkpoint_writer *writer = NULL;
    cgp__weight_map *map = NULL;
    assert_ok(cgp__checkpoint_create(&writer, directory, 2));
    assert_ok(cgp__weight_map_create(&map));
    for (int s = 0; s < 4; s++)
        write_shard(writer, s < 2 ? map : NULL, file_of(s / 2), shards[s], s % 2);
    assert_ok(cgp__weight_map_write(map, writer));
    assert_ok(cgp__checkpoint_commit(writer, &info, 0));
    cgp__weight_map_destroy(map);
}

/* A mutated index with matching checksums must be refused, or must agree with the shards. */
static void an_index_of_any_bytes_is_refused_or_true(void **unused) {
    (void)unused;
    uint64_t random = test_seed();
    char directory[128], step[160], index[200], hex[65];
    static fuzz_input whole;
    int accepted = 0;
    snprintf(directory, sizeof directory, "%s/shards", test_directory);
    snprintf(step, sizeof step, "%s/step-00000002", directory);
    snprintf(index, sizeof index, "%s/" CGP__INDEX, step);
    write_shards(directory);
    FILE *in = fopen(index, "rb");
    whole.size = fread(whole.bytes, 1, FUZZ_CAPACITY, in);
    fclose(in);
    assert_in_range(whole.size, 1, MANIFEST_BYTES);
    for (int i = 0; i < MUTATIONS / 10; i++) {
        fuzz_input mutated = whole;
        for (int times = test_between(&random, 0, 2); times > 0; times--)
            mutate_bytes(&mutated, &random);
        test_write_file(index, mutated.bytes, mutated.size);
        resign(step);
        const cgp_status status = cgp_pipeline_load(pipeline, directory, NULL);
        assert_true(status == CGP_OK || status == CGP_EFORMAT);
        assert_ok(cgp_pipeline_weights_sha256(pipeline, hex));
        assert_string_equal(hex, status == CGP_OK ? saved_sha256 : other_sha256);
        accepted += status == CGP_OK;
        assert_ok(cgp_pipeline_set_parameter(pipeline, 0, other));
    }
    restore();
    print_message("%d of %d indices were accepted\n", accepted, MUTATIONS / 10);
    assert_in_range(accepted, MUTATIONS / 50, MUTATIONS / 12);
}

const fuzz_reader fuzz_checkpoint = {
    .take = take_manifest,
    .tests = {cmocka_unit_test(an_index_of_any_bytes_is_refused_or_true),
              cmocka_unit_test(tensors_of_integers_are_refused),
              cmocka_unit_test(a_field_that_is_wrong_is_named),
              cmocka_unit_test(without_fitting_checksums_nothing_is_accepted),
              cmocka_unit_test(a_manifest_of_any_bytes_is_refused_or_true),
              cmocka_unit_test(a_manifest_of_any_values_is_refused_or_true),
              cmocka_unit_test(tensors_of_any_bytes_are_refused_or_true)},
    .set_up = make_checkpoint,
    .tear_down = remove_checkpoint,
};
