/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_lt_choose.c -- chooses the algorithm of a GEMM: the first offered algorithm that passes the
 * test of gemm_lt.h.
 *
 * The test allocates its own memory and frees it. With little free memory, it uses fewer rows. A
 * device runs the test once per problem, for all numbers of rows together. */
#include "backend/cuda/gemm_lt.h"

#ifndef CGP_CUDA_NO_CUBLASLT

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/gemm_lt_library.h"

enum {
    ROWS = 4096, /* number of rows for which the heuristic offers algorithms */
    SOME = 40,   /* number of rows of a subset, which fill one tile and a part of another */
    OFFERED = 8
};

/* Return the bytes of an element of c. */
static int64_t element_of(const cgp__cuda_gemm_problem *p) {
    return p->type == CGP_BF16 ? 2 : 4;
}

/* Return the bytes of an element of `a`, `b` and bias. */
static int64_t factor_of(const cgp__cuda_gemm_problem *p) {
    return p->tf32 ? 4 : 2;
}

/* Return the number of rows of the test. With this many rows, a GEMM fills a GPU more than once,
 * but c has at most 128 MiB. The emulation on the host has neither tiles nor waves, so few rows are
 * enough for it. */
static int64_t many_of(const cgp__cuda_gemm_problem *p) {
#ifdef CGP_CUDA_HOST
    (void)p;
    return 2 * SOME;
#else
    const int64_t many = ((int64_t)1 << 27) / (p->n * element_of(p)) / 8 * 8;
    return many < 8 * SOME ? 8 * SOME : many < ROWS ? many : ROWS;
#endif
}

/* Return a problem with another number of rows. A problem with ROWS rows serves as the key of a
 * choice. */
static cgp__cuda_gemm_problem with_rows(const cgp__cuda_gemm_problem *problem, int64_t rows) {
    cgp__cuda_gemm_problem p = *problem;
    *(p.a_across ? &p.k : &p.m) = rows;
    if (!p.a_across) p.a_stride = p.k;
    return p;
}

static int64_t rows_of(const cgp__cuda_gemm_problem *p) {
    return p->a_across ? p->k : p->m;
}

static bool are_equal(const cgp__cuda_gemm_problem *p, const cgp__cuda_gemm_problem *q) {
    return p->m == q->m && p->n == q->n && p->k == q->k && p->a_across == q->a_across &&
           p->b_along == q->b_along && p->a_stride == q->a_stride && p->bias == q->bias &&
           p->type == q->type && p->tf32 == q->tf32;
}

/* --- memory of the test --- */

typedef struct trial {
    cgp_device *device;
    cudaStream_t stream;
    cgp__cuda_gemm_problem problem; /* the problem with many_of() rows */
    char *memory;
    cgp__cuda_lt_operands whole;
    void *again;
    int32_t *failed, *verdict; /* failed: in device memory. verdict: in pinned host memory. */
} trial;

static int64_t bytes_of_c(const cgp__cuda_gemm_problem *p) {
    return p->m * p->n * element_of(p);
}

/* Allocate the next part of the trial's memory. While this memory is NULL, only count the bytes. */
static void *take(trial *t, int64_t *bytes, int64_t size) {
    char *at = t->memory ? t->memory + *bytes : NULL;
    *bytes += (size + 255) / 256 * 256;
    return at;
}

static int64_t lay_out(trial *t) {
    const cgp__cuda_gemm_problem *p = &t->problem;
    const int64_t size = factor_of(p);
    int64_t bytes = 0;
    t->whole.a = take(t, &bytes, size * p->a_stride * (p->a_across ? p->k : p->m));
    t->whole.b = take(t, &bytes, size * p->n * p->k);
    t->whole.bias = p->bias ? take(t, &bytes, size * p->n) : NULL;
    t->whole.c = take(t, &bytes, bytes_of_c(p));
    t->whole.workspace = take(t, &bytes, CGP__CUDA_LT_WORKSPACE);
    t->again = take(t, &bytes, bytes_of_c(p));
    t->failed = take(t, &bytes, sizeof *t->failed);
    return bytes;
}

