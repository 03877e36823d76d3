/* SPDX-License-Identifier: Apache-2.0 */
/* model_plugin.h -- the contract of a model plug-in: a shared object whose model the program
 *trains, by cgpipe train ./mine.so.
 *
 *     CGP_MODEL_PLUGIN;                                             release and struct sizes, checked before anything is called
 *
 *     enum { WIDTH };
 *     const cgp_model_key cgpipe_model_keys[] = {
 *         {"width", CGP_KEY_WHOLE, "64", 1, 4096, NULL}, {NULL, CGP_KEY_WHOLE, NULL, 0, 0, NULL}};
 *
 *     cgp_status cgpipe_model_build(cgp_model *model, const cgp_model_value *values) {
 *         const int64_t width = values[WIDTH].whole;
 *         ...                                                       builder calls of cgpipe/model.h and cgpipe/ext/op.h
 *         return CGP_OK;
 *     }
 *
 * is built by
 *
 *     cc -shared -fPIC -o mine.so mine.c $(pkg-config --cflags --libs cgpipe)
 *
 * and "cgpipe new model mine" writes a whole one.
 *
 * The program opens the file that its command line names, by a path with a slash, and never another
 * one: nothing is searched, and nothing that a run or a run file names is opened. A run keeps the
 * SHA-256 of the file, and goes on with that code alone.
 *
 * The program has one copy of libcgpipe, which plug-ins share: messages, errors and custom ops are
 * the program's. Of the symbols below, cgpipe_plugin_version and cgpipe_model_build are needed, the
 * others may be left out. */
#ifndef CGPIPE_EXT_MODEL_PLUGIN_H
#define CGPIPE_EXT_MODEL_PLUGIN_H

#include <cgpipe/ext/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/** For what a plug-in defines: visible, whatever -fvisibility says. */
#define CGP_PLUGIN_EXPORT __attribute__((visibility("default")))

/** The structs that pass between program and plug-in: the contract holds if both know them in the
 *  same sizes. */
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

/** The headers that a plug-in was built with. */
typedef struct cgp_model_plugin_version {
    size_t struct_size;                   /**< sizeof(cgp_model_plugin_version) */
    char release[16];                     /**< CGP_VERSION */
    size_t sizes[CGP_MODEL_PLUGIN_SIZES]; /**< Of the structs, in the order of the list. */
} cgp_model_plugin_version;

/** The plug-in's version, which CGP_MODEL_PLUGIN defines. Data, so that it is read before any code
 *  of the plug-in is called. */
extern CGP_PLUGIN_EXPORT const cgp_model_plugin_version cgpipe_plugin_version;

#define CGP__PLUGIN_VERSION                                                                        \
    {                                                                                              \
        sizeof(cgp_model_plugin_version), CGP_VERSION, {                                           \
            CGP_MODEL_PLUGIN_STRUCTS(CGP__PLUGIN_SIZE)                                             \
        }                                                                                          \
    }

/** Define the version, once in a plug-in, at file scope. */
#define CGP_MODEL_PLUGIN const cgp_model_plugin_version cgpipe_plugin_version = CGP__PLUGIN_VERSION

/** Kinds of values. */
typedef enum cgp_model_key_kind {
    CGP_KEY_WHOLE, /**< A whole number. */
    CGP_KEY_REAL,  /**< A number. */
    CGP_KEY_WORD   /**< One of some words. */
} cgp_model_key_kind;

/** A key of MODEL, ./mine.so:width=64. The program parses values, checks them and writes them into
 *  the run; a plug-in gets them all. */
typedef struct cgp_model_key {
    const char *name;        /**< Letters, digits, underscores; NULL: the end of the list. */
    cgp_model_key_kind kind; /**< Of its values. */
    const char *preset; /**< The default, as it would be written; NULL: the key must be given. */
    double min, max;    /**< Of a number, both included. */
    const char *const *words; /**< Of a WORD: the words, NULL at the end. */
} cgp_model_key;

/** Keys of the model, at most 64; left out: it has none. */
extern CGP_PLUGIN_EXPORT const cgp_model_key cgpipe_model_keys[];

/** The value of a key. */
typedef struct cgp_model_value {
    int64_t whole;    /**< WHOLE; of a WORD its index in `words`. */
    double real;      /**< REAL, and WHOLE. */
    const char *word; /**< WORD; else NULL. */
} cgp_model_value;

/**
 * Add inputs, layers, a loss and an output to an empty model, which has the file's name; the
 * program finishes it.
 *
 * A function of the values alone: a command may build a model several times, and so does each rank.
 *
 * @param[in] model   Borrowed for the call.
 * @param[in] values  [keys], in the order of cgpipe_model_keys. Borrowed for the call; NULL without
 * keys.
 * @return    CGP_OK; or a failure, with a message by cgp_fail(). What a builder call found is reported in any case.
 */
CGP_PLUGIN_EXPORT cgp_status cgpipe_model_build(cgp_model *model, const cgp_model_value *values);

/** Custom ops by name, NULL at the end: those that graph files may use (cgpipe/graph.h). Left out:
 *  none. Static. */
extern CGP_PLUGIN_EXPORT const cgp_op *const cgpipe_model_ops[];

struct cgp_data; /* cgpipe/data.h has the type cgp_data */

/** The data set that is asked for. */
typedef struct cgp_data_request {
    size_t struct_size;     /**< sizeof(cgp_data_request) */
    const cgp_model *model; /**< Finished. It has two inputs, for input and target of a sample. */
    const cgp_model_value *values; /**< As of cgpipe_model_build(). */
    const char *argument; /**< Of --data plugin:ARGUMENT: a path, say; "" for --data plugin. */
    uint64_t seed;        /**< --seed: of the shuffle, and of what is drawn. */
    double validation_fraction; /**< --validation, 0 <= fraction < 1. */
} cgp_data_request;

/**
 * Open the model's data set, for --data plugin and --data plugin:ARGUMENT. Left out: the model has
 * none.
 *
 * Its samples are a function of the request; cgp_data_source.identity tells other data by other
 * numbers. Every rank that reads data opens it. It comes from cgp_data_create(), in libcgpipe_data
 * (pkg-config cgpipe_data).
 *
 * @param[out] out      Owned by the program from here on.
 * @param[in]  request  Borrowed for the call.
 */
CGP_PLUGIN_EXPORT cgp_status cgpipe_data_open(struct cgp_data **out,
                                              const cgp_data_request *request);

#ifdef __cplusplus
}
#endif
#endif
