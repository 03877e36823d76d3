/* test_op_backends.c -- the cpu backend against ref, and what both promise.
 *
 * Bounds. ref sums in double and rounds once; the other sums in float. With terms of at most
 * about 1 in random signs, a float sum of k terms is off by u/2 times the 2-norm of its partial
 * sums, about u k / 8, u = 2^-23; the worst of many elements is some 5 times that, so u k
 * bounds it. Functions (exp, erf, rsqrt) are good to a few u of their result. Where a division
 * by the deviation of a row or a softmax comes after, bound_of says so. Masks, in-place
 * variants and rows alone have no bound: they are compared bit for bit.
 *
 * Half of the cases are in bf16. Both backends then begin with the same numbers and compute as in
 * f32; what is off by d before each rounds to bf16 is off by d, and half a unit of bf16 each, 2^-8
 * of the value, afterwards. */
#include "harness.h"

#define U ((double)FLT_EPSILON)

static uint64_t seed;
static runner ref, cpu;
static const runner *judged; /* the backend a law is checked on; NULL: both are compared */

/* --- bounds --- */

typedef struct bound {
    double absolute, relative;
} bound;

/* Mean, then a quotient by the deviation: what is off by a few u is off by a few u rstd then,
 * and twice so in dx. `rstd` of the row; of the worst row for the weights. */
static bound layer_norm_bound(const operands *o, int slot, double rstd, double terms) {
    if (slot == SLOT_Y) return (bound){8 * U * (1 + rstd), 8 * U};
    if (slot == SLOT_SAVED) return (bound){4 * U, 4 * U};
    if (slot == SLOT_SAVED + 1) return (bound){0, 8 * U * (1 + rstd)};
    if (slot == SLOT_DX) return (bound){16 * U * (1 + rstd) * (1 + rstd), 8 * U};
    (void)o;
    return (bound){2 * U * terms + 8 * U * (1 + rstd) * sqrt(terms), 8 * U};
}

/* Scores of `depth` terms, then means of values up to 2 over up to `rows` keys. */
static bound attention_bound(const cgp__geometry *g, int slot) {
    const double depth = (double)(g->out / g->heads), rows = (double)g->rows;
    if (slot == SLOT_SAVED) return (bound){U * (16 + depth), 4 * U};
    return (bound){(slot == SLOT_Y ? 2 : 8) * U * (16 + rows + depth), 8 * U};
}

/* An error of lse, of the sum of `in` exponentials, is a relative error of the softmax. */
static bound loss_bound(const cgp__geometry *g, int slot) {
    const double sums = 16 + sqrt((double)g->in);
    return slot == SLOT_SAVED ? (bound){U * sums, U} : (bound){2 * U, U * sums};
}

static bound bound_of(const operands *o, int slot, double rstd) {
    const cgp__geometry *g = &o->c.geometry;
    const double terms = (double)(o->c.n * g->rows);
    const bool weight = slot >= SLOT_DPARAM;
    switch (o->c.op) {
    case CGP__OP_EMBEDDING:
    case CGP__OP_POSITION:
    case CGP__OP_ADD:
    case CGP__OP_ARGMAX:
        return weight ? (bound){U * terms, U} : (bound){0, 0};
    case CGP__OP_LINEAR: {
        const double sums = slot == SLOT_Y ? (double)g->in : weight ? terms : (double)g->out;
        return (bound){U * (sums + 1), U};
    }
    case CGP__OP_LAYER_NORM:
        return layer_norm_bound(o, slot, rstd, terms);
    case CGP__OP_GELU:
        return (bound){16 * U, 8 * U};
    case CGP__OP_ATTENTION:
        return attention_bound(g, slot);
    case CGP__OP_DROPOUT:
        return (bound){0, 2 * U};
    default:
        return loss_bound(g, slot);
    }
}

