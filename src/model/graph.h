/* SPDX-License-Identifier: Apache-2.0 */
/* graph.h -- the attributes of built-in ops in graph files: a table of the fields of
 * cgp__attributes, and one of ops, which says the fields of each. */
#ifndef CGP_SRC_MODEL_GRAPH_H
#define CGP_SRC_MODEL_GRAPH_H

#include <cgpipe/graph.h>

#include "base/json.h"
#include "model/model.h"

#define CGP__GRAPH_FORMAT "cgpipe-graph"
#define CGP__GRAPH_VERSION 2

typedef enum cgp__field_kind {
    CGP__FIELD_INT,
    CGP__FIELD_INT64,
    CGP__FIELD_REAL,
    CGP__FIELD_BOOL,
    CGP__FIELD_NONE, /* not in the file: it follows from the rest of the node */
} cgp__field_kind;

/* A field of cgp__attributes. */
typedef struct cgp__field {
    const char *name;
    cgp__field_kind kind;
    size_t offset, bytes; /* of all of it, which may be a list */
} cgp__field;

/* Return field i; NULL: there are no more. */
const cgp__field *cgp__graph_field(int i);

/* Return the name of an op in files, "layer_norm"; and the names of its attributes, with blanks
 * between: a '?' behind one says that it is zero where a file leaves it out. NULL: the table has no
 * line for it. */
const char *cgp__graph_op(cgp_op_kind kind);
const char *cgp__graph_attributes(cgp_op_kind kind);

/* Tell whether an op has a field, and, if `optional` is not NULL, whether files may leave it out.
 * */
bool cgp__graph_has(cgp_op_kind kind, const cgp__field *field, bool *optional);

/* Return the kind of a name; CGP_OP_KINDS: there is no such op. */
cgp_op_kind cgp__graph_kind(const char *name);

/* Return the kind of an initialization of a name, -1: there is none; and the name of a kind, NULL:
 * it has none. */
int cgp__graph_init(const char *name);
const char *cgp__graph_init_name(cgp_init_kind kind);

/* Make an object of the attributes; NULL when short. An attribute that the op's line lacks is
 * CGP_EINVAL. */
cgp_status cgp__graph_attributes_write(json_t **out, cgp_op_kind kind,
                                       const cgp__attributes *attributes);

/* Set attributes from an object, NULL: it is left out. The message of CGP_EFORMAT has key,
 * expectation and value. */
cgp_status cgp__graph_attributes_read(cgp__attributes *attributes, cgp_op_kind kind,
                                      const json_t *object);

/* Return a value for a message, cut. */
const char *cgp__graph_show(const json_t *value, char *text, size_t size);

#endif
