/* SPDX-License-Identifier: Apache-2.0 */
/* devices.h -- devices by name, and the available backends, transports and plug-ins.
 *
 *     KIND[:ORDINAL][@LIMIT]      "cpu", "cuda:1", "cuda:0@22GiB", "late@500M"
 *
 * KIND is the name of a backend, and ORDINAL the index of its hardware [0]. With the ordinal
 * `local`, each process of a host has its own GPU. `local` stands for the number of this process
 * among the processes that a launcher started on the host, or for 0 if no launcher started it.
 * LIMIT is the maximum number of bytes that a plan may use on the device. It is a whole number,
 * optionally with a unit: K, M, G, T or KiB .. TiB, powers of 1024. */
#ifndef CGPIPE_DEVICES_H
#define CGPIPE_DEVICES_H

#include <cgpipe/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The devices of a pipeline by name, as in cgp_plan_options. */
typedef struct cgp_device_list {
    const char **names; /**< [count] Owned by the list. */
    int count;
} cgp_device_list;

/** Maximum number of devices in a list. */
#define CGP_MAX_DEVICES 65536

/**
 * Parse a list of devices. Its entries, NAME[*COUNT], are separated by commas: "cpu*3,late@2GiB" is
 * cpu, cpu, cpu and late@2GiB.
 *
 * Only the form of a name is checked here; cgp_plan_create() looks for the backend.
 *
 * @param[out] out   Owned by the caller, see cgp_device_list_release(). Unchanged after a failure.
 * @param[in]  text  Borrowed for the call.
 *
 * @retval CGP_EINVAL  `text` is not a list of devices; the message says what is wrong.
 * @retval CGP_ELIMIT  The list has more than CGP_MAX_DEVICES devices.
 * @retval CGP_ENOMEM
 *
 * Threads: any.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_device_list_parse(cgp_device_list *out, const char *text);

/** Free the memory of a list, and empty it. Accepts NULL. */
CGP_API void cgp_device_list_release(cgp_device_list *list);

/** A backend; texts are static. */
typedef struct cgp_backend_info {
    const char *name;   /**< "cpu" */
    const char *plugin; /**< File that provides the backend; NULL: the library itself. */
    /** The backend's kernels read host memory; its device memory is host memory. */
    bool host_addressable;
    bool asynchronous; /**< The backend's calls enqueue work and return before the work is done. */
    bool custom_ops;   /**< The backend runs custom ops. */
} cgp_backend_info;

/** Return backend number `index`, counted from 0. The library's own backends come first. If there
 *  are no more backends, all fields are zero. The first call with an index past the library's own
 *  backends opens the plug-ins (cgpipe/ext/plugin.h). Threads: any. */
CGP_API cgp_backend_info cgp_backend_info_at(int index);

/** Count a backend's ordinals on this machine. @param backend Name of the backend. Borrowed.
 *  @retval CGP_EINVAL There is no such backend.
 *  @retval CGP_EDEVICE The backend has no hardware on this machine; the message says why. Threads:
 *  any. */
CGP_API CGP_MUST_CHECK cgp_status cgp_backend_devices(int *count, const char *backend);

/** Find the number of bytes that devices of an ordinal can allocate at present; INT64_MAX if it is
 *  not known.
 *  @param backend Name of the backend. Borrowed.
 *  @retval CGP_EINVAL There is no such backend, or no such ordinal.
 *  @retval CGP_EDEVICE
 *  Threads: any. */
CGP_API CGP_MUST_CHECK cgp_status cgp_backend_memory(int64_t *bytes, const char *backend,
                                                     int ordinal);

/** Find the number of bytes on an ordinal that the driver and other programs hold. These bytes are
 *  neither free nor allocated by devices of this process. The driver takes more when kernels first
 *  run. INT64_MAX: the number is not known.
 *  @param backend Name of the backend. Borrowed.
 *  @retval CGP_EINVAL There is no such backend, or no such ordinal.
 *  @retval CGP_EDEVICE
 *  Threads: any. */
CGP_API CGP_MUST_CHECK cgp_status cgp_backend_driver_bytes(int64_t *bytes, const char *backend,
                                                           int ordinal);

/** A transport; texts are static. */
typedef struct cgp_transport_info {
    const char *name;   /**< "inproc" */
    const char *plugin; /**< File that provides the transport; NULL: the library itself. */
} cgp_transport_info;

/** Return transport number `index`, counted from 0. The library's own transports come first. If
 *  there are no more transports, all fields are zero. The first call with an index past the
 *  library's own transports opens the plug-ins. Threads: any. */
CGP_API cgp_transport_info cgp_transport_info_at(int index);

/** A file that was opened as a plug-in; texts are static. */
typedef struct cgp_plugin_info {
    const char *path;
    const char *name; /**< Name that the plug-in gives itself; NULL: it has no name. */
    /** Why the plug-in, or a part of it, was left out; NULL: nothing was left out. */
    const char *reason;
    const char *version; /**< Version of cgpipe with which the plug-in was built; NULL: unknown. */
    /** SHA-256 of the file, in hexadecimal digits; NULL: the file could not be read. */
    const char *sha256;
} cgp_plugin_info;

/** Return plug-in number `index`, counted from 0. If there are no more plug-ins, all fields are
 *  zero. The first call opens the plug-ins. Threads: any. */
CGP_API cgp_plugin_info cgp_plugin_info_at(int index);

#ifdef __cplusplus
}
#endif
#endif
