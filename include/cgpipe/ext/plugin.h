/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.h -- the contract of a plug-in: a shared object with backends or transports, opened when a
 *program needs them.
 *
 * A plug-in is a file `libcgpipe-*.so` in a directory that the environment variable CGP_PLUGIN_PATH
 * names (absolute paths with colons between), or in `cgpipe` or `plugins` beside the program, then
 * beside the shared library; for the static one, in the directory cgpipe of the installed
 * libraries. Nothing is opened in the current directory, nor in a set-user-ID program. All plug-ins
 * are opened once, in the order of directories and names, when a program asks for a backend or
 * transport that is not there, or for a list of them; they are never closed.
 *
 * The file exports one function:
 *
 *     const cgp_plugin *cgp_plugin_entry(const cgp_host *host);
 *
 * Functions of the library come in `host`: a plug-in looks up no symbol of cgpipe, so it serves
 * programs that are linked with the static library, too. Headers of cgpipe have inline functions
 * and types that it may use. */
#ifndef CGPIPE_EXT_PLUGIN_H
#define CGPIPE_EXT_PLUGIN_H

#include <cgpipe/ext/backend.h>
#include <cgpipe/ext/transport.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Of the structs in this header. */
#define CGP_PLUGIN_ABI 1

/** Functions of the library for a plug-in. Static; fields are only appended. */
typedef struct cgp_host {
    size_t struct_size;  /**< sizeof(cgp_host) */
    int abi;             /**< CGP_PLUGIN_ABI */
    const char *version; /**< CGP_VERSION */

    /** See cgp_fail(), cgp_message() and cgp_log(). Threads: any. */
    cgp_status (*fail)(cgp_status status, const char *format, ...) CGP_PRINTF(2, 3);
    const char *(*message)(void);
    void (*log)(cgp_log_level level, const char *module, const char *format, ...) CGP_PRINTF(3, 4);

    /** Return the time in nanoseconds, on the monotonic clock that all times of the library are of.
     *  Threads: any. */
    int64_t (*now_ns)(void);
    /** Return the available memory of the machine in bytes; INT64_MAX: not known. Threads: any. */
    int64_t (*memory_available)(void);
    /** Derive the key of the dropout rule (backend.h) from seed and step of cgp_step_values and the
     *  id of cgp_kernel_args. Threads: any. */
    void (*dropout_key)(uint32_t key[2], uint64_t seed, uint64_t step, uint32_t id);
    /** Philox4x32-10 of a counter under a key. Threads: any. */
    void (*philox)(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);
    /** Check the options of a transport's link_open, between so many ranks: numbers, and buffers
     *  where it needs them. For the start of link_open. @retval CGP_EINVAL  with the name of the
     *  transport. Threads: any. */
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
    /** [n_backends], [n_transports] Each with a name of its own. What has a fault is left out, and
     *  `cgpipe devices` says why. */
    const cgp_backend *const *backends;
    int n_backends;
    const cgp_transport *const *transports;
    int n_transports;
    const char
        *version; /**< CGP_VERSION of the headers that it was built with, for records of runs. */
} cgp_plugin;

/** The first fields of a cgp_plugin. */
#define CGP_PLUGIN_HEADER                                                                          \
    .struct_size = sizeof(cgp_plugin), .abi = CGP_PLUGIN_ABI, .backend_abi = CGP_BACKEND_ABI,      \
    .transport_abi = CGP_TRANSPORT_ABI, .version = CGP_VERSION

/**
 * The function that a plug-in defines and exports.
 *
 * @param[in] host  Borrowed for the life of the process. A plug-in looks at `abi` and `struct_size`
 * before it uses fields that
 *                  its own header has and an older host may lack.
 * @return    The plug-in; NULL: it cannot be used, for the reason given to host->fail().
 *
 * Threads: one, once.
 */
typedef const cgp_plugin *cgp_plugin_entry_function(const cgp_host *host);

#ifdef __cplusplus
}
#endif
#endif