static cudaError_t fill(const trial *t) {
    const cgp__cuda_gemm_problem *p = &t->problem;
    const cgp__cuda_lt_operands *o = &t->whole;
    cudaError_t error =
        cgp__cuda_lt_fill((void *)(uintptr_t)o->a, p->tf32, p->a_across ? p->a_stride : p->m, p->k,
                          p->a_across, true, 1, t->stream);
    if (error == cudaSuccess)
        error = cgp__cuda_lt_fill((void *)(uintptr_t)o->b, p->tf32, p->n, p->k, !p->b_along, true,
                                  2, t->stream);
    if (error == cudaSuccess && p->bias)
        error = cgp__cuda_lt_fill((void *)(uintptr_t)o->bias, p->tf32, p->n, 1, true, true, 3,
                                  t->stream);
    return error;
}

static cudaError_t trial_end(const trial *t) {
    const cudaError_t error = t->verdict ? cudaFreeHost(t->verdict) : cudaSuccess,
                      last = cudaFree(t->memory);
    return error == cudaSuccess ? last : error;
}

/* Allocate the memory for a trial of `many` rows. Return CGP_ENOMEM if there is not enough free
 * memory. */
static cgp_status trial_allocate(trial *t, const cgp__cuda_gemm_problem *problem, int64_t many) {
    t->problem = with_rows(problem, many);
    if (t->problem.m > many) t->problem.m = many;
    const size_t bytes = (size_t)lay_out(t);
    return cgp__cuda_no_memory(t->device, cudaMalloc((void **)&t->memory, bytes),
                               "memory to test a GEMM", bytes);
}

/* Begin a trial. If memory is short, use fewer rows. */
static cgp_status trial_begin(trial *t, cgp_device *device, const cgp__cuda_gemm_problem *problem) {
    int64_t many = many_of(problem);
    *t = (trial){.device = device, .stream = device->streams[CGP_QUEUE_COMPUTE]};
    cgp_status status = trial_allocate(t, problem, many);
    while (status == CGP_ENOMEM && many > SOME) {
        many = many / 2 < SOME ? SOME : many / 2 / 8 * 8;
        status = trial_allocate(t, problem, many);
    }
    CGP__TRY_STATUS(status);
    status = cgp__cuda_no_memory(
        device, cudaHostAlloc((void **)&t->verdict, sizeof *t->verdict, cudaHostAllocPortable),
        "pinned memory to test a GEMM", sizeof *t->verdict);
    if (status == CGP_OK) {
        lay_out(t);
        status = cgp__cuda_check(device, fill(t), "numbers to test a GEMM");
    }
    if (status != CGP_OK) (void)trial_end(t);
    return status;
}

/* --- the test --- */

static const void *row_of(const void *at, int64_t elements, int64_t size) {
    return (const char *)at + elements * size;
}

/* Part of the trial: rows first .. first + rows - 1 of c, with the first k terms of each sum. */
typedef struct part {
    int64_t first, rows, k;
} part;

/* Compute the GEMM of a part. The result is written to `to` or added to it. */
static cublasStatus_t multiply(const trial *t, const cublasLtMatmulAlgo_t *algorithm, part of,
                               bool add, void *to) {
    cgp__cuda_gemm_problem p = t->problem;
    cgp__cuda_lt_operands o = t->whole;
    cgp__cuda_lt_gemm gemm;
    p.m = of.rows;
    p.k = of.k;
    o.a = row_of(o.a, p.a_across ? of.first : of.first * p.a_stride, factor_of(&p));
    o.c = to;
    o.add = add;
    cublasStatus_t status = cgp__cuda_lt_gemm_init(&gemm, t->device->lt, &p);
    if (status == CUBLAS_STATUS_SUCCESS) status = cgp__cuda_lt_gemm_set(&gemm, algorithm);
    if (status == CUBLAS_STATUS_SUCCESS) status = cgp__cuda_lt_gemm_multiply(&gemm, &o, t->stream);
    cgp__cuda_lt_gemm_clear(&gemm);
    return status;
}

