/* SPDX-License-Identifier: Apache-2.0 */
/* balance_search.h -- searches for the balance with which a step has the least simulated makespan,
 * or needs the fewest bytes. */
#ifndef CGP_SRC_PARTITION_BALANCE_SEARCH_H
#define CGP_SRC_PARTITION_BALANCE_SEARCH_H

#include "partition/objective.h"

/* Search for the balance with the least value of an objective, and write it to balance[stages]. The
 * same arguments always give the same balance. The comment at the head of balance_search.c
 * describes the cost. */
cgp_status cgp__search_balance(cgp__objective *objective, int *balance);

/* Set bytes[devices] to the estimated bytes of each device for this balance. */
cgp_status cgp__balance_bytes(cgp__objective *objective, const int *balance, int64_t *bytes);

#endif
