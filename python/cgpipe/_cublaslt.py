# SPDX-License-Identifier: Apache-2.0
"""Directories in which NVIDIA's Python packages keep cuBLASLt.

If the loader finds no cuBLASLt, the GPU plug-in searches the directories in the environment
variable CGP_CUBLASLT_DIRS."""

from __future__ import annotations

import importlib.util
import os
import pathlib
from typing import Iterator, List


def _roots(name: str) -> List[pathlib.Path]:
    """Return the directories of an importable package without importing it."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return []
    places = spec.submodule_search_locations if spec else None
    return [pathlib.Path(place).resolve() for place in places or []]


def _candidates() -> Iterator[pathlib.Path]:
    for root in _roots("torch"):
        yield root / "lib"
    for root in _roots("nvidia"):
        yield from sorted(root.glob("*/lib"))  # nvidia/cublas/lib or, with CUDA 13, nvidia/cu13/lib


def directories() -> List[str]:
    """Return the directories that contain a cuBLASLt of any version."""
    return [str(place) for place in _candidates()
            if ":" not in str(place) and any(place.glob("libcublasLt.so.*"))]


def name_directories() -> None:
    """Set CGP_CUBLASLT_DIRS, unless an environment variable of the user already names the library
    or its directories."""
    if "CGP_CUBLASLT" in os.environ or "CGP_CUBLASLT_DIRS" in os.environ:
        return
    found = directories()
    if found:
        os.environ["CGP_CUBLASLT_DIRS"] = ":".join(found)
