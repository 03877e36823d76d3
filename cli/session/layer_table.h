/* SPDX-License-Identifier: Apache-2.0 */
/* layer_table.h -- a table of layers (docs/reference/layer-tables.md): a CSV file with times and
 * sizes. It serves as the costs of a model, or as a model without arithmetic, which can be planned
 * and simulated but not run. All numbers are for one sample. */
#ifndef CGPIPE_CLI_LAYER_TABLE_H
#define CGPIPE_CLI_LAYER_TABLE_H

#include <cgpipe/model.h>
#include <cgpipe/partition.h>

typedef struct cli_layer_row {
    char *name;
    /* The earlier rows whose outputs the layer reads. If there is none, the layer reads the model's
     * input. */
    int n_inputs, *inputs;
    int64_t output_bytes;
    /* Times in seconds and sizes in bytes. The members flops[] are the seconds x 10^12. */
    cgp_layer_cost cost;
} cli_layer_row;

typedef struct cli_layer_table {
    int n, capacity;
    cli_layer_row *rows;
} cli_layer_table;

/* Tell whether a text is the path of a table. */
bool cli_layer_table_is(const char *text);

/* Read a table. Release it after a failure too. Fails with CGP_EIO or CGP_EFORMAT; the message
 * names the path and the line. */
CGP_MUST_CHECK cgp_status cli_layer_table_read(cli_layer_table *table, const char *path);

/* Return the table as CSV. Owned by the caller. */
char *cli_layer_table_text(const cli_layer_table *table);

/* Append an empty row, and return it. The name is copied. */
cli_layer_row *cli_layer_table_add(cli_layer_table *table, const char *name);

/* Return the row with this name; -1: there is none. */
int cli_layer_table_find(const cli_layer_table *table, const char *name);

/* Add the output of an earlier row to the inputs of a row. */
void cli_layer_row_read(cli_layer_row *row, int input);

/* Split the time of backward equally between input backward and weight backward. If the layer has
 * no parameters, input backward gets all the time. */
void cli_layer_row_backward(cli_layer_row *row, double seconds);

/* Make a model with a layer for each row of the table. */
CGP_MUST_CHECK cgp_status cli_layer_table_model(cgp_model **out, const cli_layer_table *table);

void cli_layer_table_release(cli_layer_table *table);

#endif
