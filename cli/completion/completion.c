/* SPDX-License-Identifier: Apache-2.0 */
/* completion.c -- cgpipe completion: find the shell, and print its script. */
#include "completion/completion.h"

#include "errors.h"

#include <string.h>

static const struct {
    const char *name;
    void (*write)(FILE *out);
} shells[] = {
    {"bash", cli_completion_bash},
    {"zsh", cli_completion_zsh},
    {"fish", cli_completion_fish},
};
enum { SHELLS = sizeof shells / sizeof shells[0] };

static const char help[] =
    "cgpipe completion bash|zsh|fish\n"
    "print a script with which a shell completes commands, options and their values\n\n"
    "`make install` installs the scripts. Without it:\n"
    "  bash, zsh (after compinit): source <(cgpipe completion bash)\n"
    "  fish: cgpipe completion fish | source\n\n"
    "example: cgpipe completion bash\n";

static cgp_status unknown(const char *name) {
    const char *names[SHELLS];
    for (int i = 0; i < SHELLS; i++)
        names[i] = shells[i].name;
    const char *near = cgp_nearest(name, names, SHELLS);
    return cgp_fail(CGP_EINVAL, "completion: expected bash, zsh or fish, got \"%s\"%s%s%s", name,
                    near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
}

int cli_completion(int argc, char **argv) {
    cli_set_command("completion");
    if (argc < 2)
        return cli_report(
            cgp_fail(CGP_EINVAL, "completion: the shell is missing (bash, zsh or fish)"), true);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        fputs(help, stdout);
        return CLI_OK;
    }
    if (argc > 2)
        return cli_report(
            cgp_fail(CGP_EINVAL, "%s: unexpected argument after %s", argv[2], argv[1]), true);
    for (int i = 0; i < SHELLS; i++) {
        if (strcmp(argv[1], shells[i].name) != 0) continue;
        shells[i].write(stdout);
        return CLI_OK;
    }
    return cli_report(unknown(argv[1]), true);
}
