/* SPDX-License-Identifier: Apache-2.0 */
/* digests.c -- print SHA-256 digests of the results that each kernel of a backend computes from
 * fixed operands. The digests of a GPU must equal those of cuda-host.
 *
 *     cuda_digests BACKEND [1/N]
 *                      one line (digest, name) for each op, direction and case, for each update,
 *                      conversion and sum
 *
 * With 1/N, only one in N cases of ops runs. This is for sanitizers, under which all cases would
 * take too long.
 *
 * Operands come from splitmix64, whose seeds are the names of ops. Operands do not depend on libm.
 * A forward digest covers y, saved values, accumulator and loss. A backward digest covers dx or
 * dparam; backward reads the values that forward saved. tools/gpu_check.sh compares the lines with
 * digests.txt. */
#include "../op/harness.h"

static runner on;
static int cases, every = 1; /* number of cases drawn; one in `every` cases runs */

/* --- lines --- */

/* Compute a seed from a name, so that adding an op does not change the operands of other ops. */
static uint64_t seed_of(const char *name) {
    uint64_t seed = 0;
    for (const char *c = name; *c; c++)
        seed = 31 * seed + (unsigned char)*c;
    return seed;
}

static cgp__sha256 *hash_begin(void) {
    cgp__sha256 *hash = NULL;
    assert_ok(cgp__sha256_create(&hash));
    return hash;
}

static void hash_end(cgp__sha256 *hash, const char *format, ...) CGP_PRINTF(2, 3);
static void hash_end(cgp__sha256 *hash, const char *format, ...) {
    char hex[65];
    va_list list;
    assert_ok(cgp__sha256_finish(hash, hex));
    cgp__sha256_destroy(hash);
    printf("%s  ", hex);
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    putchar('\n');
}

/* --- ops --- */

static const char *const directions[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = "forward",
    [CGP_OP_BACKWARD_INPUT] = "backward-input",
    [CGP_OP_BACKWARD_WEIGHT] = "backward-weight",
};

/* Return a short description of a case for digests.txt: "gelu f32 #2, n 3, 1x3 -> 3". */
static const char *name_of(const op_case *c, int number) {
    static char text[192];
    const cgp_op_attributes *g = &c->attributes;
    const int used =
        snprintf(text, sizeof text, "%s %s #%d, n %" PRId64 ", %" PRId64 "x%" PRId64 " -> %" PRId64,
                 cgp__op_find(c->op)->op.name, cgp_dtype_name(c->type), number, c->n, g->rows,
                 g->in, g->out);
    if (is_window_op(c->op))
        snprintf(text + used, sizeof text - (size_t)used,
                 ", image %dx%d, kernel %dx%d, stride %dx%d", g->windows.height, g->windows.width,
                 g->windows.kernel_height, g->windows.kernel_width, g->windows.stride_height,
                 g->windows.stride_width);
    return text;
}

static bool is_result(int slot, cgp_op_direction direction) {
    if (direction == CGP_OP_FORWARD)
        return (slot >= SLOT_Y && slot < SLOT_PARAM) || slot == SLOT_ACCUMULATOR;
    return direction == CGP_OP_BACKWARD_INPUT ? slot >= SLOT_DX && slot < SLOT_DPARAM
                                              : slot >= SLOT_DPARAM && slot < SLOT_STATE;
}

static void print_direction(operands *o, cgp_op_direction direction, int number) {
    if (!case_has(&o->c, direction)) return;
    op_run(&on, o, direction);
    cgp__sha256 *hash = hash_begin();
    for (int slot = 0; slot < SLOTS; slot++) {
        if (is_result(slot, direction) && o->at[slot])
            assert_ok(
                cgp__sha256_add(hash, o->at[slot], (size_t)o->count[slot] * sizeof *o->at[slot]));
    }
    if (is_loss(o->c.op)) assert_ok(cgp__sha256_add(hash, &o->loss, sizeof o->loss));
    hash_end(hash, "%s, %s", directions[direction], name_of(&o->c, number));
}

