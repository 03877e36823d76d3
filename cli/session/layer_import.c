/* SPDX-License-Identifier: Apache-2.0 */
/* layer_import.c -- see layer_import.h.
 *
 * Both formats are graphs of nodes in any order. The nodes are sorted topologically. Among the
 * nodes whose inputs are all done, the node with the smallest number comes first. Sources:
 * Narayanan et al. 2019, arXiv:1806.03377 (PipeDream), and its profiles; Tarnawski et al. 2021,
 * "Piper: Multidimensional Planner for DNN Parallelization". */
#include "session/layer_import.h"

#include "files.h"
#include "json_file.h"
#include "text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST_FILE = 4 << 20, MAX_NODES = 4096, MAX_EDGES = 16384 };
#define MAX_SECONDS 1e6
#define MAX_BYTES 1e15

typedef struct edge {
    int from, to;
} edge;

typedef struct graph {
    const char *path;
    int line;
    cli_layer_table nodes; /* all nodes, in the order of the file */
    int64_t *number;       /* [nodes.n] the file's number of each node */
    bool *left_out;        /* [nodes.n] the node is the model's input */
    int n_edges;
    edge *edges;
} graph;

static void release(graph *g) {
    cli_layer_table_release(&g->nodes);
    free(g->number);
    free(g->left_out);
    free(g->edges);
}

static void reserve(graph *g, size_t nodes, size_t edges) {
    g->number = cli_calloc(nodes + 1, sizeof *g->number);
    g->left_out = cli_calloc(nodes + 1, sizeof *g->left_out);
    g->edges = cli_calloc(edges + 1, sizeof *g->edges);
}

/* --- the order of the rows --- */

/* Return the next node: the smallest number among the nodes whose inputs are all done. -1: there is
 * none. */
static int next_node(const graph *g, const int *waits, const bool *done) {
    int best = -1;
    for (int i = 0; i < g->nodes.n; i++) {
        if (!done[i] && waits[i] == 0 && (best < 0 || g->number[i] < g->number[best])) best = i;
    }
    return best;
}

static bool reads(const cli_layer_row *row, int input) {
    for (int k = 0; k < row->n_inputs; k++) {
        if (row->inputs[k] == input) return true;
    }
    return false;
}

/* Append a node to the table, which already has all inputs of the node. The file may list an edge
 * twice. */
static void append(const graph *g, int node, int *place, cli_layer_table *out) {
    const cli_layer_row *from = &g->nodes.rows[node];
    place[node] = -1;
    if (g->left_out[node]) return;
    place[node] = out->n;
    cli_layer_row *row = cli_layer_table_add(out, from->name);
    row->cost = from->cost;
    row->output_bytes = from->output_bytes;
    for (int e = 0; e < g->n_edges; e++) {
        const int input = g->edges[e].to == node ? place[g->edges[e].from] : -1;
        if (input >= 0 && !reads(row, input)) cli_layer_row_read(row, input);
    }
}

static cgp_status sort(const graph *g, cli_layer_table *out) {
    const size_t n = (size_t)g->nodes.n;
    int *waits = cli_calloc(2 * n + 1, sizeof *waits), *place = waits + n;
    bool *done = cli_calloc(n + 1, sizeof *done);
    int left = g->nodes.n;
    for (int e = 0; e < g->n_edges; e++)
        waits[g->edges[e].to]++;
    for (int node; (node = next_node(g, waits, done)) >= 0; left--) {
        done[node] = true;
        append(g, node, place, out);
        for (int e = 0; e < g->n_edges; e++)
            waits[g->edges[e].to] -= g->edges[e].from == node;
    }
    free(done);
    free(waits);
    if (left > 0) return cgp_fail(CGP_EFORMAT, "%s: expected edges without a cycle", g->path);
    if (out->n > 0) return CGP_OK;
    return cgp_fail(CGP_EFORMAT, "%s: expected nodes with times", g->path);
}

/* --- PipeDream --- */

static cgp_status wrong(const graph *g, const char *what, const char *line) {
    return cgp_fail(CGP_EFORMAT, "%s: line %d: expected %s, got \"%.60s\"", g->path, g->line, what,
                    line);
}

/* Read "KEY=NUMBER" in a line; a list "[1.0; 2.0]" counts as its sum. */
static cgp_status read_value(const graph *g, const char *line, const char *key, double max,
                             double *out) {
    char expected[96];
    const char *at = strstr(line, key);
    *out = 0;
    snprintf(expected, sizeof expected, "%s= and a number from 0 to %g", key, max);
    if (!at || at[strlen(key)] != '=') return wrong(g, expected, line);
    at += strlen(key) + 1;
    for (at += *at == '['; *at && *at != ',' && *at != ']';) {
        char *end = NULL;
        const double value = strtod(at, &end);
        if (end == at || !(value >= 0)) return wrong(g, expected, line);
        *out += value;
        at = end + strspn(end, "; \r");
        if (*end == ' ' && *at == '-') break; /* " -- stage_id=0" follows */
    }
    return *out <= max ? CGP_OK : wrong(g, expected, line);
}

