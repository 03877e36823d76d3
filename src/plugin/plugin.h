/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.h -- plug-ins as the library opened them. The contract: cgpipe/ext/plugin.h. */
#ifndef CGP_SRC_PLUGIN_H
#define CGP_SRC_PLUGIN_H

#include <cgpipe/devices.h>
#include <cgpipe/ext/plugin.h>

typedef struct cgp__plugin {
    char *path;
    void *object;
    const cgp_plugin *table; /* NULL: the entry gave none that can be read */
    char *reason;            /* the first fault; NULL: none */
} cgp__plugin;

/* Call the entry of an open object and add what its table has. On a failure the message is the reason. */
cgp_status cgp__plugin_enter(cgp__plugin *plugin);

/* Call `visit` for each plug-in file below the directories, in their order; the same file may come twice. */
typedef void cgp__plugin_visit(const char *path);
void cgp__plugin_search(cgp__plugin_visit *visit);

/* Plug-in `index` of those that are open or were left out, NULL: there are no more. Opens them all first. Threads: any. */
const cgp__plugin *cgp__plugin_at(int index);

/* Open the plug-ins, unless it is done: they add their backends and transports. Threads: any. */
void cgp__plugins_open(void);

/* Write "; plug-in FILE: REASON" for each that was left out, for the message of an unknown name. Threads: any. */
void cgp__plugins_reasons(char *text, size_t size);

#endif
