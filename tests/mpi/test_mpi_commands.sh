#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_mpi_commands.sh SOURCE_DIR BUILD_DIR -- run `cgpipe sample`, `check`, `profile` and searches
# for a balance by time in several MPI processes. The test also checks which rank reads which data,
# and the exit codes of failed ranks and of their peers.
set -u
source_dir=$1
build_dir=$2
cgpipe=$build_dir/cgpipe
# shellcheck source=tests/mpi/mpirun.sh
. "$(dirname "$0")/mpirun.sh"
needs_mpi "$build_dir"
export TERM=dumb
export codes=$work/codes
mkdir "$codes"

# This command starts a rank and writes the rank's exit code to a file. The shell ignores SIGTERM:
# after a rank has failed, mpirun sends SIGTERM to the others, and SIGKILL a second later.
# shellcheck disable=SC2016 # variables of the rank
rank=(bash -c 'trap "" TERM; "$@"; echo $? >"$codes/${OMPI_COMM_WORLD_RANK-$PMI_RANK}"' rank "$cgpipe")

run() { # N COMMAND... : keep output, errors and each rank's exit code
    rm -f "$codes"/*
    run_ranks "$1" "${rank[@]}" "${@:2}" >"$work/out" 2>"$work/err"
    code=$?
}
run_apart() { # N WORDS OF RANK 0 -- WORDS OF THE N OTHER RANKS
    local n=$1 first=()
    shift
    while [ "$1" != -- ]; do first+=("$1"); shift; done
    shift
    rm -f "$codes"/*
    run_ranks 1 "${rank[@]}" "${first[@]}" : -n "$n" "${rank[@]}" "$@" >"$work/out" 2>"$work/err"
    code=$?
}
# shellcheck disable=SC2317 # called by check
codes_are() { [ "$(cat "$codes"/* | tr '\n' ' ')" = "$1 " ]; }
# Messages about injected faults are not counted.
# shellcheck disable=SC2317 # called by check
is_printed_once() { [ "$(grep -v '^cgpipe: .*CGP_FAULT: ' "$work/err" | grep -c '^cgpipe: ')" = 1 ] && grep -q -- "^cgpipe: $1" "$work/err"; }

make_text
model=gpt2:layers=3,width=32,heads=2,vocab=256,seq=32,tied=1

# --- a missing plug-in is searched next to the program, and reported once per host ---

mkdir "$work/alone"
cp -L "$cgpipe" "$build_dir"/libcgpipe.so.?.? "$build_dir"/libcgpipe_data.so.?.? "$work/alone/"
run_ranks 3 "$work/alone/cgpipe" check $model --stages 3 --batch 4 >"$work/out" 2>"$work/err"
check "no plug-in: exit code 2" [ $? = 2 ]
check "no plug-in: one message, with the place" \
    is_printed_once "transport: expected inproc, got \"mpi\": no libcgpipe-mpi.so in $work/alone/plugins (install an MPI"
cp -r "$plugins" "$work/alone/"
run_ranks 3 "$work/alone/cgpipe" check $model --stages 3 --batch 4 >"$work/out" 2>"$work/err"
check "a plug-in beside a copy of the program" [ $? = 0 ]

# --- train and sample: Open MPI gives rank 0 a pseudo-terminal, mpirun writes to a file ---

# shellcheck disable=SC2317 # called by check
is_plain() { ! grep -q -e $'\r' -e $'\x1b' "$1"; }
TERM=xterm run 2 train $model --data "$work/text.txt" --batch 8 --steps 4 --lr 0.01 --run "$work/run"
check "train: exit codes 0" codes_are "0 0"
check "train: a stage for each rank" grep -q '^pipeline  *2 stages, ' "$work/out"
check "train: no escape, no return" is_plain "$work/out"
TERM=xterm run 1 train --resume --run "$work/run" --steps 8
check "train on one rank: exit codes 0" codes_are "0"
check "train on one rank: no escape, no return" is_plain "$work/out"
"$cgpipe" sample "$work/run" --prompt line --length 40 --temperature 9 >"$work/one"
check "sample: the text has bytes that are not printable" grep -qaP '[^\x20-\x7e\n\t]' "$work/one"
run 2 sample "$work/run" --prompt line --length 40 --temperature 9
check "sample: the bytes of one process" cmp "$work/one" "$work/out"
run 1 sample "$work/run" --prompt line --length 40 --temperature 9
check "sample on one rank: the bytes of one process" cmp "$work/one" "$work/out"
"$cgpipe" sample "$work/run" --prompt line --length 40 >"$work/one"
run 2 sample "$work/run" --prompt line --length 40
check "sample: exit codes 0" codes_are "0 0"
check "sample: the text of one process" cmp "$work/one" "$work/out"
check "sample: nothing on standard error" [ ! -s "$work/err" ]
run 3 sample "$work/run" --prompt line --length 40 --stages 5 --weights "$work/run/latest/weights.safetensors"
check "sample --weights, 5 stages on 3 ranks: exit codes 0" codes_are "0 0 0"
check "sample --weights, 5 stages on 3 ranks: the text of one process" cmp "$work/one" "$work/out"
run 2 sample "$work/missing"
check "sample, no run: one message" is_printed_once "run directory $work/missing: no such directory"

# --- profile, and balances by time: rank 0 measures, and all ranks get the times ---

run 2 profile $model --batch 2 --repeats 1 --json "$work/costs.json"
check "profile: exit codes 0" codes_are "0 0"
check "profile: is printed once" [ "$(grep -c '^all ' "$work/out")$(grep -c '^h\.' "$work/out")" = 13 ]
check "profile: all layers are measured" jq -e '(.layers | length == 7 and all(.forward_seconds | length == 2 and all(. > 0))) and .in_steps' "$work/costs.json"
run 2 bench $model --dropout 0 --batch 4 --chunks 2 --steps 4 --stages 2 --balance time --costs-out "$work/run-costs.json" --json "$work/bench.json"
check "bench --balance time: exit codes 0" codes_are "0 0"
check "bench --costs-out: all layers are measured" jq -e '.layers | length == 7 and all(.forward_seconds[0] > 0)' "$work/run-costs.json"

# --- check: compare ranks with one process, with a run file that both ranks read ---

printf 'model: %s\ndata: %s\nbatch: 5\nchunks: 3\nstages: 4\nsteps: 3\n' $model "$work/text.txt" >"$work/run.yaml"
run 2 check --config "$work/run.yaml" --stages 4 --balance time --json "$work/check.json"
check "check: exit codes 0" codes_are "0 0"
check "check: is printed once" [ "$(grep -c '^the same to the bit: loss .* output, ' "$work/out")" = 1 ]
check "check: as JSON, on both ranks" [ "$(jq -c '[.same, [.devices[].rank]]' "$work/check.json")" = '[true,[0,0,1,1]]' ]
# A schedule may add weight gradients from the last micro-batch to the first. Then the gradients
# differ by rounding from gradients that are added in the usual order.
printf '%s\n' 0F0,0F1,0I0,0I1,0W1,0W0 1F0,1F1,1I0,1I1,1W1,1W0 >"$work/descends.csv"
run 2 check $model --schedule "$work/descends.csv" --batch 4
check "check, another order: exit codes 1" codes_are "1 1"
check "check, another order: which gradient" grep -q '^gradient of .* numbers differ' "$work/out"
plugin() { # FILE DEFINITION...: a model plug-in
    cc -O1 -w -shared -fPIC "${@:2}" -o "$1" -I"$source_dir/include" "$source_dir/tests/support/model_plugin.c" \
        -L"$build_dir" -lcgpipe_data -lcgpipe -lm
}
mkdir "$work/other"
plugin "$work/mine.so"
plugin "$work/other/mine.so" -DOTHER
run 2 check "$work/mine.so" --batch 4 --stages 3
check "check of a plug-in: exit codes 0" codes_are "0 0"
check "check of a plug-in: the same" grep -q '^the same to the bit: ' "$work/out"

# --- only the first rank reads images ---
#
# A broken image is replaced by the next image and its label. In this data set, the next image
# belongs to the next class.

mkdir "$work/images" && "$build_dir/tests/draw_directory" "$work/images" 4 16
(cd "$work/images" && for image in */2.png; do head -c 60 "$image" >"$image.cut" && mv "$image.cut" "$image"; done)
images="resnet:depth=8,image=16,classes=10 --stages 3 --batch 8 --chunks 2 --epochs 1 --evaluate-every 2 --validation 0.25"
# shellcheck disable=SC2086 # split into words
CGP_LOG=error "$cgpipe" train $images --data images:"$work/images" --run "$work/one-images" >"$work/one" 2>&1
# shellcheck disable=SC2086 # split into words
run_apart 2 train $images --data images:"$work/images" --run "$work/ranks-images" -- train $images --data images:"$work/nowhere" --run "$work/ranks-images"
check "images on rank 0 alone: exit codes 0" codes_are "0 0 0"
for word in weights_sha256 validation; do
    check "images on rank 0 alone: $word of one process" [ "$(grep ^$word "$work/one")" = "$(grep ^$word "$work/out")" ]
