/* SPDX-License-Identifier: Apache-2.0 */
/* trial.c -- memory for one use of a custom op, and runs of the op. See trial.h. */
#include "op/custom/trial.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 0x5a

const char *cgp__trial_function_name(cgp_op_direction direction) {
    static const char *const names[] = {"forward", "backward_input", "backward_weight"};
    return names[direction];
}

const char *cgp__trial_slot_name(int slot, char *text, size_t size) {
    static const struct {
        const char *name;
        int first;
        bool one;
    } rows[] = {{"x", TRIAL_X, false},
                {"parameters", TRIAL_PARAM, false},
                {"state", TRIAL_STATE, false},
                {"dy", TRIAL_DY, true},
                {"y", TRIAL_Y, true},
                {"saved", TRIAL_SAVED, false},
                {"dx", TRIAL_DX, false},
                {"dparameters", TRIAL_DPARAM, false},
                {"accumulator", TRIAL_ACCUMULATOR, true},
                {"workspace", TRIAL_WORKSPACE, true}};
    int row = (int)(sizeof rows / sizeof rows[0]) - 1;
    while (rows[row].first > slot)
        row--;
    if (rows[row].one)
        snprintf(text, size, "%s", rows[row].name);
    else
        snprintf(text, size, "%s[%d]", rows[row].name, slot - rows[row].first);
    return text;
}

/* --- memory --- */

static cgp_status make_slot(cgp__trial *t, int slot, const cgp_op_type *type, int64_t n) {
    cgp__trial_slot *s = &t->slots[slot];
    s->dtype = type->dtype;
    s->upper_bound = type->upper_bound;
    s->bytes = n * cgp_shape_count(&type->shape) * (int64_t)cgp_dtype_bytes(type->dtype);
    const size_t capacity = (size_t)cgp__align_up(s->bytes) + 3 * CGP__ALIGN;
    const bool state = slot >= TRIAL_STATE && slot < TRIAL_DY;
    s->memory = aligned_alloc(CGP__ALIGN, capacity);
    s->kept = cgp__calloc((size_t)s->bytes, 1);
    if (state) s->ended = cgp__calloc((size_t)s->bytes, 1);
    if (!s->memory || !s->kept || (state && !s->ended))
        return cgp__no_memory(t->op->name, capacity);
    s->data = s->memory + CGP__ALIGN + (slot < TRIAL_PARAM ? 4 : 0);
    memset(s->memory, GUARD, capacity);
    return CGP_OK;
}

static cgp_status make_bytes(cgp__trial *t, int slot, int64_t bytes) {
    const cgp_op_type type = {.shape = cgp_shape_make(1, (int64_t[]){(bytes + 3) / 4})};
    return bytes > 0 ? make_slot(t, slot, &type, 1) : CGP_OK;
}

static cgp_status make_slots(cgp__trial *t) {
    const cgp_op *op = t->op;
    const cgp_op_node *node = &t->node;
    const cgp_op_shapes *shapes = &node->shapes;
    const int64_t n = t->options.samples;
    int64_t workspace = 0;
    for (int d = 0; d < CGP_OP_DIRECTIONS; d++) {
        if (op->workspace && cgp__op_run_of(op, (cgp_op_direction)d))
            workspace = cgp__max(workspace, op->workspace(node, (cgp_op_direction)d, n, 2));
    }
    for (int k = 0; k < op->n_inputs; k++) {
        CGP_TRY(make_slot(t, TRIAL_X + k, &node->inputs[k], n));
        if (node->inputs[k].dtype == CGP_F32)
            CGP_TRY(make_slot(t, TRIAL_DX + k, &node->inputs[k], n));
    }
    for (int k = 0; k < shapes->n_parameters; k++) {
        const cgp_op_type type = {.shape = shapes->parameters[k].shape};
        CGP_TRY(make_slot(t, TRIAL_PARAM + k, &type, 1));
        CGP_TRY(make_slot(t, TRIAL_DPARAM + k, &type, 1));
    }
    for (int k = 0; k < shapes->n_state; k++) {
        const cgp_op_type type = {.dtype = shapes->state[k].dtype, .shape = shapes->state[k].shape};
        CGP_TRY(make_slot(t, TRIAL_STATE + k, &type, 1));
    }
    for (int k = 0; k < shapes->n_saved; k++)
        CGP_TRY(make_slot(t, TRIAL_SAVED + k, &shapes->saved[k], shapes->saved[k].whole ? 1 : n));
    if (!op->is_loss) {
        CGP_TRY(make_slot(t, TRIAL_Y, &shapes->output, n));
        if (shapes->output.dtype == CGP_F32) CGP_TRY(make_slot(t, TRIAL_DY, &shapes->output, n));
    }
    CGP_TRY(make_bytes(t, TRIAL_ACCUMULATOR, shapes->accumulator_bytes));
    return make_bytes(t, TRIAL_WORKSPACE, workspace);
}

