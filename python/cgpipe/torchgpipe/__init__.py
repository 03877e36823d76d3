# SPDX-License-Identifier: Apache-2.0
"""torchgpipe's interface on cgpipe's engine: hand it an ``nn.Sequential``.

    from cgpipe.torchgpipe import GPipe          # was: from torchgpipe import GPipe

    model = nn.Sequential(a, b, c, d)
    model = GPipe(model, balance=[1, 1, 1, 1], chunks=8)
    for input in loader:
        output = model(input)

``skip`` and ``balance`` are there too. docs/how-to/from-torchgpipe.md lists what differs.
"""

from cgpipe.torchgpipe.checkpoint import is_checkpointing, is_recomputing
from cgpipe.torchgpipe.gpipe import GPipe

__all__ = ["GPipe", "is_checkpointing", "is_recomputing"]