/* Compute a part alone, into memory filled with NaNs, and check that the result has the same bits
 * as in the whole GEMM. */
static cudaError_t compare_rows(const trial *t, const cublasLtMatmulAlgo_t *algorithm, part of,
                                cublasStatus_t *status) {
    const int64_t row = t->problem.n * element_of(&t->problem);
    const cudaError_t error =
        cudaMemsetAsync(t->again, 0xff, (size_t)bytes_of_c(&t->problem), t->stream);
    if (error != cudaSuccess) return error;
    *status = multiply(t, algorithm, of, false, t->again);
    if (*status != CUBLAS_STATUS_SUCCESS) return cudaSuccess;
    return cgp__cuda_lt_compare(t->again, row_of(t->whole.c, of.first, row), of.rows * row,
                                t->failed, t->stream);
}

/* Check that the first, second, middle and last row of c, which are sums of k terms, are close to
 * plain sums. */
static cudaError_t check_rows(const trial *t, const void *c, const void *previous, int64_t m,
                              int64_t k) {
    const int64_t rows[] = {0, m > 1 ? 1 : 0, m / 2, m - 1};
    cgp__cuda_gemm_problem p = t->problem;
    cgp__cuda_lt_operands o = t->whole;
    cudaError_t error = cudaSuccess;
    p.m = m;
    p.k = k;
    o.c = (void *)(uintptr_t)c;
    for (size_t i = 0; error == cudaSuccess && i < sizeof rows / sizeof *rows; i++)
        error = cgp__cuda_lt_check_row(&p, &o, previous, rows[i], t->failed, t->stream);
    return error;
}

/* Add the whole GEMM to c, then add a part alone to the same previous values, and compare. A GEMM
 * with a bias never adds, so it is not tested. */
static cudaError_t compare_sums(const trial *t, const cublasLtMatmulAlgo_t *algorithm, part some,
                                cublasStatus_t *status) {
    const cgp__cuda_gemm_problem *p = &t->problem;
    const int64_t row = p->n * element_of(p);
    char *rows = (char *)t->again + some.first * row;
    if (p->bias) return cudaSuccess;
    cudaError_t error = cudaMemcpyAsync(t->again, t->whole.c, (size_t)bytes_of_c(p),
                                        cudaMemcpyDeviceToDevice, t->stream);
    if (error == cudaSuccess)
        *status = multiply(t, algorithm, (part){0, p->m, p->k}, true, t->whole.c);
    if (error != cudaSuccess || *status != CUBLAS_STATUS_SUCCESS) return error;
    error = check_rows(t, t->whole.c, t->again, p->m, p->k);
    if (error == cudaSuccess) *status = multiply(t, algorithm, some, true, rows);
    if (error != cudaSuccess || *status != CUBLAS_STATUS_SUCCESS) return error;
    return cgp__cuda_lt_compare(rows, row_of(t->whole.c, some.first, row), some.rows * row,
                                t->failed, t->stream);
}

/* A weight's gradient is a sum over the rows. Check a few odd numbers of terms, up to the number of
 * rows of the trial. */
static cudaError_t check_terms(const trial *t, const cublasLtMatmulAlgo_t *algorithm,
                               cublasStatus_t *status) {
    static const int64_t terms[] = {1, 3, 5, 63};
    const int64_t m = t->problem.m;
    cudaError_t error = cudaSuccess;
    for (size_t i = 0; t->problem.a_across && i < sizeof terms / sizeof *terms; i++) {
        if (terms[i] > t->problem.k) break;
        *status = multiply(t, algorithm, (part){0, m, terms[i]}, false, t->again);
        if (error != cudaSuccess || *status != CUBLAS_STATUS_SUCCESS) return error;
        error = check_rows(t, t->again, NULL, m, terms[i]);
    }
    return error;
}

