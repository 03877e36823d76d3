/* SPDX-License-Identifier: Apache-2.0 */
/* costs_reuse.c -- see costs_reuse.h. */
#include "session/costs_reuse.h"

#include "text.h"

#include <cgpipe/planner.h>

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Limit of a time, in seconds. With it, an interpolation between two sizes stays finite. */
#define LARGEST 1e100

typedef struct reuse {
    const cli_costs *from; /* the costs in the file */
    const json_t *layers;
    /* [sizes][layers] work of the model's layers, in FLOPs and bytes. Members
     * for seconds hold FLOPs in place of seconds. */
    const cgp_layer_cost *expected;
    int n; /* number of layers of the model */
} reuse;

bool cli_costs_alike(const char *a, const char *b) {
    const size_t kind = strcspn(a, ":");
    return kind == strcspn(b, ":") && strncmp(a, b, kind) == 0;
}

/* Tell whether two names are equal, if all numbers in names count as equal: "h.1.mlp",
 * "h.7.mlp". */
static bool is_name_alike(const char *a, const char *b) {
    while (*a && *b) {
        if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
            a += strspn(a, "0123456789");
            b += strspn(b, "0123456789");
        } else if (*a++ != *b++) {
            return false;
        }
    }
    return *a == *b;
}

static const cgp_layer_cost *file_cost(const reuse *r, int size, int layer) {
    return r->from->rows + (size_t)size * (size_t)r->from->layers + layer;
}

static double cost_seconds(const cgp_layer_cost *c) {
    return c->forward_seconds + c->input_seconds + c->weight_seconds + c->recompute_seconds +
           c->selective_seconds + c->update_seconds;
}

static bool is_near(double a, double b) {
    return fabs(a - b) <= 1e-9 * fmax(a, b);
}

/* Tell whether a layer of the file computes the same as layer `i` of the model. */
static bool is_equal(const reuse *r, int layer, int i) {
    const cgp_layer_cost *a = file_cost(r, 0, layer), *b = &r->expected[i];
    return is_near(a->flops[0], b->flops[0]) && is_near(a->flops[1], b->flops[1]) &&
           is_near(a->flops[2], b->flops[2]) && a->parameter_bytes == b->parameter_bytes;
}

/* Return the factor that scales a time: the ratio of FLOPs or, without FLOPs, of bytes. */
static double ratio(double flops, double own_flops, int64_t bytes, int64_t own_bytes) {
    if (flops > 0 && own_flops > 0) return own_flops / flops;
    return bytes > 0 && own_bytes > 0 ? (double)own_bytes / (double)bytes : 1;
}

/* Multiply the costs of a layer of the file by `share`, scale them to the model's layer, and add
 * them to `sum`. */
static void add_share(cgp_layer_cost *sum, const cgp_layer_cost *a, const cgp_layer_cost *own,
                      double share) {
    double scale[3];
    for (int k = 0; k < 3; k++)
        scale[k] = share * ratio(a->flops[k], own->flops[k], a->saved_bytes, own->saved_bytes);
    sum->forward_seconds += scale[0] * a->forward_seconds;
    sum->input_seconds += scale[1] * a->input_seconds;
    sum->weight_seconds += scale[2] * a->weight_seconds;
    sum->recompute_seconds += scale[0] * a->recompute_seconds;
    sum->selective_seconds += scale[0] * a->selective_seconds;
    sum->update_seconds +=
        share * a->update_seconds * ratio(0, 0, a->parameter_bytes, own->parameter_bytes);
}

/* Set the costs of layer i of the model for a size. Return how many layers of the file have a name
 * that is_name_alike() accepts. Set *equal if at least one of these layers computes the same as
 * layer i. */
static int take(const reuse *r, const char *name, int size, int i, cgp_layer_cost *out,
                bool *equal) {
    int alike = 0, same = 0;
    for (int layer = 0; layer < r->from->layers; layer++) {
        const json_t *o = json_array_get(r->layers, (size_t)layer);
        const char *other = json_string_value(json_object_get(o, "name"));
        if (!other || !is_name_alike(other, name)) continue;
        alike++;
        same += is_equal(r, layer, i);
    }
    const cgp_layer_cost *own = &r->expected[(size_t)size * (size_t)r->n + i];
    *out =
        (cgp_layer_cost){.parameter_bytes = own->parameter_bytes, .saved_bytes = own->saved_bytes};
    memcpy(out->flops, own->flops, sizeof out->flops);
    *equal = same > 0;
    for (int layer = 0; layer < r->from->layers; layer++) {
        const json_t *o = json_array_get(r->layers, (size_t)layer);
        const char *other = json_string_value(json_object_get(o, "name"));
        if (!other || !is_name_alike(other, name) || (*equal && !is_equal(r, layer, i))) continue;
        add_share(out, file_cost(r, size, layer), own, 1.0 / (*equal ? same : alike));
    }
    return alike;
}

/* Fill rows of costs, [sizes][layers]. Set *scaled to the number of layers whose times were
 * scaled. */
static cgp_status fill(const reuse *r, const cgp_model *model, const char *path, const char *of,
                       cgp_layer_cost *rows, int *scaled) {
    *scaled = 0;
    for (int i = 0; i < r->n; i++) {
        const char *name = cgp_model_layer_name(model, i);
        bool equal = true;
        for (int size = 0; size < r->from->sizes; size++) {
            cgp_layer_cost *out = rows + (size_t)size * (size_t)r->n + i;
            if (take(r, name, size, i, out, &equal) == 0)
                return cgp_fail(CGP_EFORMAT,
                                "%s: layer %s: expected the costs of a layer with such a name, got "
                                "those of %s (cgpipe profile MODEL --json FILE makes them)",
                                path, name, of);
            if (!(cost_seconds(out) < LARGEST))
                return cgp_fail(CGP_EFORMAT,
                                "%s: layer %s: expected times that stay below %g when they are "
                                "scaled by FLOPs (a profile of this model)",
                                path, name, LARGEST);
        }
        *scaled += !equal;
    }
    return CGP_OK;
}

/* Estimate costs for a device of 1 FLOP/s, so that each time in seconds is a number of FLOPs. */
static cgp_status expect(const cli_costs *costs, const cgp_model *model, cgp_layer_cost *expected) {
    cgp_device_speed speed = {.flops_per_second = 1};
    CGP_TRY(cgp_precision_parse(&speed.precision, costs->precision));
    CGP_TRY(cgp_convolution_parse(&speed.convolution, costs->convolution));
    for (int size = 0; size < costs->sizes; size++)
        CGP_TRY(cgp_layer_costs_estimate(model, &speed, costs->samples[size],
                                         expected + size * cgp_model_layers(model)));
    return CGP_OK;
}

cgp_status cli_costs_reuse(cli_costs *costs, const json_t *layers, const char *of, const char *path,
                           const cgp_model *model) {
    const int n = cgp_model_layers(model);
    int scaled = 0;
    const size_t all = (size_t)costs->sizes * (size_t)n;
    cgp_layer_cost *expected = cli_calloc(all, sizeof *expected);
    cgp_layer_cost *rows = cli_calloc(all, sizeof *rows);
    const reuse r = {costs, layers, expected, n};
    cgp_status status = expect(costs, model, expected);
    if (status == CGP_OK) status = fill(&r, model, path, of, rows, &scaled);
    free(expected);
    free(costs->rows);
    costs->rows = rows;
    if (status == CGP_OK)
        costs->reused =
            cli_text("%d layers measured on %s are used for this model's %d layers; the "
                     "times of %d are scaled by FLOPs",
                     costs->layers, of, n, scaled);
    costs->layers = n;
    return status;
}
