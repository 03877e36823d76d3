# SPDX-License-Identifier: Apache-2.0
"""Functionalization of an exported program.

    y = batch_norm(x, running_mean)     y, mean = batch_norm_functional(x, running_mean)
    y.relu_()                    -->    z = relu(y)
    return y                            return z, and mean for the buffer

PyTorch can functionalize any program, but it needs a second trace. Most programs only write to
whole results that have no views. For these programs, this Python module needs no second trace: it
replaces each in-place op by its out-of-place op, and later ops read the result of this op."""

from __future__ import annotations

import operator
from typing import Any, Dict, List, Optional, Set

import torch
from torch import Tensor
from torch.export.graph_signature import OutputKind, OutputSpec, TensorArgument

from cgpipe.torch.ops import OPS

__all__ = ["functionalize", "rewrite"]

#: Composite ops whose results have their own memory. (For all other ops, the schema says whether
#: results have their own memory.)
_OWN = {"conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
        "linear", "batch_norm", "layer_norm", "group_norm", "rms_norm", "relu6", "max_pool1d",
        "max_pool2d", "max_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d",
        "adaptive_avg_pool3d", "square", "scaled_dot_product_attention", "softmax", "log_softmax",
        "log_sigmoid", "dropout", "cross_entropy_loss", "nll_loss_nd", "matmul", "bilinear",
        "upsample_bilinear2d", "upsample_nearest2d"}
#: Ops that write to their first operand. If the last "_" is removed, the name is that of the op
#: that returns a new tensor.
_WRITES = {"relu_", "leaky_relu_", "silu_", "sigmoid_", "tanh_", "hardtanh_", "relu6_",
           "hardsigmoid_", "hardswish_", "elu_", "mish_", "add_", "sub_", "mul_"}
_COUNTER = "num_batches_tracked"


def functionalize(program: Any) -> Any:
    """Return a functional program. It may be the given program itself, rewritten."""
    if rewrite(program):
        return program
    program.graph_module.recompile()
    return program.run_decompositions({})


def rewrite(program: Any) -> bool:
    """Rewrite a program as a functional program, and return True. This works if the program writes
    only to whole results without views, and to running statistics and counters of batch norms.
    Otherwise do not change the program, and return False."""
    buffers = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs
               if spec.kind.name == "BUFFER"}
    written = _written(program, buffers)
    if written is None:
        return False
    graph = program.graph_module.graph
    current: Dict[Any, Any] = {}  # for each tensor, the node of its value after the writes so far

    def value(node: Any) -> Any:
        return current.get(written.get(node, node), node)
    stale: List[Any] = []
    for node in list(graph.nodes):
        tensors = node.args[3:5] if _name(node) == "batch_norm" else ()
        node.args, node.kwargs = torch.fx.node.map_arg((node.args, node.kwargs), value)
        with graph.inserting_before(node):
            if node in written:
                current[written[node]] = _without_write(graph, node)
                stale.append(node)
            elif tensors and node.args[5]:
                current[node], *statistics = _batch_norm(graph, node)
                current.update(zip(tensors, statistics))
                stale.append(node)
            elif _is_dropout(node):
                current[node] = node.args[0] if _is_identity(node) else _dropout(graph, node)
                stale.append(node)
    for node in reversed(stale):
        graph.erase_node(node)
    _add_outputs(program, {n: now for n, now in current.items() if n.name in buffers}, buffers)
    graph.eliminate_dead_code()
    return True


def _name(node: Any) -> str:
    """Return the name of an op that PyTorch defines; "" for other nodes."""
    target = node.target
    return (str(target._schema.name.split("::")[-1])
            if isinstance(target, torch._ops.OpOverload) and target.namespace == "aten" else "")


def _written(program: Any, buffers: Dict[str, str]) -> Optional[Dict[Any, Any]]:
    """For each node that writes to a tensor and returns this tensor, find the node that made the
    tensor. Return these pairs as a dictionary. Return None if the program has a node that rewrite()
    does not cover."""
    if any(spec.kind.name != "USER_OUTPUT" for spec in program.graph_signature.output_specs):
        return None
    written: Dict[Any, Any] = {}
    writable: Set[Any] = set()  # tensors that have their own memory and no views
    for node in program.graph_module.graph.nodes:
        first = written.get(node.args[0], node.args[0]) if _name(node) in _WRITES else None
        if node.op == "placeholder":
            if buffers.get(node.name, "").endswith("." + _COUNTER):
                writable.add(node)
        elif node.op == "output" or _is_number(node):
            continue
        elif first in writable and _keeps_type(node):
            written[node] = first
        elif not _is_kept(node, buffers):
            return None
        elif _has_own_memory(node):
            writable.add(node)
        else:
            writable.difference_update(written.get(x, x) for x in node.all_input_nodes)
    return written


