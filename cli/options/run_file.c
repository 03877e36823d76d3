/* SPDX-License-Identifier: Apache-2.0 */
/* run_file.c -- see run_file.h. A file is read into a separate set of options, which inherit.c then
 * merges. */
#include "options/run_file.h"

#include "files.h"
#include "options/inherit.h"
#include "options/json.h"
#include "options/near.h"
#include "options/resolve.h"
#include "options/table.h"
#include "options/values.h"
#include "text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <yaml.h>

#define MAX_BYTES (1 << 20)
#define MODEL "model"

/* --- reading --- */

typedef struct reader {
    yaml_parser_t parser;
    yaml_event_t event;
    size_t bytes; /* size of the file */
    size_t line;  /* current line, from 1 */
    cli_run_options file;
} reader;

static cgp_status expected(const char *what) {
    return cgp_fail(CGP_EINVAL, "expected %s", what);
}

static cgp_status not_yaml(reader *r) {
    const yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR) return cgp_fail(CGP_ENOMEM, "out of memory");
    r->line = p->problem_mark.line + 1;
    /* Find the line of an invalid byte in this function, because the parser reads ahead and
     * therefore does not report the right line. */
    for (size_t i = 0; p->error == YAML_READER_ERROR && i < p->problem_offset; i++)
        r->line += p->input.string.start[i] == '\n';
    return cgp_fail(CGP_EINVAL, "%s", p->problem);
}

/* Read the next event. Refuse aliases, anchors and tags. Options do not need them, and aliases may
 * expand 1 KB of YAML to gigabytes. */
static cgp_status next(reader *r) {
    yaml_event_delete(&r->event);
    if (!yaml_parser_parse(&r->parser, &r->event)) return not_yaml(r);
    const yaml_event_t *e = &r->event;
    const bool scalar = e->type == YAML_SCALAR_EVENT;
    const bool list = e->type == YAML_SEQUENCE_START_EVENT;
    r->line = e->start_mark.line + 1;
    if (e->type == YAML_ALIAS_EVENT || (scalar && e->data.scalar.anchor) ||
        (list && e->data.sequence_start.anchor))
        return expected("no anchor and no alias (write the value out)");
    if ((scalar && e->data.scalar.tag) || (list && e->data.sequence_start.tag))
        return expected("no tag (write the value alone)");
    if (scalar && strlen((const char *)e->data.scalar.value) != e->data.scalar.length)
        return expected("text without NUL");
    return CGP_OK;
}

static const char *text_of(const reader *r) {
    return (const char *)r->event.data.scalar.value;
}

/* Tell whether an unquoted text means null in YAML. */
static bool says_nothing(const char *text) {
    return !*text || strcmp(text, "~") == 0 || strcasecmp(text, "null") == 0;
}

/* Return the name of the first command in a set of bits. */
static const char *command_of(unsigned commands) {
    static const char *const names[] = {"train",   "sample", "plan",     "bench",  "schedule",
                                        "profile", "check",  "tokenize", "convert"};
    size_t i = 0;
    while (i < sizeof names / sizeof names[0] - 1 && !(commands & 1U << i))
        i++;
    return names[i];
}

/* Find the option that a key names. */
static cgp_status find_option(const char *key, int *id) {
    for (*id = 0; *id < CLI_OPTION_COUNT && strcmp(cli_options[*id].name, key) != 0;)
        ++*id;
    if (*id < CLI_OPTION_COUNT && cli_options[*id].flags & CLI_TYPED)
        return cgp_fail(CGP_EINVAL, "%s: applies to one start only (give --%s on the command line)",
                        key, key);
    if (*id == CLI_OPTION_MODEL) return CGP_OK;
    if (*id < CLI_OPTION_COUNT && cli_option_taken(*id, CLI_TRAIN)) return CGP_OK;
    if (*id < CLI_OPTION_COUNT)
        return cgp_fail(CGP_EINVAL,
                        "%s: is an option of cgpipe %s, expected one of cgpipe train (leave it "
                        "out)",
                        key, command_of(cli_options[*id].commands));
    const char *near = cli_option_nearest(key + strspn(key, "-"), CLI_TRAIN);
    if (near && strncmp(near, "config", 6) == 0)
        return cgp_fail(CGP_EINVAL, "%s: unknown option (give --%s on the command line)", key,
                        near);
    return cgp_fail(CGP_EINVAL, "%s: unknown option%s%s%s", key, near ? " (did you mean " : "",
                    near ? near : "", near ? "?)" : "");
}

