/* SPDX-License-Identifier: Apache-2.0 */
/* bench_transport.c -- cgpipe bench transport: measure how long a message takes between each pair
 * of ranks, and write a cluster file for --cluster. It calls the transport's functions directly,
 * while all other ranks wait. A rank that is alone on its host measures inproc between two threads.
 *
 *     sender                                      receiver
 *     fill, post ─────────── message ───────────► take, copy away
 *     acquire    ◄─────────── release ─────────── release
 *
 * In this benchmark a link has one buffer, so the sender can acquire it again only after a round
 * trip. Let latency be half the round trip of 1 byte. Then
 *
 *     time of a message = its round trip - latency
 *     bandwidth         = bytes of the largest message / (its time - latency) */
#include "commands/commands.h"

#include "errors.h"
#include "machine.h"
#include "ranks.h"
#include "report/output.h"
#include "session/cluster.h"
#include "text.h"

#include <cgpipe/devices.h>

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Message sizes in bytes, and how often each is sent after a warm-up message. */
static const int64_t sizes[] = {1, 4096, 65536, 1 << 20, 4 << 20};
static const int rounds[] = {200, 100, 20, 9, 5};
enum { SIZES = sizeof sizes / sizeof sizes[0], LARGEST = 4 << 20 };

/* Bandwidth in bytes/s that is reported if the clock shows no difference between two sizes. */
#define MAX_BANDWIDTH 1e12

/* Time in ns for which the pipeline's links spin before they block, if each rank has its own
 * core. */
#define SPIN_NS 20000000

/* Facts about a rank, which the rank sends to all others. */
typedef struct rank_info {
    char host[CLI_HOST];
    int64_t cores, memory_bytes;
} rank_info;

typedef struct bench {
    const cli_run_options *options;
    int ranks, devices;
    rank_info *rank; /* [ranks] */
    /* [ranks x ranks] time in seconds of a message of each size from one rank to another; NaN: not
     * measured */
    double (*seconds)[SIZES];
    char (*kind)[64]; /* [devices] */
    cli_cluster cluster;
} bench;

/* --- one link --- */

typedef struct wire {
    const cgp_transport *transport;
    cgp_communicator *communicator;
    cgp_link *link;
    char *memory, *data; /* the link's buffer; the data sent or received */
} wire;

static cgp_status open_wire(wire *w, int edge, bool sends, int peer, int64_t spin_ns) {
    w->memory = cli_calloc(CGP_LINK_HEADER_BYTES + LARGEST, 1);
    w->data = cli_calloc(LARGEST, 1);
    const cgp_link_options options = {.struct_size = sizeof options,
                                      .edge = edge,
                                      .sends = sends,
                                      .peer = peer,
                                      .capacity = 1,
                                      .bytes = LARGEST,
                                      .memory = sends || w->transport->copies ? w->memory : NULL,
                                      .spin_ns = spin_ns};
    return w->transport->links.open(w->communicator, &options, &w->link);
}

static void close_wire(wire *w) {
    if (w->link) w->transport->links.close(w->link);
    free(w->memory);
    free(w->data);
}

/* Return the status of the failure that ended a wait for a message or a buffer. */
static cgp_status ended(const wire *w) {
    CGP_TRY(w->transport->agreement.barrier(w->communicator));
    return cgp_fail(CGP_EPEER, "%s: a message was lost", w->transport->name);
}

/* Measure round trips, and compute the time of a message from the shortest round trip of each size.
 * Longer round trips include other waits. */
static cgp_status send_all(wire *w, double seconds[SIZES]) {
    cgp_link_message message;
    if (!w->transport->links.acquire(w->link, INT64_MAX, &message)) return ended(w);
    for (int s = 0; s < SIZES; s++) {
        seconds[s] = INFINITY;
        for (int i = 0; i <= rounds[s]; i++) {
            const double start = cli_seconds();
            memcpy(message.buffer, w->data, (size_t)sizes[s]);
            message.microbatch = 0;
            message.bytes = sizes[s];
            message.event = NULL;
            w->transport->links.post(w->link, &message);
            if (!w->transport->links.acquire(w->link, INT64_MAX, &message)) return ended(w);
            if (i > 0) seconds[s] = fmin(seconds[s], cli_seconds() - start);
        }
    }
    const double latency = seconds[0] / 2;
    for (int s = 0; s < SIZES; s++)
        seconds[s] -= latency;
    return CGP_OK;
}

