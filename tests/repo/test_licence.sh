#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Check that every source file names its licence in its first or second line.
#
#     bash test_licence.sh SOURCE_DIR BUILD_DIR
set -u
cd "$1" || exit 1
failed=0
count=0
while IFS= read -r file; do
    count=$((count + 1))
    head -n 2 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0' || { echo "not ok: $file: no licence line"; failed=1; }
done < <(find . \( -name 'build*' -o -name '.git' -o -name corpus \) -prune -o -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \
    -o -name '*.sh' -o -name '*.py' -o -name '*.awk' -o -name '*.cmake' -o -name '*.in' -o -name Makefile -o -name CMakeLists.txt \
    -o -name Doxyfile -o -path './.ci/*' \) -print)
[ "$count" -ge 500 ] || { echo "not ok: only $count source files found"; failed=1; }
[ "$failed" = 0 ] && echo "ok: $count source files"
exit $failed
