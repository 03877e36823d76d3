/* SPDX-License-Identifier: Apache-2.0 */
/* test_weights.c -- models with published weights compute PyTorch's results, for every dtype of the
 * stored weights. The library writes the same files again. (Refused files: test_weights_refused.c.)
 *
 * tests/data/weights has directories that Hugging Face's transformers wrote, and a ResNet-20 with
 * the tensor names of torchvision. Each directory also has inputs, and outputs that PyTorch
 * computed in double. (`make reference-weights` runs tools/reference_weights.py, which makes these
 * files.) */
#define _GNU_SOURCE /* nftw */
#include "published.h"

static const double tolerance = 1e-4;

static void weights_sha256(network *net, char hex[130]) {
    assert_ok(cgp_pipeline_weights_sha256(net->pipeline, hex));
    assert_ok(cgp_pipeline_state_sha256(net->pipeline, hex + 64));
}

/* --- PyTorch's results --- */

static double largest_difference(network *net, const char *expected) {
    cgp_safetensors *file = NULL;
    double largest = 0;
    assert_ok(cgp_safetensors_open(&file, expected));
    cgp_tensor input = read_tensor(file, "inputs"), outputs = read_tensor(file, "outputs");
    const double far = outputs_differ(net, &input, &outputs, &largest);
    print_message("  %lld outputs up to %.2f: largest difference %.1e\n",
                  (long long)cgp_shape_count(&outputs.shape), largest, far);
    cgp_safetensors_close(file);
    free(outputs.data);
    free(input.data);
    return far;
}

static void check_outputs(const char *directory, const char *weights) {
    char path[256], expected[256];
    snprintf(path, sizeof path, DATA "%s%s", directory, weights);
    snprintf(expected, sizeof expected, DATA "%s/expected.safetensors", directory);
    for (int stages = 1; stages <= 3; stages += 2) {
        network net = open_network(path, stages);
        print_message("%s, %d stages:\n", directory, stages);
        assert_true(largest_difference(&net, expected) < tolerance);
        release(&net);
    }
}

TEST_CASE(gpt2_of_hugging_face_computes_what_pytorch_computes) {
    check_outputs("gpt2", "");
    check_outputs("gpt2-shards", "");
    check_outputs("gpt2-f16", "");
    check_outputs("gpt2-bf16", "");
    check_outputs("gpt2-other", "");
}

TEST_CASE(resnet_of_torchvision_computes_what_pytorch_computes) {
    check_outputs("resnet20", "/resnet20.safetensors");
}

/* The options in the files have an effect: with other options, the outputs differ from the outputs
 * of PyTorch. */
TEST_CASE(other_options_compute_something_else) {
    for (int i = 0; i < 3; i++) {
        network net = {.spec = cgp_model_spec_default()};
        const char *directory = i == 0 ? DATA "gpt2" : DATA "gpt2-other";
        char expected[256];
        snprintf(expected, sizeof expected, "%s/expected.safetensors", directory);
        assert_ok(cgp_huggingface_read(&net.spec, directory));
        if (i < 2)
            net.spec.gpt2.gelu = i == 0 ? CGP_GPT2_GELU_ERF : CGP_GPT2_GELU_TANH;
        else
            net.spec.gpt2.eps = 1e-5;
        make_network(&net, 1);
        assert_ok(load(&net, directory));
        assert_true(largest_difference(&net, expected) > tolerance);
        release(&net);
    }
}

/* --- writing the files --- */

TEST_CASE(a_directory_that_we_write_is_the_same_network) {
    static const char *const directories[] = {"gpt2", "gpt2-shards", "gpt2-other"};
    for (int i = 0; i < 3; i++) {
        char path[256], before[130], after[130], text[2][160];
        snprintf(path, sizeof path, DATA "%s", directories[i]);
        network net = open_network(path, 2);
        assert_ok(cgp_huggingface_write(&net.spec, net.pipeline, net.model, test_directory));
        network again = open_network(test_directory, 1);
        weights_sha256(&net, before);
        weights_sha256(&again, after);
        assert_string_equal(before, after);
        assert_ok(cgp_model_spec_text(&net.spec, text[0], sizeof text[0]));
        assert_ok(cgp_model_spec_text(&again.spec, text[1], sizeof text[1]));
        assert_string_equal(text[0], text[1]);
        assert_true(again.spec.gpt2.dropout == 0.1);
        release(&again);
        release(&net);
    }
}

/* If a ResNet's file is read and written again, names, shapes, dtypes and bytes are the same. The
 * tensors are in the order of the model. */