static cgp_status receive_all(wire *w) {
    cgp_link_message message;
    for (int s = 0; s < SIZES; s++) {
        for (int i = 0; i <= rounds[s]; i++) {
            if (!w->transport->links.take(w->link, 0, INT64_MAX, &message)) return ended(w);
            memcpy(w->data, message.buffer, (size_t)message.bytes);
            w->transport->links.release(w->link, &message);
        }
    }
    return CGP_OK;
}

/* --- pairs of ranks --- */

static bool is_neighbour(const bench *b, int r, int other) {
    return strcmp(b->rank[r].host, b->rank[other].host) == 0;
}

static int ranks_beside(const bench *b, int r) {
    int count = 0;
    for (int other = 0; other < b->ranks; other++)
        count += is_neighbour(b, r, other);
    return count;
}

static void *receive_thread(void *to) {
    (void)!receive_all(to); /* if this fails, the sender's wait ends too */
    return NULL;
}

/* Measure inproc messages between two threads of this rank. */
static cgp_status measure_inproc(const bench *b, double seconds[SIZES]) {
    wire from = {0}, to = {0};
    pthread_t receiver;
    const int64_t spin_ns = b->rank[cli_rank()].cores > 1 ? SPIN_NS : 0;
    CGP_TRY(cgp_transport_find(&from.transport, "inproc"));
    CGP_TRY(from.transport->communicator_create(NULL, &from.communicator));
    to.transport = from.transport;
    to.communicator = from.communicator;
    cgp_status status = open_wire(&from, 0, true, 0, spin_ns);
    if (status == CGP_OK) status = open_wire(&to, 0, false, 0, spin_ns);
    if (status == CGP_OK && pthread_create(&receiver, NULL, receive_thread, &to) != 0)
        status = cgp_fail(CGP_ENOMEM, "bench transport: a thread could not be started");
    if (status == CGP_OK) {
        status = send_all(&from, seconds);
        pthread_join(receiver, NULL);
    }
    close_wire(&from);
    close_wire(&to);
    from.transport->communicator_destroy(from.communicator);
    return status;
}

/* Measure messages from one rank to another. The other ranks wait in cli_ranks_agree() for the next
 * pair. Collective. */
static cgp_status measure_pair(bench *b, int from, int to) {
    const bool sends = cli_rank() == from, takes_part = sends || cli_rank() == to;
    double *seconds = b->seconds[from * b->ranks + to];
    wire w = {.transport = cli_ranks_transport(), .communicator = cli_ranks_communicator()};
    const int64_t spin_ns = ranks_beside(b, cli_rank()) <= b->rank[cli_rank()].cores ? SPIN_NS : 0;
    cgp_status status = CGP_OK;
    if (takes_part) status = open_wire(&w, from * b->ranks + to, sends, sends ? to : from, spin_ns);
    status = cli_ranks_agree(status);
    if (status == CGP_OK && takes_part) status = sends ? send_all(&w, seconds) : receive_all(&w);
    close_wire(&w);
    return status;
}

static cgp_status measure_all(bench *b) {
    const int n = b->ranks;
    for (int from = 0; from < n; from++) {
        for (int to = 0; to < n; to++) {
            const bool alone = from == to && ranks_beside(b, from) == 1;
            if (from != to) CGP_TRY(measure_pair(b, from, to));
            if (alone)
                CGP_TRY(cli_ranks_agree(
                    cli_rank() == from ? measure_inproc(b, b->seconds[from * n + to]) : CGP_OK));
        }
        CGP_TRY(cli_ranks_broadcast(from, b->seconds[from * n], (size_t)n * sizeof *b->seconds));
    }
    return CGP_OK;
}

/* --- the cluster --- */

static cli_message_cost cost_of(const double seconds[SIZES]) {
    const double beyond = seconds[SIZES - 1] - seconds[0];
    return (cli_message_cost){fmax(seconds[0], 0), LARGEST / fmax(beyond, LARGEST / MAX_BANDWIDTH)};
}