def _is_number(node: Any) -> bool:
    """Return whether a node computes a number from sizes."""
    return node.op == "call_function" and isinstance(
        node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool))


def _is_kept(node: Any, buffers: Dict[str, str]) -> bool:
    """Return whether a functional program may contain the node, either as it is or after the change
    that rewrite() makes."""
    if node.target is operator.getitem or _is_region(node) or _is_identity(node):
        return True
    name = _name(node)
    if not name or node.target._schema.is_mutable:
        return False
    if name == "batch_norm":
        return _is_of_module(node, buffers)
    if _is_composite(node) and name not in OPS and (_aliases(node) or "dropout" in name):
        return False  # PyTorch replaces this op by the ops that it consists of
    # The schemas of norms do not say that they write to running statistics.
    return all(a.name != "running_mean" for a in node.target._schema.arguments)


def _is_composite(node: Any) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(
        node.target.name(), "CompositeImplicitAutograd"))


def _aliases(node: Any) -> bool:
    """Return whether the schema of an op says that its results may view its operands."""
    return any(result.alias_info for result in node.target._schema.returns)


def _has_own_memory(node: Any) -> bool:
    """Return whether the result of a node has its own memory, which no other tensor shares."""
    if _is_region(node):
        return True
    if not _name(node) or _is_identity(node):
        return False
    return not _aliases(node) and (not _is_composite(node) or _name(node) in _OWN)


def _is_region(node: Any) -> bool:
    """Return whether a node is a module that PyTorch runs (opaque.py). The writes of such a module
    to its arguments are separate nodes."""
    return bool(node.target == torch.ops.cgpipe.region.default)


def _is_dropout(node: Any) -> bool:
    return _name(node) in ("dropout", "dropout_")


def _is_identity(node: Any) -> bool:
    """Return whether a dropout returns its operand unchanged."""
    return _is_dropout(node) and (node.args[1] == 0 or not node.args[2])


def _is_of_module(node: Any, buffers: Dict[str, str]) -> bool:
    """Return whether a batch norm writes to no running statistics, or only to buffers."""
    return not node.args[5] or all(isinstance(x, torch.fx.Node) and x.name in buffers
                                   for x in node.args[3:5])


def _keeps_type(node: Any) -> bool:
    """Return whether the out-of-place form of an op has a result of the same type."""
    x = node.args[0].meta["val"]
    return all(n.meta["val"].dtype == x.dtype for n in node.all_input_nodes
               if isinstance(n.meta.get("val"), Tensor))


def _without_write(graph: Any, node: Any) -> Any:
    packet = getattr(torch.ops.aten, _name(node)[:-1])
    op = getattr(packet, node.target._overloadname)
    return _with_meta(graph.call_function(op, node.args, node.kwargs), node, node.meta["val"])


def _with_meta(new: Any, node: Any, value: Any) -> Any:
    new.meta = {**node.meta, "val": value}
    new.meta.pop("tensor_meta", None)
    return new


def _batch_norm(graph: Any, node: Any) -> List[Any]:
    """Add a batch norm that returns new statistics; return the nodes of its result, of the mean
    and of the variance."""
    mean, var = (x.meta["val"] for x in node.args[3:5])
    values = (node.meta["val"], mean, mean, mean, var)
    norm = _with_meta(graph.call_function(
        torch.ops.aten._native_batch_norm_legit_functional.default, node.args[:8]), node, values)
    return [_with_meta(graph.call_function(operator.getitem, (norm, i)), node, values[i])
            for i in (0, 3, 4)]


def _dropout(graph: Any, node: Any) -> Any:
    """Add a dropout that also returns its mask; return the node of the result."""
    value = node.meta["val"]
    both = _with_meta(graph.call_function(torch.ops.aten.native_dropout.default, node.args), node,
                      (value, value.new_empty(value.shape, dtype=torch.bool)))
    return _with_meta(graph.call_function(operator.getitem, (both, 0)), node, value)


def _add_outputs(program: Any, written: Dict[Any, Any], buffers: Dict[str, str]) -> None:
    """Add the new values of buffers to the outputs of the program, in front of the other
    outputs."""
    output = next(iter(reversed(program.graph_module.graph.nodes)))
    output.args = ((*written.values(), *output.args[0]),)
    program.graph_signature.output_specs[:0] = [
        OutputSpec(OutputKind.BUFFER_MUTATION, TensorArgument(name=now.name), buffers[node.name])
        for node, now in written.items()]
