/* SPDX-License-Identifier: Apache-2.0 */
/* test_models_spec.c -- tests the specs of the model zoo: their options, and which specs are
 * refused. */
#include "directory.h"

#include <cgpipe/models/spec.h>

TEST_CASE(a_spec_has_all_sizes_and_parses_to_the_same_model) {
    static const char *const cases[][2] = {
        {"gpt2", "gpt2:layers=12,width=768,heads=12,vocab=50257,seq=1024"},
        {"gpt2:tied=1,seq=5", "gpt2:layers=12,width=768,heads=12,vocab=50257,seq=5,tied=1"},
        {"gpt2:gelu=tanh,eps=1e-06,inner=100", "gpt2:layers=12,width=768,heads=12,vocab=50257,"
                                               "seq=1024,gelu=tanh,eps=1e-06,inner=100"},
        {"gpt2:gelu=erf,eps=1e-5,inner=3072",
         "gpt2:layers=12,width=768,heads=12,vocab=50257,seq=1024"},
        {"gpt2:eps=0.100000000000000006",
         "gpt2:layers=12,width=768,heads=12,vocab=50257,seq=1024,eps=0.1"},
        {"resnet", "resnet:depth=101,classes=1000,image=224,width=64"},
        {"resnet20:classes=7", "resnet:depth=20,classes=7,image=32,width=16"},
        {"amoebanetd", "amoebanetd:L=18,D=256,classes=1000,image=224"},
        {"amoebanetd:maxpool=average", "amoebanetd:L=18,D=256,classes=1000,image=224"},
        {"amoebanetd:maxpool=max,old=1",
         "amoebanetd:L=6,D=256,classes=10,image=224,maxpool=max,old=1"},
        {"unet:image=96", "unet:B=5,C=64,depth=5,image=96"},
        {"vit:inner=3072,eps=1e-12",
         "vit:layers=12,width=768,heads=12,image=224,patch=16,classes=1000"},
        {"vit:inner=3,eps=1e-6,patch=32", "vit:layers=12,width=768,heads=12,inner=3,image=224,"
                                          "patch=32,classes=1000,eps=1e-06"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int k = 0; k < 2; k++) {
            cgp_model_spec spec = cgp_model_spec_default();
            char text[160];
            assert_ok(cgp_model_spec_parse(&spec, cases[i][k]));
            assert_ok(cgp_model_spec_text(&spec, text, sizeof text));
            assert_string_equal(text, cases[i][1]);
        }
    }
}

TEST_CASE(a_spec_has_a_decimal_point_in_every_locale) {
    static const char text[] = "gpt2:layers=12,width=768,heads=12,vocab=50257,seq=1024,eps=1.5e-05";
    static const char *const refused[] = {"gpt2:eps=1.5.5", "gpt2:eps=.", "gpt2:eps=1e-5.",
                                          "gpt2:eps=1.5"};
    cgp_model_spec spec = cgp_model_spec_default();
    char got[160], half[8];
    if (!test_set_comma_locale()) {
        print_message("no locale with a decimal comma is installed, nor can one be made\n");
        skip();
    }
    snprintf(half, sizeof half, "%.1f", 0.5);
    const cgp_status status = cgp_model_spec_parse(&spec, text);
    cgp_status others[4];
    assert_ok(cgp_model_spec_text(&spec, got, sizeof got));
    for (int i = 0; i < 4; i++)
        others[i] = cgp_model_spec_parse(&spec, refused[i]);
    test_set_c_locale();
    assert_string_equal(half, "0,5");
    assert_ok(status);
    assert_true(spec.gpt2.eps == 1.5e-5);
    assert_string_equal(got, text);
    for (int i = 0; i < 4; i++)
        assert_status(others[i], CGP_EINVAL);
}

TEST_CASE(a_spec_is_cut_to_its_size) {
    cgp_model_spec spec = cgp_model_spec_default();
    assert_ok(cgp_model_spec_parse(&spec, "amoebanetd:maxpool=max,old=1"));
    char whole[160];
    assert_ok(cgp_model_spec_text(&spec, whole, sizeof whole));
    for (size_t size = 1; size < strlen(whole); size++) {
        char *text = malloc(size);
        assert_ok(cgp_model_spec_text(&spec, text, size));
        assert_int_equal(strlen(text), size - 1);
        assert_memory_equal(text, whole, size - 1);
        free(text);
    }
}

