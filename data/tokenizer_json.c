/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_json.c -- reads tokenizer.json: byte-level BPE, and nothing else.
 *
 *     text ──► normalizer ──► added_tokens ──► pre_tokenizer ──► model ──► post_processor
 *              null, NFC      before and        ByteLevel, or     BPE       ByteLevel (no effect),
 *                             after it          Split + it                  TemplateProcessing
 *
 * The reader refuses settings with which the library tokenizers would give other tokens than
 * tokenizer.c. The message has the place in the file. An unknown key is refused too, because it may
 * change the tokens. */
#include "data/tokenizer_json.h"

#include "base/json.h"
#include "data/nfc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { PLACE = 128, SHOWN = 80, CONTENT_BYTES = 4096 };

typedef struct reader {
    const char *path;
    cgp__tokenizer_parts *parts;
    cgp__nfc nfc;
    cgp__vocab_text *texts; /* [added.n] */
    /* Number of tokens in the model; number of added tokens that the model lacks. */
    int32_t n_vocab, n_new;
    json_t *tokens; /* model.vocab */
} reader;

/* --- values --- */

/* Return a value for a message: its text, of at most SHOWN bytes, or "an object" or "a list". */
static const char *shown(const json_t *value, char text[SHOWN]) {
    switch (value ? json_typeof(value) : JSON_NULL) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        snprintf(text, SHOWN, "\"%.60s\"", json_string_value(value));
        break;
    case JSON_INTEGER:
        snprintf(text, SHOWN, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        break;
    case JSON_REAL:
        cgp__print(text, SHOWN, "%g", json_real_value(value));
        break;
    case JSON_TRUE:
        return "true";
    case JSON_FALSE:
        return "false";
    default:
        return value ? "null" : "nothing";
    }
    return text;
}

static cgp_status refuse(const reader *r, const char *place, const char *expected,
                         const json_t *got) {
    char text[SHOWN];
    return cgp_fail(CGP_EFORMAT, "%s: %s: expected %s, got %s", r->path, place, expected,
                    shown(got, text));
}

/* Check that an object has only these keys; `keys` ends with NULL. */
static cgp_status check_keys(const reader *r, const char *place, json_t *object,
                             const char *const *keys) {
    const char *key = NULL;
    json_t *value = NULL;
    if (!json_is_object(object)) return refuse(r, place, "an object", object);
    json_object_foreach(object, key, value) {
        int i = 0;
        while (keys[i] && strcmp(key, keys[i]) != 0)
            i++;
        if (!keys[i])
            return cgp_fail(CGP_EFORMAT,
                            "%s: %s: unknown key \"%.60s\" (of another version of tokenizers?)",
                            r->path, place, key);
    }
    return CGP_OK;
}

/* Get the bool of a key. If the key is missing, use `absent`, or refuse the file if `absent` is
 * -1. */
static cgp_status get_bool(const reader *r, const char *place, const json_t *object,
                           const char *key, int absent, bool *out) {
    char at[PLACE];
    const json_t *value = json_object_get(object, key);
    snprintf(at, sizeof at, "%s.%s", place, key);
    if (value ? !json_is_boolean(value) : absent < 0) return refuse(r, at, "true or false", value);
    *out = value ? json_is_true(value) : absent > 0;
    return CGP_OK;
}

static bool is_null(const json_t *value) {
    return !value || json_is_null(value);
}

