/* options.c -- the table of options and what is read from it: parsing, help, JSON. */
#include "options.h"

#include "common.h"

#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* FLAG has no argument, COUNT starts from 1 and WHOLE from 0, SHARE is below 1. */
typedef enum kind { FLAG, TEXT, COUNT, WHOLE, BYTES, REAL, SHARE, COUNTS, NAMES, PATHS } kind;

#define MOST_WHOLE ((int64_t)1 << 53) /* exact in double, and in every reader of JSON */

static const char *const expected[] = {
    [TEXT] = "at least one character",
    [COUNT] = "a whole number >= 1",
    [WHOLE] = "a whole number >= 0",
    [BYTES] = "a whole number >= 1, with or without K, M or G",
    [REAL] = "a number >= 0",
    [SHARE] = "a number >= 0 and < 1",
    [COUNTS] = "whole numbers >= 1 with commas between",
    [NAMES] = "names with commas between",
};

typedef struct option_entry {
    const char *name, *argument;
    kind kind;
    size_t offset; /* in cli_settings */
    unsigned commands;
    bool reported;      /* in the JSON of train, bench and plan */
    const char *preset; /* parsed like an argument; NULL: none */
    const char *help;
} option_entry;

#define AT(field) offsetof(cli_settings, field)
#define PLANNED (CLI_TRAIN | CLI_PLAN | CLI_BENCH)
#define SAMPLING (CLI_TRAIN | CLI_SAMPLE)
#define ALL (PLANNED | CLI_SAMPLE | CLI_SCHEDULE)

