/* SPDX-License-Identifier: Apache-2.0 */
/* csv.h -- the cells of a schedule's text, between the two files that read one: csv.c makes them of the
 * text, csv_table.c makes a table of them. */
#ifndef CGP_SRC_SCHEDULE_CSV_H
#define CGP_SRC_SCHEDULE_CSV_H

#include "schedule/schedule.h"

typedef struct cgp__csv_cell {
    cgp_action action; /* with edge -1 */
    bool full;         /* BW */
    int row, column;   /* from 1 */
} cgp__csv_cell;

typedef struct cgp__csv {
    const char *name;     /* of the text, for messages */
    const char *at, *end; /* what is left of the text */
    int row, column;
    const char *begin, *stop; /* the cell that is being read, without blanks around it */
    cgp__csv_cell *cells;
    int n_cells, capacity;
    int stages, chunks, rows; /* the largest number of each, + 1 */
    bool transfers;
    bool older;     /* B is I, and BW is B */
    int *device_of; /* [stages] */
} cgp__csv;

/* Make a schedule of all cells. CGP_EFORMAT with the place of what is wrong. csv_table.c */
cgp_status cgp__csv_table(cgp__csv *r, cgp_schedule **out);

#endif