static bool is_text(const json_t *value, const char *text) {
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

/* If `is` is false, refuse the value of a key; the message has a suggestion. */
static cgp_status need(const reader *r, bool is, const char *place, const json_t *value,
                       const char *expected, const char *way_out) {
    char text[SHOWN];
    if (is) return CGP_OK;
    return cgp_fail(CGP_EFORMAT, "%s: %s: expected %s, got %s (%s)", r->path, place, expected,
                    shown(value, text), way_out);
}

/* Return the type of a part of the file, borrowed; "" if the part has no type. */
static const char *type_of(const json_t *part) {
    const char *type = json_string_value(json_object_get(part, "type"));
    return type ? type : "";
}

static bool is_type(const json_t *part, const char *type) {
    return strcmp(type_of(part), type) == 0;
}

/* Refuse a part of the file because of its type, which the message names. */
static cgp_status refuse_type(const reader *r, const char *place, const char *expected,
                              const json_t *part) {
    const json_t *type = json_object_get(part, "type");
    return refuse(r, place, expected, type ? type : part);
}

/* --- normalizer --- */

static cgp_status read_normalizer(reader *r, json_t *part) {
    static const char *const keys[] = {"type", NULL};
    if (is_null(part)) return CGP_OK;
    if (!is_type(part, "NFC"))
        return refuse_type(r, "normalizer", "null or NFC (GPT-2, Llama 3, Qwen2)", part);
    r->parts->nfc = true;
    return check_keys(r, "normalizer", part, keys);
}

/* --- pre_tokenizer --- */

static cgp_status read_byte_level(const reader *r, const char *place, json_t *part,
                                  bool *prefix_space, bool *regex) {
    static const char *const keys[] = {"type", "add_prefix_space", "trim_offsets", "use_regex",
                                       NULL};
    bool offsets = false;
    CGP_TRY(check_keys(r, place, part, keys));
    CGP_TRY(get_bool(r, place, part, "trim_offsets", true, &offsets)); /* no effect on ids */
    CGP_TRY(get_bool(r, place, part, "add_prefix_space", -1, prefix_space));
    return get_bool(r, place, part, "use_regex", true, regex);
}

static cgp_status read_split(reader *r, json_t *part) {
    static const char place[] = "pre_tokenizer.pretokenizers[0]";
    static const char *const keys[] = {"type", "pattern", "behavior", "invert", NULL};
    static const char *const pattern_keys[] = {"Regex", NULL};
    bool invert = false;
    json_t *pattern = json_object_get(part, "pattern");
    if (!is_type(part, "Split"))
        return refuse_type(r, place, "Split, by a regular expression, before ByteLevel", part);
    CGP_TRY(check_keys(r, place, part, keys));
    CGP_TRY(check_keys(r, "pre_tokenizer.pretokenizers[0].pattern", pattern, pattern_keys));
    CGP_TRY(get_bool(r, place, part, "invert", -1, &invert));
    const json_t *behavior = json_object_get(part, "behavior");
    const char *how = json_string_value(behavior);
    if (!how || strcmp(how, "Isolated") != 0)
        return refuse(r, "pre_tokenizer.pretokenizers[0].behavior", "Isolated", behavior);
    if (invert) return refuse(r, "pre_tokenizer.pretokenizers[0].invert", "false", json_true());
    const json_t *regex = json_object_get(pattern, "Regex");
    if (json_is_string(regex) && cgp__pattern_find(json_string_value(regex), &r->parts->pattern))
        return CGP_OK;
    return refuse(r, "pre_tokenizer.pretokenizers[0].pattern.Regex",
                  "the pattern of GPT-2, Llama 3 or Qwen2, to the letter", regex);
}

static cgp_status read_sequence(reader *r, json_t *part) {
    static const char place[] = "pre_tokenizer.pretokenizers[1]";
    static const char *const keys[] = {"type", "pretokenizers", NULL};
    json_t *list = json_object_get(part, "pretokenizers");
    bool regex = false, prefix_space = false;
    CGP_TRY(check_keys(r, "pre_tokenizer", part, keys));
    if (json_array_size(list) != 2)
        return refuse(r, "pre_tokenizer.pretokenizers", "a list of Split and ByteLevel", list);
    CGP_TRY(read_split(r, json_array_get(list, 0)));
    part = json_array_get(list, 1);
    if (!is_type(part, "ByteLevel")) return refuse_type(r, place, "ByteLevel behind Split", part);
    CGP_TRY(read_byte_level(r, place, part, &prefix_space, &regex));
    if (regex)
        return refuse(r, "pre_tokenizer.pretokenizers[1].use_regex", "false behind Split",
                      json_true());
    if (!prefix_space) return CGP_OK;
    return refuse(r, "pre_tokenizer.pretokenizers[1].add_prefix_space", "false behind Split",
                  json_true());
}

static cgp_status read_pre_tokenizer(reader *r, json_t *part) {
    bool regex = false;
    if (is_type(part, "Sequence")) return read_sequence(r, part);
    if (!is_type(part, "ByteLevel"))
        return refuse_type(
            r, "pre_tokenizer",
            "ByteLevel, alone or behind Split (SentencePiece's Metaspace and others are not "
            "supported)",
            part);
    CGP_TRY(read_byte_level(r, "pre_tokenizer", part, &r->parts->prefix_space, &regex));
    r->parts->pattern = regex ? CGP__PATTERN_GPT2 : CGP__PATTERN_NONE;
    return CGP_OK;
}

/* --- model --- */

static cgp_status check_model(reader *r, json_t *model) {
    static const char *const keys[] = {"type",
                                       "dropout",
                                       "unk_token",
                                       "continuing_subword_prefix",
                                       "end_of_word_suffix",
                                       "fuse_unk",
                                       "byte_fallback",
                                       "ignore_merges",
                                       "vocab",
                                       "merges",
                                       NULL};
    bool unused = false;
    const json_t *type = json_object_get(model, "type");
    /* Files that were written by versions of tokenizers before 0.10, such as the file of GPT-2,
     * have no type key. */
    if (type ? !is_type(model, "BPE") : !json_object_get(model, "merges"))
        return refuse_type(r, "model",
                           "BPE (SentencePiece's Unigram, WordPiece and WordLevel are not "
                           "supported)",
                           model);
    CGP_TRY(check_keys(r, "model", model, keys));
    const json_t *dropout = json_object_get(model, "dropout");
    const json_t *prefix = json_object_get(model, "continuing_subword_prefix");
    const json_t *suffix = json_object_get(model, "end_of_word_suffix");
    const json_t *fallback = json_object_get(model, "byte_fallback");
    const json_t *unknown = json_object_get(model, "unk_token");
    CGP_TRY(need(r,
                 is_null(dropout) || (json_is_number(dropout) && json_number_value(dropout) == 0),
                 "model.dropout", dropout, "null", "it is for training tokenizers; remove it"));
    CGP_TRY(need(r, is_null(prefix) || is_text(prefix, ""), "model.continuing_subword_prefix",
                 prefix, "null", "only byte-level BPE is supported"));
    CGP_TRY(need(r, is_null(suffix) || is_text(suffix, ""), "model.end_of_word_suffix", suffix,
                 "null", "only byte-level BPE is supported"));
    CGP_TRY(need(r, is_null(fallback) || json_is_false(fallback), "model.byte_fallback", fallback,
                 "false", "it is SentencePiece's, which is not supported"));
    CGP_TRY(need(r, is_null(unknown) || json_is_string(unknown), "model.unk_token", unknown,
                 "null or a token", "damaged"));
    /* This key has no effect: every byte has a token, so no token is unknown. */
    CGP_TRY(get_bool(r, "model", model, "fuse_unk", false, &unused));
    return get_bool(r, "model", model, "ignore_merges", false, &r->parts->ignore_merges);
}

static cgp_status take_vocab(reader *r) {
    const cgp__vocab_source source = {.tokens = r->tokens,
                                      .path = r->path,
                                      .added = r->texts,
                                      .n_added = r->parts->added.n,
                                      .n_new = r->n_new,
                                      .index = r->parts->ignore_merges};
    return cgp__vocab_take_tokens(&r->parts->vocab, &source);
}

/* Write a merge as "left right" to `row`. Return false if the JSON is no merge or does not fit into
 * `row`. */
static bool write_row(const json_t *merge, char row[CGP__MERGE_BYTES], bool *is_version) {
    const char *left = json_string_value(merge), *right = NULL;
    *is_version = left && cgp__merge_is_version(left);
    if (json_is_array(merge) && json_array_size(merge) == 2) {
        left = json_string_value(json_array_get(merge, 0));
        right = json_string_value(json_array_get(merge, 1));
        if (!left || !right) return false;
    } else if (!left) {
        return false;
    }
    const int length = right ? snprintf(row, CGP__MERGE_BYTES, "%s %s", left, right)
                             : snprintf(row, CGP__MERGE_BYTES, "%s", left);
    return length < CGP__MERGE_BYTES;
}

static cgp_status take_merges(reader *r, const json_t *list) {
    char row[CGP__MERGE_BYTES];
    bool is_version = false;
    cgp__merges m = {.path = r->path, .unit = "merge", .number = 1, .tokens = r->tokens};
    if (!json_is_array(list)) return refuse(r, "model.merges", "a list", list);
    CGP_TRY(cgp__vocab_make_slots(&r->parts->vocab, (int64_t)json_array_size(list), r->path));
    for (size_t i = 0; i < json_array_size(list); i++, m.number++) {
        char place[PLACE];
        const json_t *merge = json_array_get(list, i);
        snprintf(place, sizeof place, "model.merges[%zu]", i);
        if (!write_row(merge, row, &is_version))
            return refuse(r, place,
                          "\"left right\" or [\"left\", \"right\"], of at most 4094 bytes", merge);
        if (!is_version) CGP_TRY(cgp__vocab_take_merge(&r->parts->vocab, &m, row));
    }
    return CGP_OK;
}

/* --- added_tokens --- */

/* Copy the content of an added token. Also make the text to find, which is the content, converted
 * to NFC if the token is normalized. */
static cgp_status take_content(reader *r, cgp__added_token *token, const char *content) {
    const uint8_t *text = (const uint8_t *)content;
    int64_t size = (int64_t)strlen(content);
    if (token->normalized && r->parts->nfc)
        CGP_TRY(cgp__nfc_normalize(&r->nfc, &r->parts->unicode, text, size, &text, &size));
    token->content = cgp__strdup(content);
    token->text = cgp__calloc((size_t)size + 1, 1);
    if (!token->content || !token->text) return cgp__no_memory(r->path, (size_t)size + 1);
    memcpy(token->text, text, (size_t)size);
    token->size = size;
    return CGP_OK;
}

/* Check the id of an added token. The id must be the token's id in the model or, if the token is
 * new, the next free id. The library tokenizers assigns these ids, whatever ids the file has. */
static cgp_status check_id(reader *r, const char *content, const json_t *id) {
    const json_t *own = json_object_get(r->tokens, content);
    const int64_t expected = own ? json_integer_value(own) : (int64_t)r->n_vocab + r->n_new;
    if (json_is_integer(id) && json_integer_value(id) == expected) {
        r->n_new += !own;
        return CGP_OK;
    }
    char text[SHOWN];
    return cgp_fail(CGP_EFORMAT,
                    "%s: added token \"%.60s\": expected the id %" PRId64
                    ", which tokenizers gives it, got %s (save the file with tokenizers)",
                    r->path, content, expected, shown(id, text));
}

static cgp_status take_added(reader *r, size_t i, json_t *entry) {
    static const char *const keys[] = {"id",     "content",    "single_word", "lstrip",
                                       "rstrip", "normalized", "special",     NULL};
    char place[PLACE];
    bool special = false; /* not used, because decoding in this library never skips special
                           * tokens */
    snprintf(place, sizeof place, "added_tokens[%zu]", i);
    CGP_TRY(check_keys(r, place, entry, keys));
    const char *content = json_string_value(json_object_get(entry, "content"));
    const json_t *id = json_object_get(entry, "id");
    if (!content || !*content || strlen(content) > CONTENT_BYTES)
        return refuse(r, place, "a content of 1 to 4096 bytes", json_object_get(entry, "content"));
    cgp__added_token *token = &r->parts->added.tokens[r->parts->added.n++];
    CGP_TRY(get_bool(r, place, entry, "single_word", -1, &token->single_word));
    CGP_TRY(get_bool(r, place, entry, "lstrip", -1, &token->lstrip));
    CGP_TRY(get_bool(r, place, entry, "rstrip", -1, &token->rstrip));
    CGP_TRY(get_bool(r, place, entry, "normalized", -1, &token->normalized));
    CGP_TRY(get_bool(r, place, entry, "special", -1, &special));
    CGP_TRY(check_id(r, content, id));
    token->id = (int32_t)json_integer_value(id);
    return take_content(r, token, content);
}

static cgp_status read_added(reader *r, json_t *list) {
    cgp__added *added = &r->parts->added;
    const cgp__added_token *a = NULL, *b = NULL;
    const size_t n = json_array_size(list);
    if (!json_is_array(list)) return refuse(r, "added_tokens", "a list", list);
    if (n > (size_t)(INT32_MAX - 1 - r->n_vocab))
        return cgp_fail(CGP_EFORMAT, "%s: added_tokens: expected at most %d tokens, got %zu",
                        r->path, INT32_MAX - 1 - r->n_vocab, n);
    added->tokens = cgp__calloc(n + 1, sizeof *added->tokens);
    r->texts = cgp__calloc(n + 1, sizeof *r->texts);
    if (!added->tokens || !r->texts)
        return cgp__no_memory(r->path, (n + 1) * sizeof *added->tokens);
    for (size_t i = 0; i < n; i++)
        CGP_TRY(take_added(r, i, json_array_get(list, i)));
    if (!cgp__added_sort(added, &a, &b))
        return cgp_fail(
            CGP_EFORMAT, "%s: added tokens \"%.60s\" and \"%.60s\": expected different texts%s",
            r->path, a->content, b->content, a->normalized ? ", by the normalizer too" : "");
    for (int32_t i = 0; i < added->n; i++)
        r->texts[i] = (cgp__vocab_text){(const char *)added->tokens[i].text, added->tokens[i].id};
    return CGP_OK;
}

/* --- post_processor --- */

/* Append the ids of a template's special token to a list. */
static cgp_status append_special(const reader *r, const char *name, const json_t *special,
                                 int32_t **list, int64_t *n) {
    char place[PLACE];
    const json_t *ids = json_object_get(json_object_get(special, name), "ids");
    const int64_t more = (int64_t)json_array_size(ids);
    snprintf(place, sizeof place, "post_processor.special_tokens[\"%.40s\"].ids", name);
    if (!json_is_array(ids)) return refuse(r, place, "a list of ids", ids);
    int32_t *longer = cgp__calloc((size_t)(*n + more) + 1, sizeof *longer);
    if (!longer) return cgp__no_memory(r->path, (size_t)(*n + more + 1) * sizeof *longer);
    if (*n > 0) memcpy(longer, *list, (size_t)*n * sizeof *longer);
    free(*list);
    *list = longer;
    for (int64_t i = 0; i < more; i++) {
        const json_t *id = json_array_get(ids, (size_t)i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) >= r->parts->vocab.size)
            return refuse(r, place, "ids of the vocabulary", id);
        longer[(*n)++] = (int32_t)json_integer_value(id);
    }
    return CGP_OK;
}

