/* SPDX-License-Identifier: Apache-2.0 */
/* report.c -- plans and results as text for people. */
#include "report/report.h"

#include "options/options.h"
#include "ranks.h"
#include "session/session.h"
#include "text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE_WIDTH 100

/* --- configuration --- */

static void print_lr_schedule(FILE *out, const cgp_lr_schedule *schedule) {
    if (schedule->warmup > 0) fprintf(out, ", warm-up of %" PRId64 " steps", schedule->warmup);
    if (schedule->kind == CGP_LR_COSINE)
        fprintf(out, ", cosine to %g of it at step %" PRId64, schedule->min_ratio, schedule->steps);
    for (int i = 0; i < schedule->n_milestones; i++) {
        if (i == 0) fprintf(out, ", times %g after steps", schedule->gamma);
        fprintf(out, "%s %" PRId64, i ? "," : "", schedule->milestones[i]);
    }
    if (schedule->kind == CGP_LR_STEP)
        fprintf(out, ", times %g every %" PRId64 " steps", schedule->gamma, schedule->step_size);
}

static void print_optimizer(FILE *out, const cgp_optim *optim) {
    fprintf(out, "optimizer    %s, lr %g", cgp_optim_kind_name(optim->kind), optim->lr);
    print_lr_schedule(out, &optim->schedule);
    fputc('\n', out);
}

static void print_constants(FILE *out, const cgp_optim *optim) {
    const bool adam = optim->kind == CGP_OPTIM_ADAM || optim->kind == CGP_OPTIM_ADAMW;
    fprintf(out, "             weight decay %g%s", optim->weight_decay,
            optim->decay_all ? " (norms and biases too)" : "");
    if (adam) fprintf(out, ", betas %g and %g", optim->beta1, optim->beta2);
    if (optim->kind == CGP_OPTIM_RMSPROP) fprintf(out, ", alpha %g", optim->alpha);
    if (!adam)
        fprintf(out, ", momentum %g%s", optim->momentum, optim->nesterov ? " (Nesterov)" : "");
    if (optim->kind != CGP_OPTIM_SGD) fprintf(out, ", eps %g", optim->eps);
    if (optim->clip_norm > 0) fprintf(out, ", gradients clipped to norm %g", optim->clip_norm);
    fputc('\n', out);
}

static void print_groups(FILE *out, const cgp_optim *optim) {
    for (int g = 0; g < optim->n_groups; g++) {
        const cgp_optim_group *group = &optim->groups[g];
        fprintf(out, "             %s", cli_shown(group->patterns));
        if (!isnan(group->lr)) fprintf(out, ", lr %g", group->lr);
        if (!isnan(group->weight_decay)) fprintf(out, ", weight decay %g", group->weight_decay);
        fputc('\n', out);
    }
}

int64_t cli_frozen_count(const cgp_model *model) {
    int64_t count = 0;
    for (int p = 0; p < cgp_model_parameters(model); p++) {
        if (cgp_model_parameter_frozen(model, p))
            count += cgp_shape_count(cgp_model_parameter_shape(model, p));
    }
    return count;
}

static void print_model(FILE *out, const cli_session *session) {
    char parameters[CLI_NUMBER], text[CLI_NUMBER];
    const int64_t frozen = cli_frozen_count(session->model);
    fprintf(out, "model        %s\n", session->model_spec);
    fprintf(out, "             %d layers, %s parameters", cgp_model_layers(session->model),
            cli_grouped(cgp_model_parameter_count(session->model), parameters));
    if (frozen > 0) fprintf(out, ", %s of them frozen", cli_grouped(frozen, text));
    fputc('\n', out);
}

static void print_batch(FILE *out, const cli_session *session) {
    const cli_run_options *options = session->options;
    const int chunks = cgp_plan_chunks(session->plan);
    fprintf(out, "mini-batch   %" PRId64 " samples, %d micro-batches of %" PRId64, options->batch,
            chunks, cgp_plan_microbatch(session->plan));
    if (chunks < options->chunks)
        fprintf(out, " (fewer than --chunks %" PRId64 ")", options->chunks);
    if (options->replicas > 1)
        fprintf(out, ", at most %d on each of %" PRId64 " replicas",
                cgp_schedule_chunks(cgp_plan_schedule(session->plan)), options->replicas);
    fputc('\n', out);
}

/* Print the line on the pipeline. If `brief` is true, the text must fit on one line. Therefore
 * leave out the number of threads if each device has one thread. */
