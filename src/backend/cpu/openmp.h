/* SPDX-License-Identifier: Apache-2.0 */
/* openmp.h -- the OpenMP functions that a device calls; GCC's libgomp and LLVM's libomp both have
 * them.
 *
 * They are declared here, because <omp.h> comes with the library of one compiler; clang finds GCC's
 * library, but not the header of this library. */
#ifndef CGP_SRC_CPU_OPENMP_H
#define CGP_SRC_CPU_OPENMP_H

/* Values of omp_proc_bind_t, omp_pause_resource_t. */
enum { OMP_PROC_BIND_FALSE = 0, OMP_PAUSE_SOFT = 1 };

int omp_get_initial_device(void);
int omp_get_max_threads(void);
int omp_get_proc_bind(void);
int omp_get_thread_num(void);
void omp_set_num_threads(int threads);

/* The function that implements `#pragma omp parallel num_threads(threads)` in GCC; libomp also has
 * it, for compatibility. It is called instead of using the pragma, because the pragma passes
 * variables through memory in an order that the thread sanitizer does not see. */
void GOMP_parallel(void (*run)(void *), void *data, unsigned threads, unsigned flags);

#endif
