/* SPDX-License-Identifier: Apache-2.0 */
/* graph_reader.h -- declares the state of a reader of a graph file. graph_read.c reads the model,
 * and graph_node.c reads its nodes and losses. */
#ifndef CGP_SRC_MODEL_GRAPH_READER_H
#define CGP_SRC_MODEL_GRAPH_READER_H

#include "model/builder.h"
#include "model/graph.h"

typedef struct cgp__reader {
    const char *name; /* name of the text, for messages */
    const cgp_op *const *ops;
    int n_ops;
    const json_t *root;
    cgp_model *model;
    const json_t *values, *inputs, *layers, *parameters, *nodes, *losses;
    int64_t last_id; /* id of the last node read; later, id of the last loss */
    char place[48];  /* place in the text, for messages: "nodes[3]: " */
} cgp__reader;

#define CGP__NODE_KEYS "op custom layer inputs output parameters states attributes bytes id"
#define CGP__LOSS_KEYS "op custom inputs weight attributes bytes id"

/* --- graph_read.c. A refusal is CGP_EFORMAT; its message begins with name and place --- */

cgp_status cgp__reader_refuse(const cgp__reader *r, const char *format, ...) CGP_PRINTF(2, 3);

/* Refuse the value of a key. If `value` is NULL, the key is missing. */
cgp_status cgp__reader_unexpected(const cgp__reader *r, const char *key, const char *expected,
                                  const json_t *value);

/* Refuse the text with the builder's first error. If memory is short, return CGP_ENOMEM instead. */
cgp_status cgp__reader_refuse_stuck(const cgp__reader *r);

void cgp__reader_set_place(cgp__reader *r, const char *list, size_t i);

/* Check that an object has only these keys, which are separated by blanks. */
cgp_status cgp__reader_check_keys(const cgp__reader *r, const json_t *object, const char *keys);

cgp_status cgp__reader_take_text(const cgp__reader *r, const json_t *object, const char *key,
                                 const char **out);

/* Read a whole number in 0 .. below - 1. */
cgp_status cgp__reader_take_index(const cgp__reader *r, const json_t *value, const char *key,
                                  int64_t below, int64_t *out);

/* Begin layers up to number `last`. */
cgp_status cgp__reader_begin_layers(cgp__reader *r, int64_t last);

/* --- graph_node.c --- */

/* Add nodes[i] or losses[i]. The keys of nodes[i] are already checked. */
cgp_status cgp__reader_add_node(cgp__reader *r, size_t i);
cgp_status cgp__reader_add_loss(cgp__reader *r, size_t i);

#endif
