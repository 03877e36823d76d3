/* SPDX-License-Identifier: Apache-2.0 */
/* values.c -- what a shell offers for the values of options and for operands, and the help beside
 * options. Options that the table below does not list offer files or directories if the name of
 * their argument says so. */
#include "completion/completion.h"

#include "options/table.h"

#include <cgpipe/schedule.h>

#include <string.h>

#define MODELS "gpt2 llama resnet20 resnet50 resnet101 amoebanetd unet vit"

static const struct {
    cli_option_id id;
    cli_values values;
} table[] = {
    {CLI_OPTION_DATA, {"random shapes", CLI_OFFER_FILES}},
    {CLI_OPTION_VALIDATION, {"", CLI_OFFER_FILES}},
    {CLI_OPTION_MODEL, {MODELS, CLI_OFFER_FILES}},
    {CLI_OPTION_BALANCE, {"flops time size", CLI_OFFER_NOTHING}},
    {CLI_OPTION_REPLICAS, {"auto", CLI_OFFER_NOTHING}},
    {CLI_OPTION_RECOMPUTE,
     {"never always except_last never+selective always+selective except_last+selective budget",
      CLI_OFFER_NOTHING}},
    {CLI_OPTION_PRECISION, {"f32 bf16 tf32", CLI_OFFER_NOTHING}},
    {CLI_OPTION_CONVOLUTION, {"direct winograd", CLI_OFFER_NOTHING}},
    {CLI_OPTION_OPTIMIZER, {"sgd adamw adam rmsprop", CLI_OFFER_NOTHING}},
    {CLI_OPTION_LR_SCHEDULE, {"constant cosine step milestones", CLI_OFFER_NOTHING}},
    {CLI_OPTION_DEVICES, {"auto cpu cuda", CLI_OFFER_NOTHING}},
    {CLI_OPTION_TRANSPORT, {"auto inproc mpi", CLI_OFFER_NOTHING}},
    {CLI_OPTION_LAYOUT, {"megatron torchtitan deepspeed", CLI_OFFER_NOTHING}},
};

/* Return the names of all schedules. */
static const char *schedules(void) {
    static char names[1024];
    const cgp_schedule_info *info;
    if (*names) return names;
    for (int i = 0; (info = cgp_schedule_info_at(i)); i++) {
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? " " : "", info->name);
    }
    return names;
}

cli_values cli_option_values(int id) {
    const char *argument = cli_options[id].argument;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if ((int)table[i].id == id) return table[i].values;
    }
    if (id == CLI_OPTION_SCHEDULE) return (cli_values){schedules(), CLI_OFFER_FILES};
    if (!argument) return (cli_values){"", CLI_OFFER_NOTHING};
    if (strncmp(argument, "FILE", 4) == 0 || strncmp(argument, "PATH", 4) == 0)
        return (cli_values){"", CLI_OFFER_FILES};
    if (strcmp(argument, "DIR") == 0 || strcmp(argument, "RUN") == 0)
        return (cli_values){"", CLI_OFFER_DIRECTORIES};
    return (cli_values){"", CLI_OFFER_NOTHING};
}

cli_values cli_operand_values(const char *operand) {
    if (!*operand) return (cli_values){"", CLI_OFFER_NOTHING};
    if (strcmp(operand, "MODEL or transport") == 0)
        return (cli_values){MODELS " transport", CLI_OFFER_FILES};
    if (strncmp(operand, "MODEL", 5) == 0) return (cli_values){MODELS, CLI_OFFER_FILES};
    if (strcmp(operand, "model NAME") == 0) return (cli_values){"model", CLI_OFFER_NOTHING};
    if (strcmp(operand, "NAME") == 0) return (cli_values){schedules(), CLI_OFFER_NOTHING};
    if (strncmp(operand, "RUN", 3) == 0) return (cli_values){"", CLI_OFFER_DIRECTORIES};
    return (cli_values){"", CLI_OFFER_FILES};
}

void cli_completion_help(FILE *out, const char *text, const char *special, const char *apostrophe) {
    for (size_t n = strcspn(text, ";\n"); n > 0; n--, text++) {
        if (*text == '\'') {
            fputs(apostrophe, out);
            continue;
        }
        if (strchr(special, *text)) fputc('\\', out);
        fputc(*text, out);
    }
}
