/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.c -- see plugin.h. A file is hashed, checked, opened, and hashed again, so that the
 * SHA-256 belongs to the running code. Its version is read as data, before any of its functions is
 * called. */
#define _GNU_SOURCE /* RTLD_DEFAULT, dladdr1() */
#include "session/plugin.h"

#include "text.h"

#include <cgpipe/checkpoint.h>

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include <link.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SUFFIX ".so"
#define VERSION "cgpipe_plugin_version"
#define SEE "see cgpipe/ext/model_plugin.h"
#define REBUILD "build it with the headers of cgpipe " CGP_VERSION

/* --- the file --- */

size_t cli_plugin_path(const char *text) {
    const size_t suffix = strlen(SUFFIX);
    for (const char *at = text; (at = strstr(at, SUFFIX)); at += suffix) {
        const size_t length = (size_t)(at - text) + suffix;
        if (text[length] != '\0' && text[length] != ':') continue;
        return memchr(text, '/', length) ? length : 0;
    }
    return 0;
}

/* Refuse files on which the loader would crash. These are files of another format and truncated
 * files, such as a file that is being written. */
static cgp_status check_whole(const char *path) {
    Elf64_Ehdr header;
    struct stat info;
    FILE *file = fopen(path, "rb");
    if (!file || fstat(fileno(file), &info) != 0) {
        const int reason = errno;
        if (file) fclose(file);
        return cgp_fail(CGP_EIO, "%s: cannot be read (%s)", path, strerror(reason));
    }
    const bool read = fread(&header, sizeof header, 1, file) == 1;
    fclose(file);
    const uint64_t size = (uint64_t)info.st_size;
    if (!read || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_type != ET_DYN)
        return cgp_fail(CGP_EINVAL, "%s: expected a shared object, got another file", path);
    if (header.e_shoff <= size &&
        (uint64_t)header.e_shnum * header.e_shentsize <= size - header.e_shoff)
        return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "%s: expected a whole shared object, got %" PRIu64
                    " bytes, of which the end is missing (build it again)",
                    path, size);
}

/* --- its symbols --- */

/* Find a symbol that the plug-in defines itself. Symbols of libraries that the plug-in is linked
 * with do not count. *out is NULL if there is no such symbol. `type` is STT_FUNC or STT_OBJECT. If
 * `bytes` is not NULL, *bytes is set to the size of the symbol. */
static cgp_status find(const cli_plugin *plugin, const char *name, int type, void **out,
                       size_t *bytes) {
    const ElfW(Sym) *entry = NULL;
    Dl_info info, of_version;
    *out = dlsym(plugin->object, name);
    const void *version = dlsym(plugin->object, VERSION);
    if (!*out || !version || !dladdr(version, &of_version)) return CGP_OK;
    if (!dladdr1(*out, &info, (void **)&entry, RTLD_DL_SYMENT) || !entry ||
        info.dli_fbase != of_version.dli_fbase) {
        *out = NULL;
        return CGP_OK;
    }
    if (bytes) *bytes = entry->st_size;
    if (ELF64_ST_TYPE(entry->st_info) == type) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "%s: %s: expected %s, got %s (" SEE ")", plugin->path, name,
                    type == STT_FUNC ? "a function" : "data",
                    type == STT_FUNC ? "data" : "a function");
}

/* Compare release numbers without their last part. While the first part is 0, a new second part
 * means a new interface. */
static bool same_release(const char *release, size_t size) {
    static const char ours[] = CGP_VERSION;
    const size_t length = (size_t)(strrchr(ours, '.') - ours) + 1;
    return memchr(release, '\0', size) && strncmp(release, ours, length) == 0;
}

static cgp_status check_version(const cli_plugin *plugin) {
    static const char *const names[] = {
#define NAME(type) #type,
        CGP_MODEL_PLUGIN_STRUCTS(NAME)};
    static const cgp_model_plugin_version version = CGP__PLUGIN_VERSION, *ours = &version;
    const cgp_model_plugin_version *theirs = NULL;
    void *symbol = NULL;
    size_t bytes = 0;
    CGP_TRY(find(plugin, VERSION, STT_OBJECT, &symbol, &bytes));
    if (!(theirs = symbol))
        return cgp_fail(CGP_EINVAL,
                        "%s: has no symbol " VERSION " (CGP_MODEL_PLUGIN; in its source, " SEE ")",
                        plugin->path);
    const bool release = bytes >= offsetof(cgp_model_plugin_version, sizes);
    if (!release || !same_release(theirs->release, sizeof theirs->release))
        return cgp_fail(CGP_EINVAL, "%s: was built for cgpipe %.15s, this is %s (" REBUILD ")",
                        plugin->path, release ? theirs->release : "of another form", CGP_VERSION);
    if (bytes < theirs->struct_size)
        return cgp_fail(CGP_EINVAL, "%s: " VERSION " has %zu bytes, and says %zu (" REBUILD ")",
                        plugin->path, bytes, theirs->struct_size);
    if (theirs->struct_size != ours->struct_size)
        return cgp_fail(CGP_EINVAL, "%s: expected a version of %zu bytes, got %zu (" REBUILD ")",
                        plugin->path, ours->struct_size, theirs->struct_size);
    for (int i = 0; i < CGP_MODEL_PLUGIN_SIZES; i++) {
        if (theirs->sizes[i] != ours->sizes[i])
            return cgp_fail(CGP_EINVAL, "%s: expected a %s of %zu bytes, got %zu (" REBUILD ")",
                            plugin->path, names[i], ours->sizes[i], theirs->sizes[i]);
    }
    return CGP_OK;
}