/* Return a copy of the event's text. It is valid until the options are freed. */
static const char *keep_text(reader *r) {
    return cli_run_options_keep(&r->file, cli_text("%s", text_of(r)));
}

/* Flags are true or false without quotes. */
static cgp_status read_scalar(reader *r, int id) {
    const char *text = keep_text(r);
    const bool plain = r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    const bool on = strcasecmp(text, "true") == 0;
    if (plain && says_nothing(text))
        return expected("a value (leave the line out, or quote the text)");
    if (cli_options[id].kind == CLI_PATHS) return cli_option_set_list(&r->file, id, &text, 1);
    if (cli_options[id].kind != CLI_FLAG) return cli_option_set(&r->file, id, text);
    if (!plain || (!on && strcasecmp(text, "false") != 0)) return cli_option_misshapen(id, false);
    *(bool *)cli_option_field(&r->file, id) = on;
    return CGP_OK;
}

static cgp_status read_list(reader *r, int id) {
    const size_t line = r->line;
    int count = 0;
    /* A list has at most as many items as the file has bytes. */
    const char **items = cli_run_options_keep(&r->file, cli_calloc(r->bytes, sizeof(const char *)));
    for (;;) {
        CGP_TRY(next(r));
        if (r->event.type == YAML_SEQUENCE_END_EVENT) break;
        if (r->event.type != YAML_SCALAR_EVENT) return expected("a list of single values");
        items[count++] = keep_text(r);
    }
    if (count == 0) return expected("a list of at least one value");
    r->line = line;
    return cli_option_set_list(&r->file, id, items, count);
}

/* Read the value of an option, and set it. */
static cgp_status read_value(reader *r, int id) {
    CGP_TRY(next(r));
    if (r->event.type == YAML_SCALAR_EVENT) return read_scalar(r, id);
    if (r->event.type == YAML_SEQUENCE_START_EVENT) return read_list(r, id);
    return expected("a value or a list, no map");
}

static cgp_status read_options(reader *r) {
    for (;;) {
        int id = 0;
        CGP_TRY(next(r));
        if (r->event.type == YAML_MAPPING_END_EVENT) return CGP_OK;
        if (r->event.type != YAML_SCALAR_EVENT) return expected("the name of an option");
        CGP_TRY(find_option(text_of(r), &id));
        if (r->file.given[id])
            return cgp_fail(CGP_EINVAL, "%s: is there twice (leave out one)", text_of(r));
        r->file.given[id] = true;
        CGP_TRY(read_value(r, id));
    }
}

static cgp_status read_document(reader *r) {
    /* Read three events: the starts of the stream, of the document and of the map. For an empty
     * file, the event after the start of the stream is the end of the stream. */
    for (int i = 0; i < 3; i++) {
        CGP_TRY(next(r));
        if (r->event.type == YAML_STREAM_END_EVENT) break;
    }
    if (r->event.type != YAML_MAPPING_START_EVENT || r->event.data.mapping_start.anchor ||
        r->event.data.mapping_start.tag)
        return expected("options, a line each (lr: 0.001)");
    CGP_TRY(read_options(r));
    CGP_TRY(next(r)); /* read the end of the document */
    CGP_TRY(next(r));
    return r->event.type == YAML_STREAM_END_EVENT ? CGP_OK : expected("one document");
}

/* Take from the file MODEL and those other options that the command line does not give. */
static cgp_status take_over(cli_run_options *options, reader *r) {
    CGP_TRY(cli_take_devices(&r->file));
    if (!options->operand) {
        options->operand = r->file.model;
        options->operand_source = options->config;
    }
    cli_run_options_add(options, &r->file);
    return CGP_OK;
}

static cgp_status read_text(cli_run_options *options, const char *text, size_t size) {
    reader r = {.file.command = CLI_TRAIN, .bytes = size};
    if (!yaml_parser_initialize(&r.parser)) return cgp_fail(CGP_ENOMEM, "out of memory");
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, size);
    cgp_status status = read_document(&r);
    if (status != CGP_OK)
        (void)cgp_fail(status, "%s: line %zu: %s", options->config, r.line, cgp_message());
    else if ((status = take_over(options, &r)) != CGP_OK)
        (void)cgp_fail(status, "%s: %s", options->config, cgp_message());
    yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    cli_run_options_release(&r.file);
    return status;
}

