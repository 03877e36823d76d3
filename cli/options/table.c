/* SPDX-License-Identifier: Apache-2.0 */
/* table.c -- every option: name, kind, default, help. */
#include "options/table.h"

#include <stddef.h>

#define AT(field) offsetof(cli_run_options, field)
#define TRAIN CLI_TRAIN
#define PLANNED (CLI_TRAIN | CLI_PLAN | CLI_BENCH | CLI_CHECK)
#define SAMPLING (CLI_TRAIN | CLI_SAMPLE)
#define COSTED (PLANNED | CLI_PROFILE)
#define RANKED (SAMPLING | CLI_BENCH | CLI_PROFILE | CLI_CHECK)
#define ALL                                                                                        \
    (COSTED | CLI_SAMPLE | CLI_SCHEDULE | CLI_TOKENIZE | CLI_CONVERT | CLI_CONFIG | CLI_DEVICES |  \
     CLI_DIAGNOSE | CLI_STOP | CLI_SUPERVISE | CLI_NEW | CLI_EXPORT)
#define REPORTED CLI_REPORTED
#define ONCE CLI_ONCE
#define TYPED (CLI_ONCE | CLI_TYPED)

/* clang-format off */
const cli_option cli_options[CLI_OPTION_COUNT] = {
    [CLI_OPTION_DATA] = {"data", "PATH...", CLI_PATHS, AT(data), TRAIN, 0,
        NULL, "text files and directories, read as bytes; token files (.bin); \"random\";\n"
        "                           for images shapes[:size=S,masks=0|1,validation=N],\n"
        "                           cifar10:DIR, cifar100:DIR, mnist:DIR or images:DIR;\n"
        "                           plugin[:ARGUMENT]: the data set of a model plug-in"},
    [CLI_OPTION_VALIDATION] = {"validation", "FRACTION", CLI_TEXT, AT(validation), TRAIN, 0,
        "0.1", "fraction of the data kept for validation; or a file or directory"},
    [CLI_OPTION_PLAIN] = {"plain", NULL, CLI_FLAG, AT(plain), TRAIN, 0,
        NULL, "do not crop, shift and mirror training images at random"},
    [CLI_OPTION_STRICT] = {"strict", NULL, CLI_FLAG, AT(strict), TRAIN, 0,
        NULL, "stop at a broken image instead of skipping it"},
    [CLI_OPTION_WORKERS] = {"workers", "N", CLI_WHOLE, AT(workers), TRAIN, 0,
        "2", "threads that prepare images ahead; 0: none"},
    [CLI_OPTION_RUN] = {"run", "DIR", CLI_TEXT, AT(run), TRAIN | CLI_SUPERVISE, ONCE,
        "run", "directory of the run, made by train (supervise: as in COMMAND)"},
    [CLI_OPTION_CONFIG] = {"config", "FILE", CLI_TEXT, AT(config),
        CLI_TRAIN | CLI_PLAN | CLI_CHECK | CLI_PROFILE, TYPED,
        NULL, "run file: MODEL and options of train as YAML; the command line wins"},
    [CLI_OPTION_OVERWRITE] = {"overwrite", NULL, CLI_FLAG, AT(overwrite),
        TRAIN | CLI_CONVERT, TYPED,
        NULL, "replace the target; train: delete the run and start over"},
    [CLI_OPTION_RESUME] = {"resume", NULL, CLI_FLAG, AT(resume), TRAIN, TYPED,
        NULL, "resume the run; options not given keep their values"},
    [CLI_OPTION_FROM_STEP] = {"from-step", "N", CLI_WHOLE, AT(from_step),
        SAMPLING | CLI_CONVERT, TYPED,
        NULL, "step of the checkpoint to use (train: deletes later ones) [the latest]"},
    [CLI_OPTION_NEW_DATA] = {"new-data", NULL, CLI_FLAG, AT(new_data), TRAIN, TYPED,
        NULL, "resume with other data, from their beginning"},
    [CLI_OPTION_NEW_MODEL] = {"new-model", NULL, CLI_FLAG, AT(new_model), TRAIN, TYPED,
        NULL, "resume with a changed file of the model, such as a plug-in built again"},
    [CLI_OPTION_SAVE_EVERY] = {"save-every", "N", CLI_STEPS, AT(save_every), TRAIN, 0,
        NULL, "steps, or epochs (1ep), between checkpoints; 0: at the end [steps / 10]"},
    [CLI_OPTION_KEEP] = {"keep", "N", CLI_WHOLE, AT(keep), TRAIN, 0,
        "2", "newest checkpoints to keep; 0: all"},
    [CLI_OPTION_MINUTES] = {"minutes", "X", CLI_REAL, AT(minutes), TRAIN, ONCE,
        "0", "save and stop after X minutes; 0: no limit"},
    [CLI_OPTION_EVALUATE_EVERY] = {"evaluate-every", "N", CLI_STEPS, AT(evaluate_every), TRAIN, 0,
        "0", "steps, or epochs (1ep), between validation losses; 0: at the end"},
    [CLI_OPTION_TIMEOUT] = {"timeout", "S", CLI_REAL, AT(timeout), TRAIN | CLI_SUPERVISE, 0,
        "1800", "give up (supervise: restart) after S seconds without progress;\n"
        "                           0: never"},
    [CLI_OPTION_INTERVAL] = {"interval", "N", CLI_COUNT, AT(interval), TRAIN, 0,
        NULL, "steps between progress lines [steps / 20]"},
    [CLI_OPTION_WAIT] = {"wait", NULL, CLI_FLAG, AT(wait), CLI_STOP, 0,
        NULL, "wait until the training has ended"},
    [CLI_OPTION_RANKS] = {"ranks", "4,2,1", CLI_COUNTS, AT(ranks), CLI_SUPERVISE, 0,
        NULL, "values for {ranks} in COMMAND; a failure without a newer checkpoint\n"
        "                           takes the next one"},
    [CLI_OPTION_RESTARTS] = {"restarts", "N", CLI_WHOLE, AT(restarts), CLI_SUPERVISE, 0,
        "3", "give up after N consecutive restarts without a newer checkpoint"},
    [CLI_OPTION_BACKOFF] = {"backoff", "S", CLI_REAL, AT(backoff), CLI_SUPERVISE, 0,
        "1", "seconds before a restart; doubled after each one without a newer\n"
        "                           checkpoint, up to 300"},
    [CLI_OPTION_GRACE] = {"grace", "S", CLI_REAL, AT(grace), CLI_SUPERVISE, 0,
        "30", "seconds from SIGTERM to SIGKILL; also the --timeout after a process of\n"
        "                           COMMAND has failed"},
    [CLI_OPTION_MODEL] = {"model", "MODEL", CLI_TEXT, AT(model),
        SAMPLING | CLI_BENCH | CLI_CONVERT, ONCE,
        NULL, "train: MODEL; sample, convert: MODEL of a run with a model plug-in;\n"
        "                           bench gpt2: another size; convert: the model of the weights"},
    [CLI_OPTION_PLUGIN] = {"plugin", "PATH", CLI_TEXT, AT(plugin),
        COSTED | CLI_SAMPLE | CLI_CONVERT | CLI_EXPORT, TYPED,
        NULL, "model plug-in with the custom ops of a graph file: ./mine.so"},
    [CLI_OPTION_GRID] = {"grid", NULL, CLI_FLAG, AT(grid), CLI_BENCH, 0,
        NULL, "measure K 1 2 4, M 1 2 4 .. 64 and recompute never, except_last"},
    [CLI_OPTION_PLAN_ONLY] = {"plan-only", NULL, CLI_FLAG, AT(plan_only), CLI_BENCH, 0,
        NULL, "plan the memory; run nothing"},
    [CLI_OPTION_STAGES] = {"stages", "K", CLI_COUNT, AT(stages),
        PLANNED | CLI_SCHEDULE | CLI_SAMPLE, REPORTED,
        "1", "devices of the pipeline, one stage each unless --virtual"},
    [CLI_OPTION_BALANCE] = {"balance", "5,3,3,5", CLI_BALANCE, AT(balance), PLANNED, 0,
        NULL, "layers of each stage; or what to balance: flops, time or size [flops]"},
    [CLI_OPTION_COSTS] = {"costs", "FILE", CLI_TEXT, AT(costs), PLANNED, 0,
        NULL, "use layer times from cgpipe profile --json or --costs-out instead of\n"
        "                           measuring, interpolated over micro-batch sizes;\n"
        "                           plan simulates a step with them"},
    [CLI_OPTION_COSTS_OUT] = {"costs-out", "FILE", CLI_TEXT, AT(costs_out), CLI_BENCH, 0,
        NULL, "write the layer times of the run, for --costs"},
    [CLI_OPTION_OPS] = {"ops", NULL, CLI_FLAG, AT(ops), CLI_BENCH, 0,
        NULL, "print the time of a step by kind of op, update and waiting, with\n"
        "                           operations and bytes per second"},
    [CLI_OPTION_CLUSTER] = {"cluster", "FILE", CLI_TEXT, AT(cluster), CLI_PLAN | CLI_SCHEDULE, 0,
        NULL, "hosts and links from cgpipe bench transport --json, for the times of\n"
        "                           messages in a simulated step"},
    [CLI_OPTION_CHUNKS] = {"chunks", "M", CLI_COUNT, AT(chunks), COSTED | CLI_SCHEDULE, REPORTED,
        NULL, "micro-batches per mini-batch [8, at most the batch]"},
    [CLI_OPTION_SCHEDULE] = {"schedule", "S", CLI_TEXT, AT(schedule), PLANNED, REPORTED,
        "1f1b", "a name from cgpipe schedule --list, or a file: PyTorch's CSV"},
    [CLI_OPTION_VIRTUAL] = {"virtual", "V", CLI_COUNT, AT(virtual_stages), PLANNED | CLI_SCHEDULE,
        REPORTED, NULL, "stages on each of the K devices [the schedule's]"},
    [CLI_OPTION_GROUP] = {"group", "G", CLI_COUNT, AT(group), PLANNED | CLI_SCHEDULE, 0,
        NULL, "interleaved: micro-batches per round [K]"},
    [CLI_OPTION_RECOMPUTE] = {"recompute", "R", CLI_TEXT, AT(recompute), PLANNED | CLI_SCHEDULE,
        REPORTED, "never", "never, always or except_last, each with or without +selective"},
    [CLI_OPTION_PRECISION] = {"precision", "P", CLI_TEXT, AT(precision), COSTED, REPORTED,
        "f32", "type of stored activations: f32, or bf16 in half the bytes"},
    [CLI_OPTION_CONVOLUTION] = {"convolution", "C", CLI_TEXT, AT(convolution), COSTED, REPORTED,
        "direct", "3 x 3 convolutions: direct, or winograd (fewer multiplications)"},
    [CLI_OPTION_DEFERRED_BATCH_NORM] = {"deferred-batch-norm", NULL, CLI_FLAG,
        AT(deferred_batch_norm), PLANNED, REPORTED,
        NULL, "batch norms: running statistics of the mini-batch, updated once a step"},
    [CLI_OPTION_BATCH] = {"batch", "B", CLI_COUNT, AT(batch), COSTED, REPORTED,
        "32", "samples of a mini-batch"},
    [CLI_OPTION_STEPS] = {"steps", "N", CLI_COUNT, AT(steps), PLANNED, REPORTED,
        "300", "updates"},
    [CLI_OPTION_EPOCHS] = {"epochs", "N", CLI_COUNT, AT(epochs),
        CLI_TRAIN | CLI_PLAN | CLI_CHECK, REPORTED,
        NULL, "passes over the data, instead of --steps"},
    [CLI_OPTION_SEED] = {"seed", "N", CLI_WHOLE, AT(seed), PLANNED | CLI_SAMPLE, REPORTED,
        "0", "seed of weights, dropout, data and sampling"},
    [CLI_OPTION_DROPOUT] = {"dropout", "P", CLI_FRACTION, AT(dropout), COSTED | CLI_EXPORT,
        REPORTED,
        NULL, "probability in training [gpt2 0, bench 0.1; vit 0; unet 0.1; others none]"},
    [CLI_OPTION_OPTIMIZER] = {"optimizer", "O", CLI_TEXT, AT(optimizer), COSTED, REPORTED,
        "adamw", "sgd, adamw, adam or rmsprop"},
    [CLI_OPTION_LR] = {"lr", "X", CLI_REAL, AT(lr), PLANNED, REPORTED,
        NULL, "learning rate [0.001; sgd 0.01]"},
    [CLI_OPTION_LR_BATCH] = {"lr-batch", "B", CLI_COUNT, AT(lr_batch), PLANNED, REPORTED,
        NULL, "--lr is for B samples; a larger --batch scales it up in proportion"},
    [CLI_OPTION_WARMUP] = {"warmup", "N", CLI_STEPS, AT(warmup), PLANNED, REPORTED,
        "0", "steps in which the learning rate rises to --lr; or epochs (4ep)"},
    [CLI_OPTION_WARMUP_START] = {"warmup-start", "X", CLI_REAL, AT(warmup_start), PLANNED, REPORTED,
        NULL, "learning rate at the start of the warm-up, at most --lr [0]"},
    [CLI_OPTION_WARMUP_INTERVAL] = {"warmup-interval", "N", CLI_STEPS, AT(warmup_interval), PLANNED,
        REPORTED, NULL, "raise the learning rate only every N steps, or epochs (1ep) [linear]"},
    [CLI_OPTION_LR_SCHEDULE] = {"lr-schedule", "S", CLI_TEXT, AT(lr_schedule), PLANNED,
        REPORTED, "constant", "after the warm-up: constant, cosine, step or milestones"},
    [CLI_OPTION_MIN_LR_RATIO] = {"min-lr-ratio", "X", CLI_REAL, AT(min_lr_ratio), PLANNED, REPORTED,
        NULL, "cosine: last learning rate as a fraction of --lr [0.1]"},
    [CLI_OPTION_LR_STEP_SIZE] = {"lr-step-size", "N", CLI_COUNT, AT(lr_step_size), PLANNED,
        REPORTED, NULL, "step: steps between cuts of the learning rate"},
    [CLI_OPTION_LR_MILESTONES] = {"lr-milestones", "N,..", CLI_NAMES, AT(lr_milestones), PLANNED,
        REPORTED, NULL, "milestones: steps, or epochs (30ep,60ep), after which it is cut"},
    [CLI_OPTION_LR_GAMMA] = {"lr-gamma", "X", CLI_REAL, AT(lr_gamma), PLANNED, REPORTED,
        NULL, "step, milestones: factor of a cut [0.1]"},
    [CLI_OPTION_MOMENTUM] = {"momentum", "X", CLI_FRACTION, AT(momentum), COSTED, REPORTED,
        NULL, "momentum of sgd [0.9] and rmsprop [0]"},
    [CLI_OPTION_NESTEROV] = {"nesterov", NULL, CLI_FLAG, AT(nesterov), PLANNED, REPORTED,
        NULL, "Nesterov momentum, for sgd [bench: on]"},
    [CLI_OPTION_BETA1] = {"beta1", "X", CLI_FRACTION, AT(beta1), PLANNED, REPORTED,
        NULL, "decay of the first moment, adamw and adam [0.9]"},
    [CLI_OPTION_BETA2] = {"beta2", "X", CLI_FRACTION, AT(beta2), PLANNED, REPORTED,
        NULL, "decay of the second moment, adamw and adam [0.999]"},
    [CLI_OPTION_ALPHA] = {"alpha", "X", CLI_FRACTION, AT(alpha), PLANNED, REPORTED,
        NULL, "decay of rmsprop's mean square [0.99]"},
    [CLI_OPTION_EPS] = {"eps", "X", CLI_REAL, AT(eps), PLANNED, REPORTED,
        NULL, "added to the denominator, adamw, adam and rmsprop [1e-8]"},
    [CLI_OPTION_WEIGHT_DECAY] = {"weight-decay", "X", CLI_REAL, AT(weight_decay), PLANNED,
        REPORTED, NULL, "decay of weights, times --lr [adamw 0.01, sgd 0.0001, others 0]"},
    [CLI_OPTION_DECAY_ALL] = {"decay-all", NULL, CLI_FLAG, AT(decay_all), PLANNED, REPORTED,
        NULL, "apply weight decay to norms and biases too [bench: on]"},
    [CLI_OPTION_CLIP] = {"clip", "X", CLI_REAL, AT(clip), PLANNED, REPORTED,
        "0", "clip the norm of all gradients together to X; 0: never"},
    [CLI_OPTION_DEVICES] = {"devices", "K or LIST", CLI_DEVICE_NAMES, AT(devices),
        COSTED | CLI_SAMPLE, 0,
        NULL, "K cpu devices; or KIND[:ORDINAL][@LIMIT][*COUNT],..: cpu*3,cuda:0@22GiB;\n"
        "                           one name stands for all; cgpipe devices lists kinds [cpu];\n"
        "                           profile: the first is measured while all are busy"},
    [CLI_OPTION_TRANSPORT] = {"transport", "NAME", CLI_TEXT, AT(transport), RANKED, ONCE,
        "auto", "transport between processes: mpi, inproc (single process), or auto\n"
        "                           (mpi if there are several)"},
    [CLI_OPTION_VERIFY_MESSAGES] = {"verify-messages", NULL, CLI_FLAG, AT(verify_messages), TRAIN,
        ONCE,
        NULL, "check a checksum of each message between processes on arrival"},
    [CLI_OPTION_THREADS_PER_DEVICE] = {"threads-per-device", "T", CLI_COUNT,
        AT(threads_per_device), COSTED | CLI_SAMPLE, REPORTED, "1", "threads of each device"},
    [CLI_OPTION_MEMORY_LIMIT] = {"memory-limit", "BYTES", CLI_BYTES, AT(memory_limit), PLANNED,
        0, NULL, "memory limit of each device: 500M, 2GiB [no limit]"},
    [CLI_OPTION_SAMPLE] = {"sample", "N", CLI_WHOLE, AT(sample), TRAIN, 0,
        "0", "characters to sample at the end"},
    [CLI_OPTION_WEIGHTS] = {"weights", "FILE", CLI_TEXT, AT(weights), CLI_SAMPLE, 0,
        NULL, "a file or directory of weights to use instead of a checkpoint"},
    [CLI_OPTION_LENGTH] = {"length", "N", CLI_WHOLE, AT(length), CLI_SAMPLE, 0,
        "200", "characters to sample; with --tokenizer: tokens"},
    [CLI_OPTION_PROMPT] = {"prompt", "TEXT", CLI_TEXT, AT(prompt), SAMPLING, 0,
        "\n", "text to continue; not repeated in the sample [a line break]"},
    [CLI_OPTION_TEMPERATURE] = {"temperature", "X", CLI_REAL, AT(temperature), SAMPLING, 0,
        "0.8", "0: take the likeliest; 1: sample as trained"},
    [CLI_OPTION_TOP_K] = {"top-k", "K", CLI_COUNT, AT(top_k), SAMPLING, 0,
        NULL, "sample among the K likeliest [all]"},
    [CLI_OPTION_TOKENIZER] = {"tokenizer", "PATH", CLI_TEXT, AT(tokenizer),
        CLI_TOKENIZE | CLI_SAMPLE, 0,
        NULL, "a tokenizer.json, or a directory with it or with vocab.json and\n"
        "                           merges.txt, as published with GPT-2, Llama 3, Qwen2"},
    [CLI_OPTION_DECODE] = {"decode", NULL, CLI_FLAG, AT(decode), CLI_TOKENIZE, 0,
        NULL, "turn tokens into bytes: FILE is a token file (.bin), or ids as numbers"},
    [CLI_OPTION_END_OF_TEXT] = {"end-of-text", NULL, CLI_FLAG, AT(end_of_text), CLI_TOKENIZE, 0,
        NULL, "end each FILE with the token <|endoftext|>, or <|end_of_text|>"},
    [CLI_OPTION_ADD_SPECIAL_TOKENS] = {"add-special-tokens", NULL, CLI_FLAG,
        AT(add_special_tokens), CLI_TOKENIZE | CLI_SAMPLE, 0,
        NULL, "put the tokens of tokenizer.json's template around each FILE, or before\n"
        "                           the prompt: Llama 3's <|begin_of_text|>"},
    [CLI_OPTION_LIST] = {"list", NULL, CLI_FLAG, AT(list), CLI_SCHEDULE, 0,
        NULL, "name all schedules, and when to use each"},
    [CLI_OPTION_CHECK] = {"check", "FILE", CLI_TEXT, AT(check), CLI_SCHEDULE, 0,
        NULL, "a schedule of your own instead of NAME: PyTorch's CSV, either dialect"},
    [CLI_OPTION_COMPARE] = {"compare", "FILE", CLI_TEXT, AT(compare), CLI_SCHEDULE, 0,
        NULL, "compare a step, in --trace FILE.json, with its plan: where its time went"},
    [CLI_OPTION_COST_F] = {"cost-f", "X", CLI_REAL, AT(cost_f), CLI_SCHEDULE, 0,
        NULL, "time of F, forward, on a stage [1 / the stages on its device]"},
    [CLI_OPTION_COST_I] = {"cost-i", "X", CLI_REAL, AT(cost_i), CLI_SCHEDULE, 0,
        NULL, "time of I, input gradient [as --cost-f]; B takes I + W"},
    [CLI_OPTION_COST_W] = {"cost-w", "X", CLI_REAL, AT(cost_w), CLI_SCHEDULE, 0,
        NULL, "time of W, weight gradient [as --cost-f]"},
    [CLI_OPTION_LATENCY] = {"latency", "X", CLI_REAL, AT(latency), CLI_SCHEDULE, 0,
        "0", "time from the end of an action until its message arrives"},
    [CLI_OPTION_TRANSFER] = {"transfer", "X", CLI_REAL, AT(transfer), CLI_SCHEDULE, 0,
        "0", "bytes / bandwidth of a message; a link carries one at a time"},
    [CLI_OPTION_MESSAGE_BYTES] = {"message-bytes", "BYTES", CLI_BYTES, AT(message_bytes),
        CLI_SCHEDULE, 0,
        NULL, "bytes of each message, with --cluster; costs are then in seconds"},
    [CLI_OPTION_BLOCKING] = {"blocking", NULL, CLI_FLAG, AT(blocking), CLI_SCHEDULE, 0,
        NULL, "transfers take compute time of the receiving device"},
    [CLI_OPTION_CSV] = {"csv", NULL, CLI_FLAG, AT(csv), CLI_SCHEDULE, 0,
        NULL, "print PyTorch's CSV instead, compute actions only"},
    [CLI_OPTION_CSV_TRANSFERS] = {"csv-transfers", NULL, CLI_FLAG, AT(csv_transfers),
        CLI_SCHEDULE, 0,
        NULL, "print PyTorch's CSV instead, with transfers"},
    [CLI_OPTION_SVG] = {"svg", "FILE", CLI_TEXT, AT(svg), CLI_SCHEDULE, 0,
        NULL, "draw the simulated step as SVG; with --compare the measured one too"},
    [CLI_OPTION_TRACE_JSON] = {"trace-json", "FILE", CLI_TEXT, AT(trace_json), CLI_SCHEDULE, 0,
        NULL, "write the simulated step for ui.perfetto.dev; a unit is 1 ms there"},
    [CLI_OPTION_TRACE] = {"trace", "FILE,..", CLI_NAMES, AT(trace), CLI_TRAIN | CLI_BENCH, ONCE,
        NULL, "write the last step as measured: .json for ui.perfetto.dev and for\n"
        "                           cgpipe schedule --compare, .svg or .txt for people"},
    [CLI_OPTION_REPEATS] = {"repeats", "N", CLI_COUNT, AT(repeats), CLI_PROFILE, 0,
        "3", "steps to measure for each micro-batch size, after one to warm up"},
    [CLI_OPTION_PEAK] = {"peak", "GFLOPS", CLI_REAL, AT(peak), CLI_PROFILE, 0,
        NULL, "peak of one core, to show each layer's share of it"},
    [CLI_OPTION_OUT] = {"out", "FILE", CLI_TEXT, AT(out), CLI_TOKENIZE | CLI_EXPORT, 0,
        NULL, "export: the graph file [standard output]; tokenize: tokens,\n"
        "                           to FILE.bin for --data; with --decode bytes [ids as numbers,\n"
        "                           or bytes, to standard output]; -o is the same"},
    [CLI_OPTION_JSON] = {"json", "FILE", CLI_TEXT, AT(json),
        COSTED | CLI_SCHEDULE | CLI_DEVICES | CLI_DIAGNOSE, ONCE,
        NULL, "write the results as JSON; - is standard output"},
    [CLI_OPTION_VERBOSE] = {"verbose", NULL, CLI_FLAG, AT(verbose), TRAIN, ONCE,
        NULL, "print the plan before the first step, all measurements after the last"},
    [CLI_OPTION_QUIET] = {"quiet", NULL, CLI_FLAG, AT(quiet),
        CLI_TRAIN | CLI_PLAN | CLI_BENCH | CLI_PROFILE, ONCE,
        NULL, "print only errors and results: a sample, --json -"},
    [CLI_OPTION_HELP] = {"help", NULL, CLI_FLAG, AT(help), ALL, TYPED,
        NULL, "this text; -h is the same (train -h: the options for a first run)"},
};
/* clang-format on */

