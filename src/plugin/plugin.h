/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.h -- the list of plug-ins that the library has opened. cgpipe/ext/plugin.h has the
 * contract for plug-ins. */
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
    char *reason;            /* the first failure of the plug-in; NULL: there was none */
    char sha256[65];         /* digest of the file; "": it could not be read */
} cgp__plugin;

/* Call the entry function of an open plug-in, and add the backends and transports in its table. On
 * failure, the error message gives the reason. */
cgp_status cgp__plugin_enter(cgp__plugin *plugin);

/* Call `visit` for each plug-in file, in the order of the directories. `visit` may get the same
 * file twice. `places` [size] must be "" and receives the searched directories, separated by ", ".
 * In a set-user-ID program, search no directory and return false. */
typedef void cgp__plugin_visit(const char *path);
bool cgp__plugin_search(cgp__plugin_visit *visit, char *places, size_t size);

/* Open all plug-ins, then return plug-in number `index`; NULL: there are no more. The numbers
 * include plug-ins that were left out. Threads: any. */
const cgp__plugin *cgp__plugin_at(int index);

/* Open all plug-ins and add their backends and transports, unless this has been done before.
 * Threads: any. */
void cgp__plugins_open(void);

/* Write the plug-in part of the error message for an unknown name. In a set-user-ID program, the
 * part begins with "; a set-user-ID program opens no plug-ins". In any other program, if there is
 * neither a plug-in file for the name nor a `nearest` name, it begins with ": no libcgpipe-NAME.so
 * in PLACES (SUGGESTION)". For each plug-in that was left out, "; plug-in FILE: REASON" follows.
 * Threads: any. */
void cgp__plugins_reasons(const char *name, const char *nearest, char *text, size_t size);

#endif
