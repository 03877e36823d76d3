/* SPDX-License-Identifier: Apache-2.0 */
/* model_plugin.h -- the contract of a model plug-in: a shared object with a model, which the
 * command `cgpipe train ./mine.so` trains.
 *
 *     CGP_MODEL_PLUGIN;                         has release and struct sizes, which are checked
 *                                               before any call
 *
 *     enum { WIDTH };
 *     const cgp_model_key cgpipe_model_keys[] = {
 *         {"width", CGP_KEY_WHOLE, "64", 1, 4096, NULL}, {NULL, CGP_KEY_WHOLE, NULL, 0, 0, NULL}};
 *
 *     cgp_status cgpipe_model_build(cgp_model *model, const cgp_model_value *values) {
 *         const int64_t width = values[WIDTH].whole;
 *         ...                                   builder calls of cgpipe/model.h and cgpipe/ext/op.h
 *         return CGP_OK;
 *     }
 *
 * This command builds the plug-in:
 *
 *     cc -shared -fPIC -o mine.so mine.c $(pkg-config --cflags --libs cgpipe)
 *
 * "cgpipe new model mine" writes a complete plug-in.
 *
 * The program opens only the file that its command line names, by a path with a slash. It does not
 * search for plug-ins. If a plug-in is named only by a run or a run file, the program does not open
 * it. A run stores the SHA-256 of the plug-in's file, and continues only with the same file.
 *
 * The program has one copy of libcgpipe, and plug-ins use the same copy. So program and plug-ins
 * share the library's messages, errors and custom ops. A plug-in must define cgpipe_plugin_version
 * and cgpipe_model_build; all other symbols below are optional. */
#ifndef CGPIPE_EXT_MODEL_PLUGIN_H
#define CGPIPE_EXT_MODEL_PLUGIN_H

#include <cgpipe/ext/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Makes a symbol of a plug-in visible, even if the compiler option -fvisibility=hidden is used. */
#define CGP_PLUGIN_EXPORT __attribute__((visibility("default")))

/** The structs that pass between program and plug-in. Their sizes must be equal in both. */
#define CGP_MODEL_PLUGIN_STRUCTS(X)                                                                \
    X(cgp_shape)                                                                                   \
    X(cgp_tensor)                                                                                  \
    X(cgp_init)                                                                                    \
    X(cgp_op_type)                                                                                 \
    X(cgp_op_shapes)                                                                               \
    X(cgp_op_node)                                                                                 \
    X(cgp_op_run)                                                                                  \
    X(cgp_op)                                                                                      \
    X(cgp_linear_options)                                                                          \
    X(cgp_conv2d_options)                                                                          \
    X(cgp_pool_options)                                                                            \
    X(cgp_model_key)                                                                               \
    X(cgp_model_value)                                                                             \
    X(cgp_data_request)

#define CGP__PLUGIN_COUNT(type) +1
#define CGP__PLUGIN_SIZE(type) sizeof(type),
enum { CGP_MODEL_PLUGIN_SIZES = 0 CGP_MODEL_PLUGIN_STRUCTS(CGP__PLUGIN_COUNT) };

/** Release and struct sizes of the headers that a plug-in was built with. */
typedef struct cgp_model_plugin_version {
    size_t struct_size;                   /**< sizeof(cgp_model_plugin_version) */
    char release[16];                     /**< CGP_VERSION */
    size_t sizes[CGP_MODEL_PLUGIN_SIZES]; /**< Sizes of the structs, in the order of the list. */
} cgp_model_plugin_version;

/** The plug-in's version, which CGP_MODEL_PLUGIN defines. It is data, so that it can be read before
 *  any code of the plug-in runs. */
extern CGP_PLUGIN_EXPORT const cgp_model_plugin_version cgpipe_plugin_version;

#define CGP__PLUGIN_VERSION                                                                        \
    {                                                                                              \
        sizeof(cgp_model_plugin_version), CGP_VERSION, {                                           \
            CGP_MODEL_PLUGIN_STRUCTS(CGP__PLUGIN_SIZE)                                             \
        }                                                                                          \
    }

