/* SPDX-License-Identifier: Apache-2.0 */
/* generators.h -- they append compute actions to an empty schedule; registry.c checks the options before. */
#ifndef CGP_SRC_SCHEDULE_GENERATORS_GENERATORS_H
#define CGP_SRC_SCHEDULE_GENERATORS_GENERATORS_H

#include "schedule/table.h"

typedef cgp_status cgp__generator(cgp_schedule *schedule, const cgp_schedule_options *options);

cgp__generator cgp__generate_gpipe, cgp__generate_forward_only;         /* gpipe.c */
cgp__generator cgp__generate_1f1b, cgp__generate_eager_1f1b;            /* one_f_one_b.c */
cgp__generator cgp__generate_interleaved, cgp__generate_interleaved_zb; /* interleaved.c */
cgp__generator cgp__generate_looped_bfs;                                /* looped_bfs.c */
cgp__generator cgp__generate_zb_h1, cgp__generate_zb_h2;                /* zero_bubble.c */
cgp__generator cgp__generate_zb_1p, cgp__generate_zb_2p;                /* heuristic.c */
cgp__generator cgp__generate_zb_v;                                      /* zb_v.c */
cgp__generator cgp__generate_v_half, cgp__generate_v_min;               /* v_block.c */
cgp__generator cgp__generate_dualpipe_v;                                /* dualpipe_v.c */

/* --- v_builder.c --- */

/* Builds the list of a device with two stages in a V, one of the way down (chunk 0) and one of the way back (1). */
typedef struct cgp__v_builder {
    cgp_schedule *schedule;
    int stage[2];                           /* of chunk 0 and 1 */
    int forward[2], backward[2], weight[2]; /* next micro-batch of F; of B or I; of W */
} cgp__v_builder;

cgp__v_builder cgp__v_builder_of(cgp_schedule *schedule, int device);

/* Append actions `times` times: "F1 I1 W1" is the next F, I and W of chunk 1, "F0&B1" an overlapped pair. */
void cgp__v_append(cgp__v_builder *builder, int times, const char *actions);

#endif
