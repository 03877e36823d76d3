/* SPDX-License-Identifier: Apache-2.0 */
/* signed_distance.h -- computes the signed distance of a point to one of ten shapes, which lie
 * within the circle of radius 1. */
#ifndef CGP_SRC_DATA_SIGNED_DISTANCE_H
#define CGP_SRC_DATA_SIGNED_DISTANCE_H

enum { CGP__SHAPES = 10 };

typedef struct cgp__point {
    double x, y;
} cgp__point;

const char *cgp__shape_name(int shape);

/* Return the distance from p to the edge of a shape. The distance is negative inside the shape. */
double cgp__signed_distance(int shape, cgp__point p);

/* Return the squared distance from p to the segment from `a` to `b`. */
double cgp__segment_distance2(cgp__point p, cgp__point a, cgp__point b);

#endif