/* --- values --- */

static void draw(cgp__trial *t, int slot, uint64_t seed, double low, double high) {
    const cgp__trial_slot *s = &t->slots[slot];
    char *data = cgp__trial_data(t, slot);
    const cgp__rng_key key = cgp__rng_derive(seed, CGP__RNG_DATA, 0, (uint32_t)slot);
    for (int64_t i = 0; i < s->bytes / 4; i++) {
        const double uniform = (double)cgp__rng_below(key, (uint64_t)i, 1u << 24) * 0x1p-24;
        const float number = (float)(low + (high - low) * uniform);
        const int32_t integer = (int32_t)((double)s->upper_bound * uniform);
        memcpy(data + 4 * i, s->dtype == CGP_I32 ? (const void *)&integer : &number, 4);
    }
}

void cgp__trial_poison(cgp__trial *t, int slot, uint64_t seed) {
    const cgp__trial_slot *s = &t->slots[slot];
    const bool read = slot < TRIAL_Y;
    if (seed == 0 && s->dtype == CGP_F32)
        memset(cgp__trial_data(t, slot), 0xff, (size_t)s->bytes); /* these bytes are NaN */
    else
        draw(t, slot, t->options.seed + 7919 * (seed + 1), read ? t->options.low : -2.0,
             read ? t->options.high : 2.0);
}

bool cgp__trial_rotate(cgp__trial *t, int slot, int64_t by) {
    const cgp__trial_slot *s = &t->slots[slot];
    const int64_t count = s->bytes / 4;
    bool same = true;
    for (int64_t i = 0; i < count; i++) {
        memcpy(s->data + 4 * i, s->kept + 4 * ((i + by) % count), 4);
        same = same && memcmp(s->kept, s->kept + 4 * i, 4) == 0;
    }
    return !same;
}

void cgp__trial_restore(cgp__trial *t, int slot) {
    const cgp__trial_slot *s = &t->slots[slot];
    if (s->memory) memcpy(cgp__trial_data(t, slot), s->kept, (size_t)s->bytes);
}

static void keep_slot(cgp__trial *t, int slot) {
    const cgp__trial_slot *s = &t->slots[slot];
    if (s->memory) memcpy(s->kept, cgp__trial_data(t, slot), (size_t)s->bytes);
}

static void draw_operands(cgp__trial *t) {
    const cgp_op_check_options *o = &t->options;
    const cgp_op_shapes *shapes = &t->node.shapes;
    for (int slot = TRIAL_X; slot < TRIAL_STATE; slot++)
        if (t->slots[slot].memory) draw(t, slot, o->seed, o->low, o->high);
    if (t->slots[TRIAL_DY].memory) draw(t, TRIAL_DY, o->seed, -1.0, 1.0);
    for (int k = 0; k < shapes->n_state; k++) {
        const cgp__trial_slot *s = &t->slots[TRIAL_STATE + k];
        const float number = shapes->state[k].begin;
        const int32_t integer = (int32_t)number;
        for (int64_t i = 0; i < s->bytes / 4; i++)
            memcpy(s->data + 4 * i, s->dtype == CGP_I32 ? (const void *)&integer : &number, 4);
    }
    for (int slot = TRIAL_X; slot < TRIAL_Y; slot++)
        keep_slot(t, slot);
}

