/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.c -- see ranks.h. */
#include "ranks.h"

#include "errors.h"
#include "stop.h"
#include "text.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const cgp_transport *transport;
static cgp_communicator *communicator;
static int rank = -1, count = 1; /* rank -1: not known yet; the launcher's variables give it */
static double limit;             /* time limit in seconds; 0: none */
static cgp_rank_state *states;   /* [count] scratch memory of lowest_after(), guarded by its lock */

/* Environment variables of Open MPI, of MPICH's process manager, and of srun. srun sets its
 * variables only in a job step. A batch script outside srun is not a job step, so it does not have
 * them. */
enum { LAUNCHERS = 3 };
static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"};
static const char *const host_ranks[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                         "SLURM_LOCALID"};

/* Return the number that a launcher set in one of these variables, or `otherwise` if there is no
 * launcher. */
static int launched(const char *const names[LAUNCHERS], int otherwise) {
    for (int i = 0; i < LAUNCHERS; i++) {
        const char *text = getenv(names[i]);
        int64_t n = 0;
        if (text && cli_parse_whole(text, 0, 1 << 20, &n)) return (int)n;
    }
    return otherwise;
}

int cli_ranks_launched(void) {
    return launched(sizes, 1);
}

static cgp_status find_others(const char *name) {
    const cgp_transport *found = NULL;
    const int started = cli_ranks_launched();
    CGP_TRY(cgp_transport_find(&found, name));
    CGP_TRY(found->communicator_create(NULL, &communicator));
    transport = found;
    rank = transport->rank(communicator);
    count = transport->ranks(communicator);
    states = cli_calloc((size_t)count, sizeof *states);
    if (count == started || started == 1) return CGP_OK;
    return cgp_fail(
        CGP_ESTATE,
        "--transport %s: %d processes were started, but MPI has %d: each would train alone (start "
        "them with the mpirun of the MPI that cgpipe was built with, or with srun --mpi=pmix)",
        name, started, count);
}

/* Silence this rank: only rank 0 prints. */
static cgp_status be_silent(void) {
    if (!getenv("CGP_LOG")) cgp_log_set_level(CGP_LOG_ERROR);
    if (freopen("/dev/null", "w", stdout)) return CGP_OK;
    return cgp_fail(CGP_EIO, "/dev/null: cannot be opened");
}

/* --- end this process even if threads are blocked in MPI or on a disk, or get no core --- */

enum { LINE = 1100 };
static const char stuck[] = "cgpipe: MPI did not start or end in time on all ranks (--timeout)\n";
static const char *_Atomic last_line; /* text that end_process() prints; NULL: none */
static volatile sig_atomic_t last_code = CLI_PEER;

/* The function that prints this rank's failure. REPORTING: cli_report() is printing it. REPORTED:
 * cli_report() has printed it. ENDING: end_process() prints it. */
enum { NOBODY, REPORTING, REPORTED, ENDING };
static atomic_int printer;

_Noreturn static void exit_now(int number) {
    (void)number;
    _exit(last_code);
}

/* Exit. First print the last line, unless cli_report() or another thread prints the failure. If
 * cli_report() is printing, wait at most 0.1 s for it. Async-signal-safe. */
_Noreturn static void end_process(int number) {
    const struct sigaction action = {.sa_handler = exit_now};
    (void)number;
    (void)sigaction(SIGALRM, &action, NULL);
    alarm(1); /* standard error may block */
    const char *line = last_line;
    if (line && printer == REPORTING) nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    const int before = line ? atomic_exchange(&printer, ENDING) : REPORTED;
    if (before < REPORTED) (void)!write(STDERR_FILENO, line, strlen(line));
    if (before == ENDING)
        for (;;)
            pause(); /* another thread prints and ends the process */
    _exit(last_code);
}

/* After `seconds`, print the last line and end the process; 0: cancel this. */
static void end_after(double seconds) {
    const struct itimerval time = {
        .it_value = {(time_t)seconds, (suseconds_t)(1e6 * (seconds - (double)(time_t)seconds))}};
    /* SA_NODEFER: end_process() sets an alarm, which may interrupt it. */
    const struct sigaction action = {.sa_handler = end_process, .sa_flags = (int)SA_NODEFER};
    if (seconds > 0) (void)sigaction(SIGALRM, &action, NULL);
    (void)setitimer(ITIMER_REAL, &time, NULL);
    /* Restore SIG_DFL only after the alarm is off: with SIG_DFL, an alarm would kill this
     * process. */
    if (seconds <= 0) signal(SIGALRM, SIG_DFL);
}

/* End the process if MPI does not start, or does not end, within the time limit. */
static void limit_mpi(void) {
    printer = NOBODY; /* any earlier report was about another failure */
    last_line = stuck;
    end_after(limit + 2);
}