/* Refuse a plug-in with its own copy of the library: its messages would go to that copy. */
static cgp_status check_library(const cli_plugin *plugin) {
    const void *theirs = dlsym(plugin->object, "cgp_message");
    const void *ours = dlsym(RTLD_DEFAULT, "cgp_message");
    if (!theirs || !ours || theirs == ours) return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "%s: has another copy of libcgpipe than the program (link it with "
                    "$(pkg-config --libs cgpipe), not with the static library)",
                    plugin->path);
}

static bool is_name(const char *name) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    return *name && strlen(name) < 64 && name[strspn(name, letters)] == '\0';
}

static cgp_status bad_key(const cli_plugin *plugin, int k, const char *expected) {
    return cgp_fail(CGP_EINVAL, "%s: cgpipe_model_keys[%d]: expected %s", plugin->path, k,
                    expected);
}

static cgp_status check_keys(cli_plugin *plugin) {
    const cgp_model_key *keys = plugin->keys;
    for (int k = 0; keys && keys[k].name; k++, plugin->n_keys++) {
        if (k == CLI_PLUGIN_KEYS) return bad_key(plugin, k, "at most 64 keys and {NULL}");
        if (!is_name(keys[k].name)) return bad_key(plugin, k, "a name of letters, digits and _");
        for (int i = 0; i < k; i++) {
            if (strcmp(keys[i].name, keys[k].name) == 0)
                return bad_key(plugin, k, "a name that no key before it has");
        }
        const bool word = keys[k].kind == CGP_KEY_WORD;
        if ((int)keys[k].kind < 0 || keys[k].kind > CGP_KEY_WORD)
            return bad_key(plugin, k, "a kind of cgp_model_key_kind");
        if (word && (!keys[k].words || !keys[k].words[0])) return bad_key(plugin, k, "words");
        for (int w = 0; word && keys[k].words[w]; w++) {
            if (!is_name(keys[k].words[w]))
                return bad_key(plugin, k, "words of letters, digits and _");
        }
        const double limit = keys[k].kind == CGP_KEY_WHOLE ? 0x1p53 : INFINITY;
        if (!word && !(keys[k].min <= keys[k].max && keys[k].min >= -limit && keys[k].max <= limit))
            return bad_key(plugin, k, "min <= max, within 2^53 of a whole number");
    }
    return CGP_OK;
}

static cgp_status check_ops(cli_plugin *plugin) {
    for (int i = 0; plugin->ops && plugin->ops[i]; i++, plugin->n_ops++) {
        if (plugin->ops[i]->struct_size != sizeof(cgp_op) || !plugin->ops[i]->name)
            return cgp_fail(
                CGP_EINVAL,
                "%s: cgpipe_model_ops[%d]: expected a name and struct_size %zu, got %zu",
                plugin->path, i, sizeof(cgp_op), plugin->ops[i]->struct_size);
    }
    return CGP_OK;
}

static cgp_status enter(cli_plugin *plugin) {
    CGP_TRY(check_version(plugin));
    CGP_TRY(check_library(plugin));
    void *build = NULL, *data = NULL, *keys = NULL, *ops = NULL;
    CGP_TRY(find(plugin, "cgpipe_model_build", STT_FUNC, &build, NULL));
    CGP_TRY(find(plugin, "cgpipe_data_open", STT_FUNC, &data, NULL));
    CGP_TRY(find(plugin, "cgpipe_model_keys", STT_OBJECT, &keys, NULL));
    CGP_TRY(find(plugin, "cgpipe_model_ops", STT_OBJECT, &ops, NULL));
    memcpy(&plugin->build, &build, sizeof build); /* ISO C has no cast to a function pointer */
    memcpy(&plugin->open_data, &data, sizeof data);
    plugin->keys = keys;
    plugin->ops = ops;
    if (!plugin->build)
        return cgp_fail(CGP_EINVAL,
                        "%s: has no function cgpipe_model_build (see "
                        "cgpipe/ext/model_plugin.h)",
                        plugin->path);
    CGP_TRY(check_keys(plugin));
    return check_ops(plugin);
}

