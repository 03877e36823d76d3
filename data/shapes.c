/* SPDX-License-Identifier: Apache-2.0 */
/* shapes.c -- draws pictures of one shape each, on demand.
 *
 * A *scene* is drawn from the key (seed, position, CGP__DATA_SCENE): class, position, angle,
 * colours, strokes. A pixel is painted in layers from back to front. Each layer covers the pixel by
 * its coverage:
 *
 *     background + slope . (x, y)  ->  strokes  ->  shape  ->  + noise
 *     coverage = 1/2 - distance of the pixel's centre to the edge, within 0 .. 1
 *
 * The noise has a key of its own, with the pixel as counter. */
#include "data/signed_distance.h"
#include "data/source.h"

#include <cgpipe/images.h>

#include <inttypes.h>
#include <math.h>

enum { STROKES = 4, CHANNELS = 3, MIN_SIZE = 16, MAX_SIZE = 1024 };

#define MIN_CONTRAST 0.35
#define MAX_CONTRAST 0.55
#define DARKEST 0.2
#define LIGHTEST 0.8
/* Bound of the random number that is drawn for a colour channel, before the mean is subtracted. */
#define TINT 0.15
#define LIGHTER 0.75     /* probability that a shape is lighter than its background */
#define SLOPE 0.06       /* change of the background from the middle to a border */
#define NOISE 0.08       /* maximum of the noise */
#define STROKE_HALF 0.02 /* half the stroke width, as a fraction of the side */

typedef struct colour {
    double channels[CHANNELS];
} colour;

typedef struct stroke {
    cgp__point from, to; /* pixels */
    colour paint;
} stroke;

typedef struct scene {
    int shape;
    cgp__point middle; /* pixels */
    double radius, cosine, sine;
    colour paint, background;
    double slope_x, slope_y; /* per pixel */
    stroke strokes[STROKES];
} scene;

/* --- scenes --- */

/* A key, and the number of random numbers drawn from it so far. */
typedef struct draws {
    cgp__rng_key key;
    uint64_t n;
} draws;

static double draw(draws *d, double low, double high) {
    return cgp__data_uniform(d->key, d->n++, low, high);
}

/* Draw a colour whose channels have the mean `brightness`. */
static colour draw_colour(draws *d, double brightness) {
    colour c;
    double mean = 0;
    for (int k = 0; k < CHANNELS; k++) {
        c.channels[k] = draw(d, -TINT, TINT);
        mean += c.channels[k] / CHANNELS;
    }
    for (int k = 0; k < CHANNELS; k++)
        c.channels[k] += brightness - mean;
    return c;
}

static stroke draw_stroke(draws *d, double size) {
    stroke s;
    const double length = size * draw(d, 0.08, 0.2), angle = draw(d, 0, 2 * M_PI);
    s.from.x = draw(d, 0, size);
    s.from.y = draw(d, 0, size);
    s.to.x = s.from.x + length * cos(angle);
    s.to.y = s.from.y + length * sin(angle);
    s.paint = draw_colour(d, draw(d, DARKEST, LIGHTEST));
    return s;
}

/* Draw a scene. `size` is the side of the picture in pixels. */
static scene draw_scene(cgp__rng_key key, double size) {
    draws d = {key, 1};
    scene s;
    s.shape = (int)cgp__rng_below(d.key, 0, CGP__SHAPES);
    s.radius = size * draw(&d, 0.24, 0.42);
    s.middle.x = draw(&d, s.radius, size - s.radius);
    s.middle.y = draw(&d, s.radius, size - s.radius);
    const double angle = draw(&d, 0, 2 * M_PI);
    s.cosine = cos(angle);
    s.sine = sin(angle);
    const double contrast = draw(&d, MIN_CONTRAST, MAX_CONTRAST);
    const double dark = draw(&d, DARKEST, LIGHTEST - contrast);
    const bool lighter = draw(&d, 0, 1) < LIGHTER;
    s.background = draw_colour(&d, lighter ? dark : dark + contrast);
    s.paint = draw_colour(&d, lighter ? dark + contrast : dark);
    s.slope_x = draw(&d, -SLOPE, SLOPE) * 2 / size;
    s.slope_y = draw(&d, -SLOPE, SLOPE) * 2 / size;
    for (int i = 0; i < STROKES; i++)
        s.strokes[i] = draw_stroke(&d, size);
    return s;
}

/* --- pixels --- */

/* Return the signed distance of a point of the picture to the shape, in pixels. */
static double shape_distance(const scene *s, cgp__point at) {
    const double x = (at.x - s->middle.x) / s->radius, y = (at.y - s->middle.y) / s->radius;
    const double outside = s->radius * (sqrt(x * x + y * y) - 1);
    if (outside > 1) return outside; /* all shapes lie within the circle */
    const cgp__point turned = {x * s->cosine + y * s->sine, y * s->cosine - x * s->sine};
    return s->radius * cgp__signed_distance(s->shape, turned);
}