/* Find the other ranks; wait until all ranks have done so. */
static cgp_status start(const char *name) {
    const cgp_status status = find_others(name);
    if (status == CGP_OK) return transport->agreement.barrier(communicator);
    /* Number the ranks of each host from 0. Rank 0 of a host prints what is missing on the host. */
    rank = launched(host_ranks, 0);
    return status;
}

cgp_status cli_ranks_open(const char *name, double timeout, bool verify) {
    const bool automatic = strcmp(name, "auto") == 0;
    rank = 0;
    if (strcmp(name, "inproc") == 0 || (automatic && cli_ranks_launched() == 1)) return CGP_OK;
    limit = timeout < 1e9 ? timeout : 0;
    if (limit > 0) limit_mpi();
    const cgp_status status = start(automatic ? "mpi" : name);
    end_after(0);
    last_line = NULL;
    CGP_TRY(status);
    CGP_TRY(cli_ranks_watch(timeout, verify));
    return rank > 0 ? be_silent() : CGP_OK;
}

cgp_status cli_ranks_watch(double timeout, bool verify) {
    if (!communicator) return CGP_OK;
    limit = timeout < 1e9 ? timeout : 0;
    transport->links.verify(communicator, verify);
    return transport->failures.watch(communicator, (int64_t)(limit * 1e9));
}

void cli_ranks_fail(cgp_status status) {
    if (!communicator || status == CGP_OK) return;
    if (status == CGP_EPEER)
        transport->failures.stop(communicator);
    else
        transport->failures.fail(communicator, status, cgp_message());
}

void cli_ranks_fail_early(cgp_status status, const char *name) {
    if (status == CGP_OK || cli_ranks_launched() == 1) return;
    char *message = cli_text("%s", cgp_message());
    const bool open = cli_ranks_open(name, 0, false) == CGP_OK;
    (void)cgp_fail(status, "%s", message);
    if (open) cli_ranks_fail(status);
    free(message);
}

/* --- a rank is lost --- */

cgp_status cli_ranks_failure(void) {
    char message[1];
    int other = -1;
    return communicator ? transport->failures.first(communicator, &other, message, sizeof message)
                        : CGP_OK;
}

bool cli_ranks_lost(void) {
    return cli_ranks_failure() == CGP_EPEER;
}

/* Tell whether all ranks below this one were lost at the same time as rank `lost`. A rank was lost
 * later if its last heartbeat came at least 3/4 of the time limit after the last heartbeat of
 * `lost`. */
static bool lowest_after(int lost) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    bool lowest = true;
    pthread_mutex_lock(&lock);
    transport->failures.rank_states(communicator, states);
    const int64_t until_ns = states[lost].heartbeat_ns + (int64_t)(0.75e9 * limit);
    for (int r = 0; r < rank && lowest; r++)
        lowest = r == lost || states[r].heartbeat_ns < until_ns;
    pthread_mutex_unlock(&lock);
    return lowest;
}

/* Tell whether this rank prints failures: it is rank 0 or, if rank 0 was lost, the lowest rank
 * left. */
static bool prints(void) {
    char message[16] = "";
    int lost = -1;
    if (!communicator) return cli_rank() == 0;
    (void)transport->failures.first(communicator, &lost, message, sizeof message);
    if (lost < 0 || strncmp(message, "silent", 6) != 0) return rank == 0;
    /* If this rank is the lost rank, it was stopped and then continued. */
    return lost != rank && lowest_after(lost);
}

bool cli_ranks_claim_report(void) {
    int before = printer;
    while (before != ENDING && !atomic_compare_exchange_weak(&printer, &before, REPORTING)) {
    }
    const bool result = before != ENDING && prints();
    if (!result && !communicator)
        sleep(1); /* the launcher kills rank 0 once a process has failed */
    return result;
}

void cli_ranks_end_report(void) {
    int expected = REPORTING;
    (void)atomic_compare_exchange_strong(&printer, &expected, REPORTED);
}

/* Format the line that names the failed rank. Return the line, or NULL if this rank must not print
 * it. */
static const char *failure_line(char line[LINE]) {
    char message[LINE - 40] = "";
    int failed = -1;
    (void)transport->failures.first(communicator, &failed, message, sizeof message);
    snprintf(line, LINE, "cgpipe: rank %d: %s\n", failed, message);
    return printer < REPORTED && prints() ? line : NULL;
}

void cli_ranks_leave_soon(void) {
    static char line[LINE];
    signal(SIGTERM, SIG_IGN); /* the launcher sends SIGTERM to all ranks */
    end_after(1.5);           /* failure_line() may block */
    last_line = failure_line(line);
}

void cli_ranks_leave(void) {
    char line[LINE];
    end_after(0.5); /* if failure_line() blocks, end_process() prints the previous last line */
    const char *text = failure_line(line);
    if (text) last_line = text;
    end_process(0);
}

void cli_ranks_abort(int code) {
    last_code = code;
    signal(SIGTERM, SIG_IGN);
    end_after(0.6);
    fflush(NULL);
    /* One rank that aborts is enough. */
    if (prints()) transport->failures.abort(communicator, code);
    _exit(code);
}

