#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Break one promise after the other, and see that the test that guards it fails. Not part of `make test`: it builds.
#
#     tests/break/run.sh BUILD [PATCH...]
#
# The sources are copied to BUILD/break; each patch, applied there alone, must make the test that its line "Fails: PROGRAM
# FUNCTION" names fail (or hang for more than 30 s), and the program must pass without any.
set -u
here=$(cd "$(dirname "$0")" && pwd)
source_dir=$(dirname "$(dirname "$here")")
[ $# -ge 1 ] || { echo "run.sh: expected BUILD [PATCH...]" >&2; exit 2; }
mkdir -p "$1" || exit 1
copy=$(cd "$1" && pwd)/break
shift
[ $# -gt 0 ] || set -- "$here"/*.patch
export GIT_CEILING_DIRECTORIES=${copy%/*}

# build_and_run PROGRAM: its output to $copy/out; 125 if it could not be built.
build_and_run() {
    cmake --build "$copy/build" --target "$1" >"$copy/log" 2>&1 || { tail -5 "$copy/log"; return 125; }
    timeout 30 "$copy/build/tests/$1" >"$copy/out" 2>&1
}

mkdir -p "$copy"
for path in "$source_dir"/*; do # with their times: what is built stays built,
    part=$(basename "$path")
    case $part in build* | run) continue ;; esac
    [ "$path" = "${copy%/*}" ] && continue
    rm -rf "${copy:?}/$part"
    cp -a "$path" "$copy/" || exit 1
done
for patch in "$here"/*.patch; do # but what an earlier run has broken
    touch "$copy/$(git apply --numstat "$patch" | cut -f 3)"
done
cmake -S "$copy" -B "$copy/build" ${CMAKE_ARGS:-} >"$copy/log" 2>&1 || { tail -5 "$copy/log"; exit 1; }

failed=0
passed=" "
for patch; do
    patch=$(realpath "$patch")
    name=$(basename "$patch" .patch)
    read -r program function < <(sed -n 's/^Fails: //p' "$patch")
    if [[ $passed != *" $program "* ]]; then
        build_and_run "$program" || { echo "not ok: $program fails as it is"; failed=1; continue; }
        passed="$passed$program "
    fi
    if ! (cd "$copy" && git apply "$patch"); then
        echo "not ok: $name does not apply"
        failed=1
        continue
    fi
    build_and_run "$program"
    code=$?
    if [ "$code" -eq 125 ] || [ "$code" -eq 0 ]; then
        echo "not ok: $name: $program gave $code"
        failed=1
    elif grep -q "^\[  FAILED  \] $function$" "$copy/out"; then
        echo "ok: $name: $function fails"
    elif [ "$code" -ge 124 ] && grep '^\[ RUN' "$copy/out" | tail -1 | grep -q " $function$"; then
        echo "ok: $name: $function does not end well ($code)" # hung, or ended by a signal
    else
        echo "not ok: $name: $program fails, but not in $function"
        grep '^\[  FAILED' "$copy/out"
        failed=1
    fi
    (cd "$copy" && git apply -R "$patch") || exit 1
done
exit $failed