/* Read "nodeN" at the start of a text. Return the end of the name; NULL: there is no such name. */
static char *read_node(char *text, int64_t *number) {
    char *end = NULL;
    text += strspn(text, " \t");
    if (strncmp(text, "node", 4) != 0 || text[4] < '0' || text[4] > '9') return NULL;
    *number = strtoll(text + 4, &end, 10);
    return *number < INT64_MAX ? end : NULL;
}

static int node_with(const graph *g, int64_t number) {
    for (int i = 0; i < g->nodes.n; i++) {
        if (g->number[i] == number) return i;
    }
    return -1;
}

/* Read "nodeN -- op -- forward_compute_time=ms, ...". Nodes "Input" load data, and are left
 * out. */
static cgp_status read_pipedream_node(graph *g, char *line) {
    int64_t number = 0;
    double forward = 0, backward = 0, activation = 0, parameters = 0;
    char name[32];
    const char *rest = read_node(line, &number);
    if (g->nodes.n == MAX_NODES)
        return cgp_fail(CGP_EFORMAT, "%s: expected at most %d nodes", g->path, MAX_NODES);
    if (!rest || strncmp(rest, " -- ", 4) != 0 || node_with(g, number) >= 0)
        return wrong(g, "\"nodeN -- op -- times\" of a node, once", line);
    CGP_TRY(read_value(g, rest, "forward_compute_time", 1e3 * MAX_SECONDS, &forward));
    CGP_TRY(read_value(g, rest, "backward_compute_time", 1e3 * MAX_SECONDS, &backward));
    CGP_TRY(read_value(g, rest, "activation_size", MAX_BYTES, &activation));
    CGP_TRY(read_value(g, rest, "parameter_size", MAX_BYTES, &parameters));
    snprintf(name, sizeof name, "node%" PRId64, number);
    g->number[g->nodes.n] = number;
    g->left_out[g->nodes.n] = strncmp(rest + 4, "Input", 5) == 0;
    cli_layer_row *row = cli_layer_table_add(&g->nodes, name);
    row->cost.forward_seconds = row->cost.recompute_seconds = forward / 1e3;
    row->cost.parameter_bytes = (int64_t)ceil(parameters);
    row->cost.saved_bytes = row->output_bytes = (int64_t)ceil(activation);
    cli_layer_row_backward(row, backward / 1e3);
    return CGP_OK;
}

/* Read "<tab>nodeN -- nodeM". */
static cgp_status read_pipedream_edge(graph *g, char *line) {
    int64_t numbers[2] = {0, 0};
    char *end = read_node(line, &numbers[0]);
    end = end && strncmp(end, " -- ", 4) == 0 ? read_node(end + 4, &numbers[1]) : NULL;
    const edge found = {node_with(g, numbers[0]), node_with(g, numbers[1])};
    if (!end || end[strspn(end, " \r")] || found.from < 0 || found.to < 0)
        return wrong(g, "\"nodeN -- nodeM\" of two nodes", line);
    g->edges[g->n_edges++] = found;
    return CGP_OK;
}

/* Read either the lines of nodes, or the lines of edges. The latter begin with a tab. */
static cgp_status read_pipedream_lines(graph *g, const char *text, bool edges) {
    const char *next = text;
    g->line = 0;
    for (const char *at = text; at; at = next) {
        const char *end = strchr(at, '\n');
        char *line = end ? cli_text("%.*s", (int)(end - at), at) : cli_text("%s", at);
        cgp_status status = CGP_OK;
        next = end ? end + 1 : NULL;
        g->line++;
        if (line[strspn(line, " \t\r")] && (line[0] == '\t') == edges)
            status = edges ? read_pipedream_edge(g, line) : read_pipedream_node(g, line);
        free(line);
        CGP_TRY(status);
    }
    return CGP_OK;
}

static cgp_status read_pipedream(graph *g) {
    char *bytes = NULL;
    size_t size = 0, lines = 1;
    CGP_TRY(cli_file_read(g->path, LARGEST_FILE, &bytes, &size));
    char *text = cli_calloc(size + 1, 1);
    if (size > 0) memcpy(text, bytes, size);
    free(bytes);
    for (size_t i = 0; i < size; i++)
        lines += text[i] == '\n';
    cgp_status status = CGP_OK;
    if (memchr(text, '\0', size) || lines > MAX_NODES)
        status =
            cgp_fail(CGP_EFORMAT, "%s: expected a text of at most %d lines", g->path, MAX_NODES);
    if (status == CGP_OK) {
        reserve(g, lines, lines);
        status = read_pipedream_lines(g, text, false);
    }
    if (status == CGP_OK) status = read_pipedream_lines(g, text, true);
    free(text);
    return status;
}

/* --- Piper --- */

static cgp_status read_number(const cli_json_place *at, const char *key, double max, double *out) {
    const json_t *number = json_object_get(at->object, key);
    char expected[64];
    *out = json_number_value(number);
    if (json_is_number(number) && *out >= 0 && *out <= max) return CGP_OK;
    snprintf(expected, sizeof expected, "a number from 0 to %g", max);
    return cli_json_wrong(at, key, expected);
}

