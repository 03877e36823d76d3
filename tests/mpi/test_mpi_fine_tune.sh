#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_mpi_fine_tune.sh SOURCE_DIR BUILD_DIR -- several ranks train from a directory of published
# weights and a text: rank 0 alone makes the tokens, and all ranks read them. The weights are those
# of one process.
set -u
source_dir=$1 build_dir=$2
cgpipe=$build_dir/cgpipe
# shellcheck source=tests/mpi/mpirun.sh
. "$(dirname "$0")/mpirun.sh"
needs_mpi "$build_dir"
cd "$work" || exit 1

hash_of() { sed -n 's/^weights_sha256 //p' "$1"; }
tokenizer=$source_dir/tests/data/tokenizer
cp "$source_dir/README.md" book.txt
"$cgpipe" train llama:layers=2,width=32,heads=4,kv_heads=2,inner=48,seq=32 --data book.txt \
    --tokenizer "$tokenizer" --steps 1 --run seed >/dev/null && "$cgpipe" convert seed published >/dev/null
check "a directory of published weights" test -e published/config.json
options="--data book.txt --batch 8 --chunks 4 --seed 3 --sample 4 --prompt A"

# shellcheck disable=SC2086 # split into words
{
    "$cgpipe" train published $options --steps 6 --run one >out-one 2>&1
    run_ranks 3 "$cgpipe" train published $options --steps 4 --stages 3 --run ranks >out-ranks 2>&1
    check "3 ranks: exit code 0" [ $? = 0 ]
    check "the same tokens" cmp one/tokens/train.bin ranks/tokens/train.bin
    mv published away
    run_ranks 2 "$cgpipe" train --resume --run ranks --steps 6 --stages 2 >out-ranks 2>&1
    check "resumed by 2 ranks, without the directory: exit code 0" [ $? = 0 ]
    check "the weights of one process" [ "$(hash_of out-one)" = "$(hash_of out-ranks)" ]
    check "the sample of one process" [ "$(grep -a -A 3 '^sample of' out-one | head -n 2)" = "$(grep -a -A 3 '^sample of' out-ranks | head -n 2)" ]
    mv away published
    run_ranks 2 "$cgpipe" train published --data book.txt --epochs 1 --batch 16 --stages 2 --run epochs >out-ranks 2>&1
    check "epochs, which rank 0 counts: exit code 0" [ $? = 0 ]
    run_ranks 2 "$cgpipe" sample epochs --prompt A --length 4 >sample-ranks
    "$cgpipe" sample epochs --prompt A --length 4 >sample-one
    check "sample on 2 ranks: the text of one process" cmp sample-one sample-ranks
}

# --- what one rank refuses ends all ranks ---

refused() { # MESSAGE WORDS...
    local message=$1
    shift
    run_ranks 2 "$cgpipe" "$@" --stages 2 --run none >log 2>&1
    check "refused: exit code 1 or 2" [ $? != 0 ]
    check "refused by rank 0 alone: $message" [ "$(grep -c "^cgpipe: $message" log)" = 1 ]
    check "refused: no file" test ! -e none
}
: >empty.txt
refused "empty.txt: is empty, expected text" train published --data empty.txt
cp -R published mute && rm mute/vocab.json
refused "--data book.txt: is text, and mute has no tokenizer" train mute --data book.txt
cp -R published bare && rm bare/model.safetensors
refused "bare: expected model.safetensors or model.safetensors.index.json, got neither" train bare --data book.txt
refused "nowhere: no such file" train published --data book.txt --tokenizer nowhere

exit "$failed"