static cgp_status check_arguments(const cgp_op_check_options *o) {
    if (o->struct_size != sizeof *o)
        return cgp_fail(CGP_EINVAL,
                        "op check options: struct_size is %zu, expected %zu (use "
                        "cgp_op_check_options_default)",
                        o->struct_size, sizeof *o);
    if (o->samples < 1 || o->samples > 1024 || o->elements < 1)
        return cgp_fail(CGP_EINVAL,
                        "op check options: expected 1 to 1024 samples and 1 or more elements, got "
                        "%" PRId64 " and %d",
                        o->samples, o->elements);
    if (!(o->low < o->high) || !isfinite(o->low) || !isfinite(o->high))
        return cgp_fail(CGP_EINVAL, "op check options: expected low < high, got %g and %g", o->low,
                        o->high);
    if (!(o->step > 0 && isfinite(o->step)) || !(o->tolerance > 0 && isfinite(o->tolerance)))
        return cgp_fail(CGP_EINVAL,
                        "op check options: expected step and tolerance > 0, got %g and %g", o->step,
                        o->tolerance);
    return CGP_OK;
}

static cgp_status make_use(cgp__trial *t, const void *attributes, const cgp_op_type *inputs) {
    CGP_TRY(cgp__custom_check(t->op, attributes));
    t->node =
        (cgp_op_node){.op = t->op, .attributes = t->op->attribute_bytes > 0 ? attributes : NULL};
    for (int k = 0; k < t->op->n_inputs; k++) {
        const cgp_op_type *type = &inputs[k];
        const bool integers = type->dtype == CGP_I32;
        if (type->dtype != CGP_F32 && !integers)
            return cgp_fail(CGP_EINVAL, "op %s: input %d: expected f32 or i32, got %s", t->op->name,
                            k, cgp_dtype_name(type->dtype));
        if (type->shape.rank < 0 || type->shape.rank >= CGP_MAX_RANK ||
            cgp_shape_count(&type->shape) < 1)
            return cgp_fail(CGP_EINVAL, "op %s: input %d: expected 0 to %d sizes >= 1", t->op->name,
                            k, CGP_MAX_RANK - 1);
        if (integers && (type->upper_bound < 1 || type->upper_bound > INT32_MAX))
            return cgp_fail(CGP_EINVAL,
                            "op %s: input %d: expected upper_bound from 1 to %d, got %" PRId64,
                            t->op->name, k, INT32_MAX, type->upper_bound);
        t->node.inputs[k] = *type;
    }
    const cgp_status status = cgp__custom_infer(&t->node);
    return status == CGP_OK ? status : cgp_fail(status, "op %s: %s", t->op->name, cgp_message());
}

cgp_status cgp__trial_create(cgp__trial *t, const cgp_op *op, const void *attributes,
                             const cgp_op_type *inputs, const cgp_op_check_options *options) {
    *t = (cgp__trial){.op = op, .options = options ? *options : cgp_op_check_options_default()};
    if (!op || !inputs)
        return cgp_fail(CGP_EINVAL, "op check: expected an op and its inputs, got NULL");
    CGP_TRY(check_arguments(&t->options));
    CGP_TRY(make_use(t, attributes, inputs));
    CGP_TRY(make_slots(t));
    draw_operands(t);
    return CGP_OK;
}

void cgp__trial_destroy(cgp__trial *t) {
    for (int i = 0; i < TRIAL_SLOTS; i++) {
        free(t->slots[i].ended);
        free(t->slots[i].kept);
        free(t->slots[i].memory);
    }
}

/* --- runs --- */

static void ranges_in_order(cgp_device *device, int64_t items, int64_t block, cgp__range *range,
                            const void *work) {
    (void)device;
    (void)block;
    if (items > 0) range(work, 0, items, 0);
}

static void ranges_in_reverse(cgp_device *device, int64_t items, int64_t block, cgp__range *range,
                              const void *work) {
    (void)device;
    for (int64_t begin = items > 0 ? (items - 1) / block * block : -1; begin >= 0; begin -= block)
        range(work, begin, cgp__min(begin + block, items), (int)(begin / block % 2));
}

