/* main.c -- the cgpipe program: finds the command, hands it its settings, returns its code.
 *
 * Exit codes: 0 done; 1 failed; 2 the command line is wrong. A failure is one line on standard
 * error; help goes to standard output. */
#include "commands.h"
#include "common.h"

#include <errno.h>
#include <string.h>

typedef struct command {
    const char *name, *operand, *summary, *example;
    unsigned bit;
    int (*run)(const cli_settings *settings);
} command;

static const command commands[] = {
    {"train", "MODEL --data PATH...", "train a model on text or images",
     "gpt2:layers=4,width=128,heads=4,seq=128 --data book.txt --stages 2", CLI_TRAIN,
     cli_train},
    {"sample", "RUN", "sample text from a trained GPT-2", "run --prompt \"Once\" --length 500",
     CLI_SAMPLE, cli_sample},
    {"plan", "MODEL", "show memory and timeline before running",
     "gpt2:vocab=3000,seq=128 --stages 4 --balance 5,3,3,5 --batch 64", CLI_PLAN, cli_plan},
    {"profile", "MODEL", "measure what each layer costs",
     "gpt2:vocab=3000,seq=128 --batch 8 --json costs.json", CLI_PROFILE, cli_profile},
    {"bench", "NAME", "repeat a published experiment; or memory MODEL",
     "gpt2 --grid --plan-only", CLI_BENCH, cli_bench},
    {"schedule", "NAME", "check, draw and simulate a schedule",
     "zb-v --stages 4 --chunks 8 --svg zb-v.svg", CLI_SCHEDULE, cli_schedule},
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static void print_help(void) {
    printf("cgpipe %s: pipeline-parallel training, planned before it runs\n\n", CGP_VERSION);
    for (int i = 0; i < COMMANDS; i++)
        printf("  cgpipe %-8s %-22s %s\n", commands[i].name, commands[i].operand,
               commands[i].summary);
    printf("  cgpipe help [COMMAND]\n  cgpipe --version\n\n");
    printf("MODEL is one of these; what is not named keeps the value here:\n"
           "  gpt2:layers=12,width=768,heads=12,vocab=50257,seq=1024,tied=0\n"
           "  resnet:depth=101,classes=1000,image=224,width=64      resnet101 for short\n"
           "  resnet:depth=20,classes=10,image=32,width=16          any depth 6 n + 2\n"
           "  amoebanetd:L=18,D=256,classes=1000,image=224,maxpool=average,old=0\n"
           "  unet:B=5,C=64,depth=5,image=192\n\n"
           "`cgpipe help COMMAND` lists the options of a command.\n");
}

static void print_command_help(const command *c) {
    printf("cgpipe %s %s [options]\n%s\n\n", c->name, c->operand, c->summary);
    cli_options_help(stdout, c->bit);
    printf("\nexample: cgpipe %s %s\n", c->name, c->example);
}

/* NULL, with a message, if there is no such command. */
static const command *find_command(const char *name) {
    const char *names[COMMANDS + 1];
    for (int i = 0; i < COMMANDS; i++) {
        names[i] = commands[i].name;
        if (strcmp(name, names[i]) == 0) return &commands[i];
    }
    names[COMMANDS] = "help";
    const char *near = cgp_nearest(name, names, COMMANDS + 1);
    (void)cgp_fail(CGP_EINVAL, "%s: unknown %s (%s%s%s)", name,
                   name[0] == '-' ? "option" : "command", near ? "did you mean " : "",
                   near ? near : "cgpipe help", near ? "?" : "");
    return NULL;
}

static int run_command(const command *c, int argc, char **argv) {
    cli_settings settings;
    int code = cli_report(cli_settings_parse(&settings, c->bit, argc, argv), true);
    if (code == CLI_OK && settings.help)
        print_command_help(c);
    else if (code == CLI_OK)
        code = c->run(&settings);
    cli_settings_release(&settings);
    return code;
}

static int dispatch(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : NULL;
    if (!name)
        return cli_report(cgp_fail(CGP_EINVAL, "cgpipe: expected a command (cgpipe help)"),
                          true);
    if (strcmp(name, "--version") == 0) {
        printf("cgpipe %s\n", CGP_VERSION);
        return CLI_OK;
    }
    const bool help = strcmp(name, "help") == 0 || strcmp(name, "--help") == 0;
    if (help && argc == 2) {
        print_help();
        return CLI_OK;
    }
    const command *c = find_command(help ? argv[2] : name);
    if (!c) return cli_report(CGP_EINVAL, true);
    if (!help) return run_command(c, argc - 1, argv + 1);
    print_command_help(c);
    return CLI_OK;
}

int main(int argc, char **argv) {
    int code = dispatch(argc, argv);
    if (fflush(stdout) != 0 && code == CLI_OK)
        code = cli_report(
            cgp_fail(CGP_EIO, "standard output: cannot be written (%s)", strerror(errno)),
            false);
    return code;
}
