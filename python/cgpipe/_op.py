# SPDX-License-Identifier: Apache-2.0
"""Structs of cgpipe/op.h, for ops whose functions are written in Python. python/tests/test_abi.py
compares the structs with the header."""

from __future__ import annotations

import ctypes
from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char_p, c_double, c_float, c_int,
                    c_int64, c_size_t, c_uint32, c_void_p)

from cgpipe._c import cgp_shape

__all__ = ["FLOPS", "INFER", "MAX", "OUTSIDE", "RUN", "STRUCTS", "cgp_op", "cgp_op_run",
           "cgp_op_shapes", "cgp_op_type"]

#: Value of CGP_OP_MAX_INPUTS. The limits on an op's saved values, parameters and states have the
#: same value.
MAX = 4


class cgp_init(Structure):
    _fields_ = [("kind", c_int), ("scale", c_double)]


class cgp_op_type(Structure):
    _fields_ = [("dtype", c_int), ("shape", cgp_shape), ("upper_bound", c_int64), ("whole", c_bool)]


class cgp_op_parameter(Structure):
    _fields_ = [("suffix", c_char_p), ("shape", cgp_shape), ("init", cgp_init), ("decays", c_bool)]


class cgp_op_state(Structure):
    _fields_ = [("suffix", c_char_p), ("dtype", c_int), ("shape", cgp_shape), ("begin", c_float)]


class cgp_op_shapes(Structure):
    _fields_ = [("output", cgp_op_type), ("n_saved", c_int), ("saved", cgp_op_type * MAX),
                ("n_parameters", c_int), ("parameters", cgp_op_parameter * MAX),
                ("n_state", c_int), ("state", cgp_op_state * MAX), ("accumulator_bytes", c_int64)]


class cgp_op_run(Structure):
    _fields_ = [("node", c_void_p), ("n", c_int64), ("x", c_void_p * MAX), ("y", c_void_p),
                ("saved", c_void_p * MAX), ("parameters", c_void_p * MAX), ("dy", c_void_p),
                ("dx", c_void_p * MAX), ("dparameters", c_void_p * MAX), ("state", c_void_p * MAX),
                ("accumulator", c_void_p), ("first", c_bool), ("training", c_bool),
                ("workspace", c_void_p), ("loss", c_void_p), ("loss_scale", c_float),
                ("context", c_void_p)]


INFER = CFUNCTYPE(c_int, c_void_p, POINTER(cgp_op_type), POINTER(cgp_op_shapes))
RUN = CFUNCTYPE(c_int, POINTER(cgp_op_run))
FLOPS = CFUNCTYPE(c_double, c_void_p, c_int)
OUTSIDE = CFUNCTYPE(c_int64, c_void_p, c_int64)


class cgp_op(Structure):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("n_inputs", c_int),
                ("attribute_bytes", c_size_t), ("is_loss", c_bool), ("infer", INFER),
                ("input_needs_x", c_uint32), ("input_needs_saved", c_uint32),
                ("input_needs_y", c_bool), ("weight_needs_x", c_uint32),
                ("weight_needs_saved", c_uint32), ("weight_needs_y", c_bool),
                ("weight_in_input", c_bool), ("cheap", c_bool), ("overwrites", c_uint32),
                ("dx_in_place", c_bool), ("forward", RUN), ("backward_input", RUN),
                ("backward_weight", RUN), ("end_of_step", c_void_p), ("workspace", c_void_p),
                ("flops", FLOPS), ("count", c_void_p), ("upper_bound", c_void_p),
                ("device", c_void_p), ("outside_bytes", OUTSIDE)]

    def __init__(self, name: str, n_inputs: int) -> None:
        super().__init__(struct_size=ctypes.sizeof(cgp_op), name=name.encode(), n_inputs=n_inputs)


STRUCTS = [cgp_init, cgp_op_type, cgp_op_parameter, cgp_op_state, cgp_op_shapes, cgp_op_run, cgp_op]