done

# --- a model whose logits are on another rank than its loss, and are not its first output ---

"$cgpipe" export resnet:depth=8,image=16,classes=10 --out "$work/graph.json" >"$work/out" 2>"$work/err"
jq '.layers += ["tail"] | .outputs = [.nodes[0].output] + .outputs' "$work/graph.json" >"$work/tail.json"
layers=$(jq '.layers | length' "$work/tail.json")
tail="$work/tail.json --stages 2 --balance $((layers - 1)),1 --batch 8 --chunks 2"
shapes="--data shapes:size=16,validation=20 --steps 2"
# shellcheck disable=SC2086 # split into words
{
    "$cgpipe" train $tail $shapes --run "$work/one-tail" >"$work/one" 2>&1
    run 2 train $tail $shapes --run "$work/ranks-tail"
    check "logits in another rank than the loss: validation of one process" [ "$(grep '^validation .*top-1' "$work/one")" = "$(grep ^validation "$work/out")" ]
    run 2 check $tail
}
check "check, outputs of two ranks: all are the same" grep -q '^the same to the bit: loss .*, 2 outputs, ' "$work/out"

# --- commands that run only in one process ---

for words in "convert run out.safetensors" "tokenize text.txt" "bench gpt2 --grid"; do
    # shellcheck disable=SC2086 # split into words
    OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 "$cgpipe" $words >"$work/out" 2>"$work/err"
    check "$words: exit code 2" [ $? = 2 ]
    check "$words: runs in one process" grep -q ': runs in one process, got 2 (without mpirun or srun)$' "$work/err"