cgp_status cli_run_file_read(cli_run_options *options) {
    const char *path = options->config;
    struct stat info;
    char *text = NULL;
    size_t size = 0;
    if (options->resume)
        return cgp_fail(CGP_EINVAL, "--config: cannot be with --resume, which takes all options "
                                    "from run.json (give the options, or another --run)");
    if (stat(path, &info) != 0) return cgp_fail(CGP_EIO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return cgp_fail(CGP_EIO, "%s: is not a regular file, expected a run file", path);
    if (info.st_size > MAX_BYTES)
        return cgp_fail(CGP_EIO, "%s: expected a run file of at most %d bytes, got %lld", path,
                        MAX_BYTES, (long long)info.st_size);
    CGP_TRY(cli_file_read(path, CLI_LARGEST_FILE, &text, &size));
    const cgp_status status = read_text(options, text, size);
    free(text);
    return status;
}

/* --- writing --- */

/* Add a text, quoted if it has spaces or non-ASCII bytes or would read as null. The add_ functions
 * return 0 if memory runs out. */
static int add_text(yaml_document_t *document, const char *text) {
    bool quoted = says_nothing(text);
    for (const char *c = text; *c; c++)
        quoted = quoted || *c <= ' ' || *c >= 0x7f;
    return yaml_document_add_scalar(document, NULL, (const yaml_char_t *)text, (int)strlen(text),
                                    quoted ? YAML_DOUBLE_QUOTED_SCALAR_STYLE
                                           : YAML_PLAIN_SCALAR_STYLE);
}

static int add_value(yaml_document_t *document, const json_t *value) {
    char number[CLI_NUMBER] = "true";
    if (json_is_string(value)) return add_text(document, json_string_value(value));
    if (json_is_integer(value))
        snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    if (json_is_real(value)) cli_real_text(json_real_value(value), number);
    return add_text(document, number);
}

static int add_list(yaml_document_t *document, const json_t *list) {
    const int node = yaml_document_add_sequence(document, NULL, YAML_FLOW_SEQUENCE_STYLE);
    for (size_t i = 0; node && i < json_array_size(list); i++) {
        const int item = add_value(document, json_array_get(list, i));
        if (!item || !yaml_document_append_sequence_item(document, node, item)) return 0;
    }
    return node;
}

static bool add_pair(yaml_document_t *document, int map, const char *name, const json_t *value) {
    const int key = add_text(document, name);
    const int node = json_is_array(value) ? add_list(document, value) : add_value(document, value);
    return key && node && yaml_document_append_mapping_pair(document, map, key, node);
}

static bool add_options(yaml_document_t *document, const json_t *options) {
    const int map = yaml_document_add_mapping(document, NULL, YAML_BLOCK_MAPPING_STYLE);
    const json_t *model = json_object_get(options, MODEL);
    bool good = map && (!model || add_pair(document, map, MODEL, model));
    for (int id = 0; good && id < CLI_OPTION_COUNT; id++) {
        const json_t *value = cli_option_in(options, id);
        if (value && id != CLI_OPTION_MODEL)
            good = add_pair(document, map, cli_options[id].name, value);
    }
    return good;
}

cgp_status cli_run_file_write(FILE *out, const json_t *options) {
    yaml_emitter_t emitter;
    yaml_document_t document;
    if (!yaml_document_initialize(&document, NULL, NULL, NULL, 1, 1) ||
        !yaml_emitter_initialize(&emitter))
        return cgp_fail(CGP_ENOMEM, "out of memory");
    yaml_emitter_set_output_file(&emitter, out);
    yaml_emitter_set_width(&emitter, -1);
    const bool good = add_options(&document, options) && yaml_emitter_dump(&emitter, &document) &&
                      yaml_emitter_close(&emitter);
    yaml_document_delete(&document);
    yaml_emitter_delete(&emitter);
    return good ? CGP_OK : cgp_fail(CGP_EIO, "run file: cannot be written");
}
