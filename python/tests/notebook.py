#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run a notebook's cells in order in one namespace, and store the value of each cell's last
expression as the cell's output. Jupyter is not needed.

    python3 python/tests/notebook.py python/tutorial.ipynb      writes the outputs into the file

Cells with the tag `torch` are skipped without PyTorch.
"""

import ast
import contextlib
import importlib.util
import io
import json
import os
import sys
import tempfile


def run(notebook):
    """Return a list of (code cell, outputs) for the notebook. The outputs of a skipped cell are
    None."""
    names = {"__name__": "__main__"}
    return [_run_cell(cell, names) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _run_cell(cell, names):
    if "torch" in cell["metadata"].get("tags", []) and not _has_torch():
        return cell, None
    tree = ast.parse("".join(cell["source"]))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    outputs = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream",
                        "text": _lines(printed.getvalue())})
    if value is not None:
        outputs.append({"data": _show(value), "execution_count": None, "metadata": {},
                        "output_type": "execute_result"})
    return cell, outputs


def _has_torch():
    if not all(importlib.util.find_spec(name) for name in ("torch", "cgpipe.torchgpipe")):
        return False
    try:
        import torch_support  # noqa: F401
    except SystemExit:
        return False
    return True


def _show(value):
    data = {"text/plain": _lines(repr(value))}
    for kind, method in (("image/svg+xml", "_repr_svg_"), ("text/html", "_repr_html_")):
        if hasattr(value, method):
            data[kind] = _lines(getattr(value, method)())
    return data


def _lines(text):
    return text.splitlines(keepends=True)


def main():
    path = os.path.abspath(sys.argv[1])
    with open(path) as file:
        notebook = json.load(file)
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        for cell, outputs in run(notebook):
            if outputs is not None:
                cell["outputs"] = outputs
        os.chdir(here)
    with open(path, "w") as file:
        json.dump(notebook, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
