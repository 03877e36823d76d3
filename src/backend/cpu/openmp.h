/* SPDX-License-Identifier: Apache-2.0 */
/* openmp.h -- the OpenMP functions that a device calls; GCC's libgomp and LLVM's libomp both have
 * them.
 *
 * They are declared here because each compiler ships <omp.h> with its own library. If clang links
 * GCC's library, it does not find that library's header. */
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
 * it, for compatibility. A device calls this function instead of using the pragma. The pragma
 * passes variables through memory, and the thread sanitizer does not see what orders these
 * accesses. */
void GOMP_parallel(void (*run)(void *), void *data, unsigned threads, unsigned flags);

#endif
