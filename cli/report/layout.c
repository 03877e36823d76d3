/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c -- the stages of a plan in the words of other trainers (docs/reference/layouts.md). */
#include "report/layout.h"

#include "options/options.h"
#include "session/session.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

/* Roles of layers in a decoder model. */
typedef enum role {
    EMBEDDING, /* token or position embedding */
    BLOCK,
    NORM, /* the last norm, before the head */
    HEAD,
    OTHER,
} role;

static role role_of(const char *layer) {
    static const struct {
        const char *name;
        role role;
    } roles[] = {{"wte", EMBEDDING}, {"wpe", EMBEDDING}, {"embed_tokens", EMBEDDING},
                 {"h.", BLOCK},      {"layers.", BLOCK}, {"ln_f", NORM},
                 {"norm", NORM},     {"lm_head", HEAD}};
    for (size_t k = 0; k < sizeof roles / sizeof *roles; k++) {
        const size_t length = strlen(roles[k].name);
        const bool prefix = roles[k].role == BLOCK && strncmp(layer, roles[k].name, length) == 0;
        if (prefix || strcmp(layer, roles[k].name) == 0) return roles[k].role;
    }
    return OTHER;
}

static role role_at(const cli_session *session, int layer) {
    return role_of(cgp_model_layer_name(session->model, layer));
}

/* Fail unless the model is GPT-2 or Llama, and its consecutive stages are on devices 0, 1, .., 0,
 * 1, .. . */
static cgp_status expect_decoder(const cli_session *session, const char *kind) {
    const cgp_plan *plan = session->plan;
    const cgp_model_kind model = session->of.spec.kind;
    if (model != CGP_MODEL_GPT2 && model != CGP_MODEL_LLAMA)
        return cgp_fail(CGP_EINVAL,
                        "--layout %s: expected gpt2 or llama, got %s (--layout "
                        "deepspeed is for any model)",
                        kind, cli_model_name(&session->of));
    for (int j = 0; j < cgp_plan_stages(plan); j++) {
        if (cgp_plan_stage_at(plan, j)->device != j % cgp_plan_devices(plan))
            return cgp_fail(CGP_EINVAL,
                            "--layout %s: expected stage j on device j mod %d, got stage %d on "
                            "device %d with %s (--schedule interleaved)",
                            kind, cgp_plan_devices(plan), j, cgp_plan_stage_at(plan, j)->device,
                            session->options->schedule);
    }
    return CGP_OK;
}

/* Print a note if a stage begins between two embeddings, or between the last norm and the head.
 * Megatron has each of these pairs in one stage. The difference is small, because these layers take
 * little time. */
static void note_moved(FILE *out, const cli_session *session, int stage) {
    const int first = cgp_plan_stage_at(session->plan, stage)->first_layer;
    const role now = role_at(session, first);
    if (stage == 0 || (now != EMBEDDING && now != HEAD)) return;
    fprintf(out, "# %s is in the stage of %s there\n",
            cgp_model_layer_name(session->model, now == HEAD ? first - 1 : first),
            cgp_model_layer_name(session->model, now == HEAD ? first : first - 1));
}

static int blocks_of(const cli_session *session, const cgp_plan_stage *stage) {
    int blocks = 0;
    for (int i = 0; i < stage->layers; i++)
        blocks += role_at(session, stage->first_layer + i) == BLOCK;
    return blocks;
}

/* Print Megatron's layout: E is the embeddings, t a block, L the head and the loss, | a new stage.
 * The last norm is in the stage of L. */
static void print_megatron(FILE *out, const cli_session *session) {
    const cgp_plan *plan = session->plan;
    const int stages = cgp_plan_stages(plan);
    for (int j = 0; j < stages; j++)
        note_moved(out, session, j);
    fprintf(out, "--pipeline-model-parallel-size %d --pipeline-model-parallel-layout '",
            cgp_plan_devices(plan));
    for (int j = 0; j < stages; j++) {
        const int blocks = blocks_of(session, cgp_plan_stage_at(plan, j));
        fprintf(out, "%s%s", j > 0 ? "|" : "", j == 0 ? "E" : "");
        if (blocks > 0) fputs("t", out);
        if (blocks > 1) fprintf(out, "*%d", blocks);
    }
    fputs("L'\n", out);
}

/* Return torchtitan's name of a Llama layer. Freed by the caller. */
static char *torchtitan_name(const char *layer) {
    const role of = role_of(layer);
    return cli_text("%s", of == EMBEDDING ? "tok_embeddings" : of == HEAD ? "output" : layer);
}

/* Print torchtitan's layout: a list of modules for each stage. */
static cgp_status print_torchtitan(FILE *out, const cli_session *session) {
    const cgp_plan *plan = session->plan;
    if (session->of.spec.kind != CGP_MODEL_LLAMA)
        return cgp_fail(CGP_EINVAL,
                        "--layout torchtitan: expected llama, got %s (it has no "
                        "such model)",
                        cli_model_name(&session->of));
    fputs("module_fqns_per_model_part = [\n", out);
    for (int j = 0; j < cgp_plan_stages(plan); j++) {
        const cgp_plan_stage *stage = cgp_plan_stage_at(plan, j);
        for (int i = 0; i < stage->layers; i++) {
            char *name =
                torchtitan_name(cgp_model_layer_name(session->model, stage->first_layer + i));
            fprintf(out, "%s\"%s\"", i > 0 ? ", " : "  [", name);
            free(name);
        }
        fputs("],\n", out);
    }
    fputs("]\n", out);
    return CGP_OK;
}

/* Print DeepSpeed's PipelineModule.parts: the index of each stage's first layer, and the number of
 * layers. */
static cgp_status print_deepspeed(FILE *out, const cli_session *session) {
    const cgp_plan *plan = session->plan;
    if (cgp_plan_stages(plan) != cgp_plan_devices(plan))
        return cgp_fail(CGP_EINVAL,
                        "--layout deepspeed: expected a stage on each device, got %d on %d "
                        "devices (another --schedule)",
                        cgp_plan_stages(plan), cgp_plan_devices(plan));
    fputs("parts = [", out);
    for (int j = 0; j < cgp_plan_stages(plan); j++)
        fprintf(out, "%d, ", cgp_plan_stage_at(plan, j)->first_layer);
    fprintf(out, "%d]\n", cgp_model_layers(session->model));
    return CGP_OK;
}

cgp_status cli_layout_check(const cli_run_options *options) {
    const char *kind = options->layout;
    if (!kind || strcmp(kind, "megatron") == 0 || strcmp(kind, "torchtitan") == 0 ||
        strcmp(kind, "deepspeed") == 0)
        return CGP_OK;
    return cgp_fail(CGP_EINVAL, "--layout: expected megatron, torchtitan or deepspeed, got \"%s\"",
                    kind);
}

cgp_status cli_print_layout(FILE *out, const cli_session *session) {
    const char *kind = session->options->layout;
    if (!kind) return CGP_OK;
    if (strcmp(kind, "deepspeed") == 0) return print_deepspeed(out, session);
    CGP_TRY(expect_decoder(session, kind));
    if (strcmp(kind, "torchtitan") == 0) return print_torchtitan(out, session);
    print_megatron(out, session);
    return CGP_OK;
}