/* Read the template "single". It is a list: special tokens, then the text ("A"), then special
 * tokens. The template "pair" is for two texts and is not used. */
static cgp_status read_template(reader *r, json_t *part) {
    static const char *const keys[] = {"type", "single", "pair", "special_tokens", NULL};
    cgp__tokenizer_parts *p = r->parts;
    const json_t *single = json_object_get(part, "single");
    bool behind = false;
    CGP_TRY(check_keys(r, "post_processor", part, keys));
    for (size_t i = 0; i < json_array_size(single); i++) {
        char place[PLACE];
        const json_t *piece = json_array_get(single, i);
        const json_t *sequence = json_object_get(piece, "Sequence");
        const char *name = json_string_value(
            json_object_get(sequence ? sequence : json_object_get(piece, "SpecialToken"), "id"));
        snprintf(place, sizeof place, "post_processor.single[%zu]", i);
        if (!name || (sequence && (behind || strcmp(name, "A") != 0)))
            return refuse(r, place, "a SpecialToken, or once the Sequence A", piece);
        behind = behind || sequence;
        if (sequence) continue;
        CGP_TRY(append_special(r, name, json_object_get(part, "special_tokens"),
                               behind ? &p->suffix : &p->prefix,
                               behind ? &p->n_suffix : &p->n_prefix));
    }
    if (behind) return CGP_OK;
    return refuse(r, "post_processor.single", "a list with the Sequence A", single);
}

