# SPDX-License-Identifier: Apache-2.0
"""ctypes bindings of libcgpipe: its structs, enums and functions under their C names.

The environment variable CGPIPE_LIBRARY names the library's file. If it is not set, the library is
loaded from the package (in a wheel) or, in a source tree, from the build directory. Functions are
declared by their C prototypes without parameter names. python/tests/test_abi.py compares structs,
enums and prototypes with the headers.

ctypes releases the GIL during every call.
"""

from __future__ import annotations

import ctypes
import operator
import os
import pathlib
import re
import weakref
from ctypes import (POINTER, Structure, c_bool, c_char_p, c_double, c_int, c_int64, c_size_t,
                    c_uint64, c_void_p)
from typing import Any, Dict, List, Tuple

from cgpipe._cublaslt import name_directories
from cgpipe.errors import ArgumentError, by_status

# --- enums, by their values ---

ENUMS: Dict[str, List[str]] = {
    "cgp_status": ["CGP_OK", "CGP_EINVAL", "CGP_ENOMEM", "CGP_ELIMIT", "CGP_EIO", "CGP_EFORMAT",
                   "CGP_ESTATE", "CGP_EDEVICE", "CGP_EPEER", "CGP_EDIFFERS"],
    "cgp_log_level": ["CGP_LOG_ERROR", "CGP_LOG_WARN", "CGP_LOG_INFO", "CGP_LOG_DEBUG"],
    "cgp_dtype": ["CGP_F32", "CGP_I32", "CGP_BF16", "CGP_I64"],
    "cgp_optim_kind": ["CGP_OPTIM_SGD", "CGP_OPTIM_ADAMW", "CGP_OPTIM_ADAM", "CGP_OPTIM_RMSPROP"],
    "cgp_lr_kind": ["CGP_LR_CONSTANT", "CGP_LR_COSINE", "CGP_LR_STEP", "CGP_LR_MILESTONES"],
    "cgp_precision": ["CGP_PRECISION_F32", "CGP_PRECISION_BF16", "CGP_PRECISION_TF32"],
    "cgp_convolution": ["CGP_CONVOLUTION_DIRECT", "CGP_CONVOLUTION_WINOGRAD"],
    "cgp_action_kind": ["CGP_ACTION_F", "CGP_ACTION_B", "CGP_ACTION_I", "CGP_ACTION_W",
                        "CGP_ACTION_R", "CGP_ACTION_SEND_F", "CGP_ACTION_RECV_F",
                        "CGP_ACTION_SEND_B", "CGP_ACTION_RECV_B"],
    "cgp_recompute": ["CGP_RECOMPUTE_NEVER", "CGP_RECOMPUTE_ALWAYS", "CGP_RECOMPUTE_EXCEPT_LAST",
                      "CGP_RECOMPUTE_NEVER_SELECTIVE", "CGP_RECOMPUTE_ALWAYS_SELECTIVE",
                      "CGP_RECOMPUTE_EXCEPT_LAST_SELECTIVE", "CGP_RECOMPUTE_BUDGET"],
    "cgp_placement": ["CGP_PLACEMENT_LOOP", "CGP_PLACEMENT_V"],
    "cgp_balance_goal": ["CGP_BALANCE_MAKESPAN", "CGP_BALANCE_MEMORY"],
    "cgp_csv": ["CGP_CSV_COMPUTE", "CGP_CSV_TRANSFERS"],
    "cgp_tensor_kind": ["CGP_TENSOR_PARAMETER", "CGP_TENSOR_GRADIENT", "CGP_TENSOR_STATE"],
    "cgp_schedule_part": ["CGP_PART_COMPUTE", "CGP_PART_BUBBLE", "CGP_PART_IMBALANCE",
                          "CGP_PART_VARIATION", "CGP_PART_COPY", "CGP_PART_WAKEUP",
                          "CGP_PART_OTHER", "CGP_PARTS"],
}
_VALUES = {name: value for names in ENUMS.values() for value, name in enumerate(names)}


def __getattr__(name: str) -> int:
    """Return the number of an enum constant, given its name."""
    try:
        return _VALUES[name]
    except KeyError:
        raise AttributeError(f"module 'cgpipe._c' has no attribute {name!r}") from None


