/* SPDX-License-Identifier: Apache-2.0 */
/* cluster.h -- a cluster file (docs/reference/cluster-files.md): hosts, their devices, and how long
 * a message takes between them. `cgpipe bench transport --json` writes it, --cluster reads it.
 * Device d of a pipeline is device d of the file. */
#ifndef CGPIPE_CLI_CLUSTER_H
#define CGPIPE_CLI_CLUSTER_H

#include <cgpipe/plan.h>

#include <jansson.h>

/* A message takes latency_seconds + its bytes / bytes_per_second; bytes_per_second 0: not known. */
typedef struct cli_message_cost {
    double latency_seconds, bytes_per_second;
} cli_message_cost;

typedef struct cli_cluster_host {
    const char *name; /* name of the host, borrowed */
    int64_t cores, memory_bytes;
    cli_message_cost within; /* cost of a message between two devices of the host */
} cli_cluster_host;

typedef struct cli_cluster_device {
    const char *kind;           /* name of the device's backend, borrowed */
    int64_t host, memory_bytes; /* number of the device's host; bytes of memory, 0: not known */
    /* Peak for each cgp_precision, the fraction of the peak that kernels reach, and the memory
     * bandwidth; 0: not known. */
    double flops_per_second[CGP_PRECISION_TF32 + 1], efficiency, bytes_per_second;
} cli_cluster_device;

/* A link from one host to another; -1, -1: the default for pairs without a link of their own. */
typedef struct cli_cluster_link {
    int64_t from, to;
    cli_message_cost cost;
} cli_cluster_link;

typedef struct cli_cluster {
    const char *path; /* path of the file, borrowed */
    int hosts, devices, links;
    cli_cluster_host *host;
    cli_cluster_device *device;
    cli_cluster_link *link;
    json_t *file; /* the JSON that owns all texts; NULL: the caller owns the texts */
} cli_cluster;

/* Read a cluster file. Release the cluster after a failure too. Fails with CGP_EIO or CGP_EFORMAT;
 * the error message begins with the path. */
CGP_MUST_CHECK cgp_status cli_cluster_read(cli_cluster *cluster, const char *path);

/* Return the JSON of a cluster file. Owned by the caller. */
json_t *cli_cluster_json(const cli_cluster *cluster);

void cli_cluster_release(cli_cluster *cluster);

/* Fail with CGP_EFORMAT if there are fewer than `devices` devices. */
CGP_MUST_CHECK cgp_status cli_cluster_expect(const cli_cluster *cluster, int devices);

/* Fail if a plan's devices do not match the devices in the file. CGP_EFORMAT: the file has fewer
 * devices, or a device of another kind. CGP_ELIMIT: a device has less memory than the plan
 * needs. */
CGP_MUST_CHECK cgp_status cli_cluster_check_plan(const cli_cluster *cluster, const cgp_plan *plan);

/* Fail if the devices of a replica r > 0, which begin at device r K of the file, differ from those
 * of replica 0 in kind, speed or memory. CGP_EFORMAT: the file has fewer devices, or another
 * one. */
CGP_MUST_CHECK cgp_status cli_cluster_check_replicas(const cli_cluster *cluster, int devices,
                                                     int replicas);

/* Find the cost of a message from one device to another, both below the number of devices.
 * CGP_EFORMAT: the file does not contain this cost. */
CGP_MUST_CHECK cgp_status cli_cluster_message(const cli_cluster *cluster, int from, int to,
                                              cli_message_cost *cost);

#endif