/* Commit the running statistics, because op_run() does not commit them, and print the digest of the
 * state. */
static void print_commit(operands *o, int number) {
    const cgp_kernel_spec spec = spec_of(&o->c, CGP_OP_FORWARD);
    const value_row row = row_of(o);
    const cgp_kernel_args args = op_args(o, &row);
    int64_t index = -2;
    there t = {.on = &on};
    there_put(&t, &index, sizeof index);
    put_operands(&t, o, NULL);
    const cgp_kernel_args moved = there_args(&t, args);
    assert_ok(on.backend->kernels.check_commit(on.device, &spec, &moved, there_of(&t, &index)));
    assert_ok(on.backend->kernels.commit(on.device, &spec, &moved));
    there_end(&t);
    cgp__sha256 *hash = hash_begin();
    assert_ok(cgp__sha256_add(hash, &index, sizeof index));
    for (int slot = SLOT_STATE; slot < SLOT_ACCUMULATOR; slot++)
        assert_ok(cgp__sha256_add(hash, o->at[slot], (size_t)o->count[slot] * sizeof *o->at[slot]));
    hash_end(hash, "commit, %s", name_of(&o->c, number));
}

static void print_case(const op_case *c, int number, uint64_t *seed) {
    operands o;
    operands_create_bent(&o, c, seed);
    if (cases++ % every == 0) {
        print_direction(&o, CGP_OP_FORWARD, number);
        if (c->op == CGP_OP_BATCH_NORM && !c->evaluate) print_commit(&o, number);
        print_direction(&o, CGP_OP_BACKWARD_INPUT, number);
        print_direction(&o, CGP_OP_BACKWARD_WEIGHT, number);
    }
    operands_destroy(&o);
}

/* Run a case on tensor cores, so that sanitizers check the kernels. The case has no digest, because
 * the order in which tensor cores add depends on the GPU and on cuBLASLt. */
static void run_case(const op_case *c, uint64_t *seed) {
    operands o;
    operands_create_bent(&o, c, seed);
    for (int d = 0; d < CGP_OP_DIRECTIONS && cases % every == 0; d++) {
        if (case_has(c, (cgp_op_direction)d)) op_run(&on, &o, (cgp_op_direction)d);
    }
    cases++;
    operands_destroy(&o);
}

/* Print the digests of an op. The tested numbers of rows and widths make the data end inside a
 * thread block, at its end, or just after its end. */
static void print_op(cgp_op_kind op) {
    static const struct {
        int64_t rows, width, out;
    } sizes[] = {{1, 3, 5}, {65, 17, 64}, {128, 64, 130}, {200, 130, 17}};
    uint64_t seed = seed_of(cgp__op_find(op)->op.name);
    for (int type = 0; type < 2; type++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            op_case c = draw_case(op, 3, &seed);
            c.type = type ? CGP_BF16 : CGP_F32;
            c.attributes = draw_attributes(op, sizes[i].rows, sizes[i].width, sizes[i].out, &seed);
            if (on_tensor_cores(&on, &c))
                run_case(&c, &seed);
            else
                print_case(&c, (int)i, &seed);
        }
    }
}

/* Print digests of a convolution with groups or a dilation. */
static void print_grouped(cgp_op_kind op) {
    static const struct {
        int64_t rows, width, out;
    } sizes[] = {{65, 17, 64}, {128, 64, 130}, {200, 130, 17}};
    uint64_t seed = seed_of(cgp__op_find(op)->op.name) + 1;
    for (int i = 0; i < 6; i++) {
        op_case c = draw_case(op, 3, &seed);
        c.type = i % 2 ? CGP_BF16 : CGP_F32;
        c.attributes =
            draw_grouped(op, sizes[i / 2].rows, sizes[i / 2].width, sizes[i / 2].out, &seed);
        if (on_tensor_cores(&on, &c))
            run_case(&c, &seed);
        else
            print_case(&c, 30 + i / 2, &seed);
    }
}

