/* SPDX-License-Identifier: Apache-2.0 */
/* outline.h -- the ten shapes as signed distances, inside of the circle of radius 1. */
#ifndef CGP_SRC_DATA_OUTLINE_H
#define CGP_SRC_DATA_OUTLINE_H

enum { CGP__OUTLINES = 10 };

typedef struct cgp__point {
    double x, y;
} cgp__point;

const char *cgp__outline_name(int outline);

/* Distance from p to the edge of a shape, negative inside. */
double cgp__outline_distance(int outline, cgp__point p);

/* Squared distance from p to the line from a to b. */
double cgp__segment_distance2(cgp__point p, cgp__point a, cgp__point b);

#endif