static double worst_rstd(const operands *o) {
    double worst = 0.0;
    for (int64_t i = 0; o->c.op == CGP__OP_LAYER_NORM && i < o->count[SLOT_SAVED + 1]; i++)
        worst = fmax(worst, o->at[SLOT_SAVED + 1][i]);
    return worst;
}

static double rstd_at(const operands *o, int slot, int64_t i, double worst) {
    if (o->c.op != CGP__OP_LAYER_NORM || slot >= SLOT_DPARAM) return worst;
    const int64_t row = slot == SLOT_Y || slot == SLOT_DX ? i / o->c.geometry.out : i;
    return o->at[SLOT_SAVED + 1][row];
}

/* --- comparing --- */

static void assert_near(const operands *got, const operands *want, int slot) {
    const bool adds = (slot == SLOT_DX && (got->c.add & 1)) ||
                      (slot == SLOT_DX + 1 && (got->c.add & 2)) ||
                      (slot >= SLOT_DPARAM && got->c.accumulate);
    const bool rounds = got->c.type == CGP_BF16 && is_activation(got, slot);
    const double worst = worst_rstd(want);
    for (int64_t i = 0; got->at[slot] && i < got->count[slot]; i++) {
        const double a = got->at[slot][i], b = want->at[slot][i];
        const bound of = bound_of(want, slot, rstd_at(want, slot, i, worst));
        const double close = of.absolute + of.relative * fabs(b) + (adds ? U : 0.0);
        const double limit = rounds ? close + 0x1p-7 * (fabs(b) + close) : close;
        if (!(fabs(a - b) <= limit))
            fail_msg("%s: slot %d [%" PRId64 "] is %.9g, ref has %.9g +- %.3g",
                     case_text(&got->c), slot, i, a, b, limit);
    }
}

/* `count` floats of a slot, bit for bit; `b` begins at its element `at`. */
static void assert_same_bits(const operands *a, const operands *b, int slot, int64_t at,
                             const char *law) {
    for (int64_t i = 0; a->at[slot] && i < a->count[slot]; i++) {
        const float *x = a->at[slot] + i, *y = b->at[slot] + at + i;
        if (memcmp(x, y, sizeof *x) != 0)
            fail_msg("%s: %s: slot %d [%" PRId64 "] is %.9g, expected %.9g", case_text(&a->c),
                     law, slot, i, (double)*x, (double)*y);
    }
}

static void copy_slot(operands *to, const operands *from, int slot) {
    if (to->at[slot])
        memcpy(to->at[slot], from->at[slot], (size_t)to->count[slot] * sizeof(float));
}

/* --- cases: each length x width, with the rest drawn --- */

static const int64_t lengths[] = {1, 5, 63, 64, 65, 128, 130, 200};
static const int64_t widths[] = {1, 3, 17, 64, 768};
#define LENGTHS (int)(sizeof lengths / sizeof *lengths)
#define WIDTHS (int)(sizeof widths / sizeof *widths)

typedef void check_function(const op_case *c);

static cgp__geometry geometry_of(cgp__op_kind op, int64_t rows, int64_t width, int64_t out) {
    const double p = test_random(&seed) % 3 == 0 ? 0.0 : 0.3;
    switch (op) {
    case CGP__OP_EMBEDDING:
        return embedding_geometry(rows, 11, width);
    case CGP__OP_LINEAR:
        return linear_geometry(rows, width, out, test_random(&seed) & 1,
                               test_random(&seed) & 1);
    case CGP__OP_LAYER_NORM:
        return layer_norm_geometry(rows, width);
    case CGP__OP_ATTENTION:
        return attention_geometry(rows, test_between(&seed, 1, 3), width, p);
    case CGP__OP_DROPOUT:
        return dropout_geometry(rows, width, p);
    case CGP__OP_CROSS_ENTROPY:
        return loss_geometry(rows, width);
    case CGP__OP_ARGMAX:
        return argmax_geometry(rows, width);
    default:
        return plain_geometry(rows, width);
    }
}

