/* SPDX-License-Identifier: Apache-2.0 */
/* entry.c -- defines the entry function of the plug-in libcgpipe-mpi.so, which has one transport.
 * Also defines the waits of world.h. */
#include "transport/mpi/world.h"

#include <stddef.h>
#include <time.h>

const cgp_host *cgp__mpi_host;

const cgp_transport cgp__mpi_table = {
    .struct_size = sizeof(cgp_transport),
    .name = "mpi",
    .copies = true,
    .communicator_create = cgp__mpi_create,
    .communicator_destroy = cgp__mpi_destroy,
    .rank = cgp__mpi_rank,
    .ranks = cgp__mpi_ranks,
    .links.open = cgp__mpi_link_open,
    .links.close = cgp__mpi_link_close,
    .links.acquire = cgp__mpi_acquire,
    .links.take = cgp__mpi_take,
    .links.post = cgp__mpi_post,
    .links.release = cgp__mpi_release,
    .links.waits = cgp__mpi_waits,
    .links.progress = cgp__mpi_progress,
    .links.verify = cgp__mpi_verify,
    .agreement.barrier = cgp__mpi_barrier,
    .agreement.gather = cgp__mpi_gather,
    .failures.fail = cgp__mpi_fail,
    .failures.first = cgp__mpi_first_failure,
    .failures.watch = cgp__mpi_watch,
    .failures.report_progress = cgp__mpi_report_progress,
    .failures.rank_states = cgp__mpi_rank_states,
    .failures.stop = cgp__mpi_stop,
    .failures.abort = cgp__mpi_abort,
};

cgp_plugin_entry_function cgp_plugin_entry;

__attribute__((visibility("default"))) const cgp_plugin *cgp_plugin_entry(const cgp_host *host) {
    static const cgp_transport *const transports[] = {&cgp__mpi_table};
    static const cgp_plugin plugin = {CGP_PLUGIN_HEADER, .name = "mpi", .transports = transports,
                                      .n_transports = 1};
    if (host->struct_size < sizeof *host) return NULL; /* the library is older than this plug-in */
    cgp__mpi_host = host;
    return &plugin;
}

cgp_status cgp__mpi_check(int code, const char *call) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS) return CGP_OK;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) text[0] = '\0';
    return CGP__MPI_FAIL(CGP_EPEER, "mpi: %s: %s", call, text);
}

/* --- waits --- */

#define PAUSE_NS 50000
#define ABANDON_NS 100000000

cgp__mpi_wait cgp__mpi_wait_begin(int64_t spin_ns, int64_t timeout_ns) {
    const int64_t now = cgp__mpi_host->now_ns();
    return (cgp__mpi_wait){now, spin_ns,
                           timeout_ns > INT64_MAX - now ? INT64_MAX : now + timeout_ns};
}

void cgp__mpi_wait_all(int n, MPI_Request *requests, int64_t timeout_ns) {
    const cgp__mpi_wait wait = cgp__mpi_wait_begin(0, timeout_ns);
    int done = 0;
    while (MPI_Testall(n, requests, &done, MPI_STATUSES_IGNORE) == MPI_SUCCESS && !done &&
           cgp__mpi_wait_on(&wait)) {
    }
}

void cgp__mpi_abandon(MPI_Request *request) {
    if (*request == MPI_REQUEST_NULL) return;
    (void)MPI_Cancel(request);
    cgp__mpi_wait_all(1, request, ABANDON_NS);
    if (*request != MPI_REQUEST_NULL) (void)MPI_Request_free(request);
}

void cgp__mpi_drop(MPI_Request *request) {
    int done = 0;
    if (*request == MPI_REQUEST_NULL) return;
    if (MPI_Request_get_status(*request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done)
        (void)MPI_Request_free(request);
    else
        cgp__mpi_abandon(request);
}

bool cgp__mpi_wait_on(const cgp__mpi_wait *wait) {
    const int64_t now = cgp__mpi_host->now_ns();
    if (now >= wait->deadline_ns) return false;
    if (now - wait->start_ns < wait->spin_ns) return true;
    const struct timespec pause = {0, PAUSE_NS};
    nanosleep(&pause, NULL);
    return true;
}