static void cover(colour *pixel, const colour *paint, double distance) {
    if (distance >= 0.5) return;
    const double coverage = distance > -0.5 ? 0.5 - distance : 1;
    for (int k = 0; k < CHANNELS; k++)
        pixel->channels[k] += coverage * (paint->channels[k] - pixel->channels[k]);
}

static void cover_stroke(colour *pixel, const stroke *line, double half, cgp__point at) {
    const double reach2 = (half + 0.5) * (half + 0.5);
    const double distance2 = cgp__segment_distance2(at, line->from, line->to);
    if (distance2 < reach2) cover(pixel, &line->paint, sqrt(distance2) - half);
}

static colour scene_colour(const scene *s, double size, cgp__point at) {
    colour pixel = s->background;
    const double slope = s->slope_x * (at.x - size / 2) + s->slope_y * (at.y - size / 2);
    for (int k = 0; k < CHANNELS; k++)
        pixel.channels[k] += slope;
    for (int i = 0; i < STROKES; i++)
        cover_stroke(&pixel, &s->strokes[i], STROKE_HALF * size, at);
    cover(&pixel, &s->paint, shape_distance(s, at));
    return pixel;
}

static int64_t side_of(const cgp_data *data) {
    return data->fields[0].shape.dims[0];
}

/* Write 2 v - 1 for each channel, where v is the colour plus noise. The noise is the sum of two
 * uniform 16-bit numbers, scaled to -1 .. 1. */
static void write_pixel(float *out, const colour *pixel, cgp__rng_key key, uint32_t counter) {
    uint32_t bits[4];
    cgp__philox(bits, (const uint32_t[4]){counter}, key);
    for (int k = 0; k < CHANNELS; k++) {
        const double noise = ((bits[k] & 0xffff) + (bits[k] >> 16)) / 65535.0 - 1;
        const double value = pixel->channels[k] + NOISE * noise;
        out[k] = value < 0 ? -1 : value > 1 ? 1 : (float)(2 * value - 1);
    }
}

static cgp_status fill(cgp_data *data, cgp_split split, int64_t position, int64_t index,
                       void *input, void *target) {
    (void)index;
    const int64_t size = side_of(data);
    const uint32_t held_out = split == CGP_SPLIT_VALIDATION;
    const cgp__rng_key key = cgp__data_key(data, position, CGP__DATA_PIXELS + held_out);
    const scene s =
        draw_scene(cgp__data_key(data, position, CGP__DATA_SCENE + held_out), (double)size);
    float *pixels = input, *mask = data->classes > 0 ? NULL : target;
    for (int64_t i = 0; i < size * size && (pixels || mask); i++) {
        const int64_t x = i % size, y = i / size;
        const cgp__point at = {(double)x + 0.5, (double)y + 0.5};
        if (pixels) {
            const colour pixel = scene_colour(&s, (double)size, at);
            write_pixel(pixels + i * CHANNELS, &pixel, key, (uint32_t)i);
        }
        if (mask) mask[i] = shape_distance(&s, at) < 0;
    }
    if (target && !mask) *(int32_t *)target = s.shape;
    return CGP_OK;
}

/* --- the data set --- */

static const char *class_name(const cgp_data *data, int64_t index) {
    (void)data;
    return cgp__shape_name((int)index);
}

static cgp_status identify(const cgp_data *data, cgp__sha256 *hash) {
    return cgp__data_identify(hash, "size %" PRId64 "\nclasses %" PRId64 "\nseed %" PRIu64 "\n",
                              side_of(data), data->classes, data->seed);
}

static cgp_status open_shapes(cgp_data *data, const void *o) {
    const cgp_shapes_options *options = o;
    CGP_TRY(cgp__data_check_size(options, sizeof *options, "shapes options"));
    CGP_TRY(
        cgp__data_check_range("shapes", "size is", " pixels", options->size, MIN_SIZE, MAX_SIZE));
    if (options->validation < 0)
        return cgp_fail(CGP_EINVAL, "shapes: validation is at least 0 samples, got %" PRId64,
                        options->validation);
    data->samples[CGP_SPLIT_TRAIN] = INT64_MAX;
    data->samples[CGP_SPLIT_VALIDATION] = options->validation;
    data->seed = options->seed;
    cgp__data_set_images(data, options->size, CHANNELS, options->masks ? 0 : CGP__SHAPES);
    return CGP_OK;
}

cgp_status cgp_data_shapes(cgp_data **out, const cgp_shapes_options *options) {
    CGP__NEED(out);
    static const cgp__data_kind kind = {.name = "shapes",
                                        .size = sizeof(cgp_data),
                                        .open = open_shapes,
                                        .fill = fill,
                                        .identify = identify,
                                        .class_name = class_name};
    const cgp_shapes_options defaults = cgp_shapes_options_default();
    return cgp__data_open(out, &kind, "shapes", options ? options : &defaults);
}