/* Multiply-adds of ref, roughly. */
static double work(const op_case *c) {
    const cgp__geometry *g = &c->geometry;
    const double rows = (double)(c->n * g->rows);
    if (c->op == CGP__OP_LINEAR) return rows * (double)g->in * (double)g->out;
    if (c->op == CGP__OP_ATTENTION)
        return rows * (double)g->rows * ((double)g->out + 20.0 * (double)g->heads);
    return rows * (double)g->out;
}

static void draw(op_case *c) {
    c->type = test_random(&seed) & 1 ? CGP_BF16 : CGP_F32;
    c->n = test_between(&seed, 1, 5);
    c->add = (uint32_t)test_random(&seed) & 3;
    c->accumulate = test_random(&seed) & 1;
    c->evaluate = test_random(&seed) % 4 == 0;
    c->sample = (int64_t)(test_random(&seed) >> 30); /* crosses 2^32 at times */
    c->shift = test_between(&seed, 0, 3);
}

static void for_each_case(cgp__op_kind op, check_function *check) {
    for (int t = 0; t < LENGTHS; t++) {
        for (int w = 0; w < WIDTHS; w++) {
            for (int v = 0; v < (op == CGP__OP_LINEAR ? WIDTHS : 1); v++) {
                op_case c = {.op = op};
                draw(&c);
                c.geometry = geometry_of(op, lengths[t], widths[w], widths[v]);
                if (work(&c) > 4e6) c.n = 1;
                if (work(&c) <= 1e7 / FEWER && test_random(&seed) % FEWER == 0) check(&c);
            }
        }
    }
}

/* Values far enough from 0 to bend: GELU's tails, peaks of a softmax. */
static void create(operands *o, const op_case *c) {
    operands_create(o, c, &seed);
    if (c->op == CGP__OP_GELU) scale_slot(o, SLOT_X, 6.0f);
    if (c->op == CGP__OP_ATTENTION) scale_slot(o, SLOT_X, 2.0f);
    if (c->op == CGP__OP_CROSS_ENTROPY) scale_slot(o, SLOT_X, 4.0f);
    if (c->type == CGP_BF16) operands_round(o);
}

/* --- cpu gives what ref gives --- */

static void compare_direction(operands *a, operands *b, cgp__direction direction) {
    if (!op_has(a->c.op, direction)) return;
    op_run(&cpu, a, direction);
    op_run(&ref, b, direction);
    if (direction == CGP__FORWARD && a->c.op == CGP__OP_CROSS_ENTROPY) {
        const double limit =
            (double)b->count[SLOT_SAVED] * U * (40 + sqrt((double)b->c.geometry.in));
        if (!(fabs(a->loss - b->loss) <= limit))
            fail_msg("%s: loss is %.9g, ref has %.9g", case_text(&a->c), a->loss, b->loss);
    }
    const int first = direction == CGP__FORWARD ? SLOT_Y : SLOT_DX;
    const int end = direction == CGP__FORWARD ? SLOT_PARAM : SLOTS;
    for (int slot = first; slot < end; slot++)
        assert_near(a, b, slot);
}

static void check_against_ref(const op_case *c) {
    operands a, b;
    create(&a, c);
    operands_copy(&b, &a);
    compare_direction(&a, &b, CGP__FORWARD);
    for (int slot = SLOT_Y; slot < SLOT_PARAM; slot++)
        copy_slot(&a, &b, slot); /* backward is judged alone */
    compare_direction(&a, &b, CGP__BACKWARD_INPUT);
    compare_direction(&a, &b, CGP__BACKWARD_WEIGHT);
    operands_destroy(&a);
    operands_destroy(&b);
}

#define COMPARE(name, kind)                                                                    \
    static void name##_is_what_ref_gives(void **state) {                                       \
        (void)state;                                                                           \
        for_each_case(kind, check_against_ref);                                                \
    }