/** Define the version. A plug-in uses this macro once, at file scope. */
#define CGP_MODEL_PLUGIN const cgp_model_plugin_version cgpipe_plugin_version = CGP__PLUGIN_VERSION

/** Kinds of values. */
typedef enum cgp_model_key_kind {
    CGP_KEY_WHOLE, /**< A whole number. */
    CGP_KEY_REAL,  /**< A number. */
    CGP_KEY_WORD   /**< The value is one of a list of words. */
} cgp_model_key_kind;

/** A key of MODEL, as in ./mine.so:width=64. The program parses and checks the values, and writes
 *  them into the run; a plug-in gets all of them. */
typedef struct cgp_model_key {
    /** Letters, digits and underscores; NULL: the list of keys ends here. */
    const char *name;
    cgp_model_key_kind kind;  /**< Kind of the key's values. */
    const char *preset;       /**< Default, as a user would write it; NULL: the key is required. */
    double min, max;          /**< Range of a number, including both ends. */
    const char *const *words; /**< For WORD: the allowed words, followed by NULL. */
} cgp_model_key;

/** Keys of the model, at most 64. The list is optional; without it, the model has no keys. */
extern CGP_PLUGIN_EXPORT const cgp_model_key cgpipe_model_keys[];

/** The value of a key. */
typedef struct cgp_model_value {
    int64_t whole;    /**< WHOLE: the number. WORD: the index of the word in `words`. */
    double real;      /**< REAL or WHOLE: the number. */
    const char *word; /**< For WORD: the word. NULL for other kinds. */
} cgp_model_value;

/**
 * Add inputs, layers, a loss and an output to an empty model, which has the name of the plug-in's
 * file. The program then finishes the model.
 *
 * The result must depend only on the values, because a command may build a model several times, and
 * each rank builds it.
 *
 * @param[in] model   Borrowed for the call.
 * @param[in] values  [keys], in the order of cgpipe_model_keys. Borrowed for the call; NULL without
 *                    keys.
 * @return    CGP_OK, or a failure with a message by cgp_fail(). Errors of builder calls are
 *            reported in any case.
 */
CGP_PLUGIN_EXPORT cgp_status cgpipe_model_build(cgp_model *model, const cgp_model_value *values);

/** Custom ops that graph files may name (cgpipe/graph.h), followed by NULL. Optional. The list must
 *  be static. */
extern CGP_PLUGIN_EXPORT const cgp_op *const cgpipe_model_ops[];

struct cgp_data; /* cgpipe/data.h has the type cgp_data */

/** Request for a data set. */
typedef struct cgp_data_request {
    size_t struct_size; /**< sizeof(cgp_data_request) */
    /** The finished model. Its two inputs are for the input and the target of a sample. */
    const cgp_model *model;
    const cgp_model_value *values; /**< Values of the model's keys, as for cgpipe_model_build(). */
    /** ARGUMENT of --data plugin:ARGUMENT, for example a path; "" for --data plugin. */
    const char *argument;
    uint64_t seed;              /**< --seed: seed of the shuffle, and of random data. */
    double validation_fraction; /**< --validation, 0 <= fraction < 1. */
} cgp_data_request;

/**
 * Open the model's data set, for --data plugin and --data plugin:ARGUMENT. The function is
 * optional; without it, the model has no data set.
 *
 * The samples must depend only on the request, and cgp_data_source.identity must differ for
 * different data. Every rank that reads data opens the data set. To make the data set, use
 * cgp_data_create() of libcgpipe_data (pkg-config cgpipe_data).
 *
 * @param[out] out      The program owns it after the call.
 * @param[in]  request  Borrowed for the call.
 */
CGP_PLUGIN_EXPORT cgp_status cgpipe_data_open(struct cgp_data **out,
                                              const cgp_data_request *request);

#ifdef __cplusplus
}
#endif
#endif
