/* SPDX-License-Identifier: Apache-2.0 */
/* devices.h -- devices by name.
 *
 *     KIND[:ORDINAL][@LIMIT]      "cpu", "cuda:1", "cuda:0@22GiB", "late@500M"
 *
 * KIND is the name of a backend, ORDINAL the number of its hardware [0], LIMIT the most bytes that a plan may give the device:
 * a whole number, with K, M, G or T, or KiB .. TiB, for powers of 1024. */
#ifndef CGPIPE_DEVICES_H
#define CGPIPE_DEVICES_H

#include <cgpipe/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The devices of a pipeline by name, as in cgp_plan_options. */
typedef struct cgp_device_list {
    const char **names; /**< [count] Owned by the list. */
    int count;
} cgp_device_list;

/** The most devices of a list. */
#define CGP_MAX_DEVICES 65536

/**
 * Parse a list of devices, NAME[*COUNT] with commas between: "cpu*3,late@2GiB" is cpu, cpu, cpu and late@2GiB.
 *
 * Names are checked for their form; a backend is looked for by cgp_plan_create().
 *
 * @param[out] out   Owned by the caller, see cgp_device_list_release(). Unchanged after a failure.
 * @param[in]  text  Borrowed for the call.
 *
 * @retval CGP_EINVAL  The text is another; the message names the place.
 * @retval CGP_ELIMIT  More than CGP_MAX_DEVICES.   @retval CGP_ENOMEM
 *
 * Threads: any.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_device_list_parse(cgp_device_list *out, const char *text);

/** Free what cgp_device_list_parse() made, and empty the list. Accepts NULL. */
CGP_API void cgp_device_list_release(cgp_device_list *list);

#ifdef __cplusplus
}
#endif
#endif
