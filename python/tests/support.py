# SPDX-License-Identifier: Apache-2.0
"""Helpers for the tests: import NumPy (tests are skipped without NumPy), and make small models."""

import copy
import pathlib
import sys

try:
    import numpy
except ImportError:
    print("skipped: there is no numpy", file=sys.stderr)
    sys.exit(77)

import cgpipe

ROOT = pathlib.Path(__file__).resolve().parents[2]


def graph(width=16, layers=4, classes=3, loss=True, dropout=0.0):
    """Return the graph of a multilayer perceptron, as a dictionary. Each layer is a linear op,
    followed by gelu."""
    values = [{"dtype": "f32", "shape": [width]}]
    inputs = [{"name": "x", "value": 0}]
    nodes, parameters = [], []
    if loss:
        values.append({"dtype": "i32", "shape": [1]})
        inputs.append({"name": "labels", "value": 1})
    last = 0

    def node(op, layer, shape, parameter_numbers=(), **attributes):
        nonlocal last
        values.append({"dtype": "f32", "shape": [shape]})
        entry = {"op": op, "layer": layer, "inputs": [last], "output": len(values) - 1}
        if parameter_numbers:
            entry["parameters"] = list(parameter_numbers)
        if attributes:
            entry["attributes"] = attributes
        nodes.append(entry)
        last = len(values) - 1

    for layer in range(layers):
        out = classes if layer == layers - 1 else width
        for name, shape in (("weight", [out, width]), ("bias", [out])):
            parameters.append({"name": f"{layer}.{name}", "shape": shape, "init": "normal",
                               "scale": 0.3, "decays": name == "weight"})
        node("linear", layer, out, (2 * layer, 2 * layer + 1), size=out, bias=True,
             transposed=False)
        if layer < layers - 1:
            node("gelu", layer, out)
            if dropout:
                node("dropout", layer, out, p=dropout)
    losses = [{"op": "cross_entropy", "inputs": [last, 1], "weight": 1,
               "attributes": {"ignore": -100}}] if loss else []
    return {"format": "cgpipe-graph", "version": 2, "name": "mlp", "values": values,
            "inputs": inputs, "layers": [f"layer{i}" for i in range(layers)],
            "parameters": parameters, "nodes": nodes, "losses": losses, "outputs": [last]}


def model(**options):
    """Return the model of graph(**options)."""
    return cgpipe.Model.from_json(graph(**options), "mlp.json")


def batch(samples, width=16, classes=3, seed=0):
    """Return a random mini-batch: x [N, width] f32 and labels [N] i32."""
    rng = numpy.random.default_rng(seed)
    return (rng.standard_normal((samples, width), dtype=numpy.float32),
            rng.integers(0, classes, samples, dtype=numpy.int32))


def without(value, *path):
    """Return a copy of nested containers without the entry at this path."""
    value = copy.deepcopy(value)
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return value
