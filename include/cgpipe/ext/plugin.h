/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.h -- the contract of a plug-in: a shared object with backends or transports, opened when a
 * program needs them.
 *
 * A plug-in is a file `libcgpipe-*.so` in one of these directories, in this order:
 *
 * - the directories in the environment variable CGP_PLUGIN_PATH (absolute paths with colons
 *   between);
 * - `cgpipe` or `plugins` beside the program;
 * - `cgpipe` or `plugins` beside the shared library; for the static library, the directory `cgpipe`
 *   among the installed libraries.
 *
 * No plug-in is opened from the current directory, and none in a set-user-ID program. All plug-ins
 * are opened once, in the order of directories and names. This happens when a program asks for a
 * list of backends or transports, or for a backend or transport that the library lacks. Plug-ins
 * are never closed.
 *
 * The file exports one function:
 *
 *     const cgp_plugin *cgp_plugin_entry(const cgp_host *host);
 *
 * `host` has the library's functions. A plug-in looks up no symbol of cgpipe, so it also serves
 * programs that are linked with the static library. It may use the inline functions and types of
 * cgpipe's headers. */
#ifndef CGPIPE_EXT_PLUGIN_H
#define CGPIPE_EXT_PLUGIN_H

#include <cgpipe/ext/backend.h>
#include <cgpipe/ext/transport.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Version of the structs in this header. It increases with every change of their layout. */
#define CGP_PLUGIN_ABI 2

/** Library functions for a plug-in. The table is static. */
typedef struct cgp_host {
    size_t struct_size;  /**< sizeof(cgp_host) */
    int abi;             /**< CGP_PLUGIN_ABI */
    const char *version; /**< CGP_VERSION */

    /** The functions cgp_fail(), cgp_message() and cgp_log() of the library. Threads: any. */
    cgp_status (*fail)(cgp_status status, const char *format, ...) CGP_PRINTF(2, 3);
    const char *(*message)(void);
    void (*log)(cgp_log_level level, const char *module, const char *format, ...) CGP_PRINTF(3, 4);

    /** Return the time in nanoseconds, on the monotonic clock of all times in the library. Threads:
     *  any. */
    int64_t (*now_ns)(void);
    /** Return the available memory of the machine in bytes; INT64_MAX if not known. Threads:
     *  any. */
    int64_t (*memory_available)(void);
    /** Derive the key of the dropout rule (ops/common.h) from the seed and step of cgp_step_values
     *  and the id of cgp_kernel_args. Threads: any. */
    void (*dropout_key)(uint32_t key[2], uint64_t seed, uint64_t step, uint32_t id);
    /** Compute Philox4x32-10 of a counter under a key. Source: Salmon et al. 2011. Threads: any. */
    void (*philox)(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);
    /** Check the options with which a transport opens a link between `ranks` ranks: the numbers
     *  and, if the transport needs buffers, the buffers. A transport calls this first when it opens
     *  a link. @retval CGP_EINVAL The message has the name of the transport. Threads: any. */
    cgp_status (*link_check)(const cgp_transport *transport, const cgp_link_options *options,
                             int ranks);
} cgp_host;

/** A plug-in: a static table, borrowed for the life of the process. */
typedef struct cgp_plugin {
    size_t struct_size; /**< sizeof(cgp_plugin) */
    int abi;            /**< CGP_PLUGIN_ABI */
    int backend_abi;    /**< CGP_BACKEND_ABI */
    int transport_abi;  /**< CGP_TRANSPORT_ABI */
    const char *name;   /**< "toy" */
    /** [n_backends] and [n_transports]: the plug-in's backends and transports, each with a
     *  different name. A faulty entry is left out, and `cgpipe devices` says why. */
    const cgp_backend *const *backends;
    int n_backends;
    const cgp_transport *const *transports;
    int n_transports;
    /** CGP_VERSION of the headers with which the plug-in was built, for run records. */
    const char *version;
} cgp_plugin;

/** The first fields of a cgp_plugin. */
#define CGP_PLUGIN_HEADER                                                                          \
    .struct_size = sizeof(cgp_plugin), .abi = CGP_PLUGIN_ABI, .backend_abi = CGP_BACKEND_ABI,      \
    .transport_abi = CGP_TRANSPORT_ABI, .version = CGP_VERSION

/**
 * The function that a plug-in defines and exports.
 *
 * @param[in] host  Borrowed for the life of the process. A plug-in must compare its `abi` with
 *                  CGP_PLUGIN_ABI before it uses other fields.
 * @return    The plug-in. NULL: the plug-in cannot be used; the reason was passed to host->fail().
 *
 * Threads: called once, by one thread.
 */
typedef const cgp_plugin *cgp_plugin_entry_function(const cgp_host *host);

#ifdef __cplusplus
}
#endif
#endif
