/* SPDX-License-Identifier: Apache-2.0 */
/* signed_distance.c -- computes the signed distance of a point to a shape. Seven of the ten shapes
 * are made of polygons, and three of circles:
 *
 *     outside of a   -d(a)          both a and b    max(d(a), d(b))
 *
 * The distance to a polygon is the distance to its nearest side. A point is inside if a ray from it
 * to the right crosses an odd number of sides (even-odd rule). */
#include "data/signed_distance.h"

#include <math.h>
#include <stdbool.h>

enum { DISC, RING, SQUARE, FRAME, TRIANGLE, STAR, CROSS, CRESCENT, ARROW, BAR, CORNERS = 12 };

#define RING_MIDDLE 0.75
#define RING_HALF 0.25
#define FRAME_HOLE 0.55
#define BITE_RADIUS 0.85
#define BITE_AT 0.5

/* The corners of a polygon, as x0, y0, x1, y1, .. */
typedef struct polygon {
    int n;
    double corners[2 * CORNERS];
} polygon;

static const polygon polygons[CGP__SHAPES] = {
    [SQUARE] = {4, {0.7, 0.7, -0.7, 0.7, -0.7, -0.7, 0.7, -0.7}},
    [TRIANGLE] = {3, {1, 0, -0.5, 0.866, -0.5, -0.866}},
    /* ten corners, 36 degrees apart; every second corner is scaled by 0.42 */
    [STAR] = {10, {1,     0, 0.3398, 0.2469,  0.309,   0.951,   -0.1298, 0.3994, -0.809, 0.5878,
                   -0.42, 0, -0.809, -0.5878, -0.1298, -0.3994, 0.309,   -0.951, 0.3398, -0.2469}},
    [CROSS] = {12, {0.95,  0.28,  0.28,  0.28,  0.28,  0.95,  -0.28, 0.95,
                    -0.28, 0.28,  -0.95, 0.28,  -0.95, -0.28, -0.28, -0.28,
                    -0.28, -0.95, 0.28,  -0.95, 0.28,  -0.28, 0.95,  -0.28}},
    [ARROW] = {7, {1, 0, 0.1, 0.8, 0.1, 0.27, -0.95, 0.27, -0.95, -0.27, 0.1, -0.27, 0.1, -0.8}},
    [BAR] = {4, {0.97, 0.22, -0.97, 0.22, -0.97, -0.22, 0.97, -0.22}},
};

const char *cgp__shape_name(int shape) {
    static const char *const names[CGP__SHAPES] = {
        [DISC] = "disc",         [RING] = "ring", [SQUARE] = "square", [FRAME] = "frame",
        [TRIANGLE] = "triangle", [STAR] = "star", [CROSS] = "cross",   [CRESCENT] = "crescent",
        [ARROW] = "arrow",       [BAR] = "bar",
    };
    return names[shape];
}

double cgp__segment_distance2(cgp__point p, cgp__point a, cgp__point b) {
    const double ex = b.x - a.x, ey = b.y - a.y, wx = p.x - a.x, wy = p.y - a.y;
    const double along = (wx * ex + wy * ey) / (ex * ex + ey * ey);
    const double t = along < 0 ? 0 : along > 1 ? 1 : along;
    const double dx = wx - t * ex, dy = wy - t * ey;
    return dx * dx + dy * dy;
}

static double polygon_distance(const polygon *shape, cgp__point p) {
    double nearest = INFINITY;
    bool inside = false;
    for (int i = 0; i < shape->n; i++) {
        const double *first = &shape->corners[2 * i],
                     *next = &shape->corners[2 * ((i + 1) % shape->n)];
        const cgp__point a = {first[0], first[1]}, b = {next[0], next[1]};
        const double distance2 = cgp__segment_distance2(p, a, b);
        if (distance2 < nearest) nearest = distance2;
        if ((a.y > p.y) != (b.y > p.y) && p.x < a.x + (p.y - a.y) * (b.x - a.x) / (b.y - a.y))
            inside = !inside;
    }
    return inside ? -sqrt(nearest) : sqrt(nearest);
}

static double circle_distance(cgp__point p, double x, double radius) {
    return sqrt((p.x - x) * (p.x - x) + p.y * p.y) - radius;
}

double cgp__signed_distance(int shape, cgp__point p) {
    const double hole = 1 / FRAME_HOLE;
    const polygon *square = &polygons[SQUARE];
    switch (shape) {
    case DISC:
        return circle_distance(p, 0, 1);
    case RING:
        return fabs(circle_distance(p, 0, RING_MIDDLE)) - RING_HALF;
    case CRESCENT:
        return fmax(circle_distance(p, 0, 1), -circle_distance(p, BITE_AT, BITE_RADIUS));
    case FRAME:
        return fmax(polygon_distance(square, p),
                    -FRAME_HOLE * polygon_distance(square, (cgp__point){p.x * hole, p.y * hole}));
    default:
        return polygon_distance(&polygons[shape], p);
    }
}
