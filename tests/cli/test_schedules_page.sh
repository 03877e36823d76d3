#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# docs/reference/schedules.md and its drawings equal the output of `make schedules`.
#
#     bash test_schedules_page.sh SOURCE_DIR BUILD_DIR
set -u
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
if ! bash "$1/tools/schedules.sh" "$2" "$temp"; then
    echo "not ok: tools/schedules.sh failed"
    exit 1
fi
drawings=$(find "$temp/schedules" -name '*.svg' | wc -l)
if [ "$drawings" -lt 15 ]; then
    echo "not ok: $drawings drawings, expected one for each schedule"
    exit 1
fi
if ! diff -r "$temp/schedules" "$1/docs/reference/schedules" >"$temp/difference" || ! diff "$temp/schedules.md" "$1/docs/reference/schedules.md" >>"$temp/difference"; then
    head -c 2000 "$temp/difference"
    echo "not ok: docs/reference/schedules.md or docs/reference/schedules/ is stale (make schedules)"
    exit 1
fi
echo "ok: the page and its $drawings drawings are up to date"
