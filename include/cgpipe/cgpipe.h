/* SPDX-License-Identifier: Apache-2.0 */
/* cgpipe.h -- everything, in learning order. */
#ifndef CGPIPE_CGPIPE_H
#define CGPIPE_CGPIPE_H

#include <cgpipe/base.h>
#include <cgpipe/tensor.h>
#include <cgpipe/model.h>
#include <cgpipe/partition.h>
#include <cgpipe/schedule.h>
#include <cgpipe/optim.h>
#include <cgpipe/plan.h>
#include <cgpipe/pipeline.h>
#include <cgpipe/data.h>
#include <cgpipe/images.h>
#include <cgpipe/tokenizer.h>
#include <cgpipe/checkpoint.h>
#include <cgpipe/ext/op.h>

#endif