/* Compare all parts. Operands must be 16-byte aligned, so parts start at multiples of 8 rows. */
static cudaError_t compare_all(const trial *t, const cublasLtMatmulAlgo_t *algorithm,
                               cublasStatus_t *status) {
    const int64_t m = t->problem.m, k = t->problem.k, some = m < SOME ? m : SOME;
    const part middle = {(m - some) / 2 / 8 * 8, some, k};
    const part parts[] = {{0, m, k},
                          middle,
                          {0, 1, k},
                          {0, m < 3 ? m : 3, k},
                          {0, m < 5 ? m : 5, k},
                          {0, m < 63 ? m : 63, k},
                          {m / 2 / 8 * 8, 1, k},
                          {(m - 1) / 8 * 8, 1, k}};
    cudaError_t error = cudaSuccess;
    *status = multiply(t, algorithm, parts[0], false, t->whole.c);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (error != cudaSuccess || *status != CUBLAS_STATUS_SUCCESS) return error;
        error = compare_rows(t, algorithm, parts[i], status);
    }
    if (error == cudaSuccess) error = check_rows(t, t->whole.c, NULL, m, k);
    if (error == cudaSuccess && *status == CUBLAS_STATUS_SUCCESS)
        error = check_terms(t, algorithm, status);
    if (error == cudaSuccess && *status == CUBLAS_STATUS_SUCCESS)
        error = compare_sums(t, algorithm, middle, status);
    return error;
}

static cgp_status try_algorithm(const trial *t, const cublasLtMatmulAlgo_t *algorithm,
                                bool *passed) {
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    *t->verdict = 1;
    *passed = false;
    cudaError_t error = cudaMemsetAsync(t->failed, 0, sizeof *t->failed, t->stream);
    if (error == cudaSuccess) error = compare_all(t, algorithm, &status);
    if (error == cudaSuccess && status == CUBLAS_STATUS_SUCCESS)
        error = cudaMemcpyAsync(t->verdict, t->failed, sizeof *t->failed, cudaMemcpyDeviceToHost,
                                t->stream);
    const cudaError_t last = cudaStreamSynchronize(t->stream);
    if (error == cudaSuccess && !cgp__cuda_lt_refuses(status)) error = cgp__cuda_lt_error(status);
    if (error == cudaSuccess) error = last;
    *passed = *t->verdict == 0;
    return cgp__cuda_check(t->device, error, "cuBLASLt, the test of a GEMM");
}

static bool takes_rows(const cgp__cuda_lt *lt, const cgp__cuda_gemm_problem *problem,
                       const cublasLtMatmulAlgo_t *algorithm, int64_t rows) {
    const cgp__cuda_gemm_problem p = with_rows(problem, rows);
    cgp__cuda_lt_gemm g;
    const bool takes = cgp__cuda_lt_gemm_init(&g, lt, &p) == CUBLAS_STATUS_SUCCESS &&
                       cgp__cuda_lt_gemm_set(&g, algorithm) == CUBLAS_STATUS_SUCCESS;
    cgp__cuda_lt_gemm_clear(&g);
    return takes;
}

/* Return whether an algorithm accepts the numbers of rows that were announced for a problem. Check
 * only the first FIRST numbers and the last number of each announcement. */
static bool takes_announced_rows(const cgp__cuda_lt *lt, const cgp__cuda_gemm_problem *problem,
                                 const cublasLtMatmulAlgo_t *algorithm) {
    enum { FIRST = 4096 };
    bool takes = true;
    for (int s = 0; takes && s < lt->n_rows; s++) {
        const cgp__cuda_lt_rows *r = &lt->rows[s];
        if (!are_equal(&r->problem, problem)) continue;
        for (int64_t i = 1; takes && i <= r->count && i <= FIRST; i++)
            takes = takes_rows(lt, problem, algorithm, i * r->step);
        takes = takes && takes_rows(lt, problem, algorithm, r->count * r->step);
    }
    return takes;
}

/* Return whether an algorithm accepts 1 to 64 rows, the powers of two up to 65536 with their
 * neighbours, and the announced numbers of rows. */