COMPARE(embedding, CGP__OP_EMBEDDING)
COMPARE(position, CGP__OP_POSITION)
COMPARE(add, CGP__OP_ADD)
COMPARE(linear, CGP__OP_LINEAR)
COMPARE(layer_norm, CGP__OP_LAYER_NORM)
COMPARE(gelu, CGP__OP_GELU)
COMPARE(attention, CGP__OP_ATTENTION)
COMPARE(dropout, CGP__OP_DROPOUT)
COMPARE(cross_entropy, CGP__OP_CROSS_ENTROPY)
COMPARE(argmax, CGP__OP_ARGMAX)

static void cross_entropy_over_a_vocabulary_is_what_ref_gives(void **state) {
    (void)state;
    for (int add = 0; add < 2; add++) {
        for (int bf16 = 0; bf16 < 2; bf16++)
            check_against_ref(&(op_case){.op = CGP__OP_CROSS_ENTROPY,
                                         .geometry = loss_geometry(3, 50257),
                                         .n = 2,
                                         .add = (uint32_t)add,
                                         .type = bf16 ? CGP_BF16 : CGP_F32});
    }
}

static void products_of_several_blocks_are_what_ref_gives(void **state) {
    (void)state;
    for (int i = 0; i < BLOCK_CASES; i++) {
        for (int bf16 = 0; bf16 < 2; bf16++) {
            op_case c = block_case(i);
            c.type = bf16 ? CGP_BF16 : CGP_F32;
            check_against_ref(&c);
        }
    }
}

/* A plan made for some samples serves fewer. */
static void fewer_samples_need_no_more_workspace(void **state) {
    const runner *on = *state;
    static const int threads[] = {1, 2, 5};
    for (int i = 0; i < 600 / FEWER; i++) {
        const cgp__op_kind op = (cgp__op_kind)test_between(&seed, 0, CGP__OP_KINDS - 1);
        cgp__kernel_spec spec = {
            .op = op,
            .direction = (cgp__direction)test_between(&seed, 0, CGP__DIRECTIONS - 1),
            .geometry = geometry_of(op, test_between(&seed, 1, 300),
                                    test_between(&seed, 1, 1100), test_between(&seed, 1, 1100)),
            .type = test_random(&seed) & 1 ? CGP_BF16 : CGP_F32};
        const int t = threads[test_random(&seed) % 3], most = test_between(&seed, 2, 12);
        int64_t before = 0, bytes = 0;
        if (!op_has(op, spec.direction)) continue;
        for (spec.n = 1; spec.n <= most; spec.n++, before = bytes) {
            assert_ok(on->backend->workspace(&spec, t, &bytes));
            if (bytes < before)
                fail_msg("op %d, direction %d, %d threads, rows %" PRId64 ", %" PRId64
                         " -> %" PRId64 ": %" PRId64 " samples need %" PRId64
                         " bytes, one less %" PRId64,
                         (int)op, (int)spec.direction, t, spec.geometry.rows, spec.geometry.in,
                         spec.geometry.out, spec.n, bytes, before);
        }
    }
}

/* --- in place is apart, bit for bit --- */

static void check_shared(const operands *from, const operands *apart, cgp__direction direction,
                         int slot, int over) {
    operands o;
    operands_copy(&o, from);
    operands_share(&o, slot, over);
    op_run(judged, &o, direction);
    assert_same_bits(&o, apart, slot, 0, "in place");
    for (int other = SLOT_DX; other < SLOTS; other++)
        assert_same_bits(&o, apart, other, 0, "in place");
    operands_destroy(&o);
}