static bool writes(const cgp__trial *t, cgp_op_direction direction, int slot) {
    if (direction == CGP_OP_FORWARD)
        return slot == TRIAL_Y || (slot >= TRIAL_SAVED && slot < TRIAL_DX);
    if (slot >= TRIAL_DX && slot < TRIAL_DPARAM) return direction == CGP_OP_BACKWARD_INPUT;
    return slot >= TRIAL_DPARAM && slot < TRIAL_ACCUMULATOR &&
           cgp__op_makes_parameters(t->op, direction);
}

/* Return true if this variant lets the run overwrite a slot that other variants only read. */
static bool overwritten(const cgp__trial *t, cgp_op_direction direction,
                        const cgp__variant *variant, int slot) {
    if (direction == CGP_OP_FORWARD || t->op->is_loss)
        return slot < TRIAL_PARAM && (variant->in_place & (1u << slot));
    return slot == TRIAL_DY && variant->in_place;
}

static bool is_guard(const char *begin, const char *end) {
    while (begin < end && *begin == GUARD)
        begin++;
    return begin == end;
}

/* Return the workspace size in bytes for this direction. */
static int64_t workspace_of(const cgp__trial *t, cgp_op_direction direction) {
    if (!t->op->workspace) return 0;
    return cgp__max(0, t->op->workspace(&t->node, direction, t->options.samples, 2));
}

static cgp_status check_memory(const cgp__trial *t, cgp_op_direction direction,
                               const cgp__variant *variant) {
    char name[32];
    for (int slot = 0; slot < TRIAL_SLOTS; slot++) {
        const cgp__trial_slot *s = &t->slots[slot];
        const bool forward = direction == CGP_OP_FORWARD;
        if (!s->memory) continue;
        cgp__trial_slot_name(slot, name, sizeof name);
        const int64_t bytes = slot == TRIAL_WORKSPACE ? workspace_of(t, direction) : s->bytes;
        if (!is_guard(s->memory, s->data) ||
            !is_guard(s->data + bytes, s->data + s->bytes + CGP__ALIGN))
            return cgp_fail(CGP_EINVAL, "op %s: %s: writes %s %s", t->op->name,
                            cgp__trial_function_name(direction),
                            is_guard(s->memory, s->data) ? "behind" : "in front of", name);
        const bool read = slot < TRIAL_Y || (!forward && slot < TRIAL_DX);
        if (read && !overwritten(t, direction, variant, slot) &&
            memcmp(cgp__trial_data(t, slot), s->kept, (size_t)s->bytes) != 0)
            return cgp_fail(CGP_EINVAL, "op %s: %s: writes to %s, which is only read", t->op->name,
                            cgp__trial_function_name(direction), name);
    }
    return CGP_OK;
}

static void bind(cgp__trial *t, cgp_op_direction direction, const cgp__variant *variant,
                 cgp_op_run *run) {
    const bool forward = direction == CGP_OP_FORWARD, loss = t->op->is_loss;
    for (int k = 0; k < CGP_OP_MAX_INPUTS; k++) {
        const bool in_place = variant->in_place & (1u << k);
        run->x[k] = cgp__trial_data(t, TRIAL_X + k);
        if (direction == CGP_OP_BACKWARD_INPUT && (!variant->only || variant->only == k + 1))
            run->dx[k] = cgp__trial_data(t, !in_place ? TRIAL_DX + k
                                            : loss    ? TRIAL_X + k
                                                      : TRIAL_DY);
        if (forward && in_place) run->y = cgp__trial_data(t, TRIAL_X + k);
    }
    if (!run->y) run->y = cgp__trial_data(t, TRIAL_Y);
    for (int k = 0; k < CGP_OP_MAX_SAVED; k++)
        run->saved[k] = cgp__trial_data(t, TRIAL_SAVED + k);
    for (int k = 0; k < CGP_OP_MAX_PARAMETERS; k++) {
        run->parameters[k] = cgp__trial_data(t, TRIAL_PARAM + k);
        if (cgp__op_makes_parameters(t->op, direction))
            run->dparameters[k] = cgp__trial_data(t, TRIAL_DPARAM + k);
    }
    for (int k = 0; k < CGP_OP_MAX_STATE && forward; k++)
        run->state[k] = cgp__trial_data(t, TRIAL_STATE + k);
    if (forward && !variant->uncounted && !variant->evaluation)
        run->accumulator = cgp__trial_data(t, TRIAL_ACCUMULATOR);
    if (!forward) run->dy = cgp__trial_data(t, TRIAL_DY);
    if (forward && loss) run->loss = &t->loss;
    const cgp__trial_slot *workspace = &t->slots[TRIAL_WORKSPACE];
    const int64_t bytes = workspace_of(t, direction);
    if (bytes > 0) run->workspace = workspace->data;
    if (workspace->memory)
        memset(workspace->data + bytes, GUARD, (size_t)(workspace->bytes - bytes));
}

