/* SPDX-License-Identifier: Apache-2.0 */
/* compare.h -- compares a measured step with its schedule, and splits the time into parts such as
 * computation, bubble, imbalance and copies.
 *
 * Threads: as in cgpipe/schedule.h. */
#ifndef CGPIPE_COMPARE_H
#define CGPIPE_COMPARE_H

#include <cgpipe/schedule.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Parts of a device's time, from 0 to the measured makespan. Each instant belongs to one part. */
typedef enum cgp_schedule_part {
    CGP_PART_COMPUTE, /**< Time in which F, B, I, W or R runs. */
    /** Idle time in a simulation in which all stages are equal, that is, each action takes the mean
     *  time of its kind. */
    CGP_PART_BUBBLE,
    /** Additional idle time in a simulation of unequal stages, in which each action takes the
     *  median time of its kind on its stage. */
    CGP_PART_IMBALANCE,
    /** Additional idle time in a simulation in which each action takes its measured time. */
    CGP_PART_VARIATION,
    /** Time in which a transfer copies. The copy begins when a SEND has a free buffer, or a RECV
     *  has its message. It lasts until the transfer ends. */
    CGP_PART_COPY,
    /** Wake-up latency: the time between the release of a buffer or message on the other side and
     *  its receipt on this side. */
    CGP_PART_WAKEUP,
    /** All other time: waits for a free buffer, waits caused by copies and wake-ups on other
     *  devices, time between actions, and time before a worker starts or after it ends. */
    CGP_PART_OTHER,
    CGP_PARTS
} cgp_schedule_part;

/** Return the name of a part as one word, such as "wake-up". The string is static. Threads: any. */
CGP_API const char *cgp_schedule_part_name(cgp_schedule_part part);

/** A measured step compared with its plan. Arrays are owned; free them with
 *  cgp_schedule_comparison_release(). */
typedef struct cgp_schedule_comparison {
    int devices;
    /** [devices] Seconds, >= 0. The parts of a device add up to the measured makespan, up to
     *  rounding. Simulated idle time counts only while the device was idle in the measured step, so
     *  a copy within a bubble counts as a copy. */
    double (*parts)[CGP_PARTS];
    double equal_makespan;  /**< Makespan of a simulation in which all stages are equal. */
    double varied_makespan; /**< Makespan of a simulation with the measured time of each action. */
    /** Timeline of a simulation in which each action takes the median time of its kind on its
     *  stage. In all three simulations, messages take no time. */
    cgp_schedule_timeline planned;
} cgp_schedule_comparison;

/**
 * Simulate a measured step, and split its time into parts.
 *
 * @param[in]  schedule  A lowered schedule.
 * @param[in]  measured  Timeline of this schedule, from cgp_pipeline_last_timeline() or
 *                       cgp_schedule_from_trace().
 * @param[out] out       Filled on success only.
 *
 * @retval CGP_EINVAL  The timeline is simulated, a rule of cgp_schedule_check() is broken, or the
 *                     schedule deadlocks.
 * @retval CGP_ESTATE  The schedule is not lowered.
 * @retval CGP_ENOMEM
 *
 * Cost: O(actions log actions).
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_compare(const cgp_schedule *schedule,
                                                       const cgp_schedule_timeline *measured,
                                                       cgp_schedule_comparison *out);
/** Free the arrays of a comparison. A comparison that is all zero is accepted. */
CGP_API void cgp_schedule_comparison_release(cgp_schedule_comparison *comparison);

/** Draw two steps of a schedule as cgp_schedule_svg() does, the planned step above the measured
 *  step, to the same scale. Parameters and errors are as for cgp_schedule_svg(). */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_compare_svg(const cgp_schedule *schedule,
                                                           const cgp_schedule_timeline *planned,
                                                           const cgp_schedule_timeline *measured,
                                                           char **out);

#ifdef __cplusplus
}
#endif
#endif