static cgp_status read_processor(reader *r, json_t *part, const char *place) {
    bool prefix_space = false, regex = false;
    if (is_type(part, "TemplateProcessing")) {
        if (r->parts->prefix || r->parts->suffix)
            return refuse_type(r, place, "one TemplateProcessing", part);
        return read_template(r, part);
    }
    if (is_type(part, "ByteLevel")) /* changes only the offsets of tokens, not the ids */
        return read_byte_level(r, place, part, &prefix_space, &regex);
    return refuse_type(r, place, "null, ByteLevel, TemplateProcessing or a Sequence of these",
                       part);
}

static cgp_status read_post_processor(reader *r, json_t *part) {
    static const char *const keys[] = {"type", "processors", NULL};
    const json_t *list = json_object_get(part, "processors");
    if (is_null(part)) return CGP_OK;
    if (!is_type(part, "Sequence")) return read_processor(r, part, "post_processor");
    CGP_TRY(check_keys(r, "post_processor", part, keys));
    if (!json_is_array(list)) return refuse(r, "post_processor.processors", "a list", list);
    for (size_t i = 0; i < json_array_size(list); i++) {
        char place[PLACE];
        snprintf(place, sizeof place, "post_processor.processors[%zu]", i);
        CGP_TRY(read_processor(r, json_array_get(list, i), place));
    }
    return CGP_OK;
}