/* Find the choice of a node that has this name and no tensor group. */
static const json_t *choice_of(const json_t *node, const char *name) {
    const json_t *choices = json_object_get(json_object_get(node, "TMPCs"), "1");
    for (size_t k = 0; k < json_array_size(choices); k++) {
        const json_t *choice = json_array_get(choices, k);
        const char *id = json_string_value(json_object_get(choice, "id"));
        if (id && strcmp(id, name) == 0) return choice;
    }
    return NULL;
}

/* Piper gives one time for forward and backward together; a third of it counts as forward. The time
 * of recomputation is the time of "activation recomp" minus the time of "vanilla". */
static cgp_status read_piper_node(graph *g, const cli_json_place *at) {
    const json_t *again = choice_of(at->object, "activation recomp");
    const cli_json_place plain = {at->path, at->list, at->index, choice_of(at->object, "vanilla")};
    double seconds = 0, parameters = 0, saved = 0;
    int64_t id = 0;
    char name[64];
    CGP_TRY(cli_json_whole(at, "id", 0, MAX_NODES, &id));
    if (node_with(g, id) >= 0) return cli_json_wrong(at, "id", "a number of this node alone");
    if (!plain.object) return cli_json_wrong(at, "TMPCs", "a choice \"vanilla\" for 1 device");
    CGP_TRY(read_number(&plain, "timePerSample", MAX_SECONDS, &seconds));
    CGP_TRY(read_number(&plain, "parameterSize", MAX_BYTES, &parameters));
    CGP_TRY(read_number(&plain, "memoryUsageA", MAX_BYTES, &saved));
    snprintf(name, sizeof name, "node%" PRId64, id);
    g->number[g->nodes.n] = id;
    g->left_out[g->nodes.n] = seconds == 0 && parameters == 0;
    cli_layer_row *row = cli_layer_table_add(&g->nodes, name);
    row->cost.forward_seconds = seconds / 3;
    row->cost.parameter_bytes = (int64_t)ceil(parameters);
    row->cost.saved_bytes = (int64_t)ceil(saved);
    row->cost.recompute_seconds = seconds / 3;
    if (again) {
        const double longer = json_number_value(json_object_get(again, "timePerSample")) - seconds;
        row->cost.recompute_seconds = longer >= 0 && longer <= MAX_SECONDS ? longer : 0;
    }
    cli_layer_row_backward(row, 2 * seconds / 3);
    return CGP_OK;
}

static cgp_status read_piper_edge(graph *g, const cli_json_place *at) {
    int64_t ids[2] = {0, 0};
    double bytes = 0;
    CGP_TRY(cli_json_whole(at, "sourceId", 0, MAX_NODES, &ids[0]));
    CGP_TRY(cli_json_whole(at, "destId", 0, MAX_NODES, &ids[1]));
    CGP_TRY(read_number(at, "communicationCost", MAX_BYTES, &bytes));
    const edge found = {node_with(g, ids[0]), node_with(g, ids[1])};
    if (found.from < 0) return cli_json_wrong(at, "sourceId", "the id of a node");
    if (found.to < 0) return cli_json_wrong(at, "destId", "the id of a node");
    cli_layer_row *from = &g->nodes.rows[found.from];
    if ((int64_t)ceil(bytes) > from->output_bytes) from->output_bytes = (int64_t)ceil(bytes);
    g->edges[g->n_edges++] = found;
    return CGP_OK;
}

static cgp_status read_piper_lists(graph *g, const json_t *file) {
    const json_t *nodes = json_object_get(file, "nodes"), *edges = json_object_get(file, "edges");
    const cli_json_place top = {g->path, NULL, 0, file};
    if (json_array_size(nodes) < 1 || json_array_size(nodes) > MAX_NODES)
        return cli_json_wrong(&top, "nodes", "a list of nodes");
    if (!json_is_array(edges) || json_array_size(edges) > MAX_EDGES)
        return cli_json_wrong(&top, "edges", "a list of edges");
    reserve(g, json_array_size(nodes), json_array_size(edges));
    for (size_t i = 0; i < json_array_size(nodes); i++)
        CGP_TRY(
            read_piper_node(g, &(cli_json_place){g->path, "nodes", i, json_array_get(nodes, i)}));
    for (size_t i = 0; i < json_array_size(edges); i++)
        CGP_TRY(
            read_piper_edge(g, &(cli_json_place){g->path, "edges", i, json_array_get(edges, i)}));
    return CGP_OK;
}

static cgp_status read_piper(graph *g) {
    json_t *file = NULL;
    CGP_TRY(cli_json_read(g->path, LARGEST_FILE, &file));
    const cgp_status status = read_piper_lists(g, file);
    json_decref(file);
    return status;
}

cgp_status cli_layer_import(cli_layer_table *table, const char *path) {
    graph g = {.path = path};
    *table = (cli_layer_table){0};
    cgp_status status = cli_ends_with(path, ".json") ? read_piper(&g) : read_pipedream(&g);
    if (status == CGP_OK) status = sort(&g, table);
    release(&g);
    return status;
}
