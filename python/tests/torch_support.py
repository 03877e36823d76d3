# SPDX-License-Identifier: Apache-2.0
"""PyTorch for the tests that need it. They skip without PyTorch, or with a version that cannot
capture modules."""

import sys

try:
    import torch
except ImportError:
    print("skipped: there is no torch", file=sys.stderr)
    sys.exit(77)

if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 6):
    print(f"skipped: torch 2.6 or later is needed, this is {torch.__version__}", file=sys.stderr)
    sys.exit(77)