/* --- all --- */

static cgp_status read_decoder(const reader *r, json_t *part) {
    bool prefix_space = false, regex = false;
    if (!is_type(part, "ByteLevel")) return refuse_type(r, "decoder", "ByteLevel", part);
    /* The keys of a decoder change only encoding, so their values are not used. */
    return read_byte_level(r, "decoder", part, &prefix_space, &regex);
}

/* Return the id of the token that ends a document. It has one name in GPT-2 and Qwen2, and another
 * in Llama 3. */
static int32_t end_of_text(const cgp__added *added) {
    static const char *const names[] = {"<|endoftext|>", "<|end_of_text|>"};
    for (int i = 0; i < 2; i++) {
        const cgp__added_token *token = cgp__added_find(added, names[i]);
        if (token) return token->id;
    }
    return -1;
}

/* Warn of a setting for batches of texts. It does not change the tokens that a text has before its
 * end is cut off or filled up. */
static cgp_status warn_ignored(const reader *r, const char *key, const json_t *value) {
    if (is_null(value)) return CGP_OK;
    if (!json_is_object(value)) return refuse(r, key, "null or an object", value);
    cgp_log(CGP_LOG_WARN, "tokenizer", "%s: %s is ignored: a text gets all of its tokens", r->path,
            key);
    return CGP_OK;
}