/* clang-format off */
static const option_entry table[CLI_OPTION_COUNT] = {
    [CLI_OPTION_DATA] = {"data", "PATH...", PATHS, AT(data), CLI_TRAIN, false,
        NULL, "text files, read as bytes, or \"random\" for random tokens"},
    [CLI_OPTION_RUN] = {"run", "DIR", TEXT, AT(run), CLI_TRAIN, false,
        "run", "folder for weights, metrics and settings; made if missing"},
    [CLI_OPTION_OVERWRITE] = {"overwrite", NULL, FLAG, AT(overwrite), CLI_TRAIN, false,
        NULL, "replace the weights that the folder has"},
    [CLI_OPTION_VALIDATION] = {"validation", "SHARE", SHARE, AT(validation), CLI_TRAIN, false,
        "0.1", "share of the text kept for validation"},
    [CLI_OPTION_INTERVAL] = {"interval", "N", COUNT, AT(interval), CLI_TRAIN, false,
        NULL, "steps from one progress line to the next [steps / 20]"},
    [CLI_OPTION_MODEL] = {"model", "MODEL", TEXT, AT(model), CLI_BENCH, false,
        NULL, "another size than the experiment's"},
    [CLI_OPTION_GRID] = {"grid", NULL, FLAG, AT(grid), CLI_BENCH, false,
        NULL, "all of K 1 2 4, M 1 2 4 .. 64, never and except_last"},
    [CLI_OPTION_PLAN_ONLY] = {"plan-only", NULL, FLAG, AT(plan_only), CLI_BENCH, false,
        NULL, "memory only: nothing runs"},
    [CLI_OPTION_STAGES] = {"stages", "K", COUNT, AT(stages), PLANNED | CLI_SCHEDULE, true,
        "1", "stages of the pipeline, one device each"},
    [CLI_OPTION_BALANCE] = {"balance", "5,3,3,5", COUNTS, AT(balance), PLANNED, false,
        NULL, "layers of each stage [dearest stage as cheap as can be]"},
    [CLI_OPTION_CHUNKS] = {"chunks", "M", COUNT, AT(chunks), PLANNED | CLI_SCHEDULE, true,
        NULL, "micro-batches of a mini-batch [8, at most the batch]"},
    [CLI_OPTION_SCHEDULE] = {"schedule", "S", TEXT, AT(schedule), PLANNED, true,
        "1f1b", "gpipe or 1f1b"},
    [CLI_OPTION_RECOMPUTE] = {"recompute", "R", TEXT, AT(recompute), PLANNED | CLI_SCHEDULE,
        true, "never", "never, always or except_last"},
    [CLI_OPTION_BATCH] = {"batch", "B", COUNT, AT(batch), PLANNED, true,
        "32", "samples of a mini-batch"},
    [CLI_OPTION_STEPS] = {"steps", "N", COUNT, AT(steps), PLANNED, true,
        "300", "updates"},
    [CLI_OPTION_SEED] = {"seed", "N", WHOLE, AT(seed), PLANNED | CLI_SAMPLE, true,
        "0", "of weights, dropout, data and sampling"},
    [CLI_OPTION_DROPOUT] = {"dropout", "P", SHARE, AT(dropout), PLANNED, true,
        "0", "share of elements dropped in training"},
    [CLI_OPTION_OPTIMIZER] = {"optimizer", "O", TEXT, AT(optimizer), PLANNED, true,
        "adamw", "sgd or adamw"},
    [CLI_OPTION_RATE] = {"rate", "X", REAL, AT(rate), PLANNED, true,
        NULL, "learning rate [adamw 0.001, sgd 0.01]"},
    [CLI_OPTION_MOMENTUM] = {"momentum", "X", SHARE, AT(momentum), PLANNED, true,
        NULL, "of sgd [0.9]"},
    [CLI_OPTION_NESTEROV] = {"nesterov", NULL, FLAG, AT(nesterov), PLANNED, true,
        NULL, "Nesterov's form of momentum [bench: on]"},
    [CLI_OPTION_WEIGHT_DECAY] = {"weight-decay", "X", REAL, AT(weight_decay), PLANNED, true,
        NULL, "share of a weight taken off [adamw 0.01, sgd 0.0001]"},
    [CLI_OPTION_DEVICES] = {"devices", "LIST", NAMES, AT(devices), PLANNED, false,
        NULL, "cpu or ref, one for all or one a stage [cpu]"},
    [CLI_OPTION_THREADS_PER_DEVICE] = {"threads-per-device", "T", COUNT, AT(threads_per_device),
        PLANNED | CLI_SAMPLE, true, "1", "threads of each device"},
    [CLI_OPTION_DEVICE_MEMORY] = {"device-memory", "BYTES", BYTES, AT(device_memory), PLANNED,
        false, NULL, "most that a device may take; K, M, G for KiB .. [no limit]"},
    [CLI_OPTION_SAMPLE] = {"sample", "N", WHOLE, AT(sample), CLI_TRAIN, false,
        NULL, "characters to sample at the end [0]"},
    [CLI_OPTION_WEIGHTS] = {"weights", "FILE", TEXT, AT(weights), CLI_SAMPLE, false,
        NULL, "weights to use [RUN/weights.safetensors]"},
    [CLI_OPTION_LENGTH] = {"length", "N", WHOLE, AT(length), CLI_SAMPLE, false,
        "200", "characters to sample"},
    [CLI_OPTION_PROMPT] = {"prompt", "TEXT", TEXT, AT(prompt), SAMPLING, false,
        "\n", "text to go on from; not repeated [a line break]"},
    [CLI_OPTION_TEMPERATURE] = {"temperature", "X", REAL, AT(temperature), SAMPLING, false,
        "0.8", "0 takes the likeliest, 1 samples as trained"},
    [CLI_OPTION_TOP_K] = {"top-k", "K", COUNT, AT(top_k), SAMPLING, false,
        NULL, "sample among the K likeliest [all]"},
    [CLI_OPTION_COST_F] = {"cost-f", "X", REAL, AT(cost_f), CLI_SCHEDULE, false,
        "1", "time of F, forward"},
    [CLI_OPTION_COST_I] = {"cost-i", "X", REAL, AT(cost_i), CLI_SCHEDULE, false,
        "1", "time of I, input gradient; B takes I + W"},
    [CLI_OPTION_COST_W] = {"cost-w", "X", REAL, AT(cost_w), CLI_SCHEDULE, false,
        "1", "time of W, weight gradient"},
    [CLI_OPTION_LATENCY] = {"latency", "X", REAL, AT(latency), CLI_SCHEDULE, false,
        "0", "time of a transfer"},
    [CLI_OPTION_JSON] = {"json", "FILE", TEXT, AT(json), PLANNED | CLI_SCHEDULE, false,
        NULL, "write the results as JSON; - is standard output"},
    [CLI_OPTION_HELP] = {"help", NULL, FLAG, AT(help), ALL, false,
        NULL, "this text"},
};
/* clang-format on */