static void print_pipeline(FILE *out, const cli_session *session, bool brief) {
    const cli_run_options *options = session->options;
    const int *balance = cgp_plan_balance(session->plan);
    const int stages = cgp_plan_stages(session->plan);
    fprintf(out, "pipeline     %d %s", stages, stages == 1 ? "stage" : "stages");
    if (stages != cgp_plan_devices(session->plan))
        fprintf(out, " on %d devices", cgp_plan_devices(session->plan));
    fprintf(out, ", balance ");
    for (int j = 0; j < stages; j++)
        fprintf(out, "%s%d", j ? "," : "", balance[j]);
    fprintf(out, ", schedule %s, recompute %s, precision %s%s%s", cli_shown(options->schedule),
            options->recompute, options->precision,
            strcmp(options->convolution, "direct") != 0 ? ", winograd convolutions" : "",
            options->deferred_batch_norm ? ", deferred batch norm" : "");
    if (options->replicas > 1) fprintf(out, ", %" PRId64 " replicas", options->replicas);
    if (options->replicas > 1 && options->shard_optimizer) fprintf(out, ", sharded optimizer");
    if (options->gradient_groups > 1)
        fprintf(out, ", %" PRId64 " gradient groups", options->gradient_groups);
    if (!brief || options->threads_per_device > 1)
        fprintf(out, ", %" PRId64 " %s per device", options->threads_per_device,
                options->threads_per_device == 1 ? "thread" : "threads");
    fputc('\n', out);
}

static void print_idle_cores(FILE *out, const cli_session *session) {
    const cli_run_options *options = session->options;
    const int64_t cores = sysconf(_SC_NPROCESSORS_ONLN), used = options->replicas *
                                                                cgp_plan_devices(session->plan) *
                                                                options->threads_per_device;
    if (used < cores)
        fprintf(out,
                "             %" PRId64 " of %" PRId64
                " cores idle (more --stages or --threads-per-device would use them)\n",
                cores - used, cores);
}

void cli_print_configuration(FILE *out, const cli_session *session) {
    print_model(out, session);
    print_batch(out, session);
    print_pipeline(out, session, false);
    print_idle_cores(out, session);
    print_optimizer(out, &session->optim);
    print_constants(out, &session->optim);
    print_groups(out, &session->optim);
    fprintf(out, "             dropout %g, seed %" PRId64 "\n", session->options->dropout,
            session->options->seed);
}

/* Print "memory       6.49 MiB planned, 3.62 MiB on the largest of 2 devices". */
static void print_memory_line(FILE *out, const cgp_plan *plan, int64_t replicas) {
    char text[CLI_NUMBER];
    int64_t max = 0;
    const int devices = cgp_plan_devices(plan);
    for (int d = 0; d < devices; d++) {
        const int64_t bytes = cgp_plan_device_at(plan, d)->planned_bytes;
        max = bytes > max ? bytes : max;
    }
    fprintf(out, "memory       %s planned",
            cgp_bytes_text(cli_plan_total(plan).planned_bytes, text, sizeof text));
    if (devices > 1)
        fprintf(out, ", %s on the largest of %d devices", cgp_bytes_text(max, text, sizeof text),
                devices);
    if (replicas > 1) fprintf(out, ", on each of %" PRId64 " replicas", replicas);
    fputc('\n', out);
}

void cli_print_summary(FILE *out, const cli_session *session, bool known) {
    if (!known) print_model(out, session);
    if (!known) print_batch(out, session);
    print_pipeline(out, session, true);
    if (!known) print_idle_cores(out, session);
    if (!known) print_optimizer(out, &session->optim);
    if (!known) print_groups(out, &session->optim);
    print_memory_line(out, session->plan, session->options->replicas);
}

/* --- ranks --- */

/* Print a range, "rank 3" or "ranks 0-3". */
static void print_range(FILE *out, const char *name, int first, int last) {
    if (last > first)
        fprintf(out, "%ss %d-%d", name, first, last);
    else
        fprintf(out, "%s %d", name, first);
}

/* Consecutive ranks of a replica may have the same host and the same cores. Return the last rank of
 * such a group that begins with rank `first`. */
static int last_alike(const cgp_pipeline *pipeline, int first, int per_replica) {
    const cgp_rank_info info = cgp_pipeline_rank(pipeline, first);
    int last = first;
    while ((last + 1) % per_replica != 0) {
        const cgp_rank_info next = cgp_pipeline_rank(pipeline, last + 1);
        if (strcmp(next.host, info.host) != 0 || strcmp(next.cores, info.cores) != 0) break;
        last++;
    }
    return last;
}