MAX_RANK = 6
MAX_MILESTONES = 8

# --- checked values: without these checks, ctypes would turn 2**32 + 1 into the int 1 and "no" into
# true, and cut a text at its first zero ---


def integer(value: Any, name: str, c_type: Any = c_int) -> int:
    """Return an integer that fits the C type. ``name`` is the name of the option, for messages."""
    try:
        value = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: an integer is expected, got {value!r}") from None
    if c_type(value).value != value:
        sign = "0 or more" if c_type(-1).value > 0 else f"{8 * ctypes.sizeof(c_type)} bits"
        raise ArgumentError(f"{name}: an integer of {sign} is expected, got {value}")
    return int(value)


def number(value: Any, name: str) -> float:
    """Return a real number."""
    if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
        raise TypeError(f"{name}: a number is expected, got {value!r}")
    return float(value)


def encode(value: Any, name: str) -> bytes:
    """Check a text, and return it as a C string."""
    if not isinstance(value, str):
        raise TypeError(f"{name}: a text is expected, got {value!r}")
    if "\0" in value:
        raise ArgumentError(
            f"{name}: a text without a character of code 0 is expected, got {value!r}")
    return value.encode()


def path(value: Any, name: str = "path") -> bytes:
    """Check a path, and return it as a C string."""
    found = os.fsencode(value)
    if b"\0" in found:
        raise ArgumentError(
            f"{name}: a text without a character of code 0 is expected, got {value!r}")
    return found


def _converted(value: Any, name: str, c_type: Any) -> Any:
    """Check a value for a struct field of type ``c_type``, and return the value."""
    if c_type in _INTEGERS:
        return integer(value, name, c_type)
    if c_type is c_bool and not any(value is known or value == known for known in (True, False)):
        raise TypeError(f"{name}: True or False is expected, got {value!r}")
    return number(value, name) if c_type is c_double else value


_INTEGERS = (c_int, c_int64, c_uint64, c_size_t)


