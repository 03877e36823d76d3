/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.h -- plug-ins as the library opened them. The contract: cgpipe/ext/plugin.h. */
#ifndef CGP_SRC_PLUGIN_H
#define CGP_SRC_PLUGIN_H

#include <cgpipe/devices.h>
#include <cgpipe/ext/plugin.h>

#define CGP__PLUGIN_PREFIX "libcgpipe-"
#define CGP__PLUGIN_SUFFIX ".so"

typedef struct cgp__plugin {
    char *path;
    void *object;
    const cgp_plugin *table; /* NULL: the entry gave none that can be read */
    char *reason;            /* the first fault; NULL: none */
    char sha256[65];         /* of the file; "": it could not be read */
} cgp__plugin;

/* Call the entry of an open object and add what its table has. On a failure the message is the
 * reason. */
cgp_status cgp__plugin_enter(cgp__plugin *plugin);

/* Call `visit` for each plug-in file in the directories, in their order; the same file may come
 * twice. `places`: [size], "", gets the directories that were looked in, with ", " between. Return
 * false in a set-user-ID program, which looks nowhere. */
typedef void cgp__plugin_visit(const char *path);
bool cgp__plugin_search(cgp__plugin_visit *visit, char *places, size_t size);

/* Plug-in `index` of those that are open or were left out, NULL: there are no more. Opens them all
 * first. Threads: any. */
const cgp__plugin *cgp__plugin_at(int index);

/* Open the plug-ins, unless it is done: they add their backends and transports. Threads: any. */
void cgp__plugins_open(void);

/* Write what the message of an unknown name says of plug-ins: ": no libcgpipe-NAME.so in PLACES
 * (WAY OUT)" if there is no such file and no `nearest` name, then "; plug-in FILE: REASON" for each
 * that was left out. Threads: any. */
void cgp__plugins_reasons(const char *name, const char *nearest, char *text, size_t size);

#endif
