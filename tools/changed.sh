#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Print new files, and tracked files that differ from main. On main itself, print files that differ
# from the last commit. With an argument, print all tracked files.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# -gt 0 ]; then
    git ls-files
    exit
fi
base=HEAD~1
for branch in origin/main main; do
    merge=$(git merge-base HEAD "$branch" 2>/dev/null) || continue
    [ "$merge" = "$(git rev-parse HEAD)" ] || base=$merge
    break
done
git rev-parse -q --verify "$base" >/dev/null || base=HEAD
{ git diff --name-only --diff-filter=d "$base" && git ls-files --others --exclude-standard; } | sort -u