class _Struct(Structure):
    """A struct whose numbers are checked when they are set."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, _converted(value, name, dict(self._fields_).get(name)))


# --- structs ---


class cgp_shape(Structure):
    _fields_ = [("rank", c_int), ("dims", c_int64 * MAX_RANK)]


class cgp_tensor(Structure):
    _fields_ = [("dtype", c_int), ("shape", cgp_shape), ("data", c_void_p)]


class cgp_lr_schedule(_Struct):
    _fields_ = [("kind", c_int), ("warmup", c_int64), ("steps", c_int64), ("min_ratio", c_double),
                ("step_size", c_int64), ("gamma", c_double), ("start", c_double),
                ("warmup_interval", c_int64), ("n_milestones", c_int),
                ("milestones", c_int64 * MAX_MILESTONES)]


class cgp_optim_group(_Struct):
    _fields_ = [("patterns", c_char_p), ("lr", c_double), ("weight_decay", c_double)]


class cgp_optim(_Struct):
    _fields_ = [("kind", c_int), ("lr", c_double), ("weight_decay", c_double),
                ("momentum", c_double), ("nesterov", c_bool), ("beta1", c_double),
                ("beta2", c_double), ("eps", c_double), ("alpha", c_double),
                ("clip_norm", c_double), ("decay_all", c_bool), ("schedule", cgp_lr_schedule),
                ("groups", POINTER(cgp_optim_group)), ("n_groups", c_int)]


class cgp_plan_options(_Struct):
    _fields_ = [("struct_size", c_size_t), ("stages", c_int), ("balance", POINTER(c_int)),
                ("batch", c_int64), ("chunks", c_int), ("schedule", c_char_p),
                ("virtual_stages", c_int), ("group", c_int), ("table", c_void_p),
                ("recompute", c_int), ("optim", cgp_optim), ("inference", c_bool),
                ("devices", POINTER(c_char_p)), ("threads_per_device", c_int),
                ("memory_limit", c_int64), ("external_loss", c_bool), ("precision", c_int),
                ("deferred_batch_norm", c_bool), ("ranks", c_int), ("convolution", c_int),
                ("gradient_groups", c_int), ("in_flight", c_int), ("replicas", c_int),
                ("shard_optimizer", c_bool), ("replay", c_bool), ("replay_on", POINTER(c_int)),
                ("n_replay_on", c_int)]


class cgp_plan_stage(Structure):
    _fields_ = [("first_layer", c_int), ("layers", c_int), ("device", c_int),
                ("forward_flops", c_double), ("backward_flops", c_double),
                ("recompute_flops", c_double), ("weight_flops", c_double), ("input_slots", c_int),
                ("saved_slots", c_int), ("input_slot_bytes", c_int64),
                ("saved_slot_bytes", c_int64), ("recomputed_flops", c_double),
                ("kept_values", c_int), ("recomputed_values", c_int)]


class cgp_plan_device(Structure):
    _fields_ = [("name", c_char_p), ("stage_list", POINTER(c_int)), ("stages", c_int),
                ("parameter_bytes", c_int64), ("gradient_bytes", c_int64),
                ("optimizer_bytes", c_int64), ("state_bytes", c_int64), ("packed_bytes", c_int64),
                ("slot_bytes", c_int64), ("workspace_bytes", c_int64), ("transfer_bytes", c_int64),
                ("activation_bytes", c_int64), ("planned_bytes", c_int64), ("step_bytes", c_int64),
                ("host_bytes", c_int64), ("receive_bytes", c_int64), ("rank", c_int),
                ("variants", c_int), ("ordinal", c_int), ("limit_bytes", c_int64),
                ("outside_bytes", c_int64), ("partial_gradient_bytes", c_int64),
                ("replay_bytes", c_int64)]


class cgp_plan_edge(Structure):
    _fields_ = [("from", c_int), ("to", c_int), ("bytes", c_int64), ("buffers", c_int)]


class cgp_digest_tensor(Structure):
    _fields_ = [("name", c_char_p), ("part", c_char_p), ("bytes", c_int64)]


class cgp_layer_cost(Structure):
    _fields_ = [("forward_seconds", c_double), ("input_seconds", c_double),
                ("weight_seconds", c_double), ("recompute_seconds", c_double),
                ("selective_seconds", c_double), ("flops", c_double * 3),
                ("parameter_bytes", c_int64), ("saved_bytes", c_int64),
                ("update_seconds", c_double)]


class cgp_profile_options(_Struct):
    _fields_ = [("struct_size", c_size_t), ("samples", POINTER(c_int64)), ("sizes", c_int),
                ("devices", POINTER(c_char_p)), ("n_devices", c_int), ("threads", c_int),
                ("steps", c_int), ("precision", c_int), ("convolution", c_int),
                ("optim", cgp_optim)]


class cgp_balance_size_options(_Struct):
    _fields_ = [("struct_size", c_size_t), ("samples", c_int64), ("in_flight", c_int),
                ("parameter_scale", c_double)]


class cgp_search_options(_Struct):
    _fields_ = [("struct_size", c_size_t), ("schedules", c_bool), ("virtual_stages", c_bool),
                ("recomputes", c_bool), ("balances", c_bool), ("chunks", c_bool),
                ("costs", POINTER(cgp_layer_cost)), ("samples", POINTER(c_int64)),
                ("sizes", c_int), ("messages", c_void_p), ("most", c_int), ("precisions", c_bool),
                ("row_of", POINTER(c_int)), ("exchange", c_void_p), ("give_up_far", c_bool)]


class cgp_search_choice(Structure):
    _fields_ = [("schedule", c_char_p), ("virtual_stages", c_int), ("chunks", c_int),
                ("recompute", c_int), ("stages", c_int), ("balance", POINTER(c_int)),
                ("makespan", c_double), ("update", c_double), ("bubble", c_double),
                ("recomputed", c_double), ("bytes", c_int64), ("device", c_int),
                ("precision", c_int), ("in_flight", c_int), ("exchange", c_double)]


class cgp_search_result(Structure):
    _fields_ = [("choices", POINTER(cgp_search_choice)), ("n", c_int), ("plans", c_int64),
                ("tried", POINTER(cgp_search_choice)), ("n_tried", c_int),
                ("least", cgp_search_choice), ("exchanged", c_bool)]


class cgp_pipeline_times(Structure):
    _fields_ = [("seconds", c_double), ("forward_seconds", c_double),
                ("backward_seconds", c_double), ("bubble", c_double), ("gap_seconds", c_double),
                ("wakeup_seconds", c_double)]


class cgp_save_options(_Struct):
    _fields_ = [("struct_size", c_size_t), ("keep", c_int), ("note", c_char_p),
                ("check_finite", c_bool)]


class cgp_action(Structure):
    _fields_ = [("kind", c_int), ("stage", c_int), ("microbatch", c_int), ("edge", c_int),
                ("overlapped", c_bool)]


class cgp_edge(Structure):
    _fields_ = [("from", c_int), ("to", c_int)]


class cgp_schedule_info(Structure):
    _fields_ = [("name", c_char_p), ("when", c_char_p), ("rule", c_char_p),
                ("virtual_stages", c_int), ("any_virtual", c_bool), ("has_backward", c_bool),
                ("splits_backward", c_bool), ("placement", c_int)]


class cgp_schedule_options(_Struct):
    _fields_ = [("struct_size", c_size_t), ("virtual_stages", c_int), ("group", c_int),
                ("placement", c_int), ("forward", POINTER(c_double)),
                ("backward_input", POINTER(c_double)), ("backward_weight", POINTER(c_double)),
                ("latency", c_double), ("in_flight", c_int)]


class cgp_schedule_report(Structure):
    _fields_ = [("devices", c_int), ("stages", c_int), ("edges", c_int),
                ("peak_in_flight", POINTER(c_int)), ("peak_slots", POINTER(c_int)),
                ("min_capacity", POINTER(c_int))]


class cgp_schedule_costs(_Struct):
    _fields_ = [("forward", POINTER(c_double)), ("backward_input", POINTER(c_double)),
                ("backward_weight", POINTER(c_double)), ("recompute", POINTER(c_double)),
                ("latency", POINTER(c_double)), ("transfer", POINTER(c_double)),
                ("transfers_block", c_bool), ("capacity", POINTER(c_int)),
                ("add_input", POINTER(c_double)), ("add_weight", POINTER(c_double)),
                ("gradient_groups", c_int)]


class cgp_schedule_timeline(Structure):
    _fields_ = [("devices", c_int), ("edges", c_int), ("makespan", c_double), ("span", c_double),
                ("bubble_makespan", c_double), ("bubble_span", c_double),
                ("busy", POINTER(c_double)), ("free_capacity", POINTER(c_int)),
                ("start", POINTER(POINTER(c_double))), ("end", POINTER(POINTER(c_double))),
                ("released", POINTER(POINTER(c_double))), ("ready", POINTER(POINTER(c_double))),
                ("critical", POINTER(POINTER(c_bool))), ("critical_path", c_double * 5),
                ("clock_uncertainty", c_double), ("exchanged", POINTER(c_double))]


class cgp_schedule_comparison(Structure):
    _fields_ = [("devices", c_int), ("parts", POINTER(c_double * 7)), ("equal_makespan", c_double),
                ("varied_makespan", c_double), ("planned", cgp_schedule_timeline)]


class cgp_transport_links(Structure):
    _fields_ = [(name, c_void_p) for name in ("open", "close", "acquire", "take", "post", "release",
                                              "waits", "progress", "verify")]


class cgp_transport_agreement(Structure):
    _fields_ = [("barrier", c_void_p), ("gather", c_void_p)]


class cgp_transport_failures(Structure):
    _fields_ = [(name, c_void_p) for name in ("fail", "first", "watch", "report_progress",
                                              "rank_states", "stop", "abort")]


class cgp_transport(Structure):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("copies", c_bool),
                ("communicator_create", c_void_p), ("communicator_destroy", c_void_p),
                ("rank", c_void_p), ("ranks", c_void_p), ("links", cgp_transport_links),
                ("agreement", cgp_transport_agreement), ("failures", cgp_transport_failures)]


STRUCTS = [cgp_shape, cgp_tensor, cgp_lr_schedule, cgp_optim_group, cgp_optim, cgp_plan_options,
           cgp_plan_stage, cgp_plan_device, cgp_plan_edge,
           cgp_digest_tensor, cgp_layer_cost, cgp_profile_options,
           cgp_balance_size_options, cgp_search_options, cgp_search_choice, cgp_search_result,
           cgp_pipeline_times, cgp_save_options, cgp_action, cgp_edge,
           cgp_schedule_info, cgp_schedule_options, cgp_schedule_report, cgp_schedule_costs,
           cgp_schedule_timeline, cgp_schedule_comparison, cgp_transport_links,
           cgp_transport_agreement, cgp_transport_failures, cgp_transport]

# --- functions ---

PROTOTYPES = """
const char *cgp_message(void)
void cgp_log_set_level(cgp_log_level)