/* Assert that parsing the spec, or making its model, is refused. */
TEST_CASE(bad_specs_are_refused_with_a_way_out) {
    static const char *const cases[][2] = {
        {"resnt101", "resnt101: unknown model (did you mean resnet?)"},
        {"amobanetd:L=3", "amobanetd: unknown model (did you mean amoebanetd?)"},
        {"vgg", "vgg: unknown model (models: gpt2 resnet amoebanetd unet llama vit)"},
        {"", "unknown model (models: gpt2 resnet amoebanetd unet llama vit)"},
        {"gpt2x", "gpt2x: unknown model (did you mean gpt2?)"},
        {"gpt2:gelu=relu", "gpt2: gelu: expected erf or tanh, got \"relu\""},
        {"gpt2:gelu=", "gpt2: gelu: expected erf or tanh, got \"\""},
        {"gpt2:eps=0", "gpt2: eps: expected a number above 0 and at most 1, got \"0\""},
        {"gpt2:eps=1.5", "got \"1.5\""},
        {"gpt2:eps=", "got \"\""},
        {"gpt2:eps=-1e-5", "got \"-1e-5\""},
        {"gpt2:eps=nan", "got \"nan\""},
        {"gpt2:eps=0x1p-3", "got \"0x1p-3\""},
        {"gpt2:eps=1e-5x", "got \"1e-5x\""},
        {"gpt2:eps=1e-99999", "got \"1e-99999\""},
        {"gpt2:eps=1e-60", "expects eps > 0 and finite as f32, got 1e-60"},
        {"gpt2:inner=0", "gpt2: inner: expected a whole number from 1 to 4194304, got \"0\""},
        {"resnet:depht=20", "resnet: depht: unknown key (did you mean depth?)"},
        {"resnet:", "resnet: expected key=value, got \"\" (keys: depth classes image width)"},
        {"resnet101:depth=20", "resnet: depth: is given twice"},
        {"resnet99999999999999999999", "resnet: depth: expected a whole number"},
        {"resnet21", "resnet: depth: expected 18, 34, 50, 101 or 152, or 6 n + 2"},
        {"resnet:depth=1208", "from 8 to 1202, got \"1208\""},
        {"resnet20:image=0", "resnet: image: expected a whole number from 1 to 16384, got \"0\""},
        {"amoebanetd:L=4", "amoebanetd: L: expected a multiple of 3, got 4"},
        {"amoebanetd:D=12", "amoebanetd: D: expected a multiple of 8, got 12"},
        {"amoebanetd:image=100", "amoebanetd: image: expected a multiple of 32, got 100"},
        {"amoebanetd:l=3", "amoebanetd: l: unknown key (did you mean L?)"},
        {"amoebanetd:maxpool=mean", "amoebanetd: maxpool: expected average or max, got \"mean\""},
        {"amoebanetd:old=2", "amoebanetd: old: expected a whole number from 0 to 1, got \"2\""},
        {"unet:C=3", "unet: C: expected an even number, got 3"},
        {"unet:image=32", "unet: image: expected at least 64 for depth=5, got 32"},
        {"unet:depth=11", "unet: depth: expected a whole number from 1 to 10, got \"11\""},
        {"unet:dropout=1", "unet: dropout: unknown key"},
        {"vit:heads=5", "vit: heads: expected a divisor of the width, got heads=5, width=768"},
        {"vit:patch=15", "vit: patch: expected a divisor of the image, got patch=15, image=224"},
        {"vit:patch=0", "vit: patch: expected a whole number from 1 to 16384, got \"0\""},
        {"vit:path=8", "vit: path: unknown key (did you mean patch?)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cgp_model_spec spec = cgp_model_spec_default();
        cgp_model *model = NULL;
        cgp_status status = cgp_model_spec_parse(&spec, cases[i][0]);
        if (status == CGP_OK) status = cgp_model_spec_create(&model, &spec);
        assert_status(status, CGP_EINVAL);
        assert_message(cases[i][1]);
        assert_null(model);
    }
}

TEST_CASE(bad_options_are_refused) {
    cgp_model *model = NULL;
    cgp_unet_options unet = cgp_unet_options_default();
    unet.dropout = NAN;
    assert_status(cgp_unet_create(&model, &unet), CGP_EINVAL);
    assert_message("unet: dropout");
    unet.struct_size = 0;
    assert_status(cgp_unet_create(&model, &unet), CGP_EINVAL);
    assert_message("cgp_unet_options_default()");
    cgp_resnet_options resnet = cgp_resnet_options_default();
    resnet.width = -1;
    assert_status(cgp_resnet_create(&model, &resnet), CGP_EINVAL);
    assert_message("resnet: width: expected a whole number from 1");
    cgp_amoebanetd_options amoebanetd = cgp_amoebanetd_options_default();
    amoebanetd.maxpool = (cgp_amoebanetd_pool)7;
    assert_status(cgp_amoebanetd_create(&model, &amoebanetd), CGP_EINVAL);
    assert_message("amoebanetd: maxpool: expected average or max, got 7");
    cgp_vit_options vit = cgp_vit_options_default();
    vit.dropout = 1;
    assert_status(cgp_vit_create(&model, &vit), CGP_EINVAL);
    assert_message("vit: dropout: expected 0 <= dropout < 1, got 1");
    cgp_model_spec spec = cgp_model_spec_default();
    spec.kind = CGP_MODEL_KINDS;
    assert_status(cgp_model_spec_create(&model, &spec), CGP_EINVAL);
    assert_message("model: expected a kind from 0 to 5, got 6");
    assert_null(model);
}

/* Test sizes that can be parsed, but whose tensors have too many elements. */
TEST_CASE(sizes_beyond_all_memory_are_refused_and_nothing_overflows) {
    static const char *const texts[] = {
        "resnet101:width=1048576,image=16384",
        "amoebanetd:L=3,D=1048576,image=16384",
        "unet:B=1,C=1048576,depth=10,image=16384",
        "resnet101:classes=2147483647,width=1048576",
        "vit:layers=1,width=1048576,heads=16,patch=1,image=16384",
        "vit:layers=1,patch=1,image=16384",
        "vit:layers=1,patch=16384,image=16384,width=1048576,heads=2"};
    for (int i = 0; i < 7; i++) {
        cgp_model_spec spec = cgp_model_spec_default();
        cgp_model *model = NULL;
        assert_ok(cgp_model_spec_parse(&spec, texts[i]));
        const cgp_status status = cgp_model_spec_create(&model, &spec);
        print_message("%s: %s\n", texts[i], status == CGP_OK ? "made" : cgp_message());
        assert_true(status == CGP_OK || status == CGP_EINVAL || status == CGP_ELIMIT);
        cgp_model_destroy(model);
    }
}

TEST_GROUP(.set_up = test_make_directory, .tear_down = test_remove_directory,
           .before = test_empty_before);
