# SPDX-License-Identifier: Apache-2.0
"""torchgpipe's interface to an ``nn.Sequential``, on cgpipe's engine.

    from cgpipe.torchgpipe import GPipe          # was: from torchgpipe import GPipe

    model = nn.Sequential(a, b, c, d)
    model = GPipe(model, balance=[1, 1, 1, 1], chunks=8)
    for input in loader:
        output = model(input)

The modules ``skip`` and ``balance`` exist too. docs/how-to/from-torchgpipe.md lists the
differences.
"""

from cgpipe.torchgpipe.checkpoint import is_checkpointing, is_recomputing
from cgpipe.torchgpipe.gpipe import GPipe

__all__ = ["GPipe", "is_checkpointing", "is_recomputing"]
