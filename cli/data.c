/* data.c -- see data.h. */
#include "data.h"

#include "common.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_tokens(const char *path) {
    const size_t length = strlen(path);
    return length > 4 && strcmp(path + length - 4, ".bin") == 0;
}

/* The path that --validation names; NULL if it is a share. */
static const char *validation_path(const cli_settings *s) {
    return isnan(s->validation_share) ? s->validation : NULL;
}

cgp_status cli_data_kind_of(const cli_settings *s, cli_data_kind *kind) {
    const char *first = s->data.values[0], *validation = validation_path(s);
    *kind = is_tokens(first) ? CLI_DATA_TOKENS : CLI_DATA_TEXT;
    if (s->data.count == 1 && strcmp(first, "random") == 0) *kind = CLI_DATA_RANDOM;
    if (*kind == CLI_DATA_RANDOM) return CGP_OK;
    for (int i = 0; i <= s->data.count; i++) {
        const char *path = i < s->data.count ? s->data.values[i] : validation;
        if (!path || is_tokens(path) == is_tokens(first)) continue;
        return cgp_fail(CGP_EINVAL, "%s: is %s, expected %s, as %s is", path,
                        is_tokens(path) ? "a token file (.bin)" : "text",
                        is_tokens(first) ? "a token file (.bin)" : "text", first);
    }
    return CGP_OK;
}

static cgp_status open_text(cgp_data **out, const cli_settings *s, int64_t sequence) {
    const char *validation = validation_path(s);
    cgp_text_options options = cgp_text_options_default();
    options.sequence = sequence;
    options.validation_share = validation ? 0 : s->validation_share;
    options.validation_paths = validation ? &validation : NULL;
    options.n_validation_paths = validation ? 1 : 0;
    options.seed = (uint64_t)s->seed;
    return cgp_data_text(out, s->data.values, s->data.count, &options);
}

static cgp_status open_tokens(cgp_data **out, const cli_settings *s, int64_t vocabulary,
                              int64_t sequence) {
    const char *validation = validation_path(s);
    cgp_token_options options = cgp_token_options_default();
    options.sequence = sequence;
    options.vocabulary =
        vocabulary < options.vocabulary ? vocabulary : options.vocabulary; /* 16 bits */
    options.validation_share = validation ? 0 : s->validation_share;
    options.validation_paths = validation ? &validation : NULL;
    options.n_validation_paths = validation ? 1 : 0;
    options.seed = (uint64_t)s->seed;
    return cgp_data_tokens(out, s->data.values, s->data.count, &options);
}

cgp_status cli_data_open(cgp_data **out, const cli_settings *s, int64_t vocabulary,
                         int64_t sequence) {
    cli_data_kind kind = CLI_DATA_TEXT;
    CGP_TRY(cli_data_kind_of(s, &kind));
    if (kind == CLI_DATA_RANDOM)
        return cgp_data_random(out, vocabulary, sequence, (uint64_t)s->seed);
    if (kind == CLI_DATA_TOKENS) return open_tokens(out, s, vocabulary, sequence);
    return open_text(out, s, sequence);
}

/* --- paths --- */

/* NULL if the path is no UTF-8, which JSON cannot hold. */
static json_t *absolute(const char *path) {
    char *real = realpath(path, NULL);
    json_t *text = json_string(real ? real : path);
    free(real);
    return text;
}

void cli_data_json(json_t *options, const cli_settings *s) {
    cli_data_kind kind = CLI_DATA_TEXT;
    if (cli_data_kind_of(s, &kind) != CGP_OK || kind == CLI_DATA_RANDOM) return;
    json_t *paths = json_array();
    bool good = true;
    for (int i = 0; i < s->data.count; i++)
        good = json_array_append_new(paths, absolute(s->data.values[i])) == 0 && good;
    json_object_set_new(options, "data", good ? json_incref(paths) : json_null());
    json_decref(paths);
    if (!validation_path(s)) return;
    json_t *validation = absolute(validation_path(s));
    json_object_set_new(options, "validation", validation ? validation : json_null());
}