static const struct {
    cli_option_id first;
    const char *heading;
} groups[] = {
    {CLI_OPTION_DATA, "data"},
    {CLI_OPTION_RUN, "run"},
    {CLI_OPTION_MODEL, "model and benchmark"},
    {CLI_OPTION_STAGES, "pipeline"},
    {CLI_OPTION_BATCH, "training"},
    {CLI_OPTION_OPTIMIZER, "optimizer"},
    {CLI_OPTION_DEVICES, "devices"},
    {CLI_OPTION_SAMPLE, "sampling"},
    {CLI_OPTION_TOKENIZER, "tokens"},
    {CLI_OPTION_LIST, "schedules"},
    {CLI_OPTION_COST_F, "costs"},
    {CLI_OPTION_CSV, "output"},
};

const char *cli_option_group(int id) {
    const char *heading = groups[0].heading;
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        if ((int)groups[i].first <= id) heading = groups[i].heading;
    }
    return heading;
}

/* Defaults that differ between commands. */
static const struct {
    unsigned command;
    cli_option_id option;
    const char *preset;
} command_presets[] = {
    {CLI_BENCH, CLI_OPTION_SCHEDULE, "gpipe"}, {CLI_BENCH, CLI_OPTION_BATCH, "64"},
    {CLI_BENCH, CLI_OPTION_STEPS, "10"},       {CLI_BENCH, CLI_OPTION_OPTIMIZER, "sgd"},
    {CLI_SCHEDULE, CLI_OPTION_STAGES, "4"},    {CLI_PROFILE, CLI_OPTION_BATCH, "8"},
    {CLI_PROFILE, CLI_OPTION_CHUNKS, "1"},     {CLI_SAMPLE, CLI_OPTION_STAGES, NULL},
    {CLI_SUPERVISE, CLI_OPTION_RUN, NULL},     {CLI_SUPERVISE, CLI_OPTION_TIMEOUT, "7200"},
};

