/* SPDX-License-Identifier: Apache-2.0 */
/* csv.h -- the cells of a schedule's CSV text. csv.c parses the text into cells, and csv_table.c
 * builds a schedule's table from the cells. */
#ifndef CGP_SRC_SCHEDULE_FORMATS_CSV_H
#define CGP_SRC_SCHEDULE_FORMATS_CSV_H

#include "schedule/table.h"

typedef struct cgp__csv_cell {
    cgp_action action; /* the action; its `edge` is -1 */
    bool full;         /* true: the cell has the action BW */
    int row, column;   /* position of the cell in the text, counted from 1 */
} cgp__csv_cell;

typedef struct cgp__csv {
    const char *name;     /* the text's name, for messages */
    const char *at, *end; /* the rest of the text */
    int row, column;
    const char *begin, *stop; /* the current cell, without blanks around it */
    cgp__csv_cell *cells;
    int n_cells, capacity;
    int stages, chunks, rows; /* numbers of stages, micro-batches and rows; each is the largest
                               * index + 1 */
    bool transfers;
    bool older;     /* older dialect: B means I, BW means B */
    int *device_of; /* [stages] */
} cgp__csv;

/* Make a schedule from all cells (csv_table.c). The message of a CGP_EFORMAT has the row and the
 * column. */
cgp_status cgp__csv_table(cgp__csv *r, cgp_schedule **out);

#endif
