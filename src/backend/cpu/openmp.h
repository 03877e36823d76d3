/* SPDX-License-Identifier: Apache-2.0 */
/* openmp.h -- the functions of OpenMP that a device calls, which GCC's libgomp and LLVM's libomp both have.
 *
 * Declared here, because <omp.h> comes with one library of one compiler: clang finds GCC's library, but not its header. */
#ifndef CGP_SRC_CPU_OPENMP_H
#define CGP_SRC_CPU_OPENMP_H

enum {
    OMP_PROC_BIND_FALSE = 0,
    OMP_PAUSE_SOFT = 1
}; /* of omp_proc_bind_t, omp_pause_resource_t */

int omp_get_initial_device(void);
int omp_get_max_threads(void);
int omp_get_proc_bind(void);
int omp_get_thread_num(void);
int omp_pause_resource(int kind, int device);
void omp_set_num_threads(int threads);

/* The function behind `#pragma omp parallel num_threads(threads)`, for libomp where programs of GCC are linked with it. By name,
 * because the pragma passes its variables through memory that the thread sanitizer sees written and read without order. */
void GOMP_parallel(void (*run)(void *), void *data, unsigned threads, unsigned flags);

#endif