cgp_status cgp_model_from_json(cgp_model **, const char *, const char *, size_t, \
const cgp_op *const *, int)
cgp_status cgp_model_read(cgp_model **, const char *, const cgp_op *const *, int)
void cgp_op_random(const cgp_op_run *, int64_t, int64_t, int64_t, float *)
bool cgp_is_recomputing(void)
cgp_status cgp_model_to_json(char **, const cgp_model *)
void cgp_model_destroy(cgp_model *)
const char *cgp_model_name(const cgp_model *)
int cgp_model_layers(const cgp_model *)
const char *cgp_model_layer_name(const cgp_model *, int)
int cgp_model_parameters(const cgp_model *)
const char *cgp_model_parameter_name(const cgp_model *, int)
bool cgp_model_parameter_frozen(const cgp_model *, int)
cgp_status cgp_model_freeze(cgp_model *, const char *)
const cgp_shape *cgp_model_parameter_shape(const cgp_model *, int)
int64_t cgp_model_parameter_count(const cgp_model *)
int cgp_model_states(const cgp_model *)
const char *cgp_model_state_name(const cgp_model *, int)
const cgp_shape *cgp_model_state_shape(const cgp_model *, int)
cgp_dtype cgp_model_state_dtype(const cgp_model *, int)
int cgp_model_inputs(const cgp_model *)
const char *cgp_model_input_name(const cgp_model *, int)
cgp_shape cgp_model_input_shape(const cgp_model *, int)
cgp_dtype cgp_model_input_dtype(const cgp_model *, int)
bool cgp_model_input_has_gradient(const cgp_model *, int)
int cgp_model_outputs(const cgp_model *)
cgp_shape cgp_model_output_shape(const cgp_model *, int)
cgp_dtype cgp_model_output_dtype(const cgp_model *, int)