/* Options of training that some commands take, so that command lines and run files of train fit
 * them, but that change none of their results. A plan has no values of the optimizer, only its
 * memory. The single update of check has the learning rate of --lr, which a schedule only scales.
 * Bench always has --nesterov and --decay-all. */
static const struct {
    cli_option_id option;
    unsigned commands;
} without_effect[] = {
    {CLI_OPTION_DEFERRED_BATCH_NORM, CLI_PLAN},
    {CLI_OPTION_STEPS, CLI_PLAN | CLI_CHECK},
    {CLI_OPTION_EPOCHS, CLI_PLAN | CLI_CHECK},
    {CLI_OPTION_SEED, CLI_PLAN},
    {CLI_OPTION_LR, CLI_PLAN},
    {CLI_OPTION_LR_BATCH, CLI_PLAN | CLI_CHECK},
    {CLI_OPTION_WARMUP, CLI_PLAN | CLI_CHECK},
    {CLI_OPTION_WARMUP_START, CLI_PLAN | CLI_CHECK},
    {CLI_OPTION_WARMUP_INTERVAL, CLI_PLAN | CLI_CHECK},
    {CLI_OPTION_LR_SCHEDULE, CLI_PLAN | CLI_CHECK},
    {CLI_OPTION_MIN_LR_RATIO, CLI_PLAN | CLI_CHECK},
    {CLI_OPTION_LR_STEP_SIZE, CLI_PLAN | CLI_CHECK},
    {CLI_OPTION_LR_MILESTONES, CLI_PLAN | CLI_CHECK},
    {CLI_OPTION_LR_GAMMA, CLI_PLAN | CLI_CHECK},
    {CLI_OPTION_NESTEROV, CLI_PLAN | CLI_BENCH},
    {CLI_OPTION_BETA1, CLI_PLAN},
    {CLI_OPTION_BETA2, CLI_PLAN},
    {CLI_OPTION_ALPHA, CLI_PLAN},
    {CLI_OPTION_EPS, CLI_PLAN},
    {CLI_OPTION_WEIGHT_DECAY, CLI_PLAN},
    {CLI_OPTION_DECAY_ALL, CLI_PLAN | CLI_BENCH},
    {CLI_OPTION_CLIP, CLI_PLAN},
};

bool cli_option_listed(int id, unsigned command) {
    for (size_t i = 0; i < sizeof without_effect / sizeof without_effect[0]; i++) {
        if ((int)without_effect[i].option == id && without_effect[i].commands & command)
            return false;
    }
    return cli_option_taken(id, command);
}

const char *cli_option_preset(unsigned command, int id) {
    for (size_t i = 0; i < sizeof command_presets / sizeof command_presets[0]; i++) {
        if (command_presets[i].command == command && (int)command_presets[i].option == id)
            return command_presets[i].preset;
    }
    return cli_options[id].preset;
}

const char *cli_option_shown_preset(unsigned command, int id) {
    const char *preset = cli_option_preset(command, id);
    return preset && *preset == '\n' ? NULL : preset; /* the help text has it */
}
