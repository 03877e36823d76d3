# SPDX-License-Identifier: Apache-2.0
"""The functions with which torchgpipe tells layers about recomputation."""

__all__ = ["is_checkpointing", "is_recomputing"]


def is_checkpointing() -> bool:
    """Return whether the current forward will be recomputed: always False.

    Layers written for torchgpipe call this so that their side effects happen only once. In cgpipe,
    the Python forward of a layer runs only while the module is captured, never in a step or a
    recomputation. A recomputation does not update running statistics again in any case."""
    return False


def is_recomputing() -> bool:
    """Return whether the current forward is a recomputation: always False, like
    ``is_checkpointing``."""
    return False