/* Return the median message costs over all measured pairs of a rank on host `from` and a rank on
 * host `to`. The two hosts may be the same. */
static cli_message_cost median_cost(const bench *b, const int *host_of, int from, int to) {
    const int64_t pairs = (int64_t)b->ranks * b->ranks;
    double *latencies = cli_calloc((size_t)pairs, sizeof *latencies);
    double *bandwidths = cli_calloc((size_t)pairs, sizeof *bandwidths);
    int64_t n = 0;
    for (int64_t i = 0; i < pairs; i++) {
        if (isnan(b->seconds[i][0]) || host_of[i / b->ranks] != from || host_of[i % b->ranks] != to)
            continue;
        const cli_message_cost cost = cost_of(b->seconds[i]);
        latencies[n] = cost.latency_seconds;
        bandwidths[n++] = cost.bytes_per_second;
    }
    const cli_message_cost median = {cli_median(latencies, n, 1, 0),
                                     cli_median(bandwidths, n, 1, 0)};
    free(latencies);
    free(bandwidths);
    return median;
}

/* Assign numbers to the hosts, in the order of their first ranks. Return an array with the host of
 * each rank; the caller frees it. */
static int *number_hosts(bench *b) {
    cli_cluster *c = &b->cluster;
    int *host_of = cli_calloc((size_t)b->ranks, sizeof *host_of);
    c->host = cli_calloc((size_t)b->ranks, sizeof *c->host);
    for (int r = 0; r < b->ranks; r++) {
        while (host_of[r] < c->hosts && strcmp(c->host[host_of[r]].name, b->rank[r].host) != 0)
            host_of[r]++;
        if (host_of[r] < c->hosts) continue;
        c->host[c->hosts++] = (cli_cluster_host){.name = b->rank[r].host,
                                                 .cores = b->rank[r].cores,
                                                 .memory_bytes = b->rank[r].memory_bytes};
    }
    return host_of;
}

static bool uses_host_memory(const char *kind) {
    cgp_backend_info info;
    for (int i = 0; (info = cgp_backend_info_at(i)).name; i++) {
        if (strcmp(info.name, kind) == 0) return info.host_addressable;
    }
    return false;
}

/* Add the devices to the cluster. Device d belongs to rank d x ranks / devices, as in a plan.
 * Devices of a host that use host memory share it equally. */
static void add_devices(bench *b, const int *host_of) {
    cli_cluster *c = &b->cluster;
    const cli_names *names = &b->options->devices;
    c->devices = b->devices;
    c->device = cli_calloc((size_t)c->devices, sizeof *c->device);
    b->kind = cli_calloc((size_t)c->devices, sizeof *b->kind);
    int64_t *count = cli_calloc((size_t)c->hosts, sizeof *count);
    for (int d = 0; d < c->devices; d++) {
        const char *name = names->count == 0 ? "cpu" : names->values[names->count > 1 ? d : 0];
        const int rank = (int)((int64_t)d * b->ranks / c->devices);
        snprintf(b->kind[d], sizeof b->kind[d], "%.*s", (int)strcspn(name, ":@"), name);
        c->device[d] = (cli_cluster_device){.kind = b->kind[d], .host = host_of[rank]};
        count[host_of[rank]]++;
    }
    for (int d = 0; d < c->devices; d++) {
        if (uses_host_memory(b->kind[d]))
            c->device[d].memory_bytes =
                c->host[c->device[d].host].memory_bytes / count[c->device[d].host];
    }
    free(count);
}

static void make_cluster(bench *b) {
    cli_cluster *c = &b->cluster;
    int *host_of = number_hosts(b);
    add_devices(b, host_of);
    c->link = cli_calloc((size_t)c->hosts * (size_t)c->hosts, sizeof *c->link);
    for (int from = 0; from < c->hosts; from++) {
        for (int to = 0; to < c->hosts; to++) {
            const cli_message_cost cost = median_cost(b, host_of, from, to);
            if (from == to)
                c->host[from].within = cost;
            else
                c->link[c->links++] = (cli_cluster_link){from, to, cost};
        }
    }
    free(host_of);
}

/* --- the command --- */

