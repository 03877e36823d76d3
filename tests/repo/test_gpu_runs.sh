#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_gpu_runs.sh SOURCE_DIR BUILD_DIR -- if the CUDA kernels have changed since the newest report
# in bench/results, KNOWN_ISSUES.md must say so.
set -u
cd "$1" || exit 1
command -v python3 >/dev/null || { echo "skip: needs python3"; exit 77; }
failed=0
export PYTHONDONTWRITEBYTECODE=1
tree=$(python3 -c 'import sys; sys.path.insert(0, "tools/gpu_check"); import machine; print(machine.tree_hash())')
if git diff --quiet HEAD -- src/backend/cuda 2>/dev/null && [ -z "$(git ls-files --others src/backend/cuda)" ]; then
    [ "$tree" = "$(git rev-parse HEAD:src/backend/cuda)" ] || { echo "not ok: tree_hash() gives $tree, git another"; failed=1; }
fi
newest=$(jq -rs 'map(select(.backend == "cuda")) | max_by(.date) | .kernels_tree' bench/results/gpu_check.*.json)
said=$(tr '\n' ' ' <KNOWN_ISSUES.md | grep -cE 'CUDA kernels [^.]*have changed since +the +last run on a GPU')
case $said-$tree in
0-"$newest" | 1-*) echo "ok: the newest report is of the tree $newest, these kernels are $tree" ;;
*) echo "not ok: KNOWN_ISSUES.md does not say that the kernels have changed since the last run on a GPU"; failed=1 ;;
esac
exit $failed