cgp_status cgp_balance_solve(const double *, int, int, int *)
cgp_status cgp_balance_by_flops(const cgp_model *, int, int *)
cgp_status cgp_balance_by_time(const cgp_model *, const cgp_layer_cost *, bool, int, int *)
cgp_status cgp_balance_by_size(const cgp_model *, const cgp_balance_size_options *, int, int *)
cgp_status cgp_balance_check(const cgp_model *, int, const int *)
cgp_status cgp_balance_for_plan(const cgp_model *, const cgp_plan_options *, cgp_balance_goal, \
const cgp_layer_cost *, int *)
cgp_status cgp_profile_steps(const cgp_model *, const cgp_profile_options *, cgp_layer_cost *, \
bool *)
double cgp_layer_flops(const cgp_model *, int)

double cgp_optim_lr_at(const cgp_optim *, int64_t)
cgp_status cgp_optim_check(const cgp_optim *)
int cgp_optim_states(const cgp_optim *)

cgp_status cgp_convolution_parse(cgp_convolution *, const char *)
cgp_status cgp_precision_parse(cgp_precision *, const char *)
int cgp_plan_options_stages(const cgp_plan_options *)
int cgp_plan_options_gradient_groups(const cgp_plan_options *)
cgp_status cgp_plan_create(cgp_plan **, const cgp_model *, const cgp_plan_options *)
cgp_status cgp_plan_search(const cgp_model *, const cgp_plan_options *, \
const cgp_search_options *, cgp_search_result *)
void cgp_search_choice_apply(const cgp_search_choice *, cgp_plan_options *)
void cgp_search_result_release(cgp_search_result *)
const char *cgp_recompute_name(cgp_recompute)
void cgp_plan_destroy(cgp_plan *)
cgp_status cgp_plan_hash(const cgp_plan *, char *)
int cgp_plan_digest_tensors(const cgp_plan *)
cgp_digest_tensor cgp_plan_digest_tensor_at(const cgp_plan *, int)
size_t cgp_plan_digest_bytes(const cgp_plan *)
int cgp_plan_stages(const cgp_plan *)
int cgp_plan_devices(const cgp_plan *)
int64_t cgp_plan_microbatch(const cgp_plan *)
int cgp_plan_chunks(const cgp_plan *)
const cgp_plan_stage *cgp_plan_stage_at(const cgp_plan *, int)
const cgp_plan_device *cgp_plan_device_at(const cgp_plan *, int)
int cgp_plan_output_stage(const cgp_plan *, int)
int cgp_plan_parameter_group(const cgp_plan *, int)
const int *cgp_plan_balance(const cgp_plan *)
int cgp_plan_edges(const cgp_plan *)
cgp_plan_edge cgp_plan_edge_at(const cgp_plan *, int)
const cgp_schedule *cgp_plan_schedule(const cgp_plan *)
const cgp_schedule_timeline *cgp_plan_timeline(const cgp_plan *)

