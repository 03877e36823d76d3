/* SPDX-License-Identifier: Apache-2.0 */
/* find.h -- finds backends and transports by name, first in the library, then in plug-ins. */
#ifndef CGP_SRC_PLUGIN_FIND_H
#define CGP_SRC_PLUGIN_FIND_H

#include <cgpipe/ext/transport.h>

#include "backend/device_names.h"

/* Find the backend or transport with a name ("cpu", "inproc"). If the name is unknown, open the
 * plug-ins and try again. @retval CGP_EINVAL There is no such name. The message has all names, the
 * nearest name, and the reason for each plug-in that was left out. Threads: any. */
cgp_status cgp__backend_find(const char *name, const cgp_backend **out);
cgp_status cgp__transport_find(const char *name, const cgp_transport **out);

/* Parse a device's name, and find its backend. The ordinal is checked when a device is created. */
cgp_status cgp__device_named(const char *text, const cgp_backend **backend, cgp__device_name *out);

#endif
