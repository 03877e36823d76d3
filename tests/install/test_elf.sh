#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_elf.sh SOURCE_DIR BUILD_DIR -- check the ELF headers of every program and library that was
# built or installed. The checks cover library search paths, writable segments, and the compiler's
# hardening. No element of a RUNPATH may be absolute, and no element may be empty: an empty element
# means the current directory.
set -u
source "$(dirname "$0")/support.sh"
source_dir=$(cd "$1" && pwd)
build_dir=$(cd "$2" && pwd)
unset DESTDIR

DESTDIR=$work/stage cmake --install "$build_dir" --prefix /usr/local >"$work/out" 2>&1
check "install" test $? -eq 0
rm -f "$build_dir/install_manifest.txt"

is_elf() { [ "$(head -c 4 "$1" | tail -c 3)" = ELF ]; }
find "$build_dir" "$work/stage" \( -path '*/CMakeFiles' -o -path "$build_dir/fuzz" \) -prune -o -type f -perm -u+x -print |
    while IFS= read -r file; do is_elf "$file" && echo "$file"; done | LC_ALL=C sort >"$work/files"

# --- every file ---

# headers FILE: print the faults of a file, one per line. A test or a plug-in may be too small to
# contain stack protectors or checked functions.
headers() {
    local small=0
    case $1 in "$build_dir"/tests/* | */libcgpipe-*.so) small=1 ;; esac
    readelf -W -h -l -d --dyn-syms "$1" | awk -v small=$small '
        /^ *Type:/ && $2 != "DYN" {print "is not position-independent"}
        $1 == "GNU_STACK" && /E +0x/ {print "has an executable stack"}
        $1 == "GNU_RELRO" {relro = 1}
        $2 == "(FLAGS)" && /BIND_NOW/ || $2 == "(FLAGS_1)" && /NOW/ {now = 1}
        $2 == "(TEXTREL)" {print "has relocations in its code"}
        $2 ~ /^\((RPATH|RUNPATH)\)$/ {
            path = $0
            sub(/^[^[]*\[/, "", path)
            sub(/\]$/, "", path)
            n = split(path ":", element, ":") - 1
            for (i = 1; i <= n; i++)
                if (element[i] !~ /^\$ORIGIN($|\/)/) print "looks for libraries in \"" element[i] "\" (" path ")"
        }
        $7 == "UND" && $8 ~ /^__stack_chk_fail/ {guarded = 1}
        $7 == "UND" && $8 ~ /^__[a-z_]+_chk(@|$)/ {fortified = 1}
        END {
            if (!relro || !now) print "has no full RELRO"
            if (!guarded && !small) print "has no stack protector"
            if (!fortified && !small) print "has no checked functions (_FORTIFY_SOURCE)"
        }'
    case $1 in
    *.so | *.so.*) ;;
    *) readelf -W -d "$1" | grep -q 'Flags:.* PIE' || echo "is a program that is not marked PIE" ;;
    esac
}

while IFS= read -r file; do
    headers "$file" | sed "s#^#${file#"$work/stage"}: #"
done <"$work/files" >"$work/wrong"
count=$(wc -l <"$work/files")
for name in cgpipe libcgpipe.so. example_resume bench_peak tests/test_base /usr/local/bin/cgpipe libcgpipe.so libcgpipe_data.so; do
    check "among the files: $name" grep -qF -- "$name" "$work/files"
done
check "$count programs and libraries are hardened, and look for libraries beside themselves only" \
    sh -c 'cat "$1"; test ! -s "$1"' sh "$work/wrong"

# --- every object is marked for CET ---
#
# The linker keeps the mark only if the start-up objects of the C library are marked too. Two
# plug-ins are exceptions: cuda-host, whose fibers have no shadow stacks, and cuda, which contains
# CUDA's library.

jq -r '.[].command | capture(" -o (?<object>[^ ]+) ").object' "$build_dir/compile_commands.json" | sed "s#^#$build_dir/#" |
    grep -v '/fakes/cuda/switch\.c\.o$' >"$work/objects"
marked() { xargs -d '\n' readelf -W -n <"$1" 2>/dev/null | grep -c 'x86 feature: IBT, SHSTK'; }
objects=$(wc -l <"$work/objects")
check "$objects objects are marked IBT and SHSTK" test "$objects" -gt 200 -a "$(marked "$work/objects")" = "$objects"
if readelf -n "$(cc -print-file-name=Scrt1.o)" | grep -q 'IBT, SHSTK'; then
    grep -vE '/(libcgpipe-cuda(-host)?\.so|test_cuda_[a-z]*)$' "$work/files" >"$work/kept"
    kept=$(wc -l <"$work/kept")
    check "so are $kept files" test "$(marked "$work/kept")" = "$kept"
else
    echo "skip: whether the linked files are (Scrt1.o of this C library is not)"
fi

# --- builds are reproducible: they contain no path of this machine ---
#
# Test programs are an exception, because they contain the path of the test data.

grep -vF "$build_dir/tests/" "$work/files" >"$work/no-tests"
printf '%s\n' "$build_dir"/libcgpipe{,_data}.a >>"$work/no-tests"
check "none but tests names the source or the build directory" \
    test -z "$(xargs -d '\n' grep -lF -e "$source_dir" -e "$build_dir" <"$work/no-tests")"
finish
