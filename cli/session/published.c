/* SPDX-License-Identifier: Apache-2.0 */
/* published.c -- see published.h. */
#include "session/published.h"

#include "files.h"
#include "json_file.h"
#include "text.h"

#include <cgpipe/models/weights.h>

#include <jansson.h>
#include <libgen.h>
#include <stdlib.h>
#include <sys/stat.h>

static bool has_config(const char *directory) {
    char *path = cli_text("%s/config.json", directory);
    struct stat info;
    const bool found = lstat(path, &info) == 0;
    free(path);
    return found;
}

char *cli_published_directory(const char *path) {
    char *copy = cli_text("%s", path);
    if (cli_is_directory(path)) return copy;
    char *directory = cli_text("%s", dirname(copy));
    free(copy);
    return directory;
}

cgp_status cli_published_model(const char *path, char text[CLI_MODEL_SPEC]) {
    cgp_model_spec spec = cgp_model_spec_default();
    char *directory = cli_published_directory(path);
    cgp_status status = CGP_OK;
    *text = '\0';
    if (has_config(directory)) {
        status = cgp_huggingface_read(&spec, directory);
        if (status == CGP_OK) status = cgp_model_spec_text(&spec, text, CLI_MODEL_SPEC);
    }
    free(directory);
    return status;
}

bool cli_published_dropouts_differ(const char *directory, cgp_model_kind kind,
                                   char text[CLI_DROPOUTS_TEXT]) {
    /* The default dropouts of Hugging Face's transformers. */
    double resid = 0.1, embd = 0.1, attn = 0.1, hidden = 0, probs = 0;
    char *path = cli_text("%s/config.json", directory);
    json_t *config = NULL;
    /* A failure is ignored: the same file was already read with the weights. */
    (void)!cli_json_read(path, CLI_LARGEST_FILE, &config);
    (void)json_unpack(config, "{s?F, s?F, s?F, s?F, s?F}", "resid_pdrop", &resid, "embd_pdrop",
                      &embd, "attn_pdrop", &attn, "hidden_dropout_prob", &hidden,
                      "attention_probs_dropout_prob", &probs);
    if (kind == CGP_MODEL_VIT)
        snprintf(text, CLI_DROPOUTS_TEXT, "hidden_dropout_prob %g, attention_probs_dropout_prob %g",
                 hidden, probs);
    else
        snprintf(text, CLI_DROPOUTS_TEXT, "resid_pdrop %g, embd_pdrop %g, attn_pdrop %g", resid,
                 embd, attn);
    json_decref(config);
    free(path);
    return kind == CGP_MODEL_VIT ? hidden != probs : resid != embd || resid != attn;
}

/* A directory may have tokenizer.json and also vocab.json and merges.txt, as the published Qwen2
 * has. Prefer tokenizer.json, because the other two files lack the word pattern. */
cgp_status cli_tokenizer_open(cgp_tokenizer **out, const char *path) {
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) return cgp_tokenizer_open(out, path);
    char *one = cli_text("%s/tokenizer.json", path);
    char *vocab = cli_text("%s/vocab.json", path), *merges = cli_text("%s/merges.txt", path);
    const cgp_status status = stat(one, &info) == 0 ? cgp_tokenizer_open(out, one)
                                                    : cgp_tokenizer_create(out, vocab, merges);
    free(one);
    free(merges);
    free(vocab);
    return status;
}

cgp_status cli_expect_end_of_text(const cgp_tokenizer *tokenizer, const char *path) {
    if (cgp_tokenizer_end_of_text(tokenizer) >= 0) return CGP_OK;
    return cgp_fail(CGP_EFORMAT,
                    "--end-of-text: the vocabulary of %s has no <|endoftext|> or <|end_of_text|>",
                    path);
}
