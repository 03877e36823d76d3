# SPDX-License-Identifier: Apache-2.0
"""Flags of recomputation, as torchgpipe has them."""

__all__ = ["is_checkpointing", "is_recomputing"]


def is_checkpointing() -> bool:
    """Return whether a forward runs that will be recomputed: always False.

    torchgpipe's layers ask, so that side effects happen once. The engine runs no Python code in a
    step: a layer's forward runs when the module is captured, and never in a recomputation. Running
    statistics count once by themselves. """
    return False


def is_recomputing() -> bool:
    """Return whether a forward runs for the second time: always False, as ``is_checkpointing``."""
    return False
