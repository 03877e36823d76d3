#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_prose.sh SOURCE_DIR BUILD_DIR -- tools/prose_lint.py finds no fault in the tracked files, and
# finds each fault in an example. The test is skipped without python3 or outside a git checkout.
set -u
source_dir=$(cd "$1" && pwd)
command -v python3 >/dev/null || { echo "skip: needs python3"; exit 77; }
git -C "$source_dir" rev-parse >/dev/null 2>&1 || { echo "skip: needs a git checkout"; exit 77; }
export PYTHONDONTWRITEBYTECODE=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

finds() { # FILE RULE <text
    cat >"$work/$1"
    python3 "$source_dir/tools/prose_lint.py" "$work/$1" >"$work/said" 2>/dev/null
    grep -qF -- ": $2: " "$work/said" || { echo "not ok: rule $2 is not found in: $(cat "$work/$1")"; failed=1; }
}
many=$(printf 'word %.0s' {1..31})
finds of.c of <<<'/* Of the bytes, those that are free. */'
finds behind.h behind <<<'int x; /** The one behind it. */'
finds now.py now <<<'"""Return the parameters, as they are now."""'
finds anew.sh anew <<<'# Draw it anew.'
finds turn.cu turn <<<'// Blocks add in turn.'
finds those.md those <<<'The rows are those of the model and that of the plan.'
finds who.c who <<<'/* A thread who waits. */'
finds speak.md speak <<<$'A worker\nhears of the failure.'
finds history.c history <<<'/* It no longer waits. */'
finds long.md long <<<"$many."
finds width.c width <<<"int ${many// /_};"
printf '%s\n' 'Text `of now` and code:' '' '    behind anew' '' '| of now |' '# Of a title' >"$work/clean.md"
python3 "$source_dir/tools/prose_lint.py" "$work/clean.md" >"$work/said" 2>&1 ||
    { echo "not ok: a clean page has findings: $(cat "$work/said")"; failed=1; }

python3 "$source_dir/tools/prose_lint.py" || failed=1
exit $failed
