# SPDX-License-Identifier: Apache-2.0
"""The functions with which torchgpipe tells layers about recomputation."""

__all__ = ["is_checkpointing", "is_recomputing"]


def is_checkpointing() -> bool:
    """Return whether the current forward will be recomputed: always False.

    torchgpipe's layers call this to have side effects only once. Here a layer's Python forward only
    runs while the module is captured, never in a step or a recomputation. Running statistics are
    updated only once anyway."""
    return False


def is_recomputing() -> bool:
    """Return whether the current forward is a recomputation: always False, as
    ``is_checkpointing``."""
    return False
