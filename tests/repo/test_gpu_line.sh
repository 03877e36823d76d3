#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# README.md says when these kernels last ran on a GPU: the line that tools/gpu_check.sh makes of
# bench/results, or "never".
#
#     bash test_gpu_line.sh SOURCE_DIR BUILD_DIR
set -u
cd "$1" || exit 1
command -v python3 >/dev/null || { echo "skip: needs python3"; exit 77; }
failed=0
example=$(mktemp -d)
trap 'rm -rf "$example"' EXIT

line=$(PYTHON=python3 tools/gpu_check.sh --when) || { echo "not ok: gpu_check.sh --when fails"; exit 1; }
grep -qF -- "$line" README.md || { echo "not ok: README.md lacks: $line"; failed=1; }

# The line of a tree with a report: of these kernels, of others, of digests that differ, of a GPU
# that gave none.
tree=$(PYTHONDONTWRITEBYTECODE=1 python3 -c 'import sys; sys.path.insert(0, "tools/gpu_check"); import machine; print(machine.tree_hash())')
if git diff --quiet HEAD -- src/backend/cuda 2>/dev/null && [ -z "$(git ls-files --others src/backend/cuda)" ]; then
    [ "$tree" = "$(git rev-parse HEAD:src/backend/cuda)" ] || { echo "not ok: tree_hash() gives $tree, git another"; failed=1; }
fi
report() { # TREE DATE DIGESTS...; the report itself is of a later day
    printf '{"backend": "cuda", "device": "GPU X", "kernels_tree": "%s", "date": "2031-01-01", "parts": {"digests": {"date": "%s", %s}}}' "$@"
}
says() { # EXPECTED
    local got
    got=$(PYTHONDONTWRITEBYTECODE=1 python3 -c 'import pathlib, sys; sys.path.insert(0, "tools/gpu_check"); import report
print(report.when(pathlib.Path(sys.argv[1])))' "$example")
    [ "$got" = "$1" ] || { echo "not ok: expected: $1"; echo "        got:      $got"; failed=1; }
}
says "CUDA kernels: never ran on a GPU."
report "$tree" 2030-01-01 '"verdict": "left"' >"$example/gpu_check.x.json"
says "CUDA kernels: never ran on a GPU."
report "$tree" 2030-01-01 '"verdict": "failed"' >"$example/gpu_check.x.json"
says "CUDA kernels: never ran on a GPU."
report "$tree" 2030-01-02 '"verdict": "passed", "equal": true' >"$example/gpu_check.x.json"
says "CUDA kernels: last ran on a GPU on 2030-01-02, GPU X: the digests are cuda-host's."
report other 2030-01-03 '"verdict": "failed", "equal": false' >"$example/gpu_check.y.json"
says "CUDA kernels: last ran on a GPU on 2030-01-03, GPU X, before their last change: the digests are not cuda-host's."
report other 2030-01-04 '"verdict": "failed", "equal": true' >"$example/gpu_check.y.json"
says "CUDA kernels: last ran on a GPU on 2030-01-04, GPU X, before their last change: the digests are cuda-host's."
[ "$failed" = 0 ] && echo "ok: README.md: $line"
exit $failed