/* Defaults that a command has of its own. */
static const struct {
    unsigned command;
    cli_option_id option;
    const char *preset;
} own_presets[] = {
    {CLI_BENCH, CLI_OPTION_SCHEDULE, "gpipe"}, {CLI_BENCH, CLI_OPTION_BATCH, "64"},
    {CLI_BENCH, CLI_OPTION_STEPS, "10"},       {CLI_BENCH, CLI_OPTION_DROPOUT, "0.1"},
    {CLI_BENCH, CLI_OPTION_OPTIMIZER, "sgd"},  {CLI_SCHEDULE, CLI_OPTION_STAGES, "4"},
};

static const char *preset_of(unsigned command, int id) {
    for (size_t i = 0; i < sizeof own_presets / sizeof own_presets[0]; i++) {
        if (own_presets[i].command == command && (int)own_presets[i].option == id)
            return own_presets[i].preset;
    }
    return table[id].preset;
}

static bool taken_by(int id, unsigned command) {
    return (table[id].commands & command) != 0;
}

bool cli_given(const cli_settings *settings, cli_option_id id) {
    return (settings->given >> id & 1) != 0;
}

/* --- values --- */

static void *field(cli_settings *settings, int id) {
    return (char *)settings + table[id].offset;
}

static const void *field_of(const cli_settings *settings, int id) {
    return (const char *)settings + table[id].offset;
}

static cgp_status unexpected(int id, const char *text) {
    const kind k = table[id].kind;
    if ((k == COUNT || k == WHOLE) && strlen(text) > 9 && !text[strspn(text, "0123456789")])
        return cgp_fail(CGP_EINVAL, "--%s %s: expected at most %lld", table[id].name, text,
                        k == COUNT ? (long long)INT_MAX : (long long)MOST_WHOLE);
    return cgp_fail(CGP_EINVAL, "--%s %s: expected %s, got \"%s\"", table[id].name, text,
                    expected[k], text);
}

/* Keep memory until cli_settings_release(). */
static void *own(cli_settings *settings, void *memory) {
    if (settings->n_owned == CLI_OWNED) abort(); /* each option owns at most two */
    settings->owned[settings->n_owned++] = memory;
    return memory;
}

static int count_items(const char *text) {
    int count = 1;
    for (const char *c = text; *c; c++)
        count += *c == ',';
    return count;
}

/* Cut a copy of `text` at its commas. */
static char **split(cli_settings *settings, const char *text, int count) {
    char *copy = own(settings, cli_calloc(strlen(text) + 1, 1));
    char **items = own(settings, cli_calloc((size_t)count, sizeof *items));
    strcpy(copy, text);
    for (int i = 0; i < count; i++) {
        items[i] = copy;
        copy += strcspn(copy, ",");
        *copy++ = '\0';
    }
    return items;
}

static cgp_status parse_list(cli_settings *settings, int id, const char *text) {
    if (settings->n_owned + 3 > CLI_OWNED)
        return cgp_fail(CGP_EINVAL, "--%s: is given too often", table[id].name);
    const int count = count_items(text);
    char **items = split(settings, text, count);
    for (int i = 0; i < count; i++) {
        if (!*items[i]) return unexpected(id, text);
    }
    if (table[id].kind == NAMES) {
        *(cli_names *)field(settings, id) = (cli_names){(const char *const *)items, count};
        return CGP_OK;
    }
    int *values = own(settings, cli_calloc((size_t)count, sizeof *values));
    for (int i = 0; i < count; i++) {
        int64_t value = 0;
        if (!cli_parse_whole(items[i], 1, INT_MAX, &value)) return unexpected(id, text);
        values[i] = (int)value;
    }
    *(cli_counts *)field(settings, id) = (cli_counts){values, count};
    return CGP_OK;
}

