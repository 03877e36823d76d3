#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Each public header compiles alone, as C11 and as C++. The libraries export exactly the names in
# tests/repo/exports*.txt.
#
#     bash test_headers.sh SOURCE_DIR BUILD_DIR
set -u
source_dir=$1
build_dir=$2
failed=0
passed=0
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT

check() { # NAME COMMAND...
    local name=$1
    shift
    if "$@" >"$temp/out" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "not ok: $name"
        cat "$temp/out"
    fi
}

while IFS= read -r header; do
    name=${header#"$source_dir"/include/}
    echo "#include <$name>" >"$temp/one.c"
    cp "$temp/one.c" "$temp/one.cc"
    check "C11 $name" cc -std=c11 -pedantic-errors -Wall -Wextra -Werror -I"$source_dir/include" -c "$temp/one.c" \
        -o "$temp/one.o"
    if command -v g++ >/dev/null 2>&1; then
        check "C++ $name" g++ -std=c++11 -Wall -Wextra -Werror -I"$source_dir/include" -c "$temp/one.cc" -o "$temp/one.o"
    else
        echo "skip: C++ $name (no g++)"
    fi
done < <(find "$source_dir/include" -name '*.h' | sort)

for list in exports:libcgpipe exports_data:libcgpipe_data; do
    file=$source_dir/tests/repo/${list%:*}.txt library=$build_dir/${list#*:}.so
    nm -D --defined-only "$library" | awk '$2 ~ /[TDBR]/ {print $3}' | grep -v '^__\|^_init$\|^_fini$' |
        LC_ALL=C sort >"$temp/exports"
    check "exports (a new public name belongs into $file)" diff "$file" "$temp/exports"
done

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
