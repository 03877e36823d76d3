/* SPDX-License-Identifier: Apache-2.0 */
/* published_files.c -- see published_files.h. */
#include "session/published_files.h"

#include "files.h"
#include "json_file.h"
#include "session/entries.h"
#include "session/run_directory.h"
#include "text.h"

#include <cgpipe/checkpoint.h>
#include <cgpipe/models/weights.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONFIG "config.json"
#define GENERATION "generation_config.json"
#define TOKENIZER "tokenizer.json"

/* --- names --- */

static cgp_status unreadable(const char *directory, int reason) {
    return cgp_fail(CGP_EIO, "%s: cannot be read (%s)", directory, strerror(reason));
}

static bool begins_with(const char *text, const char *beginning) {
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

/* Tell whether a file exists. If the system cannot tell, assume that it does: opening it later
 * reports the reason. */
static bool exists(const char *directory, const char *name) {
    struct stat info;
    char *path = cli_text("%s/%s", directory, name);
    const bool found = stat(path, &info) == 0 || (errno != ENOENT && errno != ENOTDIR);
    free(path);
    return found;
}

bool cli_has_tokenizer(const char *directory) {
    return exists(directory, TOKENIZER) ||
           (exists(directory, "vocab.json") && exists(directory, "merges.txt"));
}

/* Tell whether a file belongs to a tokenizer. */
static bool is_of_tokenizer(const char *name) {
    static const char *const beginnings[] = {"tokenizer",          "vocab.",        "merges.txt",
                                             "special_tokens_map", "added_tokens.", "chat_template",
                                             "spiece.model"};
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++) {
        if (begins_with(name, beginnings[i])) return true;
    }
    return false;
}

/* Tell whether a file is a small file of published weights. The index of weights in several files
 * is not: the weights are in one file after the training. */
static bool is_small(const char *name) {
    static const char *const endings[] = {".json", ".jinja", ".txt", ".model"};
    static const char *const beginnings[] = {"LICENSE", "NOTICE", "USE_POLICY"};
    if (name[0] == '.' || cli_ends_with(name, ".index.json")) return false;
    if (strcmp(name, "trainer_state.json") == 0) return false;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        if (cli_ends_with(name, endings[i])) return true;
    }
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++) {
        if (begins_with(name, beginnings[i])) return true;
    }
    return false;
}

cgp_status cli_run_published(char **path, const cli_run_directory *run) {
    cli_run_directory inside;
    cli_run_directory_enter(&inside, run, CLI_PUBLISHED);
    const int reason = inside.fd < 0 ? inside.reason : 0;
    const bool none = reason == ENOENT || reason == ENOTDIR || reason == ELOOP;
    const cgp_status status = reason && !none ? unreadable(inside.path, reason) : CGP_OK;
    *path = reason ? NULL : cli_text("%s", inside.path);
    cli_run_directory_close(&inside);
    return status;
}

/* --- copies --- */

/* An open directory that files are copied to. */
typedef struct target {
    int fd;
    const char *path;
} target;

static cgp_status copy_file(const char *from, const char *name, target to) {
    char *bytes = NULL, *path = cli_text("%s/%s", to.path, name);
    size_t size = 0;
    cgp_status status = cli_file_read(from, CLI_LARGEST_FILE, &bytes, &size);
    if (status == CGP_OK) status = cgp_file_replace_at(to.fd, name, path, bytes, size);
    free(bytes);
    free(path);
    return status;
}

/* Copy a file of `directory` if it is not a directory. Published files may be links. */
static cgp_status copy_from(const char *directory, const char *name, target to) {
    char *from = cli_text("%s/%s", directory, name);
    const cgp_status status = cli_is_directory(from) ? CGP_OK : copy_file(from, name, to);
    free(from);
    return status;
}

/* Copy the small files of a directory that `selects` selects. */
static cgp_status copy_all(const char *directory, bool (*selects)(const char *name), target to) {
    DIR *list = opendir(directory);
    cgp_status status = CGP_OK;
    int reason = errno;
    if (!list) return unreadable(directory, reason);
    for (const struct dirent *entry; status == CGP_OK && (entry = cli_entry_next(list, &reason));) {
        if (is_small(entry->d_name) && selects(entry->d_name))
            status = copy_from(directory, entry->d_name, to);
    }
    closedir(list);
    return status == CGP_OK && reason ? unreadable(directory, reason) : status;
}

static bool any(const char *name) {
    return *name != '\0';
}

static bool is_not_of_tokenizer(const char *name) {
    return !is_of_tokenizer(name);
}

static bool is_not_config(const char *name) {
    return strcmp(name, CONFIG) != 0;
}

cgp_status cli_published_copy(const char *from, int fd, const char *path) {
    return copy_all(from, is_not_config, (target){fd, path});
}

static cgp_status fill(const char *directory, const char *tokenizer, target to) {
    if (directory) CGP_TRY(copy_all(directory, tokenizer ? is_not_of_tokenizer : any, to));
    if (!tokenizer) return CGP_OK;
    if (cli_is_directory(tokenizer)) return copy_all(tokenizer, is_of_tokenizer, to);
    return copy_file(tokenizer, TOKENIZER, to);
}

/* Move the complete directory `name` into its place. */
static cgp_status exchange(const cli_run_directory *run, const char *name) {
    cli_run_directory_drop(run, CLI_PUBLISHED);
    if (renameat(run->fd, name, run->fd, CLI_PUBLISHED) == 0) return CGP_OK;
    return cgp_fail(CGP_EIO, "%s/" CLI_PUBLISHED ": cannot be written (%s)", run->path,
                    strerror(errno));
}