static bool takes_all_rows(const cgp__cuda_lt *lt, const cgp__cuda_gemm_problem *problem,
                           const cublasLtMatmulAlgo_t *algorithm) {
    bool takes = true;
    for (int64_t rows = 1; takes && rows <= 64; rows++)
        takes = takes_rows(lt, problem, algorithm, rows);
    for (int64_t rows = 128; takes && rows <= 65536; rows *= 2)
        takes = takes_rows(lt, problem, algorithm, rows - 1) &&
                takes_rows(lt, problem, algorithm, rows) &&
                takes_rows(lt, problem, algorithm, rows + 1);
    return takes && takes_announced_rows(lt, problem, algorithm);
}

/* --- the choice --- */

static cublasStatus_t set_preference(const cgp__cuda_lt_calls *calls,
                                     cublasLtMatmulPreference_t preference) {
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint32_t none = CUBLASLT_REDUCTION_SCHEME_NONE, align = CGP__CUDA_LT_ALIGN;
    const uint64_t workspace = CGP__CUDA_LT_WORKSPACE;
    cublasStatus_t status = calls->MatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &none, sizeof none);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = calls->MatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < 4; i++)
        status =
            calls->MatmulPreferenceSetAttribute(preference, alignments[i], &align, sizeof align);
    return status;
}

static cublasStatus_t ask(const cgp__cuda_lt *lt, const cgp__cuda_gemm_problem *problem,
                          cublasLtMatmulHeuristicResult_t *offers, int *count) {
    const cgp__cuda_lt_calls *calls = &lt->calls;
    cublasLtMatmulPreference_t preference = NULL;
    cgp__cuda_lt_gemm g;
    cublasStatus_t status = cgp__cuda_lt_gemm_init(&g, lt, problem);
    if (status == CUBLAS_STATUS_SUCCESS) status = calls->MatmulPreferenceCreate(&preference);
    if (status == CUBLAS_STATUS_SUCCESS) status = set_preference(calls, preference);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = calls->MatmulAlgoGetHeuristic(lt->handle, g.operation, g.b, g.a, g.c, g.c,
                                               preference, OFFERED, offers, count);
    if (preference) (void)calls->MatmulPreferenceDestroy(preference);
    cgp__cuda_lt_gemm_clear(&g);
    return status;
}

static void log_choice(cgp_log_level level, const cgp__cuda_gemm_problem *p, const char *text) {
    cgp__cuda_host->log(level, CGP__CUDA_NAME, "%s in %s, %lld x %lld: %s",
                        p->a_across ? "weight's gradient" : "GEMM with a weight",
                        p->tf32 ? "tf32" : "bf16", (long long)(p->a_across ? p->m : p->k),
                        (long long)p->n, text);
}

static void log_result(const cgp__cuda_lt_choice *choice, int number, int count) {
    char text[64];
    if (choice->is_there)
        snprintf(text, sizeof text, "cuBLASLt's algorithm %d of %d", number, count);
    else
        snprintf(text, sizeof text, "own kernels: none of cuBLASLt's %d algorithms passes", count);
    log_choice(CGP_LOG_INFO, &choice->problem, text);
}

static cgp_status choose_now(cgp_device *device, cgp__cuda_lt_choice *choice) {
    const cgp__cuda_gemm_problem *p = &choice->problem;
    cublasLtMatmulHeuristicResult_t offers[OFFERED];
    trial t;
    int count = 0, i = 0;
    memset(offers, 0, sizeof offers);
    cgp_status status = trial_begin(&t, device, p);
    if (status == CGP_ENOMEM) {
        log_choice(CGP_LOG_WARN, p, "own kernels, much slower: no memory to test cuBLASLt");
        return CGP_OK;
    }
    CGP__TRY_STATUS(status);
    const cublasStatus_t asked = ask(device->lt, p, offers, &count);
    if (!cgp__cuda_lt_refuses(asked))
        status = cgp__cuda_check(device, cgp__cuda_lt_error(asked), "cuBLASLt, its algorithms");
    for (; status == CGP_OK && i < count && !choice->is_there; i++) {
        choice->algorithm = offers[i].algo;
        if (offers[i].state == CUBLAS_STATUS_SUCCESS &&
            takes_all_rows(device->lt, p, &choice->algorithm))
            status = try_algorithm(&t, &choice->algorithm, &choice->is_there);
    }
    const cudaError_t error = trial_end(&t);
    if (status == CGP_OK) status = cgp__cuda_check(device, error, "the test's memory");
    if (status == CGP_OK) log_result(choice, i, count);
    return status;
}