static void check_in_place(const op_case *c) {
    const cgp__op *op = cgp__op_find(c->op);
    op_case plain = *c;
    plain.add = 0;
    operands from, apart;
    create(&from, &plain);
    operands_copy(&apart, &from);
    op_run(judged, &apart, CGP__FORWARD);
    for (int k = 0; k < op->n_inputs; k++) {
        if (op->overwrites >> k & 1)
            check_shared(&from, &apart, CGP__FORWARD, SLOT_Y, SLOT_X + k);
    }
    for (int slot = SLOT_Y; slot < SLOT_PARAM; slot++)
        copy_slot(&from, &apart, slot);
    if (op->dx == CGP__DX_IN_PLACE || op->dx == CGP__DX_SAME || op->dx == CGP__DX_OVER_X) {
        op_run(judged, &apart, CGP__BACKWARD_INPUT);
        check_shared(&from, &apart, CGP__BACKWARD_INPUT, SLOT_DX,
                     op->dx == CGP__DX_OVER_X ? SLOT_X : SLOT_DY);
    }
    if (c->op == CGP__OP_ADD)
        check_shared(&from, &apart, CGP__BACKWARD_INPUT, SLOT_DX + 1, SLOT_DY);
    operands_destroy(&from);
    operands_destroy(&apart);
}

static void in_place_gives_the_same_bits(void **state) {
    judged = *state;
    for (int op = 0; op < CGP__OP_KINDS; op++)
        for_each_case((cgp__op_kind)op, check_in_place);
}

/* --- a row's result depends on that row alone --- */

/* Samples from `first` on, elsewhere in memory, are what they were among the others. */
static void check_slice(const operands *whole, const operands *before, int64_t first,
                        int64_t n) {
    operands o;
    operands_slice(&o, before, first, n, test_between(&seed, 0, 15));
    op_run(judged, &o, CGP__FORWARD);
    for (int slot = SLOT_Y; slot < SLOT_PARAM; slot++)
        assert_same_bits(&o, whole, slot, first * (whole->count[slot] / whole->c.n),
                         "rows alone");
    if (op_has(o.c.op, CGP__BACKWARD_INPUT)) op_run(judged, &o, CGP__BACKWARD_INPUT);
    for (int slot = SLOT_DX; slot < SLOT_DPARAM; slot++)
        assert_same_bits(&o, whole, slot, first * (whole->count[slot] / whole->c.n),
                         "rows alone");
    operands_destroy(&o);
}

static void check_slices(const op_case *c) {
    operands before, whole;
    create(&before, c);
    operands_copy(&whole, &before);
    op_run(judged, &whole, CGP__FORWARD);
    if (op_has(c->op, CGP__BACKWARD_INPUT)) op_run(judged, &whole, CGP__BACKWARD_INPUT);
    for (int64_t first = 0; first < c->n;) {
        int64_t n = test_random(&seed) % 2 ? 1 : test_between(&seed, 1, 40);
        if (n > c->n - first) n = c->n - first;
        check_slice(&whole, &before, first, n);
        first += n;
    }
    operands_destroy(&before);
    operands_destroy(&whole);
}

/* As drawn, and with every row a sample of its own. */
static void check_rows_alone(const op_case *c) {
    op_case rows = *c;
    check_slices(c);
    rows.n *= rows.geometry.rows;
    rows.geometry.rows = 1;
    if (c->op != CGP__OP_ATTENTION) check_slices(&rows);
}

static void a_row_depends_on_that_row_alone(void **state) {
    judged = *state;
    for (int op = 0; op < CGP__OP_KINDS; op++)
        for_each_case((cgp__op_kind)op, check_rows_alone);
}

/* --- dropout's rule (backend.h) --- */

static bool kept(const operands *o, int64_t sample, int64_t group, int64_t element) {
    const uint64_t place = (uint64_t)(o->c.sample + sample);
    const uint32_t counter[] = {(uint32_t)(element / 4), (uint32_t)group, (uint32_t)place,
                                (uint32_t)(place >> 32)};
    uint32_t words[4];
    cgp__philox(words, counter, o->key);
    return words[element % 4] >= cgp__dropout_threshold(o->c.geometry.p);
}

static void check_mask(const op_case *c) {
    const int64_t size = c->geometry.rows * c->geometry.out;
    operands o;
    operands_create(&o, c, &seed);
    op_run(judged, &o, CGP__FORWARD);
    for (int64_t i = 0; i < o.count[SLOT_Y]; i++) {
        const bool keep = c->evaluate || kept(&o, i / size, 0, i % size);
        if (keep != (o.at[SLOT_Y][i] != 0.0f))
            fail_msg("%s: [%" PRId64 "] is %g, kept: %d", case_text(c), i,
                     (double)o.at[SLOT_Y][i], keep);
    }
    operands_destroy(&o);
}