static cgp_status set_value(cli_settings *settings, int id, const char *text) {
    void *value = field(settings, id);
    bool good = true;
    switch (table[id].kind) {
    case FLAG:
        *(bool *)value = true;
        break;
    case TEXT:
        *(const char **)value = text;
        good = *text != '\0';
        break;
    case COUNT:
        good = cli_parse_whole(text, 1, INT_MAX, value);
        break;
    case WHOLE:
        good = cli_parse_whole(text, 0, MOST_WHOLE, value);
        break;
    case BYTES:
        good = cli_parse_bytes(text, 1, MOST_WHOLE, value);
        break;
    case REAL:
        good = cli_parse_real(text, 0, INFINITY, value);
        break;
    case SHARE:
        good = cli_parse_real(text, 0, 1, value);
        break;
    case COUNTS:
    case NAMES:
        return parse_list(settings, id, text);
    case PATHS:
        ((const char **)((cli_names *)value)->values)[((cli_names *)value)->count++] = text;
        break;
    }
    return good ? CGP_OK : unexpected(id, text);
}

/* --- parsing --- */

static cgp_status set_presets(cli_settings *settings) {
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        if (table[id].kind == REAL || table[id].kind == SHARE)
            *(double *)field(settings, id) = NAN;
        const char *preset = preset_of(settings->command, id);
        if (preset && taken_by(id, settings->command)) CGP_TRY(set_value(settings, id, preset));
    }
    return CGP_OK;
}

/* The option as it was written, without "=value". */
static cgp_status unknown_option(const cli_settings *settings, const char *word) {
    char name[64];
    const char *names[CLI_OPTION_COUNT];
    int count = 0;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        if (taken_by(id, settings->command)) names[count++] = table[id].name;
    }
    const char *near = name[1] == '-' ? cgp_nearest(name + 2, names, count) : NULL;
    return cgp_fail(CGP_EINVAL, "%s: unknown option%s%s%s", name,
                    near ? " (did you mean --" : "", near ? near : "", near ? "?)" : "");
}

/* A word that is no option: the operand, or one more path after --data. */
static cgp_status take_word(cli_settings *settings, const char *word, bool after_data) {
    if (after_data) return set_value(settings, CLI_OPTION_DATA, word);
    if (settings->operand)
        return cgp_fail(CGP_EINVAL, "%s: unexpected word after %s", word, settings->operand);
    settings->operand = word;
    return CGP_OK;
}

static cgp_status parse_words(cli_settings *settings, int argc, char **argv) {
    struct option longs[CLI_OPTION_COUNT + 1] = {{0}};
    int count = 0;
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        const int takes = table[id].argument ? required_argument : no_argument;
        if (taken_by(id, settings->command))
            longs[count++] = (struct option){table[id].name, takes, NULL, 256 + id};
    }
    bool after_data = false;
    opterr = 0;
    for (optind = 1;;) {
        /* '-': words come in their order, as option 1; ':': a missing value is told apart. */
        const int found = getopt_long(argc, argv, "-:", longs, NULL);
        if (found == -1) break;
        if (found == 1) {
            CGP_TRY(take_word(settings, optarg, after_data));
            continue;
        }
        if (found == ':') return cgp_fail(CGP_EINVAL, "%s: needs a value", argv[optind - 1]);
        if (found == '?' && optopt >= 256)
            return cgp_fail(CGP_EINVAL, "--%s: takes no value", table[optopt - 256].name);
        if (found == '?' && optopt) return cgp_fail(CGP_EINVAL, "-%c: unknown option", optopt);
        if (found == '?') return unknown_option(settings, argv[optind - 1]);
        after_data = found - 256 == CLI_OPTION_DATA;
        settings->given |= (uint64_t)1 << (found - 256);
        CGP_TRY(set_value(settings, found - 256, optarg));
    }
    for (; optind < argc; optind++)
        CGP_TRY(take_word(settings, argv[optind], after_data));
    return CGP_OK;
}