static cgp_status read_root(reader *r, json_t *root) {
    static const char *const keys[] = {
        "version",       "truncation",     "padding", "added_tokens", "normalizer",
        "pre_tokenizer", "post_processor", "decoder", "model",        NULL};
    json_t *model = json_object_get(root, "model"), *added = json_object_get(root, "added_tokens");
    if (!json_is_object(model))
        return refuse(r, "model", "an object (is it a tokenizer.json?)", model);
    CGP_TRY(check_keys(r, "the file", root, keys));
    const json_t *version = json_object_get(root, "version");
    CGP_TRY(need(r, is_null(version) || is_text(version, "1.0"), "version", version, "1.0",
                 "of another version of tokenizers"));
    CGP_TRY(check_model(r, model));
    CGP_TRY(warn_ignored(r, "truncation", json_object_get(root, "truncation")));
    CGP_TRY(warn_ignored(r, "padding", json_object_get(root, "padding")));
    CGP_TRY(read_normalizer(r, json_object_get(root, "normalizer")));
    CGP_TRY(read_pre_tokenizer(r, json_object_get(root, "pre_tokenizer")));
    CGP_TRY(read_decoder(r, json_object_get(root, "decoder")));
    r->tokens = json_object_get(model, "vocab");
    if (!json_is_object(r->tokens))
        return refuse(r, "model.vocab", "an object from tokens to ids", r->tokens);
    const size_t n = json_object_size(r->tokens);
    if (n > INT32_MAX - 1)
        return cgp_fail(CGP_EFORMAT, "%s: expected at most %d tokens, got %zu", r->path,
                        INT32_MAX - 1, n);
    r->n_vocab = (int32_t)n;
    if (added) CGP_TRY(read_added(r, added));
    CGP_TRY(take_vocab(r));
    CGP_TRY(take_merges(r, json_object_get(model, "merges")));
    r->parts->vocab.end_of_text = end_of_text(&r->parts->added);
    return read_post_processor(r, json_object_get(root, "post_processor"));
}

cgp_status cgp__tokenizer_json_read(cgp__tokenizer_parts *parts, const char *path) {
    reader r = {.path = path, .parts = parts};
    json_t *root = NULL;
    cgp_status status = cgp__vocab_load_json(&root, path, "a tokenizer (tokenizer.json)");
    if (status == CGP_OK) status = read_root(&r, root);
    free(r.texts);
    cgp__nfc_release(&r.nfc);
    json_decref(root);
    return status;
}

void cgp__tokenizer_parts_release(cgp__tokenizer_parts *p) {
    free(p->prefix);
    free(p->suffix);
    cgp__vocab_release(&p->vocab);
    cgp__added_release(&p->added);
    cgp__unicode_release(&p->unicode);
}