static void dropout_follows_its_rule(void **state) {
    judged = *state;
    for_each_case(CGP__OP_DROPOUT, check_mask);
}

/* With q = 0 all keys up to the query are alike, and with v[j] = the j-th unit vector y shows
 * each probability: 1 / (t + 1) / (1 - p) where it is kept. */
static void attention_follows_dropouts_rule(void **state) {
    judged = *state;
    static const int64_t all_rows[] = {1, 5, 64, 65, 130};
    for (int r = 0; r < 5; r++) {
        const int64_t rows = all_rows[r], depth = rows, width = 3 * depth;
        const op_case c = {.op = CGP__OP_ATTENTION,
                           .geometry = attention_geometry(rows, 3, depth, 0.3),
                           .n = 2,
                           .sample = ((int64_t)1 << 32) - 1};
        operands o;
        operands_create(&o, &c, &seed);
        for (int64_t i = 0; i < o.count[SLOT_X]; i++) {
            const int64_t t = i / (3 * width) % rows, column = i % (3 * width);
            o.at[SLOT_X][i] = column >= 2 * width && column % depth == t ? 1.0f : 0.0f;
        }
        op_run(judged, &o, CGP__FORWARD);
        for (int64_t i = 0; i < o.count[SLOT_Y]; i++) {
            const int64_t sample = i / width / rows, t = i / width % rows;
            const int64_t head = i % width / depth, key = i % depth;
            const bool keep = key <= t && kept(&o, sample, head * rows + t, key);
            const double want = keep ? 1.0 / (double)(t + 1) / (1.0 - 0.3) : 0.0;
            if (!(fabs(o.at[SLOT_Y][i] - want) <= 16 * U * want))
                fail_msg("%s: query %" PRId64 ", key %" PRId64 " is %g, expected %g",
                         case_text(&c), t, key, (double)o.at[SLOT_Y][i], want);
        }
        operands_destroy(&o);
    }
}

int main(void) {
    seed = test_seed();
    ref = runner_open(&cgp__backend_ref, 1);
    cpu = runner_open(&cgp__backend_cpu, 1);
#define LAW(name, runner)                                                                      \
    { #name " (" #runner ")", name, NULL, NULL, &runner }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embedding_is_what_ref_gives),
        cmocka_unit_test(position_is_what_ref_gives),
        cmocka_unit_test(add_is_what_ref_gives),
        cmocka_unit_test(linear_is_what_ref_gives),
        cmocka_unit_test(layer_norm_is_what_ref_gives),
        cmocka_unit_test(gelu_is_what_ref_gives),
        cmocka_unit_test(attention_is_what_ref_gives),
        cmocka_unit_test(dropout_is_what_ref_gives),
        cmocka_unit_test(cross_entropy_is_what_ref_gives),
        cmocka_unit_test(argmax_is_what_ref_gives),
        cmocka_unit_test(cross_entropy_over_a_vocabulary_is_what_ref_gives),
        cmocka_unit_test(products_of_several_blocks_are_what_ref_gives),
        LAW(fewer_samples_need_no_more_workspace, ref),
        LAW(fewer_samples_need_no_more_workspace, cpu),
        LAW(in_place_gives_the_same_bits, ref),
        LAW(in_place_gives_the_same_bits, cpu),
        LAW(a_row_depends_on_that_row_alone, ref),
        LAW(a_row_depends_on_that_row_alone, cpu),
        LAW(dropout_follows_its_rule, ref),
        LAW(dropout_follows_its_rule, cpu),
        LAW(attention_follows_dropouts_rule, ref),
        LAW(attention_follows_dropouts_rule, cpu),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    runner_close(&cpu);
    runner_close(&ref);
    return failed;
}
