# SPDX-License-Identifier: Apache-2.0
"""The search for a plan that fits its devices (cgpipe/planner.h)."""

import ctypes
from typing import Any, Dict, Optional

from cgpipe import _c
from cgpipe.errors import LimitError


def create(out: Any, model: Any, options: Any, given: Optional[Dict[str, bool]]) -> Optional[str]:
    """Create a plan. If it exceeds its memory limit, find the fastest plan that fits, copy its
    choices to ``options``, and create that plan. ``given`` says which of "schedule",
    "virtual_stages", "recompute" and "balance" the caller has set. The search keeps these. If
    ``given`` is None, do not search. Return the recomputation mode that the search chose, or None
    if there was no search."""
    try:
        _make(out, model, options)
        return None
    except LimitError:
        if given is None:
            raise
    mode = _fit(model, options, given)
    _make(out, model, options)
    return mode


def _make(out: Any, model: Any, options: Any) -> None:
    """Create a plan with exactly these options."""
    _c.check(_c.lib.cgp_plan_create(ctypes.byref(out), model, ctypes.byref(options)))


def _fit(model: Any, options: Any, given: Dict[str, bool]) -> str:
    """Set ``options`` to the options of the fastest plan that fits. If the caller has set a
    balance, keep the schedule, because a balance fits only one schedule."""
    search = _c.cgp_search_options(ctypes.sizeof(_c.cgp_search_options))
    search.balances, search.recomputes = not given["balance"], not given["recompute"]
    search.schedules = not given["schedule"] and not given["balance"]
    search.virtual_stages = not given["virtual_stages"] and not given["balance"]
    search.most = 1
    found = _c.cgp_search_result()
    try:
        _c.check(_c.lib.cgp_plan_search(model, ctypes.byref(options), ctypes.byref(search),
                                        ctypes.byref(found)))
        choice = found.choices[0]
        layers = (ctypes.c_int * choice.stages)(*choice.balance[:choice.stages])
        _c.lib.cgp_search_choice_apply(ctypes.byref(choice), ctypes.byref(options))
        options.balance = layers
        return _c.text(_c.lib.cgp_recompute_name(choice.recompute))
    finally:
        _c.lib.cgp_search_result_release(ctypes.byref(found))
