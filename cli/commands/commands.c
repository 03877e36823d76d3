/* SPDX-License-Identifier: Apache-2.0 */
/* commands.c -- the table of commands (name, operand, summary, example), and the help text on
 * MODEL. */
#include "commands/commands.h"

const cli_command cli_commands[CLI_COMMANDS] = {
    {"training", "train", "MODEL --data PATH...", "train a model on text or images",
     "gpt2:layers=4,width=128,heads=4,seq=128 --data book.txt --stages 2", CLI_TRAIN, cli_train},
    {"training", "supervise", "-- COMMAND...", "restart a training from its last checkpoint",
     "--ranks 4,2,1 -- mpirun -n {ranks} cgpipe train --resume --run run", CLI_SUPERVISE,
     cli_supervise},
    {"training", "stop", "RUN", "make the training that writes RUN save and end", "run", CLI_STOP,
     cli_stop},
    {"training", "sample", "RUN", "sample text from a trained model",
     "run --prompt \"Once\" --length 500", CLI_SAMPLE, cli_sample},
    {"training", "config", "RUN", "print a run's settings as a run file, for --config", "run",
     CLI_CONFIG, cli_config},
    {"training", "compare", "RUN RUN", "name the first step and parameter in which two runs differ",
     "run other-run", CLI_COMPARE, cli_compare},
    {"training", "report", "RUN [RUN]", "show where a run's time and memory went, as a page",
     "run --text", CLI_REPORT_RUN, cli_report_run},
    {"training", "diagnose", "RUN", "name the process that a hanging run waits for", "run",
     CLI_DIAGNOSE, cli_diagnose},
    {"models", "new", "model NAME", "write a model to start your own from, NAME/NAME.c",
     "model mine", CLI_NEW, cli_new},
    {"models", "export", "MODEL", "write a model's graph as JSON, which MODEL can name",
     "resnet20 --out resnet20.json", CLI_EXPORT, cli_export},
    {"data and weights", "tokenize", "[FILE...]", "turn text into tokens and back, as GPT-2 does",
     "--tokenizer gpt2 --out book.bin book.txt", CLI_TOKENIZE, cli_tokenize},
    {"data and weights", "convert", "FROM TO", "turn published weights into a run, or the reverse",
     "gpt2-files run", CLI_CONVERT, cli_convert},
    {"planning and measuring", "devices", "", "list devices, transports and plug-ins",
     "--json devices.json", CLI_DEVICES, cli_devices},
    {"planning and measuring", "plan", "MODEL", "show memory and timeline without running",
     "gpt2:vocab=3000,seq=128 --stages 4 --balance 5,3,3,5 --batch 64", CLI_PLAN, cli_plan},
    {"planning and measuring", "profile", "MODEL", "measure what each layer costs",
     "gpt2:vocab=3000,seq=128 --batch 8 --json costs.json", CLI_PROFILE, cli_profile},
    {"planning and measuring", "check", "MODEL",
     "compare a step in one stage and in several, bit for bit",
     "resnet20 --stages 3 --schedule zb-v --batch 8", CLI_CHECK, cli_check},
    {"planning and measuring", "bench", "MODEL or transport",
     "measure a model (gpt2: the GPT-2 benchmark) or messages", "gpt2 --grid --plan-only",
     CLI_BENCH, cli_bench},
    {"planning and measuring", "schedule", "NAME", "check, draw and simulate a schedule",
     "zb-v --stages 4 --chunks 8 --svg zb-v.svg", CLI_SCHEDULE, cli_schedule},
};

const char cli_summary[] = "pipeline-parallel training, planned before it runs";

const char cli_models[] =
    "MODEL is one of these; keys left out have the value shown:\n"
    "  gpt2:layers=12,width=768,heads=12,vocab=50257,seq=1024,tied=0,gelu=erf\n"
    "    eps=1e-5 of the norms, inner=3072 (4 width); gelu=tanh for published weights;\n"
    "    residuals=N: attention residuals over groups of N layers\n"
    "  llama:layers=12,width=768,heads=12,kv_heads=12,inner=2048,vocab=32000,seq=1024,tied=0\n"
    "    theta=10000,rope=default (linear, llama3: with factor, low, high, original),\n"
    "    window, bias=0 of q, k and v, head_width (width / heads), eps=1e-5 of the norms\n"
    "  resnet:depth=101,classes=1000,image=224,width=64      short: resnet101\n"
    "  resnet:depth=20,classes=10,image=32,width=16          any depth 6 n + 2\n"
    "  amoebanetd:L=18,D=256,classes=1000,image=224,maxpool=average,old=0\n"
    "  unet:B=5,C=64,depth=5,image=192\n"
    "  vit:layers=12,width=768,heads=12,inner=3072,image=224,patch=16,classes=1000\n"
    "    eps=1e-12 of the norms, inner: 4 width\n"
    "  ./mine.so:key=value,...     your own, from a plug-in (cgpipe new model mine)\n"
    "  ./mine.json                 your own, from a graph file (cgpipe export)\n"
    "  layers.csv                  a table of layers' times and sizes, for plan\n";