/* Return the number of devices that ranks below `rank` have. The devices of a rank have consecutive
 * numbers. */
static int devices_before(const cgp_plan *plan, int rank) {
    int d = 0;
    while (d < cgp_plan_devices(plan) && cgp_plan_device_at(plan, d)->rank < rank)
        d++;
    return d;
}

void cli_print_ranks(FILE *out, const cli_session *session) {
    const cgp_pipeline *pipeline = session->pipeline;
    const char *isa = cgp_pipeline_isa(pipeline);
    const int replicas = (int)session->options->replicas, each = cli_ranks() / replicas;
    if (cli_ranks() == 1) return;
    fprintf(out, "ranks        %d over %s, ", cli_ranks(), cli_ranks_transport()->name);
    if (isa) fprintf(out, "instruction set %s, ", isa);
    fprintf(out, "libm %s\n", cgp_pipeline_libm(pipeline));
    for (int r = 0, last; r < cli_ranks(); r = last + 1) {
        const cgp_rank_info info = cgp_pipeline_rank(pipeline, r);
        last = last_alike(pipeline, r, each);
        fprintf(out, "             ");
        print_range(out, "rank", r, last);
        fprintf(out, " on %s: ", cli_shown(info.host));
        if (replicas > 1) fprintf(out, "replica %d, ", r / each);
        print_range(out, "device", devices_before(session->plan, r % each),
                    devices_before(session->plan, last % each + 1) - 1);
        fprintf(out, ", cores %s\n", *info.cores ? info.cores : "not known");
    }
}

void cli_print_edges(FILE *out, const cli_session *session) {
    const cgp_plan *plan = session->plan;
    for (int e = 0; e < cgp_plan_edges(plan); e++) {
        const char *path = cgp_pipeline_edge_path(session->pipeline, e);
        const cgp_plan_edge edge = cgp_plan_edge_at(plan, e);
        if (path)
            fprintf(out, "edge %-8d stage %d to stage %d, over %s\n", e, edge.from, edge.to, path);
    }
}

/* --- memory --- */

static void print_device(FILE *out, const cgp_plan_device *device, const char *layers) {
    const int64_t parts[] = {
        device->parameter_bytes, device->gradient_bytes, device->optimizer_bytes,
        device->state_bytes,     device->slot_bytes,     device->workspace_bytes,
        device->transfer_bytes,  device->planned_bytes,
    };
    char bytes[CLI_NUMBER];
    fprintf(out, "%-7s", device->name);
    for (size_t k = 0; k < sizeof parts / sizeof parts[0]; k++)
        fprintf(out, " %10s", cgp_bytes_text(parts[k], bytes, sizeof bytes));
    fprintf(out, " %16s%s%s\n", cli_grouped(device->planned_bytes, bytes), *layers ? "  " : "",
            layers);
}

/* Write the names of a device's layers, "h.3 .. h.5". */
static void layers_of(const cgp_plan *plan, const cgp_model *model, const cgp_plan_device *device,
                      char *text, size_t size) {
    *text = '\0';
    for (int k = 0; k < device->stages; k++) {
        const int j = device->stage_list[k];
        const cgp_plan_stage *stage = cgp_plan_stage_at(plan, j);
        const int last = stage->first_layer + stage->layers - 1;
        const size_t used = strlen(text);
        snprintf(text + used, size - used, "%s%s%s%s", used ? ", " : "",
                 cgp_model_layer_name(model, stage->first_layer), stage->layers > 1 ? " .. " : "",
                 stage->layers > 1 ? cgp_model_layer_name(model, last) : "");
    }
}

