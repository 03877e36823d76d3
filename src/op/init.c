/* SPDX-License-Identifier: Apache-2.0 */
/* init.c -- replaces an initialization that depends on fans (Xavier, Kaiming) with NORMAL or
 * UNIFORM and the scale that the fans give. The model cannot do this, because only the op knows the
 * fans of its weight. Source: Glorot and Bengio 2010; He et al. 2015, arXiv:1502.01852. */
#include <math.h>

#include "op/op.h"

cgp_init cgp_init_by_fan(cgp_init init, int64_t fan_in, int64_t fan_out) {
    const double in = (double)fan_in, out = (double)fan_out;
    switch (init.kind) {
    case CGP_INIT_XAVIER_UNIFORM:
        return (cgp_init){CGP_INIT_UNIFORM, init.scale * sqrt(6 / (in + out))};
    case CGP_INIT_XAVIER_NORMAL:
        return (cgp_init){CGP_INIT_NORMAL, init.scale * sqrt(2 / (in + out))};
    case CGP_INIT_KAIMING_UNIFORM:
        return (cgp_init){CGP_INIT_UNIFORM, init.scale * sqrt(3 / in)};
    case CGP_INIT_KAIMING_NORMAL:
        return (cgp_init){CGP_INIT_NORMAL, init.scale / sqrt(in)};
    default:
        return init;
    }
}