cgp_status cli_published_keep(const cli_run_directory *run, const char *directory,
                              const char *tokenizer) {
    char name[CGP_TEMPORARY_BYTES];
    int fd = -1;
    CGP_TRY(cgp_temporary_directory(run->fd, "published", run->path, name, &fd));
    char *path = cli_text("%s/%s", run->path, name);
    cgp_status status = fill(directory, tokenizer, (target){fd, path});
    if (status == CGP_OK) status = exchange(run, name);
    close(fd);
    if (status != CGP_OK) cli_run_directory_drop(run, name);
    free(path);
    return status;
}

/* --- config.json --- */

static cgp_status read_config(const char *directory, const char *name, json_t **config) {
    char *path = cli_text("%s/%s", directory, name);
    const cgp_status status = cli_json_read(path, CLI_LARGEST_FILE, config);
    free(path);
    return status;
}

/* Tell whether two specs are the same model except for the length of a sample and the dropout. */
static bool same_model(const cgp_model_spec *a, const cgp_model_spec *b) {
    char text[2][2048];
    const cgp_model_spec *specs[2] = {a, b};
    for (int i = 0; i < 2; i++) {
        cgp_model_spec spec = *specs[i];
        spec.llama.sequence = b->llama.sequence;
        spec.llama.window = b->llama.window; /* a window as long as a sample is none */
        spec.gpt2.dropout = spec.vit.dropout = 0;
        if (cgp_model_spec_text(&spec, text[i], sizeof text[i]) != CGP_OK) return false;
    }
    return a->kind == b->kind && strcmp(text[0], text[1]) == 0;
}

static double dropout_of(const cgp_model_spec *spec) {
    return spec->kind == CGP_MODEL_VIT    ? spec->vit.dropout
           : spec->kind == CGP_MODEL_GPT2 ? spec->gpt2.dropout
                                          : 0;
}

/* Copy a member of `from` if `from` has it. */
static void take(json_t *to, const json_t *from, const char *key) {
    json_t *value = json_object_get(from, key);
    if (value) json_object_set(to, key, value);
}

/* Change the published configuration where the run's weights differ from the published ones. */
static void update(json_t *config, const json_t *written, bool dropout) {
    static const char *const dropouts[] = {"resid_pdrop", "embd_pdrop", "attn_pdrop",
                                           "hidden_dropout_prob", "attention_probs_dropout_prob"};
    take(config, written, "architectures");
    if (json_object_get(config, "dtype"))
        json_object_set_new(config, "dtype", json_string("float32"));
    else
        take(config, written, "torch_dtype");
    for (size_t i = 0; dropout && i < sizeof dropouts / sizeof *dropouts; i++)
        take(config, written, dropouts[i]);
}

/* Return the object as text. Numbers have 15 digits, so that 1e-05 stays readable, unless one of
 * them needs 17. */
static char *text_of(const json_t *object) {
    char *text = json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    json_t *again = text ? json_loads(text, 0, NULL) : NULL;
    const bool same = again && json_equal(again, object);
    json_decref(again);
    if (!same) free(text);
    return same ? text : json_dumps(object, JSON_INDENT(2));
}

static cgp_status write_config(const char *path, const json_t *config) {
    char *text = text_of(config);
    if (!text) return cgp_fail(CGP_ENOMEM, "%s: out of memory", path);
    char *line = cli_text("%s\n", text);
    const cgp_status status = cgp_file_replace(path, line, strlen(line));
    free(line);
    free(text);
    return status;
}

cgp_status cli_published_config(const char *from, const cgp_model_spec *spec,
                                const char *directory) {
    cgp_model_spec published = cgp_model_spec_default();
    json_t *config = NULL, *written = NULL;
    if (!exists(from, CONFIG)) return CGP_OK;
    CGP_TRY(cgp_huggingface_read(&published, from));
    if (!same_model(&published, spec)) return CGP_OK;
    char *path = cli_text("%s/" CONFIG, directory);
    cgp_status status = read_config(from, CONFIG, &config);
    if (status == CGP_OK) status = read_config(directory, CONFIG, &written);
    if (status == CGP_OK) {
        update(config, written, dropout_of(&published) != dropout_of(spec));
        status = write_config(path, config);
    }
    json_decref(config);
    json_decref(written);
    free(path);
    return status;
}

/* --- the end of a text --- */

cgp_status cli_published_ends(const char *directory, int32_t **ids, int *count) {
    static const char *const files[] = {GENERATION, CONFIG};
    json_t *config = NULL, *value = NULL;
    *ids = NULL;
    *count = 0;
    for (int i = 0; i < 2 && !value; i++) {
        json_decref(config);
        config = NULL;
        if (!exists(directory, files[i])) continue;
        CGP_TRY(read_config(directory, files[i], &config));
        value = json_object_get(config, "eos_token_id");
        if (json_is_null(value)) value = NULL;
    }
    const size_t n = json_is_array(value) ? json_array_size(value) : value ? 1 : 0;
    *ids = cli_calloc(n + 1, sizeof **ids);
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_is_array(value) ? json_array_get(value, i) : value;
        const json_int_t number = json_is_integer(id) ? json_integer_value(id) : -1;
        if (number >= 0 && number <= INT32_MAX) (*ids)[(*count)++] = (int32_t)number;
    }
    json_decref(config);
    return CGP_OK;
}
