#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_cuda_nvcc.sh SOURCE_DIR BUILD_DIR -- check what nvcc reports for every kernel of the plug-in
# `cuda`: no spills, and code for every architecture of the build. A thread block has at most 163
# KiB of shared memory on sm_80, and at most 227 KiB on later architectures. Static assertions in
# the sources state the dynamic part of a kernel's shared memory. The static part is at most
# STATIC_SHARED (1 KiB). The table of registers, shared memory and spills is printed and written to
# BUILD_DIR/cuda/kernels.txt. The plug-in has no undefined symbols and exports only its entry. The
# test is skipped if the build found no nvcc.
set -u
cd "$2" || exit 1
plugin=plugins/libcgpipe-cuda.so
[ -f CMakeFiles/cgpipe_cuda.dir/build.make ] || grep -qs libcgpipe-cuda.so build.ninja || { echo "skip: needs nvcc"; exit 77; }
[ -f "$plugin" ] || { echo "not ok: no $plugin: build the target cgpipe_plugins"; exit 1; }
archs=$(sed -n 's/^CGP_CUDA_COMPILED:.*=//p' CMakeCache.txt | tr ';' '\n' | sed 's/^/sm_/')
failed=0
fail() { echo "not ok: $*"; failed=1; }

table=$(mktemp) && dynamic=$(mktemp) || exit 1
trap 'rm -f "$table" "$dynamic"' EXIT
# Print the kernel and the bytes of each static_assert(... == BYTES, "dynamic shared memory of
# KERNEL"). KERNEL may be a prefix of the names of several instances.
while read -r source; do
    tr -s '\n ' ' ' <"$source" | grep -oE 'static_assert\([^;]*"dynamic shared memory of [^"]+"\);' |
        sed -E 's/.*== ?([0-9]+), ?"dynamic shared memory of ([^"]+)"\);/\2\t\1/' >>"$dynamic"
done < <(find "$1/src/backend/cuda" -name '*.cu' -o -name '*.cuh')
while read -r source; do
    grep -q '"dynamic shared memory of ' "$source" || fail "$source: no assertion says its dynamic shared memory"
done < <(grep -lE '^ +DYNAMIC_SHARED\(' -r "$1/src/backend/cuda")
# Print a line per kernel: source, kernel, architecture, registers, static and dynamic shared bytes,
# spilled bytes.
for said in cuda/*.ptxas; do
    name=${said#cuda/} name=${name%_cu.ptxas}
    c++filt -t <"$said" 2>/dev/null | awk -v source="$name" -v dynamic="$dynamic" '
        BEGIN { while ((getline line <dynamic) > 0) { split(line, part, "\t"); bytes[part[1]] = part[2] } }
        function dynamic_of(kernel,    name) {
            for (name in bytes) if (index(kernel, name) == 1) return bytes[name]
            return 0
        }
        /Compiling entry function/ { split($0, part, "\047"); kernel = part[2]; arch = part[4] }
        /bytes spill stores/ { spilled = $5 + $9 }
        /Used [0-9]+ registers/ {
            shared = 0
            for (i = 1; i <= NF; i++) if ($i == "smem,") shared = $(i - 2); else if ($i == "smem") shared = $(i - 2)
            for (i = 1; i <= NF; i++) if ($i == "Used") registers = $(i + 1)
            sub(/^void /, "", kernel)
            sub(/\(.*/, "", kernel)
            print source ": " kernel "\t" arch "\t" registers "\t" shared "\t" dynamic_of(kernel) "\t" spilled
        }'
done >"$table"
while IFS=$'\t' read -r kernel _; do
    grep -qF ": $kernel" "$table" || fail "an assertion says the dynamic shared memory of $kernel, which does not exist"
done <"$dynamic"

[ -n "$archs" ] || fail "no CGP_CUDA_COMPILED in CMakeCache.txt"
for arch in $archs; do
    n=$(cut -f2 "$table" | grep -cx "$arch")
    [ "$n" -ge 40 ] || fail "$arch has $n kernels"
done
bad=$(awk -F'\t' '$6 > 0 || $4 + $5 > ($2 == "sm_80" ? 163 : 227) * 1024 || ($5 > 0 && $4 > 1024)' "$table")
[ -z "$bad" ] || fail "spills, or too much shared memory (kernel, architecture, registers, shared, dynamic, spilled):
$bad"
exported=$(nm -D --defined-only "$plugin" | awk '{ print $3 }')
[ "$exported" = cgp_plugin_entry ] || fail "exports: $exported"
missing=$(ldd -r "$plugin" 2>&1 | grep -E "undefined symbol|not found")
[ -z "$missing" ] || fail "needs: $missing"
sort "$table" | awk -F'\t' -v names="$(echo $archs)" '
    BEGIN {
        n = split(names, archs, " ")
        for (i = 1; i <= n; i++) printf "%-34s", archs[i]
        print ""
        for (i = 1; i <= n; i++) printf "registers shared dynamic spilled  "
        print "kernel"
    }
    function row(    i) {
        for (i = 1; i <= n; i++) printf "%s  ", archs[i] in cell ? cell[archs[i]] : sprintf("%9s %6s %7s %7s", "-", "-", "-", "-")
        print kernel
        delete cell
    }
    NR > 1 && ($1 != kernel || $2 in cell) { row() }
    { kernel = $1; cell[$2] = sprintf("%9d %6d %7d %7d", $3, $4, $5, $6) }
    END { if (NR) row() }' | tee cuda/kernels.txt
[ "$failed" = 0 ] && echo "ok: $(cut -f1,2 "$table" | wc -l) kernels for" $archs", no spills"
exit $failed
