/* SPDX-License-Identifier: Apache-2.0 */
/* picture.h -- the drawing model of a planned or measured step: boxes in rows, and messages between
 * them. Three writers draw it: ASCII, SVG and the JSON of trace viewers.
 *
 *     row 0   |0F0|0F1|       |0B0   |        one row per device, one box per compute action,
 *     row 1       |1F0|1B0   |                in order of time
 *                  ^ message of box 0 of row 0 to box 0 of row 1 */
#ifndef CGP_SRC_SCHEDULE_FORMATS_PICTURE_H
#define CGP_SRC_SCHEDULE_FORMATS_PICTURE_H

#include "schedule/table.h"

typedef struct cgp__box {
    double start, end;
    cgp_action action;
    int row;
    bool critical;
} cgp__box;

/* A message between devices, with the indices of the box that sends it and the box that waits for
 * it. */
typedef struct cgp__message {
    int from, to;
} cgp__message;

typedef struct cgp__picture {
    int rows, n_boxes, n_messages;
    cgp__box *boxes; /* [n_boxes] boxes, row by row */
    int *first;      /* [rows + 1] index of the first box of each row */
    int *stages_on;  /* [rows] number of stages in each row; if it is more than 1, the text of a box
                      * includes the stage */
    int *round;      /* [stages] position of the stage in its row: 0 for the first stage of the row,
                      * 1 for the second .. */
    const double *exchanged; /* [rows] the timeline's times; NULL: there are none */
    double end;              /* time at which the last box or exchange ends */
    bool measured;
    cgp__message *messages;
} cgp__picture;

/* Make the picture of a timeline. */
cgp_status cgp__picture_of_timeline(cgp__picture *out, const cgp_schedule *schedule,
                                    const cgp_schedule_timeline *timeline);

void cgp__picture_release(cgp__picture *picture);

/* Return the end of the last box of a row. */
double cgp__row_end(const cgp__picture *picture, int row);

/* Write the text of a box, such as "2F0", or "F0" if the row has only one stage. Return `text`. */
const char *cgp__box_text(const cgp__picture *picture, const cgp__box *box,
                          char text[CGP__ACTION_TEXT]);

#endif
