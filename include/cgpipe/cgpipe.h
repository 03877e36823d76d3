/* SPDX-License-Identifier: Apache-2.0 */
/* cgpipe.h -- the core headers, in learning order. Data sets, images and the tokenizer are in a
 * separate library, libcgpipe_data: <cgpipe/data.h>, <cgpipe/images.h>, <cgpipe/tokenizer.h>. */
#ifndef CGPIPE_CGPIPE_H
#define CGPIPE_CGPIPE_H

#include <cgpipe/base.h>
#include <cgpipe/tensor.h>
#include <cgpipe/op.h>
#include <cgpipe/model.h>
#include <cgpipe/graph.h>
#include <cgpipe/partition.h>
#include <cgpipe/schedule.h>
#include <cgpipe/compare.h>
#include <cgpipe/optim.h>
#include <cgpipe/devices.h>
#include <cgpipe/plan.h>
#include <cgpipe/planner.h>
#include <cgpipe/pipeline.h>
#include <cgpipe/parameters.h>
#include <cgpipe/digest.h>
#include <cgpipe/replay.h>
#include <cgpipe/save.h>
#include <cgpipe/profile.h>
#include <cgpipe/checkpoint.h>
#include <cgpipe/ext/op.h>
#include <cgpipe/ext/transport.h>

#endif