static cgp__cuda_lt_choice *find_choice(const cgp__cuda_lt *lt, const cgp__cuda_gemm_problem *key) {
    for (int i = 0; i < lt->n_choices; i++)
        if (are_equal(&lt->choices[i].problem, key)) return &lt->choices[i];
    return NULL;
}

static cgp_status announce(cgp__cuda_lt *lt, const cgp__cuda_gemm_problem *key, int64_t step,
                           int64_t count) {
    for (int i = 0; i < lt->n_rows; i++) {
        cgp__cuda_lt_rows *r = &lt->rows[i];
        if (r->step != step || !are_equal(&r->problem, key)) continue;
        if (r->count < count) r->count = count;
        return CGP_OK;
    }
    cgp__cuda_lt_rows *more = realloc(lt->rows, (size_t)(lt->n_rows + 1) * sizeof *more);
    if (!more) return cgp__cuda_host->fail(CGP_ENOMEM, CGP__CUDA_NAME ": cuBLASLt: out of memory");
    lt->rows = more;
    more[lt->n_rows++] = (cgp__cuda_lt_rows){*key, step, count};
    return CGP_OK;
}

cgp_status cgp__cuda_lt_announce(cgp_device *device, const cgp__cuda_gemm_problem *problem,
                                 int64_t samples) {
    const cgp__cuda_gemm_problem key = with_rows(problem, ROWS);
    CGP__TRY_STATUS(cgp__cuda_lt_open(device, problem));
    if (!device->lt) return CGP_OK;
    return announce(device->lt, &key, rows_of(problem) / samples, samples);
}

/* Choose an algorithm, and add or replace the problem's entry in the list of choices. */
static cgp_status choose(cgp_device *device, const cgp__cuda_gemm_problem *key,
                         const cgp__cuda_lt_choice **out) {
    cgp__cuda_lt *lt = device->lt;
    cgp__cuda_lt_choice choice = {.problem = *key};
    cgp__cuda_lt_choice *old = find_choice(lt, key);
    CGP__TRY_STATUS(choose_now(device, &choice));
    if (old) {
        *old = choice;
        *out = old;
        return CGP_OK;
    }
    cgp__cuda_lt_choice *more = realloc(lt->choices, (size_t)(lt->n_choices + 1) * sizeof *more);
    if (!more) return cgp__cuda_host->fail(CGP_ENOMEM, CGP__CUDA_NAME ": cuBLASLt: out of memory");
    lt->choices = more;
    more[lt->n_choices] = choice;
    *out = &more[lt->n_choices++];
    return CGP_OK;
}

cgp_status cgp__cuda_lt_choose(cgp_device *device, const cgp__cuda_gemm_problem *problem,
                               const cgp__cuda_lt_choice **out) {
    const cgp__cuda_gemm_problem key = with_rows(problem, ROWS);
    const int64_t rows = rows_of(problem);
    *out = find_choice(device->lt, &key);
    if (*out && (!(*out)->is_there || takes_rows(device->lt, &key, &(*out)->algorithm, rows)))
        return CGP_OK;
    if (*out)
        log_choice(CGP_LOG_WARN, &key,
                   "cuBLASLt's algorithm refuses a number of rows that no plan announced: another "
                   "one, whose last bits may differ");
    CGP__TRY_STATUS(announce(device->lt, &key, rows, 1));
    return choose(device, &key, out);
}

cgp_status cgp__cuda_lt_prepare(cgp_device *device, const cgp__cuda_gemm_problem *problem) {
    const cgp__cuda_gemm_problem key = with_rows(problem, ROWS);
    const cgp__cuda_lt_choice *choice = NULL;
    CGP__TRY_STATUS(cgp__cuda_set_device(device));
    if (!device->lt || find_choice(device->lt, &key)) return CGP_OK;
    return choose(device, &key, &choice);
}

#endif
