/* SPDX-License-Identifier: Apache-2.0 */
/* device_names.h -- names of devices and of instruction sets. */
#ifndef CGP_SRC_BACKEND_DEVICE_NAMES_H
#define CGP_SRC_BACKEND_DEVICE_NAMES_H

#include <cgpipe/ext/backend.h>

/* A device name, KIND[:ORDINAL][@LIMIT], as in cgpipe/devices.h. */
typedef struct cgp__device_name {
    char kind[64];
    /* True if ORDINAL is `local`: the ordinal is then this process's number on its host, so it
     * differs between ranks. */
    bool local;
    int ordinal;
    int64_t limit; /* memory limit in bytes; 0: no limit */
} cgp__device_name;

/* Parse a name. Threads: any. @retval CGP_EINVAL */
cgp_status cgp__device_name_parse(const char *text, cgp__device_name *out);

/* Check that the ordinal exists on this machine; for device.create(). Threads: any. @retval
 * CGP_EINVAL @retval CGP_EDEVICE */
cgp_status cgp__device_check_ordinal(const cgp_backend *backend, const cgp_device_options *options);

/* Return the name of an instruction set, as in CGP_CPU_ISA; NULL for CGP_ISA_NONE. The text is
 * static. */
const char *cgp__isa_name(cgp_isa isa);

#endif