/* Closing MPI may block if another rank never ends. The alarm then ends this process. */
cgp_status cli_ranks_close(void) {
    if (!communicator) return CGP_OK;
    const cgp_status status = transport->agreement.barrier(communicator);
    if (status != CGP_OK && cli_ranks_lost()) return status;
    if (status == CGP_OK && limit > 0) limit_mpi();
    transport->communicator_destroy(communicator);
    free(states);
    states = NULL;
    transport = NULL;
    communicator = NULL;
    return CGP_OK;
}

int cli_rank(void) {
    if (rank < 0) rank = cli_ranks_launched() > 1 ? launched(ranks, 0) : 0;
    return rank;
}

int cli_ranks(void) {
    return count;
}

const cgp_transport *cli_ranks_transport(void) {
    return transport;
}

cgp_communicator *cli_ranks_communicator(void) {
    return communicator;
}

/* All-gather blocks of equal size. `all` is [count][bytes]; on entry, it has this rank's block. */
static cgp_status share(void *all, size_t bytes) {
    size_t *sizes_of = cli_calloc((size_t)count, sizeof *sizes_of);
    for (int r = 0; r < count; r++)
        sizes_of[r] = bytes;
    const cgp_status status = transport->agreement.gather(
        communicator, (char *)all + (size_t)rank * bytes, all, sizes_of);
    free(sizes_of);
    return status;
}

cgp_status cli_ranks_broadcast(int root, void *data, size_t bytes) {
    if (count == 1) return CGP_OK;
    size_t *all = cli_calloc((size_t)count, sizeof *all);
    all[root] = bytes;
    const cgp_status status = transport->agreement.gather(communicator, data, data, all);
    free(all);
    return status;
}

cgp_status cli_ranks_first_text(char *text, size_t bytes) {
    if (count == 1) return CGP_OK;
    char *all = cli_calloc((size_t)count, bytes);
    memcpy(all + (size_t)rank * bytes, text, bytes);
    const cgp_status status = share(all, bytes);
    *text = '\0';
    for (int r = 0; r < count && status == CGP_OK && !*text; r++)
        memcpy(text, all + (size_t)r * bytes, bytes);
    free(all);
    return status;
}

typedef struct report {
    int64_t status;
    char message[504];
} report;

/* Return the failure of a rank. If `alike` is true, all ranks return the failure of the first rank
 * that failed. Otherwise a rank returns its own failure or, if it has none, CGP_EPEER with the
 * failure of the first rank that failed. */
static cgp_status failure_of(const report *all, bool alike) {
    int r = alike || all[rank].status == CGP_OK ? 0 : rank;
    while (r < count && all[r].status == CGP_OK)
        r++;
    if (r == count) return CGP_OK;
    const cgp_status status = (cgp_status)all[r].status;
    if (r == rank) return cgp_fail(status, "%s", all[r].message);
    return cgp_fail(alike ? status : CGP_EPEER, "rank %d: %s", r, all[r].message);
}

static cgp_status agree(cgp_status status, bool alike) {
    if (count == 1) return status;
    report *all = cli_calloc((size_t)count, sizeof *all), *own = &all[rank];
    own->status = (int64_t)status;
    if (status != CGP_OK) snprintf(own->message, sizeof own->message, "%s", cgp_message());
    const cgp_status shared = share(all, sizeof *all);
    const bool known = shared == CGP_OK || (!alike && status != CGP_OK);
    status = known ? failure_of(all, alike) : shared;
    free(all);
    return status;
}

cgp_status cli_ranks_agree(cgp_status status) {
    return agree(status, false);
}

cgp_status cli_ranks_agree_alike(cgp_status status) {
    return agree(status, true);
}

cgp_status cli_ranks_follow(cgp_status status) {
    report first = {.status = (int64_t)status};
    if (status != CGP_OK) snprintf(first.message, sizeof first.message, "%s", cgp_message());
    CGP_TRY(cli_ranks_broadcast(0, &first, sizeof first));
    if (rank == 0 || first.status == CGP_OK) return (cgp_status)first.status;
    return cgp_fail((cgp_status)first.status, "%s", first.message);
}

const char *cli_ranks_stop(bool time_is_up) {
    enum { TIME = 1000 };
    const char *own = cli_stop_signal();
    if (count == 1) return own ? own : time_is_up ? "time" : NULL;
    int32_t *all = cli_calloc((size_t)count, sizeof *all), first = 0;
    all[rank] = cli_stop_number() ? cli_stop_number() : time_is_up && rank == 0 ? TIME : 0;
    const cgp_status shared = share(all, sizeof *all);
    for (int r = 0; r < count && first == 0 && shared == CGP_OK; r++)
        first = all[r];
    free(all);
    if (first == 0 || first == TIME) return first ? "time" : NULL;
    cli_stop_note(first);
    return cli_stop_name(first);
}