TEST_CASE(a_resnet_comes_out_as_it_went_in) {
    const char *path = test_path_of("out.safetensors");
    const char *const source = DATA "resnet20/resnet20.safetensors";
    network net = open_network(source, 1);
    cgp_safetensors *in = NULL, *out = NULL;
    assert_ok(cgp_weights_save(net.pipeline, net.model, path));
    assert_ok(cgp_safetensors_open(&in, source));
    assert_ok(cgp_safetensors_open(&out, path));
    assert_int_equal(cgp_safetensors_count(in), cgp_safetensors_count(out));
    for (int i = 0; i < cgp_safetensors_count(in); i++) {
        const int o = cgp_safetensors_find(out, cgp_safetensors_name(in, i));
        const cgp_shape *shape = cgp_safetensors_shape(in, i);
        assert_true(o >= 0);
        assert_string_equal(cgp_safetensors_type(in, i), cgp_safetensors_type(out, o));
        assert_true(cgp_shape_equal(shape, cgp_safetensors_shape(out, o)));
        const size_t bytes = 8 * (size_t)cgp_shape_count(shape);
        char *data = calloc(2, bytes);
        assert_ok(cgp_safetensors_read(in, i, data));
        assert_ok(cgp_safetensors_read(out, o, data + bytes));
        assert_memory_equal(data, data + bytes, bytes);
        free(data);
    }
    assert_string_equal(cgp_safetensors_metadata(out, "format"), "pt");
    cgp_safetensors_close(out);
    cgp_safetensors_close(in);
    release(&net);
}

TEST_CASE(what_cannot_be_written_leaves_what_was_there) {
    network net = open_network(DATA "resnet20/resnet20.safetensors", 1);
    test_write_file(test_path_of("out.safetensors"), "old", 3);
    assert_status(cgp_weights_save(net.pipeline, net.model, test_path_of("no/out")), CGP_EIO);
    test_limit_files_to(10000);
    assert_status(cgp_weights_save(net.pipeline, net.model, test_path_of("out.safetensors")),
                  CGP_EIO);
    test_limit_files_to(RLIM_INFINITY);
    test_assert_file(test_path_of("out.safetensors"), "old");
    assert_int_equal(test_empty_directory(), 1);
    release(&net);
}

/* The first published files of GPT-2 differ from later files. Their tensor names have no prefix,
 * they contain tensors of attention masks, and the tied head is a separate tensor. */
TEST_CASE(names_without_prefix_masks_and_a_tied_head_are_taken) {
    const char *path = test_path_of("plain.safetensors");
    static tensors t;
    network net = open_network(DATA "gpt2", 1);
    char before[130], after[130];
    weights_sha256(&net, before);
    read_tensors(&t, DATA "gpt2/model.safetensors");
    for (int i = 0; i < t.count; i++)
        memmove(t.names[i], t.names[i] + strlen("transformer."),
                strlen(t.names[i]) - strlen("transformer.") + 1);
    add_tensor(&t, "h.0.attn.bias", cgp_shape_make(4, (int64_t[]){1, 1, 12, 12}), CGP_F32);
    add_tensor(&t, "h.1.attn.masked_bias", cgp_shape_make(0, NULL), CGP_I64);
    const int wte = index_of(&t, "wte.weight");
    add_tensor(&t, "lm_head.weight", t.shapes[wte], CGP_F32);
    memcpy(t.data[t.count - 1], t.data[wte], (size_t)cgp_shape_count(&t.shapes[wte]) * 4);
    write_tensors(&t, path);
    network again = {.spec = net.spec};
    make_network(&again, 1);
    assert_ok(load(&again, path));
    weights_sha256(&again, after);
    assert_string_equal(before, after);
    ((float *)t.data[t.count - 1])[5] += 1;
    write_tensors(&t, path);
    assert_status(load(&again, path), CGP_EFORMAT);
    assert_message("plain.safetensors: lm_head.weight: expected wte.weight, which the model's "
                   "head is tied to, element 5 is ");
    release_tensors(&t);
    release(&again);
    release(&net);
}

/* Files that torchvision wrote before PyTorch 0.4.1 lack the batch counters of batch norms. */
TEST_CASE(statistics_without_a_count_are_taken) {
    const char *path = test_path_of("old.safetensors");
    static tensors t;
    read_tensors(&t, DATA "resnet20/resnet20.safetensors");
    for (int i = t.count - 1; i >= 0; i--) {
        if (t.types[i] == CGP_I64) drop_tensor(&t, i);
    }
    write_tensors(&t, path);
    network net = open_network(path, 1);
    assert_true(largest_difference(&net, DATA "resnet20/expected.safetensors") < tolerance);
    release_tensors(&t);
    release(&net);
}

TEST_GROUP(.set_up = test_make_directory, .tear_down = remove_tree_after,
           .before = empty_tree_before);
