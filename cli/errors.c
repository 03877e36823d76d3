/* SPDX-License-Identifier: Apache-2.0 */
/* errors.c -- see errors.h. */
#include "errors.h"

#include "ranks.h"

#include <stdio.h>
#include <string.h>

static const char *running; /* name of the running command; NULL: the command is not known yet */

void cli_set_command(const char *name) {
    running = name;
}

/* A library message may begin with an object that is also the name of another command ("schedule:
 * expected ..", in cgpipe train). Return a prefix that makes the message unambiguous: "--" for
 * "--schedule", "the " for "the plan", else "". */
static const char *article(cgp_status status, const char *message) {
    static const char *const objects[] = {"schedule", "plan", "profile"};
    const size_t length = strcspn(message, ":");
    if (status != CGP_EINVAL || /* messages of other failures may begin with a file's name */
        (running && strlen(running) == length && strncmp(message, running, length) == 0))
        return "";
    for (int i = 0; i < 3; i++) {
        if (strlen(objects[i]) == length && strncmp(message, objects[i], length) == 0)
            return i == 0 ? "--" : "the ";
    }
    return "";
}

/* Messages are one line: cgp_escape() has escaped the user's text in them. */
void cli_warn(void) {
    fprintf(stderr, "cgpipe: warning: %s\n", cgp_message());
}

int cli_report(cgp_status status, bool usage) {
    if (status == CGP_OK) return CLI_OK;
    if (cli_ranks_claim_report())
        fprintf(stderr, "cgpipe: %s%s\n", article(status, cgp_message()), cgp_message());
    cli_ranks_end_report();
    if (status == CGP_EPEER) return CLI_PEER;
    if (status == CGP_EDIFFERS) return CLI_FAULTY;
    return usage && status == CGP_EINVAL ? CLI_USAGE : CLI_FAILED;
}