/* --- opening --- */

static cgp_status load(cli_plugin *plugin) {
    char again[65];
    CGP_TRY(cgp_file_sha256(plugin->path, plugin->sha256));
    CGP_TRY(check_whole(plugin->path));
    plugin->object = dlopen(plugin->path, RTLD_NOW | RTLD_LOCAL);
    if (!plugin->object) {
        /* The first word of dlerror()'s text is the path of the plug-in or of a library. */
        const char *reason = dlerror();
        return cgp_fail(CGP_EINVAL, "%s: cannot be loaded (%s)", plugin->path,
                        reason ? reason : "no reason given");
    }
    CGP_TRY(cgp_file_sha256(plugin->path, again));
    if (strcmp(plugin->sha256, again) != 0)
        return cgp_fail(CGP_EIO, "%s: was replaced while it was read (start again)", plugin->path);
    return enter(plugin);
}

cgp_status cli_plugin_open(const cli_plugin **out, const char *path, size_t length) {
    static cli_plugin *open[8]; /* a command opens one or two plug-ins */
    static int n_open;
    for (int i = 0; i < n_open; i++) {
        if (strlen(open[i]->path) != length || strncmp(open[i]->path, path, length) != 0) continue;
        *out = open[i];
        return CGP_OK;
    }
    if (n_open == (int)(sizeof open / sizeof open[0]))
        return cgp_fail(CGP_EINVAL, "%.*s: expected at most %d plug-ins", (int)length, path,
                        n_open);
    cli_plugin *plugin = cli_calloc(1, sizeof *plugin);
    plugin->path = cli_text("%.*s", (int)length, path);
    const char *slash = strrchr(plugin->path, '/');
    plugin->name = slash ? slash + 1 : plugin->path;
    const cgp_status status = load(plugin);
    if (status == CGP_OK) {
        *out = open[n_open++] = plugin;
        return CGP_OK;
    }
    if (plugin->object) dlclose(plugin->object);
    free(plugin->path);
    free(plugin);
    return status;
}

/* --- values --- */

static cgp_status unknown_key(const cli_plugin *plugin, const char *name) {
    const char *names[CLI_PLUGIN_KEYS];
    char list[512] = "";
    for (int k = 0; k < plugin->n_keys; k++) {
        const size_t used = strlen(list);
        names[k] = plugin->keys[k].name;
        snprintf(list + used, sizeof list - used, " %s", names[k]);
    }
    const char *near = cgp_nearest(name, names, plugin->n_keys);
    if (plugin->n_keys == 0)
        return cgp_fail(CGP_EINVAL, "%s: %s: unknown key (it has none)", plugin->path, name);
    return cgp_fail(CGP_EINVAL, "%s: %s: unknown key (%s%s%s)", plugin->path, name,
                    near ? "did you mean " : "keys:", near ? near : list, near ? "?" : "");
}

static cgp_status bad_value(const cli_plugin *plugin, const cgp_model_key *key, const char *text) {
    char expected[512];
    size_t used = 0;
    if (key->kind == CGP_KEY_WORD) {
        used = (size_t)snprintf(expected, sizeof expected, "one of");
        for (int w = 0; key->words[w] && used < sizeof expected; w++)
            used += (size_t)snprintf(expected + used, sizeof expected - used, " %s", key->words[w]);
    } else {
        snprintf(expected, sizeof expected, "a %s from %.15g to %.15g",
                 key->kind == CGP_KEY_WHOLE ? "whole number" : "number", key->min, key->max);
    }
    return cgp_fail(CGP_EINVAL, "%s: %s: expected %s, got \"%s\"", plugin->path, key->name,
                    expected, text);
}

static bool parse_value(cgp_model_value *value, const cgp_model_key *key, const char *text) {
    *value = (cgp_model_value){0};
    if (key->kind == CGP_KEY_WORD) {
        while (key->words[value->whole] && strcmp(key->words[value->whole], text) != 0)
            value->whole++;
        value->word = key->words[value->whole];
        return value->word != NULL;
    }
    if (key->kind == CGP_KEY_REAL)
        return cli_parse_real(text, key->min, INFINITY, &value->real) && value->real <= key->max;
    if (!cli_parse_whole(text, (int64_t)ceil(key->min), (int64_t)floor(key->max), &value->whole))
        return false;
    value->real = (double)value->whole;
    return true;
}

