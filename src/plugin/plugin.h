/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.h -- declares the plug-ins that the library opened. cgpipe/ext/plugin.h has the
 * contract. */
#ifndef CGP_SRC_PLUGIN_H
#define CGP_SRC_PLUGIN_H

#include <cgpipe/devices.h>
#include <cgpipe/ext/plugin.h>

#define CGP__PLUGIN_PREFIX "libcgpipe-"
#define CGP__PLUGIN_SUFFIX ".so"

typedef struct cgp__plugin {
    char *path;
    void *object;
    const cgp_plugin *table; /* NULL: the entry function returned no valid table */
    char *reason;            /* the first failure of the plug-in; NULL: none */
    char sha256[65];         /* digest of the file; "": it could not be read */
} cgp__plugin;

/* Call the entry function of an open plug-in, and add the backends and transports in its table. On
 * a failure the error message gives the reason. */
cgp_status cgp__plugin_enter(cgp__plugin *plugin);

/* Call `visit` for each plug-in file, in the order of the directories; the same file may come
 * twice. `places`: [size], initially "", gets the searched directories, separated by ", ". Return
 * false in a set-user-ID program, which searches no directory. */
typedef void cgp__plugin_visit(const char *path);
bool cgp__plugin_search(cgp__plugin_visit *visit, char *places, size_t size);

/* Return plug-in `index`, counting plug-ins that are open and plug-ins that were left out; NULL:
 * there are no more. The call opens all plug-ins first. Threads: any. */
const cgp__plugin *cgp__plugin_at(int index);

/* Open the plug-ins unless they are open; they add their backends and transports. Threads: any. */
void cgp__plugins_open(void);

/* Write the part about plug-ins of the message of an unknown name. A set-user-ID program gets "; a
 * set-user-ID program opens no plug-ins". Otherwise, if there is neither a file for the name nor a
 * `nearest` name: ": no libcgpipe-NAME.so in PLACES (SUGGESTION)". Then, for each plug-in left out:
 * "; plug-in FILE: REASON". Threads: any. */
void cgp__plugins_reasons(const char *name, const char *nearest, char *text, size_t size);

#endif
