/* SPDX-License-Identifier: Apache-2.0 */
/* graph.h -- models as text: JSON that programs in any language can write, `{"format":
 * "cgpipe-graph", "version": 2, ...}`. The JSON object has inputs, layers, parameters (names,
 * shapes, initializations; no weights), nodes, losses and outputs; docs/reference/graph-files.md
 * lists every key.
 *
 *     char *text = NULL;
 *     CGP_TRY(cgp_model_to_json(&text, model));
 *     CGP_TRY(cgp_file_replace("mine.json", text, strlen(text)));
 *     free(text);
 *     CGP_TRY(cgp_model_read(&again, "mine.json", NULL, 0));
 *
 * A model that is written and read again is bit-identical: its plans have the same cgp_plan_hash(),
 * and training gives the same weights. */
#ifndef CGPIPE_GRAPH_H
#define CGPIPE_GRAPH_H

#include <cgpipe/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Write a finished model as JSON.
 *
 * A custom op is written as its name and the bytes of its attributes. Attributes that contain
 * addresses are meaningless in another process.
 *
 * @param[out] out  The text, with a 0 at its end; freed by the caller with free().
 *
 * @retval CGP_ESTATE  The model is not finished.
 * @retval CGP_EINVAL  Two custom ops have the same name.
 * @retval CGP_ENOMEM
 *
 * Threads: any.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_model_to_json(char **out, const cgp_model *model);

/**
 * Make a finished model from JSON.
 *
 * Nothing in the text is trusted. Unknown formats, versions, keys and ops are refused, and the
 * message names them. Shapes and attributes that the builder calls refuse are refused too. A text
 * has at most 32 MB, and reading takes at most 512 MiB of memory.
 * CGP_LIMITS=header=BYTES,json=BYTES in the environment changes these limits. The text contains no
 * code: it names custom ops, whose functions come from `ops`.
 *
 * @param[out] out   Owned by the caller, see cgp_model_destroy().
 * @param[in]  name  Name of the text, for messages. Borrowed.
 * @param[in]  text [bytes] The text in UTF-8; it need not end in 0. Borrowed.
 * @param[in]  ops   [n_ops] custom ops, found by their names. The list is borrowed for the call,
 *                   the ops for the life of the model.
 *
 * @retval CGP_EFORMAT  The message gives the name of the text, the place ("nodes[3]") and what was
 *                      expected.
 * @retval CGP_EINVAL   A custom op has no name, or two custom ops have the same name.
 * @retval CGP_ENOMEM
 *
 * Threads: any.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_model_from_json(cgp_model **out, const char *name,
                                                      const char *text, size_t bytes,
                                                      const cgp_op *const *ops, int n_ops);

/** Make a finished model from a file, as cgp_model_from_json() does from a text.
 *  @param[in] path A regular file. Borrowed. @param[in] ops As for cgp_model_from_json().
 *  @retval CGP_EIO The file is missing, unreadable or not a regular file. */
CGP_API CGP_MUST_CHECK cgp_status cgp_model_read(cgp_model **out, const char *path,
                                                 const cgp_op *const *ops, int n_ops);

#ifdef __cplusplus
}
#endif
#endif
