/* optim.h -- what the pipeline needs of an optimizer. */
#ifndef CGP_SRC_OPTIM_H
#define CGP_SRC_OPTIM_H

#include <cgpipe/optim.h>

#include "backend/backend.h"

/* Fill the constants of update number `step` (from 1): rule, rate, decay, corrections. Pointers
 * and n stay as they are. */
void cgp__optim_constants(const cgp_optim *optim, int64_t step, cgp__update *update);

#endif
