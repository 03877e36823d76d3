# SPDX-License-Identifier: Apache-2.0
"""Capture PyTorch modules as models, and run them under autograd."""

from __future__ import annotations

from cgpipe.torch.capture import Captured, CaptureError, Named, capture
from cgpipe.torch.explain import Entry, Explanation, explain
from cgpipe.torch.model import from_torch

__all__ = ["CaptureError", "Captured", "Entry", "Explanation", "Named", "capture", "explain",
           "from_torch"]