/* Print a row with the memory of each device, and a row with their total, also in bytes. */
static void print_memory(FILE *out, const cgp_plan *plan, const cgp_model *model) {
    const cgp_plan_device total = cli_plan_total(plan);
    fprintf(out, "%-7s %10s %10s %10s %10s %10s %10s %10s %10s %16s  layers\n", "", "parameters",
            "gradients", "optimizer", "state", "slots", "workspace", "transfer", "total", "bytes");
    for (int d = 0; d < cgp_plan_devices(plan); d++) {
        const cgp_plan_device *device = cgp_plan_device_at(plan, d);
        char layers[256];
        layers_of(plan, model, device, layers, sizeof layers);
        print_device(out, device, layers);
    }
    print_device(out, &total, "");
    char bytes[CLI_NUMBER];
    if (total.partial_gradient_bytes > 0)
        fprintf(out, "%-7s %10s of the total for partial sums of gradients\n", "",
                cgp_bytes_text(total.partial_gradient_bytes, bytes, sizeof bytes));
    if (total.packed_bytes > 0)
        fprintf(out, "%-7s %10s of the total for packed parameters\n", "",
                cgp_bytes_text(total.packed_bytes, bytes, sizeof bytes));
    if (total.replay_bytes > 0)
        fprintf(out, "%-7s %10s of the total to keep a step and replay it\n", "",
                cgp_bytes_text(total.replay_bytes, bytes, sizeof bytes));
    if (total.host_bytes > 0)
        fprintf(out, "%-7s %10s more on the host, for copies\n", "",
                cgp_bytes_text(total.host_bytes, bytes, sizeof bytes));
}

/* Print whether the plan fits into this machine's memory, by the rule of cgp_pipeline_create(). If
 * there are several ranks or replicas, print nothing, because the hosts are not known yet. */
static void print_fit(FILE *out, const cgp_plan *plan, int64_t replicas) {
    int64_t available = 0;
    char needed[CLI_NUMBER], text[CLI_NUMBER];
    if (cli_ranks() > 1 || replicas > 1) return;
    if (cgp_pipeline_check_memory(plan, &available) != CGP_OK)
        fprintf(out, "does not fit this machine now: %s\n", cgp_message());
    else if (available < INT64_MAX)
        fprintf(out, "fits this machine now: %s of %s available\n",
                cgp_bytes_text(cli_plan_total(plan).planned_bytes, needed, sizeof needed),
                cgp_bytes_text(available, text, sizeof text));
}

/* --- schedule --- */

/* Tell whether column `c` is blank in all rows of a picture. */
static bool blank_column(const char *picture, size_t row, size_t c) {
    for (const char *line = picture; *line; line += row + 1) {
        if (line[c] != ' ') return false;
    }
    return true;
}

cgp_status cli_print_picture(FILE *out, const cgp_schedule *schedule, const char *name) {
    char *picture = cgp_schedule_draw(schedule);
    if (!picture) return cgp_fail(CGP_ENOMEM, "schedule: could not be drawn");
    const size_t row = strcspn(picture, "\n"); /* all rows have the same length */
    size_t width = row;
    if (row > PAGE_WIDTH) {
        width = PAGE_WIDTH - 4;
        while (width > 0 && !blank_column(picture, row, width))
            width--;
    }
    int number = 0;
    for (const char *line = picture; *line; line += row + 1)
        fprintf(out, "%s:%-3d %.*s%s\n", name, number++, (int)width, line,
                width < row ? " ..." : "");
    free(picture);
    return CGP_OK;
}

double cli_timeline_column(double until) {
    return until / PAGE_WIDTH;
}

cgp_status cli_print_timeline(FILE *out, const cgp_schedule *schedule,
                              const cgp_schedule_timeline *timeline, double until) {
    char *rows = NULL;
    CGP_TRY(cgp_schedule_draw_timeline(schedule, timeline, until, PAGE_WIDTH, &rows));
    int number = 0;
    for (const char *line = rows; *line; line += PAGE_WIDTH + 1)
        fprintf(out, "device:%-3d %.*s\n", number++, PAGE_WIDTH, line);
    free(rows);
    return CGP_OK;
}

double cli_recomputed_share(const cgp_plan *plan, int stage) {
    const cgp_plan_stage *info = cgp_plan_stage_at(plan, stage);
    int n = 0, again = 0;
    const cgp_action *actions = cgp_schedule_actions(cgp_plan_schedule(plan), info->device, &n);
    for (int i = 0; i < n; i++)
        again += actions[i].stage == stage && actions[i].kind == CGP_ACTION_R;
    const double flops = info->recomputed_flops + info->recompute_flops * again /
                                                      cgp_schedule_chunks(cgp_plan_schedule(plan));
    return info->forward_flops > 0 ? flops / info->forward_flops : 0;
}

/* With recomputation by budget, print for each stage how many values are kept for backward, and how
 * many are recomputed. */