/* Print digests of every function of op FUNCTION, for a length with full vectors and a tail. */
static void print_functions(void) {
    for (int i = 0; i < 2 * CGP_FUNCTIONS; i++) {
        uint64_t seed = seed_of("function") + (uint64_t)i;
        op_case c = draw_case(kind_of_function(i / 2), 3, &seed);
        c.type = i % 2 ? CGP_BF16 : CGP_F32;
        c.attributes = function_attributes(65, 17, i / 2);
        print_case(&c, 50 + i / 2, &seed);
    }
}

static void print_ops(void) {
    for (int op = 0; op < CGP_OP_KINDS; op++)
        print_op((cgp_op_kind)op);
    for (int i = 0; i < BLOCK_CASES; i++) {
        const op_case c = block_case(i);
        uint64_t seed = seed_of("block") + (uint64_t)i;
        print_case(&c, 10 + i, &seed);
    }
    print_functions();
    print_grouped(CGP_OP_CONV2D);
    print_grouped(CGP_OP_CONV_TRANSPOSE2D);
}

/* --- updates and sums --- */

enum { PARAM, GRAD, FIRST, SECOND, BUFFERS, N = 1027 };

/* The tested updates. Second moments and RMSprop's first state must not be negative, because their
 * roots are computed. */
static const struct {
    const char *name;
    cgp_update update;
    int states;
} updates[] = {
    {"sgd", {.rule = CGP_UPDATE_SGD, .weight_decay = 0.01}, 0},
    {"sgd, momentum", {.rule = CGP_UPDATE_SGD, .weight_decay = 0.01, .momentum = 0.9}, 1},
    {"sgd, nesterov", {.rule = CGP_UPDATE_SGD, .momentum = 0.9, .nesterov = true}, 1},
    {"adam", {.rule = CGP_UPDATE_ADAM, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}, 2},
    {"adamw",
     {.rule = CGP_UPDATE_ADAMW, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8},
     2},
    {"rmsprop", {.rule = CGP_UPDATE_RMSPROP, .alpha = 0.99, .eps = 1e-8}, 1},
    {"rmsprop, momentum",
     {.rule = CGP_UPDATE_RMSPROP, .momentum = 0.9, .alpha = 0.9, .eps = 1e-8},
     2},
    {"sgd, nesterov, decay",
     {.rule = CGP_UPDATE_SGD, .weight_decay = 0.01, .momentum = 0.9, .nesterov = true},
     1},
    {"adam, decay",
     {.rule = CGP_UPDATE_ADAM, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
     2},
    {"rmsprop, decay",
     {.rule = CGP_UPDATE_RMSPROP, .weight_decay = 0.05, .alpha = 0.99, .eps = 1e-8},
     1},
};

static void print_update(size_t i) {
    static float buffers[BUFFERS][N];
    cgp_update_values values = {
        .lr = 0.003, .correction1 = 0.271, .correction2_sqrt = 0.0547, .gradient_scale = 0.7};
    cgp_update update = updates[i].update;
    uint64_t seed = seed_of(updates[i].name);
    for (int b = 0; b < BUFFERS; b++)
        fill_random(buffers[b], N, &seed);
    for (int k = 0; k < N; k++) {
        buffers[SECOND][k] = fabsf(buffers[SECOND][k]);
        if (update.rule == CGP_UPDATE_RMSPROP) buffers[FIRST][k] = fabsf(buffers[FIRST][k]);
    }
    there t = {.on = &on};
    there_put(&t, &values, sizeof values);
    there_put(&t, buffers, sizeof buffers);
    update.n = N;
    update.values = there_of(&t, &values);
    update.param = there_of(&t, buffers[PARAM]);
    update.grad = there_of(&t, buffers[GRAD]);
    for (int s = 0; s < updates[i].states; s++)
        update.state[s] = there_of(&t, buffers[FIRST + s]);
    assert_ok(on.backend->kernels.update(on.device, &update, 1));
    there_end(&t);
    cgp__sha256 *hash = hash_begin();
    assert_ok(cgp__sha256_add(hash, buffers, sizeof buffers));
    hash_end(hash, "update, %s", updates[i].name);
}

/* Print the digests of three results that are computed from `n` elements: the sum of their squares,
 * the position of a nonfinite value, and a sum of two tensors. */
static void print_sums(int64_t n) {
    const size_t bytes = (size_t)n * sizeof(float);
    float *x = malloc(bytes), *y = malloc(bytes);
    uint64_t seed = seed_of("sums") + (uint64_t)n;
    struct {
        double sum;
        int64_t index;
    } got = {0.0, -2};
    assert_non_null(x);
    assert_non_null(y);
    fill_random(x, n, &seed);
    fill_random(y, n, &seed);
    there t = {.on = &on};
    there_put(&t, x, bytes);
    there_put(&t, y, bytes);
    there_put(&t, &got, sizeof got);
    assert_ok(
        on.backend->kernels.sum_squares(on.device, there_of(&t, x), n, there_of(&t, &got.sum)));
    assert_ok(on.backend->kernels.find_nonfinite(on.device, there_of(&t, x), n,
                                                 there_of(&t, &got.index)));
    assert_ok(on.backend->kernels.add(on.device, there_of(&t, x), there_of(&t, y), n));
    there_end(&t);
    cgp__sha256 *hash = hash_begin();
    assert_ok(cgp__sha256_add(hash, &got, sizeof got));
    assert_ok(cgp__sha256_add(hash, x, bytes));
    hash_end(hash, "sum of squares, search, add, %" PRId64 " elements", n);
    free(x);
    free(y);
}

/* Print the digest of a conversion. The inputs have all patterns of the upper 16 bits, including
 * infinities and NaNs, with various lower bits. */
static void print_conversion(cgp_dtype to_type, cgp_dtype from_type) {
    enum { ALL = 1 << 16, ODD = ALL - 3 };
    static uint32_t from[ALL], to[ALL];
    uint64_t seed = seed_of("conversion");
    for (uint32_t i = 0; i < ALL; i++)
        from[i] = from_type == CGP_BF16
                      ? (2 * i + 1) << 16 | 2 * i % ALL
                      : i << 16 | (i % 4 == 0 ? 0x8000u : (uint32_t)test_between(&seed, 0, 65535));
    memset(to, 0, sizeof to);
    there t = {.on = &on};
    there_put(&t, from, sizeof from);
    there_put(&t, to, sizeof to);
    assert_ok(on.backend->kernels.convert(on.device, to_type, there_of(&t, to), from_type,
                                          there_of(&t, from), ODD));
    there_end(&t);
    cgp__sha256 *hash = hash_begin();
    assert_ok(cgp__sha256_add(hash, to, sizeof to));
    hash_end(hash, "conversion, %s to %s", cgp_dtype_name(from_type), cgp_dtype_name(to_type));
}

static void print_conversions(void) {
    print_conversion(CGP_BF16, CGP_F32);
    print_conversion(CGP_F32, CGP_BF16);
    print_conversion(CGP_F32, CGP_F32);
    print_conversion(CGP_BF16, CGP_BF16);
    print_conversion(CGP_I32, CGP_I32);
}

int main(int argc, char **argv) {
    static const int64_t sizes[] = {1, 17, 4097, 100003};
    const cgp_backend *backend = NULL;
    if (argc < 2 || cgp__backend_find(argv[1], &backend) != CGP_OK) {
        fprintf(stderr, "cuda_digests: expected a backend: %s\n",
                argc >= 2 ? cgp_message() : "cuda_digests BACKEND [1/N]");
        return 2;
    }
    if (argc > 2 && (sscanf(argv[2], "1/%d", &every) != 1 || every < 1)) {
        fprintf(stderr, "cuda_digests: expected 1/N, got %s\n", argv[2]);
        return 2;
    }
    on = runner_open(backend, 1);
    print_ops();
    for (size_t i = 0; i < sizeof updates / sizeof *updates; i++)
        print_update(i);
    print_conversions();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        print_sums(sizes[i]);
    runner_close(&on);
    return 0;
}