static void print(FILE *out, const bench *b) {
    fprintf(out, "%d %s on %d %s, %s; a message and its copies take, in microseconds\n\n", b->ranks,
            b->ranks == 1 ? "rank" : "ranks", b->cluster.hosts,
            b->cluster.hosts == 1 ? "host" : "hosts",
            b->ranks == 1 ? "inproc" : cli_ranks_transport()->name);
    fprintf(out, "%-24s  %-24s", "from", "to");
    for (int s = 0; s < SIZES; s++) {
        char text[CLI_NUMBER];
        fprintf(out, " %10s", cgp_bytes_text(sizes[s], text, sizeof text));
    }
    fprintf(out, " %10s\n", "MB/s");
    for (int i = 0; i < b->ranks * b->ranks; i++) {
        if (isnan(b->seconds[i][0])) continue;
        for (int k = 0; k < 2; k++) {
            const int rank = k == 0 ? i / b->ranks : i % b->ranks;
            fprintf(out, "rank:%-4d %-15.15s%s", rank, cli_shown(b->rank[rank].host),
                    k == 0 ? "  " : "");
        }
        for (int s = 0; s < SIZES; s++)
            fprintf(out, " %10.1f", 1e6 * b->seconds[i][s]);
        fprintf(out, " %10.1f\n", 1e-6 * cost_of(b->seconds[i]).bytes_per_second);
    }
}

static rank_info info_of_this(void) {
    rank_info info = {.cores = sysconf(_SC_NPROCESSORS_ONLN),
                      .memory_bytes = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE)};
    if (!*cli_host(info.host)) strcpy(info.host, "host");
    return info;
}

static cgp_status check_devices(const bench *b) {
    CGP_TRY(cli_json_check(b->options));
    if (b->devices >= b->ranks) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "--devices: expected %d or more, one for each rank, got %d",
                    b->ranks, b->devices);
}

/* Check the devices, allocate the results, and send the host, the cores and the memory of each rank
 * to all ranks. Collective. */
static cgp_status prepare(bench *b) {
    b->ranks = cli_ranks();
    b->devices = b->options->stages_by_devices ? (int)b->options->stages : b->ranks;
    CGP_TRY(cli_ranks_agree(check_devices(b)));
    const size_t pairs = (size_t)b->ranks * (size_t)b->ranks;
    b->rank = cli_calloc((size_t)b->ranks, sizeof *b->rank);
    b->seconds = cli_calloc(pairs, sizeof *b->seconds);
    for (size_t i = 0; i < pairs; i++)
        b->seconds[i][0] = NAN;
    b->rank[cli_rank()] = info_of_this();
    for (int r = 0; r < b->ranks; r++)
        CGP_TRY(cli_ranks_broadcast(r, &b->rank[r], sizeof *b->rank));
    return CGP_OK;
}

/* Refuse options that concern a model, because messages are measured without a model. */
static cgp_status check_options(const cli_run_options *options) {
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        const bool fits = id == CLI_OPTION_TRANSPORT || id == CLI_OPTION_DEVICES ||
                          id == CLI_OPTION_JSON || id == CLI_OPTION_QUIET ||
                          (id == CLI_OPTION_STAGES && options->stages_by_devices);
        if (!options->given[id] || fits) continue;
        return cgp_fail(CGP_EINVAL, "--%s: bench transport has no model (leave it out)",
                        cli_option_given_as(options, (cli_option_id)id));
    }
    return CGP_OK;
}

int cli_bench_transport(const cli_run_options *options) {
    bench b = {.options = options};
    cgp_status status = check_options(options);
    if (status == CGP_OK) status = cli_ranks_open(options->transport, 0, false);
    if (status == CGP_OK) status = prepare(&b);
    int code = cli_report(status, true);
    if (status == CGP_OK) {
        status = measure_all(&b);
        if (status == CGP_OK) make_cluster(&b);
        if (status == CGP_OK) print(cli_info_stream(options), &b);
        if (status == CGP_OK)
            status = cli_ranks_agree(cli_json_write(options, cli_cluster_json(&b.cluster)));
        code = cli_report(status, false);
    }
    cli_ranks_fail(status);
    cli_cluster_release(&b.cluster);
    free(b.kind);
    free(b.seconds);
    free(b.rank);
    return code;
}
