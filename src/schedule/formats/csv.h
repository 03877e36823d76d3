/* SPDX-License-Identifier: Apache-2.0 */
/* csv.h -- the cells of a schedule's CSV: csv.c parses the text into cells, csv_table.c builds a
 * table from them. */
#ifndef CGP_SRC_SCHEDULE_FORMATS_CSV_H
#define CGP_SRC_SCHEDULE_FORMATS_CSV_H

#include "schedule/table.h"

typedef struct cgp__csv_cell {
    cgp_action action; /* the action, with edge -1 */
    bool full;         /* the cell has BW */
    int row, column;   /* counted from 1 */
} cgp__csv_cell;

typedef struct cgp__csv {
    const char *name;     /* the text's name, for messages */
    const char *at, *end; /* the rest of the text */
    int row, column;
    const char *begin, *stop; /* the current cell, without blanks around it */
    cgp__csv_cell *cells;
    int n_cells, capacity;
    int stages, chunks, rows; /* largest stage, micro-batch and row, each + 1 */
    bool transfers;
    bool older;     /* older dialect: B means I, BW means B */
    int *device_of; /* [stages] */
} cgp__csv;

/* csv_table.c: make a schedule from all cells. The message of CGP_EFORMAT has row and column. */
cgp_status cgp__csv_table(cgp__csv *r, cgp_schedule **out);

#endif
