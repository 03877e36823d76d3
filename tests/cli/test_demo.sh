#!/usr/bin/env bash
# make demo keeps its word: it learns, samples, and gives the same weights in one stage as in two.
#
#     bash test_demo.sh SOURCE_DIR BUILD_DIR
set -u
source_dir=$1
build_dir=$2
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
failed=0

check() { # NAME CONDITION...
    local name=$1
    shift
    if "$@"; then echo "ok: $name"; else echo "not ok: $name"; failed=1; fi
}

# The command of the Makefile, with this build's program and folders of the test's own.
demo() { # NAME STAGES STEPS
    make -s -n -C "$source_dir" demo BUILD="$build_dir" STAGES="$2" DEMO_STEPS="$3" DEMO_RUN="$temp/run-$1" |
        grep -A9 'cgpipe train' >"$temp/command"
    check "$1: the Makefile has the command" grep -q -- "--stages $2 " "$temp/command"
    (cd "$source_dir" && bash "$temp/command") >"$temp/out-$1" 2>&1
    check "$1: training and sampling end well" [ $? = 0 ]
}

demo 2 2 1200
demo short-1 1 100
demo short-2 2 100
loss=$(sed -n 's/^validation *loss \([0-9.]*\).*/\1/p' "$temp/out-2")
echo "validation loss $loss"
check "the validation loss is below 2.6 nats a byte" awk -v loss="$loss" 'BEGIN {exit !(loss > 0 && loss < 2.6)}'
first=$(sed -n 's/^step *1\/.* loss \([0-9.]*\) .*/\1/p' "$temp/out-2")
check "the loss begins near ln 256 ($first)" awk -v loss="$first" 'BEGIN {exit !(loss > 5.4 && loss < 5.7)}'
for word in "memory per device" "schedule 1f1b" "F0 F1" "tokens/s" "bubble" "planned" "resident" "busy" "sample of 200"; do
    check "it shows: $word" grep -q "$word" "$temp/out-2"
done
check "one stage and two give the same weights" \
    [ "$(grep weights_sha256 "$temp/out-short-1")" = "$(grep weights_sha256 "$temp/out-short-2")" ]
exit $failed