cgp_status cgp_transport_find(const cgp_transport **, const char *)
cgp_status cgp_pipeline_create(cgp_pipeline **, const cgp_plan *, uint64_t)
cgp_status cgp_pipeline_create_on(cgp_pipeline **, const cgp_plan *, uint64_t, \
const cgp_transport *, cgp_communicator *)
cgp_status cgp_pipeline_check_memory(const cgp_plan *, int64_t *)
void cgp_pipeline_destroy(cgp_pipeline *)
const char *cgp_pipeline_isa(const cgp_pipeline *)
cgp_status cgp_pipeline_create_sharing(cgp_pipeline **, const cgp_plan *, cgp_pipeline *)
cgp_status cgp_pipeline_step(cgp_pipeline *, const cgp_tensor *const *, int, double *)
cgp_status cgp_optim_step(cgp_pipeline *)
cgp_status cgp_pipeline_forward(cgp_pipeline *, const cgp_tensor *const *, int, \
const cgp_tensor *const *, int)
cgp_status cgp_pipeline_backward(cgp_pipeline *, const cgp_tensor *const *, int)
cgp_status cgp_pipeline_predict(cgp_pipeline *, const cgp_tensor *const *, int, \
const cgp_tensor *const *, int)
cgp_status cgp_pipeline_set_input_gradients(cgp_pipeline *, const cgp_tensor *const *, int)
cgp_status cgp_pipeline_skip_backward(cgp_pipeline *)
cgp_status cgp_pipeline_set_accumulation(cgp_pipeline *, bool)
cgp_status cgp_pipeline_set_targets(cgp_pipeline *, const int64_t *, int)
cgp_status cgp_pipeline_zero_grad(cgp_pipeline *)
cgp_status cgp_pipeline_complete_gradients(cgp_pipeline *)
cgp_status cgp_pipeline_set_lr(cgp_pipeline *, double)
cgp_status cgp_pipeline_set_group_lr(cgp_pipeline *, int, double)
cgp_status cgp_pipeline_get_optimizer_state(cgp_pipeline *, int, int, float *)
cgp_status cgp_pipeline_set_optimizer_state(cgp_pipeline *, int, int, const float *)
cgp_status cgp_pipeline_set_updates(cgp_pipeline *, int64_t)
cgp_status cgp_pipeline_clip_grad_norm(cgp_pipeline *, double, double *)
cgp_status cgp_pipeline_set_seed(cgp_pipeline *, uint64_t)
cgp_status cgp_pipeline_evaluate(cgp_pipeline *, const cgp_tensor *const *, int, double *)
double cgp_pipeline_gradient_norm(const cgp_pipeline *)
int64_t cgp_pipeline_updates(const cgp_pipeline *)
cgp_status cgp_pipeline_set_timeout(cgp_pipeline *, double)
const char *cgp_pipeline_report(const cgp_pipeline *)
cgp_status cgp_pipeline_save_with(cgp_pipeline *, const char *, const cgp_save_options *)
cgp_status cgp_pipeline_load(cgp_pipeline *, const char *, char **)
cgp_status cgp_pipeline_get_parameter(cgp_pipeline *, int, float *)
cgp_status cgp_pipeline_set_parameter(cgp_pipeline *, int, const float *)
cgp_status cgp_pipeline_get_state(cgp_pipeline *, int, void *)
cgp_status cgp_pipeline_set_state(cgp_pipeline *, int, const void *)
cgp_status cgp_pipeline_parameter_tensor(cgp_pipeline *, int, cgp_tensor *)
cgp_status cgp_pipeline_gradient_tensor(cgp_pipeline *, int, cgp_tensor *)
cgp_status cgp_pipeline_state_tensor(cgp_pipeline *, int, cgp_tensor *)
cgp_status cgp_pipeline_device_tensor(cgp_pipeline *, cgp_tensor_kind, int, int *, cgp_tensor *)
void *cgp_pipeline_stream(const cgp_pipeline *, int)
cgp_status cgp_pipeline_parameters_changed(cgp_pipeline *)
cgp_status cgp_pipeline_get_gradient(cgp_pipeline *, int, float *)
cgp_status cgp_pipeline_weights_sha256(cgp_pipeline *, char *)
cgp_status cgp_pipeline_digest(cgp_pipeline *, void *)
int64_t cgp_pipeline_allocated_bytes(const cgp_pipeline *, int)
cgp_status cgp_pipeline_measure_layers(cgp_pipeline *, bool)
cgp_status cgp_pipeline_layer_costs(const cgp_pipeline *, cgp_layer_cost *)
cgp_pipeline_times cgp_pipeline_last_times(const cgp_pipeline *, double *)
cgp_status cgp_pipeline_last_timeline(const cgp_pipeline *, cgp_schedule_timeline *)