done

# --- a failure of one rank is reported once, with its number ---
#
# The failed rank exits with code 1, and the other ranks exit with code 3. MPICH's mpirun kills the
# other ranks at once, so with MPICH the test ends before this part.

if [ "$mpi" = MPICH ]; then exit $failed; fi
train="train $model --batch 4 --stages 2 --steps 3 --run $work/none"
# shellcheck disable=SC2086 # split into words
{
    run_apart 1 $train --data "$work/text.txt" -- $train --data "$work/missing.txt"
    check "no data on rank 1: exit codes 3 and 1" codes_are "3 1"
    check "no data on rank 1: one message" is_printed_once "rank 1: $work/missing.txt: no such file"
    check "no data on rank 1: what mpirun returns" [ $code = 1 -o $code = 3 ]
    tac "$work/text.txt" >"$work/other.txt"
    run_apart 1 $train --data "$work/text.txt" -- $train --data "$work/other.txt"
    check "other data on rank 1: exit codes 3 and 1" codes_are "3 1"
    check "other data on rank 1: one message" is_printed_once "rank 1: data: identity is "
    run_apart 1 check "$work/mine.so" --batch 4 --stages 2 -- check "$work/other/mine.so" --batch 4 --stages 2
    check "another plug-in on rank 1: exit codes 3 and 2" codes_are "3 2"
    check "another plug-in on rank 1: one message" is_printed_once "rank 1: mine.so: differs from the file of rank 0 (SHA-256 "
    run_apart 1 train --config "$work/run.yaml" --run "$work/none" -- train --config "$work/missing.yaml" --run "$work/none"
    check "no run file on rank 1: exit codes 3 and 1" codes_are "3 1"
    check "no run file on rank 1: one message" is_printed_once "rank 1: $work/missing.yaml: "
    check "nothing is left of them" [ ! -e "$work/none" ]
}
# Rank 1 fails and closes its links while rank 0 still runs an action for about a second. Before
# rank 1 ends, it waits for rank 0. Otherwise mpirun would kill rank 0 at once, because in this part
# the shell does not ignore SIGTERM.
# shellcheck disable=SC2016 # variables of the rank
rank=(bash -c '"$@"; echo $? >"$codes/${OMPI_COMM_WORLD_RANK-$PMI_RANK}"' rank "$cgpipe")
CGP_LOG=error CGP_FAULT=fail:1F0,delay:0F1:1.5 run 2 bench $model --stages 2 --batch 4 --chunks 4
check "an action that fails: exit codes 3 and 1" codes_are "3 1"
check "an action that fails: one message" is_printed_once "rank 1: stage 1, micro-batch 0, "

check "no process is left" [ -z "$(pgrep -f "$work")" ]
exit $failed