/* Defaults that depend on other options. */
static cgp_status settle(cli_settings *s) {
    if (s->chunks == 0) s->chunks = s->batch == 0 || s->batch > 8 ? 8 : s->batch;
    if (!(s->command & PLANNED)) return CGP_OK;
    const bool adamw = strcmp(s->optimizer, "adamw") == 0;
    if (s->balance.count > 0 && !cli_given(s, CLI_OPTION_STAGES)) s->stages = s->balance.count;
    if (s->balance.count > 0 && s->balance.count != s->stages)
        return cgp_fail(CGP_EINVAL, "--balance: expected %d numbers, one a stage, got %d",
                        (int)s->stages, s->balance.count);
    if (adamw && (cli_given(s, CLI_OPTION_MOMENTUM) || s->nesterov))
        return cgp_fail(CGP_EINVAL, "--%s: expected --optimizer sgd, got adamw",
                        s->nesterov ? "nesterov" : "momentum");
    if (strcmp(s->schedule, "forward") == 0)
        return cgp_fail(CGP_EINVAL, "--schedule forward: has no backward (gpipe or 1f1b)");
    if (isnan(s->rate)) s->rate = adamw ? 1e-3 : 1e-2;
    if (isnan(s->weight_decay)) s->weight_decay = adamw ? 1e-2 : 1e-4;
    if (!adamw && isnan(s->momentum)) s->momentum = 0.9;
    if (s->command == CLI_BENCH && !adamw && s->momentum > 0) s->nesterov = true;
    return CGP_OK;
}

cgp_status cli_settings_parse(cli_settings *settings, unsigned command, int argc, char **argv) {
    *settings = (cli_settings){.command = command};
    const char **paths = own(settings, cli_calloc((size_t)argc + 1, sizeof *paths));
    settings->data.values = paths;
    CGP_TRY(set_presets(settings));
    CGP_TRY(parse_words(settings, argc, argv));
    return settings->help ? CGP_OK : settle(settings);
}

void cli_settings_release(cli_settings *settings) {
    for (int i = 0; i < settings->n_owned; i++)
        free(settings->owned[i]);
    settings->n_owned = 0;
}

/* --- help and JSON --- */

void cli_options_help(FILE *out, unsigned command) {
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        if (!taken_by(id, command)) continue;
        const char *preset = preset_of(command, id);
        char left[40];
        snprintf(left, sizeof left, "--%s %s", table[id].name,
                 table[id].argument ? table[id].argument : "");
        fprintf(out, "  %-24s %s", left, table[id].help);
        if (preset && *preset != '\n') fprintf(out, " [%s]", preset);
        fputc('\n', out);
    }
}

static json_t *names_json(const cli_names *names) {
    json_t *list = json_array();
    for (int i = 0; i < names->count; i++)
        json_array_append_new(list, json_string(names->values[i]));
    return list;
}

static json_t *counts_json(const cli_counts *counts) {
    json_t *list = json_array();
    for (int i = 0; i < counts->count; i++)
        json_array_append_new(list, json_integer(counts->values[i]));
    return list;
}

static json_t *value_json(const cli_settings *settings, int id) {
    const void *value = field_of(settings, id);
    const kind k = table[id].kind;
    const int64_t whole = k == COUNT || k == BYTES || k == WHOLE ? *(const int64_t *)value : 0;
    switch (table[id].kind) {
    case FLAG:
        return json_boolean(*(const bool *)value);
    case TEXT:
        return *(const char *const *)value ? json_string(*(const char *const *)value)
                                           : json_null();
    case COUNT:
    case BYTES:
        return whole ? json_integer(whole) : json_null();
    case WHOLE:
        return json_integer(whole);
    case SHARE:
    case REAL:
        return isnan(*(const double *)value) ? json_null() : json_real(*(const double *)value);
    case COUNTS:
        return ((const cli_counts *)value)->count ? counts_json(value) : json_null();
    case NAMES:
    case PATHS:
        return ((const cli_names *)value)->count ? names_json(value) : json_null();
    }
    return json_null();
}

void cli_options_json(json_t *object, const cli_settings *settings, bool reported) {
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        if (!taken_by(id, settings->command) || id == CLI_OPTION_HELP) continue;
        if (reported && !table[id].reported) continue;
        char key[64];
        snprintf(key, sizeof key, "%s", table[id].name);
        for (char *c = key; *c; c++)
            *c = *c == '-' ? '_' : *c;
        json_object_set_new(object, key, value_json(settings, id));
    }
}