/* Move the results of an in-place run to the slots of the results. */
static void fetch(cgp__trial *t, cgp_op_direction direction, const cgp__variant *variant) {
    for (int k = 0; k < CGP_OP_MAX_INPUTS; k++) {
        if (!(variant->in_place & (1u << k))) continue;
        const bool forward = direction == CGP_OP_FORWARD;
        const int from = forward || t->op->is_loss ? TRIAL_X + k : TRIAL_DY;
        const int to = forward ? TRIAL_Y : TRIAL_DX + k;
        memcpy(cgp__trial_data(t, to), cgp__trial_data(t, from), (size_t)t->slots[to].bytes);
        cgp__trial_restore(t, from);
    }
}

cgp_status cgp__trial_run(cgp__trial *t, cgp_op_direction direction, const cgp__variant *variant) {
    const cgp__host host = {
        .threads = 2, .parallel_for = variant->backwards ? ranges_in_reverse : ranges_in_order};
    const struct cgp__op_context context = {
        &host, cgp__rng_derive(t->options.seed, CGP__RNG_DROPOUT, 0, 0), 4};
    cgp_op_run run = {.node = &t->node,
                      .n = t->options.samples,
                      .first = true,
                      .training = !variant->evaluation,
                      .loss_scale = 0.5f,
                      .context = &context};
    for (int slot = TRIAL_Y; slot < TRIAL_SLOTS; slot++) {
        if (t->slots[slot].memory && (slot >= TRIAL_ACCUMULATOR || writes(t, direction, slot)))
            cgp__trial_poison(t, slot, variant->garbage);
    }
    t->loss = direction == CGP_OP_FORWARD ? NAN : t->loss;
    bind(t, direction, variant, &run);
    (void)cgp_fail(CGP_OK, "%s", "");
    const cgp_status status = cgp__op_run_of(t->op, direction)(&run);
    if (status != CGP_OK)
        return cgp_fail(CGP_EINVAL, "op %s: %s: failed with %s (%s)", t->op->name,
                        cgp__trial_function_name(direction), cgp_status_name(status),
                        cgp_message());
    CGP_TRY(check_memory(t, direction, variant));
    fetch(t, direction, variant);
    return CGP_OK;
}

void cgp__trial_keep(cgp__trial *t, cgp_op_direction direction) {
    for (int slot = TRIAL_Y; slot < TRIAL_ACCUMULATOR; slot++) {
        if (writes(t, direction, slot)) keep_slot(t, slot);
    }
    if (direction == CGP_OP_FORWARD) t->kept_loss = t->loss;
}

int cgp__trial_differs(const cgp__trial *t, cgp_op_direction direction, const cgp__variant *variant,
                       int64_t *element) {
    *element = 0;
    if (t->op->is_loss && direction == CGP_OP_FORWARD &&
        memcmp(&t->loss, &t->kept_loss, sizeof t->loss) != 0)
        return TRIAL_Y;
    for (int slot = TRIAL_Y; slot < TRIAL_ACCUMULATOR; slot++) {
        const cgp__trial_slot *s = &t->slots[slot];
        const bool dx = slot >= TRIAL_DX && slot < TRIAL_DPARAM;
        if (!s->memory || !writes(t, direction, slot) ||
            (dx && variant->only && slot != TRIAL_DX + variant->only - 1))
            continue;
        const char *data = cgp__trial_data(t, slot);
        for (int64_t i = 0; i < s->bytes / 4; i++) {
            if (memcmp(data + 4 * i, s->kept + 4 * i, 4) == 0) continue;
            *element = i;
            return slot;
        }
    }
    return -1;
}