cgp_status cgp_recompute_parse(cgp_recompute *, const char *)
const cgp_schedule_info *cgp_schedule_info_at(int)
cgp_status cgp_schedule_create(cgp_schedule **, const char *, int, int, \
const cgp_schedule_options *)
void cgp_schedule_destroy(cgp_schedule *)
const char *cgp_schedule_name(const cgp_schedule *)
int cgp_schedule_stages(const cgp_schedule *)
int cgp_schedule_chunks(const cgp_schedule *)
int cgp_schedule_devices(const cgp_schedule *)
int cgp_schedule_device_of(const cgp_schedule *, int)
const cgp_action *cgp_schedule_actions(const cgp_schedule *, int, int *)
cgp_status cgp_schedule_recompute(cgp_schedule *, cgp_recompute)
cgp_status cgp_schedule_lower_chain(cgp_schedule *)
cgp_status cgp_schedule_from_csv(cgp_schedule **, const char *, const char *, size_t)
cgp_status cgp_schedule_to_csv(const cgp_schedule *, cgp_csv, char **)
cgp_status cgp_schedule_check(const cgp_schedule *, cgp_schedule_report *)
void cgp_schedule_report_release(cgp_schedule_report *)
cgp_status cgp_schedule_simulate(const cgp_schedule *, const cgp_schedule_costs *, \
cgp_schedule_timeline *)
void cgp_schedule_timeline_release(cgp_schedule_timeline *)
char *cgp_schedule_draw(const cgp_schedule *)
char *cgp_schedule_draw_diagnostic(const cgp_schedule *)
cgp_status cgp_schedule_draw_timeline(const cgp_schedule *, const cgp_schedule_timeline *, \
double, int, char **)
cgp_status cgp_schedule_svg(const cgp_schedule *, const cgp_schedule_timeline *, char **)
cgp_status cgp_schedule_trace(const cgp_schedule *, const cgp_schedule_timeline *, double, char **)
cgp_status cgp_schedule_compare(const cgp_schedule *, const cgp_schedule_timeline *, \
cgp_schedule_comparison *)
void cgp_schedule_comparison_release(cgp_schedule_comparison *)
char *cgp_action_text(const cgp_action *, char *, size_t)
"""

_BASES: Dict[str, Any] = {"void": None, "int": c_int, "int64_t": c_int64, "uint64_t": c_uint64,
                          "size_t": c_size_t, "double": c_double, "bool": c_bool,
                          "float": ctypes.c_float, **{s.__name__: s for s in STRUCTS},
                          **{name: c_int for name in ENUMS}}
#: Types whose values are passed as addresses: opaque objects and the caller's data.
_ADDRESSES = ("cgp_model", "cgp_plan", "cgp_pipeline", "cgp_schedule", "cgp_op", "cgp_op_run",
              "cgp_communicator", "float", "void")


def _type(text: str) -> Any:
    """Return the ctypes type for a C type."""
    constant = text.strip().startswith("const")
    pointers = text.count("*")
    base = re.sub(r"\bconst\b|\*", "", text).strip()
    if base == "char":  # the caller frees the text unless it is const
        inner: Any = c_char_p if constant or pointers == 1 else c_void_p
        pointers -= 1
    elif base in _ADDRESSES and pointers:
        inner, pointers = c_void_p, pointers - 1
    else:
        inner = _BASES[base]
    for _ in range(pointers):
        inner = POINTER(inner)
    return inner


def _declare(library: Any) -> None:
    for line in filter(None, PROTOTYPES.splitlines()):
        returned, name, arguments = re.fullmatch(  # type: ignore[union-attr]
            r"(.*?)(cgp_\w+)\((.*)\)", line).groups()
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ImportError(f"{library._name}: has no {name}: another version of cgpipe is "
                              "expected") from None
        function.argtypes = ([] if arguments == "void"
                             else [_type(argument) for argument in arguments.split(",")])
        function.restype = c_void_p if returned.strip() == "char *" else _type(returned)


def _find() -> str:
    """Return the path of the library."""
    named = os.environ.get("CGPIPE_LIBRARY")
    if named:
        # The library looks for plug-ins in its own directory. It can find that directory only if
        # the library was loaded by its absolute path.
        return os.path.abspath(named) if "/" in named else named
    package = pathlib.Path(__file__).resolve().parent
    places = [package / "libcgpipe.so", package.parent.parent / "build" / "libcgpipe.so"]
    for place in places:
        if place.exists():
            return str(place)
    raise ImportError(f"libcgpipe.so: it is in none of {', '.join(map(str, places))} (build it, or "
                      "set CGPIPE_LIBRARY to its path)")


def _load() -> Any:
    path = _find()
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"{path}: cannot be loaded: {error}") from None
    _declare(library)
    name_directories()
    return library


#: The library.
lib = _load()

_free = ctypes.CDLL(None).free
_free.argtypes, _free.restype = [c_void_p], None


def check(status: int) -> None:
    """Raise the exception for a status that is not CGP_OK. Call this on the thread that called the
    library, because each thread has its own message."""
    if status:
        raise by_status(status, message())


def parse(what: str, name: Any) -> int:
    """Return the number that cgp_<what>_parse() gives for a name."""
    value = c_int()
    check(getattr(lib, f"cgp_{what}_parse")(ctypes.byref(value), encode(name, what)))
    return value.value


def message() -> str:
    """Return the message of the last failure on this thread."""
    return text(lib.cgp_message())


def text(value: Any) -> str:
    """Return a copy of a text that the library owns."""
    return "" if value is None else value.decode("utf-8", "replace")


def take_text(address: Any) -> str:
    """Return a copy of a text that the library passed to the caller, and free the original."""
    value = address.value if isinstance(address, c_void_p) else address
    if value is None:
        return ""
    try:
        return ctypes.string_at(value).decode("utf-8", "replace")
    finally:
        _free(value)


def shape(value: cgp_shape) -> Tuple[int, ...]:
    """Return the sizes of a shape."""
    return tuple(value.dims[:max(0, value.rank)])


def array(c_type: Any, values: Any, name: str) -> Any:
    """Return a sequence as a C array; None stays None."""
    if values is None:
        return None
    try:
        values = list(values)
    except TypeError:
        raise TypeError(f"{name}: a sequence is expected, got {values!r}") from None
    return (c_type * len(values))(*(_converted(value, name, c_type) for value in values))


class Handle:
    """The owner of a C object. An owner cannot be copied, because the copy would free the object
    too."""

    def __reduce__(self) -> Any:
        raise TypeError(f"{self!r}: cannot be copied or pickled (make another one)")


def when_gone(owner: Any, function: Any, *arguments: Any) -> Any:
    """Call a function when an object is garbage-collected. The function is not called at process
    exit, because pipelines may still be running then."""
    finish = weakref.finalize(owner, function, *arguments)
    finish.atexit = False
    return finish