/* Set the value of one item, "width=64". */
static cgp_status set_value(cgp_model_value *values, bool *given, const cli_plugin *plugin,
                            char *item) {
    char *equals = strchr(item, '=');
    int k = 0;
    if (!equals)
        return cgp_fail(CGP_EINVAL, "%s: expected key=value, got \"%s\"", plugin->path, item);
    *equals = '\0';
    while (k < plugin->n_keys && strcmp(plugin->keys[k].name, item) != 0)
        k++;
    if (k == plugin->n_keys) return unknown_key(plugin, item);
    if (given[k])
        return cgp_fail(CGP_EINVAL, "%s: %s: is there twice (leave out one)", plugin->path, item);
    given[k] = true;
    return parse_value(&values[k], &plugin->keys[k], equals + 1)
               ? CGP_OK
               : bad_value(plugin, &plugin->keys[k], equals + 1);
}

static cgp_status take_presets(cgp_model_value *values, const bool *given,
                               const cli_plugin *plugin) {
    for (int k = 0; k < plugin->n_keys; k++) {
        const cgp_model_key *key = &plugin->keys[k];
        if (given[k]) continue;
        if (!key->preset)
            return cgp_fail(CGP_EINVAL, "%s: %s: is missing (%s:%s=...)", plugin->path, key->name,
                            plugin->path, key->name);
        if (!parse_value(&values[k], key, key->preset)) return bad_value(plugin, key, key->preset);
    }
    return CGP_OK;
}

cgp_status cli_plugin_values(cgp_model_value *values, const cli_plugin *plugin, const char *text) {
    bool given[CLI_PLUGIN_KEYS] = {false};
    while (*text) {
        const size_t length = strcspn(text, ",");
        char *item = cli_text("%.*s", (int)length, text);
        const cgp_status status = set_value(values, given, plugin, item);
        free(item);
        CGP_TRY(status);
        text += length + (text[length] == ',');
    }
    return take_presets(values, given, plugin);
}

static void write_value(const cgp_model_key *key, const cgp_model_value *value, char text[64]) {
    if (key->kind == CGP_KEY_WHOLE) snprintf(text, 64, "%" PRId64, value->whole);
    if (key->kind == CGP_KEY_WORD) snprintf(text, 64, "%s", value->word);
    if (key->kind == CGP_KEY_REAL) cli_real_text(value->real, text);
}

cgp_status cli_plugin_text(const cli_plugin *plugin, const cgp_model_value *values, char *text,
                           size_t size) {
    size_t used = (size_t)snprintf(text, size, "%s", plugin->name);
    for (int k = 0; k < plugin->n_keys && used < size; k++) {
        char value[64];
        write_value(&plugin->keys[k], &values[k], value);
        used += (size_t)snprintf(text + used, size - used, "%c%s=%s", k == 0 ? ':' : ',',
                                 plugin->keys[k].name, value);
    }
    if (used < size) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "%s: expected a name with its keys and values below %zu bytes",
                    plugin->path, size);
}

/* --- the model --- */

/* Build the model. If this fails, keep the message that the plug-in's function set or, if the
 * function set none, the message of the failed builder call. */
static cgp_status build(cgp_model *model, const cli_plugin *plugin, const cgp_model_value *values) {
    char reason[512];
    (void)cgp_fail(CGP_OK, "%s", "");
    const cgp_status status = plugin->build(model, plugin->n_keys > 0 ? values : NULL);
    snprintf(reason, sizeof reason, "%s", cgp_message());
    const cgp_status finished = cgp_model_finish(model);
    if ((int)status < 0 || status > CGP_EDIFFERS)
        return cgp_fail(CGP_EINVAL, "%s: cgpipe_model_build: expected a cgp_status, got %d",
                        plugin->path, (int)status);
    if (status != CGP_OK && *reason) return cgp_fail(status, "%s: %s", plugin->path, reason);
    if (status != CGP_OK)
        return cgp_fail(status, "%s: cgpipe_model_build returned %s, and gave no reason%s%s",
                        plugin->path, cgp_status_name(status), finished == CGP_OK ? "" : "; ",
                        finished == CGP_OK ? "" : cgp_message());
    return finished == CGP_OK ? CGP_OK : cgp_fail(finished, "%s: %s", plugin->path, cgp_message());
}

cgp_status cli_plugin_create(cgp_model **out, const cli_plugin *plugin,
                             const cgp_model_value *values) {
    char name[256];
    cgp_model *model = NULL;
    snprintf(name, sizeof name, "%.*s", (int)(strlen(plugin->name) - strlen(SUFFIX)), plugin->name);
    CGP_TRY(cgp_model_create(&model, name));
    const cgp_status status = build(model, plugin, values);
    if (status == CGP_OK)
        *out = model;
    else
        cgp_model_destroy(model);
    return status;
}
