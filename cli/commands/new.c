/* SPDX-License-Identifier: Apache-2.0 */
/* new.c -- cgpipe new model NAME: write a directory with a working model plug-in from
 * cli/templates/model/: model, op, data, Makefile, README and a test. The directory appears whole
 * or not at all. The command also deletes the temporary directories that killed processes left. */
#define _GNU_SOURCE /* renameat2() */
#include "commands/commands.h"

#include "errors.h"
#include "templates.h" /* made by CMakeLists.txt */
#include "text.h"

#include <cgpipe/checkpoint.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_MAX_BYTES 64
#define PLACE "@NAME@"

static const struct {
    const char *name; /* file name; PLACE stands for NAME in `name` and in `text` */
    const unsigned char *text;
    size_t bytes;
} files[] = {
    {PLACE ".c", template_model, sizeof template_model},
    {"op.test.c", template_op_test, sizeof template_op_test},
    {"Makefile", template_makefile, sizeof template_makefile},
    {"README.md", template_readme, sizeof template_readme},
};
enum { FILES = sizeof files / sizeof files[0] };

/* --- texts --- */

/* Return a copy of a template with NAME filled in. Leave out the template's licence line, because
 * it does not apply to the user's files. */
static char *fill_in(const unsigned char *bytes, size_t size, const char *name) {
    char *text = cli_text("%.*s", (int)size, (const char *)bytes);
    const char *licence = strstr(text, "SPDX-License-Identifier"), *end = strchr(text, '\n');
    char *filled = cli_replaced(licence && end && licence < end ? end + 1 : text, PLACE, name);
    free(text);
    return filled;
}

/* --- files --- */

static cgp_status cannot(const char *path, const char *what) {
    return cgp_fail(CGP_EIO, "%s: cannot be %s (%s)", path, what, strerror(errno));
}

static cgp_status write_files(int directory, const char *path, const char *name) {
    for (int i = 0; i < FILES; i++) {
        char *file = fill_in((const unsigned char *)files[i].name, strlen(files[i].name), name);
        char *text = fill_in(files[i].text, files[i].bytes, name);
        const cgp_status status = cgp_file_replace_at(directory, file, path, text, strlen(text));
        free(text);
        free(file);
        CGP_TRY(status);
    }
    return CGP_OK;
}

static void remove_files(const char *temporary, int directory, const char *name) {
    for (int i = 0; i < FILES; i++) {
        char *file = fill_in((const unsigned char *)files[i].name, strlen(files[i].name), name);
        unlinkat(directory, file, 0);
        free(file);
    }
    rmdir(temporary);
}

/* Rename the directory, unless `name` exists: rename() alone would replace an empty directory. */
static cgp_status publish(const char *temporary, const char *name) {
    if (renameat2(AT_FDCWD, temporary, AT_FDCWD, name, RENAME_NOREPLACE) == 0) return CGP_OK;
    struct stat info;
    if (errno == EINVAL && lstat(name, &info) != 0 && errno == ENOENT &&
        rename(temporary, name) == 0) /* EINVAL: the file system lacks this flag */
        return CGP_OK;
    return errno == EEXIST || lstat(name, &info) == 0
               ? cgp_fail(CGP_EIO, "%s: is there already (take another name)", name)
               : cannot(name, "made");
}

static cgp_status write_directory(const char *name) {
    struct stat info;
    char temporary[CGP_TEMPORARY_BYTES];
    int directory = -1;
    if (lstat(name, &info) == 0)
        return cgp_fail(CGP_EIO, "%s: is there already (take another name)", name);
    if (cgp_checkpoint_clean(".") != CGP_OK) cli_warn();
    CGP_TRY(cgp_temporary_directory(AT_FDCWD, "new", name, temporary, &directory));
    cgp_status status = write_files(directory, name, name);
    if (status == CGP_OK && fsync(directory) != 0) status = cannot(name, "written");
    if (status == CGP_OK) status = publish(temporary, name);
    if (status != CGP_OK) remove_files(temporary, directory, name);
    close(directory);
    return status;
}

/* --- the command --- */

static cgp_status check_name(const char *name) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
                      others[] = "0123456789_-";
    const size_t length = strlen(name);
    bool good = length > 0 && length <= NAME_MAX_BYTES && strchr(letters, name[0]);
    for (size_t i = 0; good && i < length; i++)
        good = strchr(letters, name[i]) || strchr(others, name[i]);
    if (good) return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "new: expected a name of at most %d letters, digits, _ and -, that begins "
                    "with a letter, "
                    "got \"%s\"",
                    NAME_MAX_BYTES, name);
}

static cgp_status check_operands(const cli_run_options *options) {
    if (!options->operand)
        return cgp_fail(CGP_EINVAL, "new: model NAME is missing (cgpipe new model mine)");
    if (strcmp(options->operand, "model") != 0)
        return cgp_fail(CGP_EINVAL, "new: expected model NAME, got %s (cgpipe new model mine)",
                        options->operand);
    if (!options->target)
        return cgp_fail(CGP_EINVAL, "new: NAME is missing (cgpipe new model mine)");
    return check_name(options->target);
}

int cli_new(const cli_run_options *options) {
    const char *name = options->target;
    cgp_status status = check_operands(options);
    const bool usage = status != CGP_OK;
    if (!usage) status = write_directory(name);
    if (status != CGP_OK) return cli_report(status, usage);
    printf("%s/ has %s.c, a model with an op and data of its own. From here:\n\n"
           "    cd %s\n"
           "    make test\n"
           "    cgpipe train ./%s.so --data plugin --stages 2 --batch 64 --steps 500\n",
           name, name, name, name);
    return CLI_OK;
}
