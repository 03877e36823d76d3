#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_commit_subjects.sh SOURCE_DIR BUILD_DIR -- the git hook accepts commit subjects of the form
# `module: imperative summary`. It refuses other subjects, and gives the reason.
set -u
hook=$1/tools/commit_msg.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

try() { # SUBJECT : keep the hook's exit code and output
    printf '%s\n\nThe body says why; it is not read.\n# a comment of git\n' "$1" >"$work/message"
    bash "$hook" "$work/message" >"$work/said" 2>&1
}
takes() { try "$1" || { echo "not ok: refused: $1: $(cat "$work/said")"; failed=1; }; }
refuses() { # SUBJECT REASON
    if try "$1"; then echo "not ok: taken: $1"; failed=1; fi
    grep -qF -- "$2" "$work/said" || { echo "not ok: $1: expected \"$2\" in: $(cat "$work/said")"; failed=1; }
}
takes 'plan: name the layer that does not fit'
takes 'backend/cuda, tests: pass odd rows to the self-test'
takes 'cli: process signals before the first step'
takes 'data: embed tokens'
takes "Merge branch 'main'"
refuses 'name the layer that does not fit' 'module: imperative summary'
refuses 'plan:name the layer' 'module: imperative summary'
refuses 'plan: names the layer' 'an imperative first'
refuses 'plan: named the layer' 'an imperative first'
refuses 'plan: naming the layer' 'an imperative first'
refuses 'plan: name the layer; draw it' 'one subject'
refuses "plan: name the layer that does not fit into the memory of its device at once" 'at most 72 columns'
[ "$failed" = 0 ] && echo "ok: five subjects taken, seven refused"
exit $failed
