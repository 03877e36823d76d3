#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Check that doxygen finds no fault in the comments of the public headers (see docs/Doxyfile). The
# test is skipped without doxygen.
#
#     bash test_comments.sh SOURCE_DIR BUILD_DIR
set -eu
command -v doxygen >/dev/null || { echo "skip: needs doxygen"; exit 77; }
pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT
"$1/tools/docs.sh" "$pages" || { echo "not ok: doxygen warns"; exit 1; }
for page in pipeline_8h schedule_8h plan_8h; do
    [ -s "$pages/html/$page.html" ] || { echo "not ok: no page $page.html"; exit 1; }
done
grep -qi 'core, in learning order' "$pages/html/files.html" || { echo "not ok: headers' first comments are missing"; exit 1; }
grep -q 'href="pipeline_8h.html#' "$pages/html/index.html" || { echo "not ok: the guide is not in front, with links to the headers"; exit 1; }
echo "ok: doxygen makes $(find "$pages/html" -name '*_8h.html' | wc -l) pages of headers without a warning"