static void print_recomputation(FILE *out, const cgp_plan *plan) {
    fprintf(out, "\nrecomputation by budget\n%-8s  %11s  %17s  %15s\n", "", "values kept",
            "made again in B", "forward again");
    for (int j = 0; j < cgp_plan_stages(plan); j++) {
        const cgp_plan_stage *stage = cgp_plan_stage_at(plan, j);
        fprintf(out, "stage %-2d  %11d  %17d  %13.1f %%\n", j, stage->kept_values,
                stage->recomputed_values, 100 * cli_recomputed_share(plan, j));
    }
}

cgp_status cli_print_plan(FILE *out, const cli_session *session) {
    const cgp_schedule *schedule = cgp_plan_schedule(session->plan);
    cli_print_configuration(out, session);
    fprintf(out, "\nmemory per device\n");
    print_memory(out, session->plan, session->model);
    print_fit(out, session->plan, session->options->replicas);
    if (strcmp(session->options->recompute, "budget") == 0) print_recomputation(out, session->plan);
    fprintf(out,
            "\nschedule %s, one column a tick (F forward, B backward, I and W its halves, R "
            "recompute)\n",
            cli_shown(session->options->schedule));
    CGP_TRY(cli_print_picture(out, schedule, "device"));
    fprintf(out, "simulated bubble %.1f %% (costs in FLOPs)\n",
            100 * cgp_plan_timeline(session->plan)->bubble_makespan);
    return CGP_OK;
}

/* --- results --- */

static void print_overhead(FILE *out, double gap, double wakeup) {
    fprintf(out, "overhead     %.2f us from an action to the next, ", 1e6 * gap);
    if (isnan(wakeup))
        fprintf(out, "no stage waited for another (median)\n");
    else
        fprintf(out, "%.1f us from a message's arrival to the waiting stage (medians)\n",
                1e6 * wakeup);
}

void cli_print_result(FILE *out, const cli_session *session) {
    const cli_measures *m = &session->measures;
    const double step = cli_measured(session, CLI_STEP_SECONDS),
                 forward = cli_measured(session, CLI_FORWARD_SECONDS);
    const int64_t planned = cli_plan_total(session->plan).planned_bytes,
                  allocated = cli_allocated_bytes(session);
    char text[CLI_NUMBER], other[CLI_NUMBER];
    fprintf(out, "loss         %.6f at step %" PRId64 ", %.6f at step %" PRId64 "\n", m->loss_first,
            session->steps_before + 1, m->loss_last, session->steps_before + m->steps);
    fprintf(out, "step         %.4f s with the optimizer, %.2f samples/s (medians%s)\n", step,
            (double)session->options->batch / step,
            m->steps > 2 ? " without the first two steps" : "");
    if (isnan(forward))
        fprintf(out, "             forward and backward overlap in this schedule\n");
    else
        fprintf(out, "             forward %.4f s, backward %.4f s\n", forward,
                cli_measured(session, CLI_BACKWARD_SECONDS));
    fprintf(out, "bubble       %.1f %% measured, %.1f %% simulated\n",
            100 * cli_measured(session, CLI_BUBBLE),
            100 * cgp_plan_timeline(session->plan)->bubble_makespan);
    print_overhead(out, cli_measured(session, CLI_GAP_SECONDS),
                   cli_measured(session, CLI_WAKEUP_SECONDS));
    fprintf(out, "busy        ");
    for (int d = 0; d < cgp_plan_devices(session->plan); d++)
        fprintf(out, " %s %.1f %%", cgp_plan_device_at(session->plan, d)->name,
                100 * cli_measured(session, CLI_BUSY + d));
    fprintf(out, "\nmemory       planned %s, allocated %s%s\n",
            cgp_bytes_text(planned, text, sizeof text),
            cgp_bytes_text(allocated, other, sizeof other),
            planned == allocated ? " (the same to the byte)" : "");
    fprintf(out, "             resident: grew by %s\n",
            cgp_bytes_text(session->resident_growth, text, sizeof text));
}

void cli_print_prediction(FILE *out, const cli_session *session, double seconds,
                          const char *source) {
    const double measured = cli_measured(session, CLI_RUN_SECONDS);
    fprintf(out,
            "planned      %.4f s a step without the optimizer (costs of %s), measured %.4f s "
            "(%+.1f %%)\n",
            seconds, cli_shown(source), measured, 100 * (seconds / measured - 1));
}

void cli_print_result_line(FILE *out, const cli_session *session) {
    const double step = cli_measured(session, CLI_STEP_SECONDS);
    fprintf(out, "step         %.4f s, %.2f samples/s, bubble %.1f %% (medians)\n", step,
            (double)session->options->batch / step, 100 * cli_measured(session, CLI_BUBBLE));
}
