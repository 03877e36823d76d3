/* SPDX-License-Identifier: Apache-2.0 */
/* graph.h -- describes the attributes of built-in ops in graph files. One table has the fields of
 * cgp__attributes, and one table has the fields of each op. */
#ifndef CGP_SRC_MODEL_GRAPH_H
#define CGP_SRC_MODEL_GRAPH_H

#include <cgpipe/graph.h>

#include "base/json.h"
#include "op/attributes.h"

#define CGP__GRAPH_FORMAT "cgpipe-graph"
#define CGP__GRAPH_VERSION 2

typedef enum cgp__field_kind {
    CGP__FIELD_INT,
    CGP__FIELD_INT64,
    CGP__FIELD_REAL,
    CGP__FIELD_BOOL,
    CGP__FIELD_NONE, /* the file has no such attribute; the rest of the node determines the field */
} cgp__field_kind;

/* A field of cgp__attributes: one of the common fields (PLAIN), or a field of one family. */
typedef struct cgp__field {
    const char *name;
    cgp__field_kind kind;
    cgp_op_family family;
    size_t offset, bytes; /* offset and size of the whole field, which may be an array */
} cgp__field;

/* Return field i; NULL after the last. */
const cgp__field *cgp__graph_field(int i);

/* Return the names of an op's attributes, separated by blanks. A '?' after a name marks an
 * attribute that files may leave out; its value is then zero. Return NULL if the table has no line
 * for the op. */
const char *cgp__graph_attributes(cgp_op_kind kind);

/* Return true if an op has a field. Set *optional to true if files may leave the field out, else to
 * false. `optional` may be NULL. */
bool cgp__graph_has(cgp_op_kind kind, const cgp__field *field, bool *optional);

/* Return the op kind with this name; CGP_OP_KINDS if there is no such kind. */
cgp_op_kind cgp__graph_kind(const char *name);

/* cgp__graph_init() returns the initialization with this name, or -1. cgp__graph_init_name()
 * returns the name of an initialization, or NULL. */
int cgp__graph_init(const char *name);
const char *cgp__graph_init_name(cgp_init_kind kind);

/* Make a JSON object of the attributes. @retval CGP_EINVAL An attribute that the op's line does not
 * list is not zero. @retval CGP_ENOMEM */
cgp_status cgp__graph_attributes_write(json_t **out, const cgp__attributes *attributes);

/* Set attributes from `object`, which is NULL if the file has none. The message of CGP_EFORMAT
 * gives the key, the expected value and the actual value. */
cgp_status cgp__graph_attributes_read(cgp__attributes *attributes, cgp_op_kind kind,
                                      const json_t *object);

/* Return a value as text for a message, cut to `size` bytes. */
const char *cgp__graph_show(const json_t *value, char *text, size_t size);

#endif
