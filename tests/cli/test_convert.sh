#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_convert.sh SOURCE_DIR BUILD_DIR -- published weights are converted to a run that can be
# sampled, trained and converted back. A failure leaves no half-written files. (test_weights
# compares the outputs of the networks with PyTorch's.)
#
# If PYTHON (python3) has torch, transformers and safetensors, they read the written files.
source "$(dirname "$0")/support.sh"

weights=$(cd "$1" && pwd)/tests/data/weights
tool=$(cd "$1" && pwd)/tools/reference_weights.py
gpt2=gpt2:layers=2,width=16,heads=2,vocab=53,seq=12,tied=1,gelu=tanh
resnet=resnet20:width=4,classes=7,image=16

same_weights() { cmp -s "$1/latest/weights.safetensors" "$2/latest/weights.safetensors"; }
names() { ls -A "$1" | tr '\n' ' '; }

# --- from a directory to a run and back ---

run convert "$weights/gpt2" run
check "a directory becomes a run: exit code 0" exits 0
check "it says which model that is" has "model        $gpt2" "$out"
check "it says which dropout" has "dropout      0.1" "$out"
check "it warns of nothing" eval "! grep -q warning '$out'"
check "it says how large" has "parameters   7,632" "$out"
check "the run has a checkpoint of step 0" test "$(names run)" = "latest published run.json step-00000000 "
run convert run directory
check "a run becomes a directory: exit code 0" exits 0
check "the directory has two files" test "$(names directory)" = "config.json model.safetensors "
check "its activation is the one that came" has '"activation_function": "gelu_new"' directory/config.json
check "its dropout is the one that came" has '"attn_pdrop": 0.1' directory/config.json
run convert directory again
check "the directory becomes the same run" same_weights run again
for case in gpt2-shards gpt2-f16 gpt2-bf16 gpt2-other; do
    run convert "$weights/$case" "run-$case"
    check "$case: exit code 0" exits 0
done
check "several files are the same run as one" same_weights run run-gpt2-shards
check "halves are another" eval '! same_weights run run-gpt2-f16'
run convert run plain.safetensors
check "a run becomes a file" exits 0
run convert plain.safetensors from-file --model $gpt2
check "the file becomes the same run" same_weights run from-file

# --- a file with torchvision's tensor layouts ---

run convert "$weights/resnet20/resnet20.safetensors" images --model $resnet
check "torchvision's names: exit code 0" exits 0
run convert images one.safetensors
run convert one.safetensors images-again --model $resnet
run convert images-again two.safetensors
check "there and back: the same bytes" cmp -s one.safetensors two.safetensors
check "there and back: the same run" same_weights images images-again

# --- an image classifier of transformers ---

vit="vit:layers=2,width=24,heads=3,inner=40,image=15,patch=5,classes=7"
run convert "$weights/vit" classifier
check "a ViT becomes a run: exit code 0" exits 0
check "it says which model that is" has "model        $vit" "$out"
run convert classifier classifier-directory
run convert classifier-directory classifier-again
check "there and back: the same run" same_weights classifier classifier-again
sed 's/"hidden_dropout_prob": 0.0/"hidden_dropout_prob": 0.1/' -i classifier-directory/config.json
run convert classifier-directory classifier-dropout
check "shares of dropout that differ: none is taken, and told" \
    has "warning      dropout: config.json has hidden_dropout_prob 0.1, attention_probs_dropout_prob 0, cgpipe has one" "$out"
sed 's/"attention_probs_dropout_prob": 0.0/"attention_probs_dropout_prob": 0.1/' -i classifier-directory/config.json
run convert classifier-directory classifier-dropout --overwrite
run convert classifier-dropout classifier-directory --overwrite
check "its dropout goes there and back" has '"attention_probs_dropout_prob": 0.1' classifier-directory/config.json

# Every model can be converted to weights, including its running statistics.
for case in "unet:B=1,C=4,depth=2,image=32 shapes:size=32,masks=1" "amoebanetd:L=3,D=8,image=32,classes=10 shapes:size=32"; do
    read -r model_text data <<<"$case"
    run train "$model_text" --data "$data" --batch 4 --steps 1 --run "run-${model_text%%:*}"
    run convert "run-${model_text%%:*}" other.safetensors --overwrite
    run convert other.safetensors other --model "$model_text" --overwrite
    check "${model_text%%:*}: there and back" same_weights "run-${model_text%%:*}" other
done

# --- sample, train and convert the run ---

run sample run --prompt '#$' --length 20 --temperature 0
check "sample: exit code 0" exits 0
cp "$out" sampled
run sample run-gpt2-bf16 --weights "$weights/gpt2" --prompt '#$' --length 20 --temperature 0
check "sample --weights DIR: the same text" cmp -s "$out" sampled

cp -R "$weights/gpt2" erf && sed -i 's/gelu_new/gelu/' erf/config.json
fails 1 "erf: expected the model $gpt2 of the run, got ${gpt2%,gelu=tanh}" sample run --weights erf --prompt '#'
fails 1 "erf/model.safetensors: expected the model $gpt2 of the run, got ${gpt2%,gelu=tanh}" \
    sample run --weights erf/model.safetensors --prompt '#'
(cd erf && "$program" sample ../run --weights model.safetensors --prompt '#' >"$out" 2>"$err")
check "a file by its name alone: the same" has "model.safetensors: expected the model $gpt2 of the run" "$err"
run sample run --weights "$weights/gpt2/model.safetensors" --prompt '#$' --length 20 --temperature 0
check "sample --weights FILE beside its config.json: the same text" cmp -s "$out" sampled
# shellcheck disable=SC2218
run train $model --data text.txt --batch 4 --steps 1 --run another
cp -R "$weights/gpt2" another/latest/published
run sample run --weights another/latest/published --prompt '#$' --length 20 --temperature 0
check "sample --weights DIR in a checkpoint of another model: the same text" cmp -s "$out" sampled
rm -r another
fails 2 "--model: expected ${gpt2%,gelu=tanh}, as config.json beside erf/model.safetensors says, got $gpt2" \
    convert erf/model.safetensors to --model $gpt2
fails 2 "--model: expected $gpt2, as config.json beside $weights/gpt2/model.safetensors says, got ${gpt2/heads=2/heads=4}" \
    convert "$weights/gpt2/model.safetensors" to --model "${gpt2/heads=2/heads=4}"
run convert erf/model.safetensors from-erf --model "${gpt2%,gelu=tanh}"
check "a file as config.json beside it says: exit code 0" exits 0

cp -R "$weights/gpt2" shares && sed -i 's/"attn_pdrop": 0.1/"attn_pdrop": 0.25/' shares/config.json
run convert shares shares-run
check "shares of dropout that differ: none is taken" has "dropout      0" "$out"
check "shares of dropout that differ: told, with the way out" \
    has "warning      dropout: config.json has resid_pdrop 0.1, embd_pdrop 0.1, attn_pdrop 0.25, cgpipe has one probability (train --dropout P)" "$out"

LC_ALL=C awk 'BEGIN { for (i = 0; i < 600; i++) { printf "%c", 1 + i * 7 % 52; printf "%c", 0 } }' >tokens.bin
train() { run train --resume --run "$1" --data tokens.bin --validation 0.2 --steps 3 --batch 4 --chunks 2 --json "$1.json" "${@:2}"; }
cp -R run one && cp -R run two && cp -R run three
train one --optimizer sgd --seed 5
check "train --resume goes on from it: exit code 0" exits 0
check "train --resume says from where" has "resumed      after step 0 of 3" "$out"
check "train --resume calls no option changed" eval "! grep -q changed '$out'"
check "the run keeps its dropout" grep -q '"dropout": 0.1' one/run.json
train two --optimizer sgd --seed 5 --stages 2
cp -R one one-of-three
check "two stages: the same weights" test "$(value weights_sha256 one.json)" = "$(value weights_sha256 two.json)"
check "they are other weights than before" eval '! same_weights one run'
train three --optimizer adamw --dropout 0
check "another optimizer, no dropout: exit code 0" exits 0
run train --resume --run one --steps 6
check "and once more, as it was: exit code 0" exits 0
check "from its third step" has "resumed      after step 3 of 6" "$out"
run convert one trained
run convert trained trained-run
check "what was trained comes out" same_weights one trained-run
run convert one third --from-step 3
run convert third third-run
check "--from-step: another checkpoint" eval '! same_weights third-run trained-run'

cp -R run start && train start --optimizer sgd --seed 5 --keep 0 --save-every 1
run convert start first --from-step 0
run convert first first-run
check "convert --from-step 0: the weights that were converted" same_weights first-run run
fails 2 "sample: --tokenizer PATH is missing (the tokenizer of the run's data, $PWD/tokens.bin)" sample start --from-step 0
cp start/run.json kept.json && sed -i 's/tokens\.bin"/tokens.txt"/' start/run.json # the data are now bytes of text
run sample start --from-step 0 --prompt '#$' --length 20 --temperature 0
check "sample --from-step 0: their text" cmp -s "$out" sampled
printf x >>start/step-00000002/weights.safetensors
rm start/step-00000001 -rf && ln -sfn step-00000002 start/latest
run sample start --prompt '#$' --length 20
check "a damaged checkpoint: that of the start is the way out" has "step-00000000 is whole (--from-step 0)" "$err"
mv kept.json start/run.json
run train --resume --run start --from-step 0 --steps 3
check "train --from-step 0: from the start" has "resumed      after step 0 of 3" "$out"
check "train --from-step 0: later ones are gone, and come again" same_weights start one-of-three
fails 2 "--from-step: expected a run, got directory" convert directory to --from-step 0

# A note that `cgpipe convert` wrote names no data, so such a run accepts any data. The changes
# below turn the note into that of a training, whose data must not change.
note_becomes() { # note_becomes RUN SED-SCRIPT: edit the note and update the checksums
    local file=$1/latest/checkpoint.json
    sed -i "/\"note\"/$2" "$file"
    local body above
    body=$(sed '$d' "$file" | sed '$d')
    body=${body%,}
    above=$(printf %s "$body" | sha256sum | cut -d ' ' -f 1)
    printf '%s,\n "sha256_above": "%s"\n}\n' "$body" "$above" >"$file"
    (cd "$1/latest" && sha256sum checkpoint.json >checkpoint.sha256)
}
for change in 's/"position.":0/"position\\":8/' 's/cgpipe 0/mine 0/'; do
    rm -rf noted && cp -R run noted && note_becomes noted "$change"
    run sample noted --prompt '#' --length 1
    check "a changed note: whole" exits 0
    train noted
    check "a changed note: of unknown data" has "data: differ from the run's (identity" "$err"
done

# --- refusals ---

fails 2 "convert: TO is missing (cgpipe convert FROM TO)" convert run
fails 2 "three: unexpected argument after run" convert run two three
fails 1 "nowhere: cannot be read (No such file or directory)" convert nowhere to
mkdir bare
fails 1 "bare: expected a run (run.json), a Hugging Face directory (config.json) or a safetensors file, got a directory ..." \
    convert bare to
fails 2 "convert: --model is missing (the model whose weights plain.safetensors has, such as resnet50)" \
    convert plain.safetensors to
fails 2 "--model: expected a file of weights with it, got run, which names its model (leave it out)" convert run to --model gpt2
fails 2 "--from-step: expected a run, got directory" convert directory to --from-step 3
fails 2 "to.safetensors: expected a directory for the run, got the name of a file" convert directory to.safetensors
fails 2 "to: expected a name that ends in .safetensors for the weights of resnet" convert images to
fails 2 "resnt: unknown model (did you mean resnet?)" convert one.safetensors to --model resnt
fails 1 "one.safetensors: conv1.weight: expected shape [16, 3, 3, 3], got [4, 3, 3, 3]" \
    convert one.safetensors to --model resnet20:classes=7
fails 1 "text.txt: at byte 0: ..." convert text.txt to --model $gpt2
fails 1 "run directory run: has a run already (--overwrite deletes it)" convert directory run
fails 1 "directory: has weights already (--overwrite replaces them)" convert run directory
fails 1 "one.safetensors: is there already (--overwrite replaces it)" convert images one.safetensors
fails 1 "text.txt: is a file, expected a directory or a name that ends in .safetensors" convert run text.txt
fails 1 "run directory text.txt: is a file, expected a directory" convert directory text.txt
fails 1 "run directory no/run: cannot be made (no: No such file or directory)" convert directory no/run
fails 1 "no/directory: cannot be made (No such file or directory)" convert run no/directory
fails 1 "run directory directory: is a Hugging Face directory, it has config.json (take another name)" convert "$weights/gpt2" directory --overwrite
fails 1 "run: is a run, it has run.json (take another name)" convert one run --overwrite
fails 1 "run/latest/weights.safetensors: is in a checkpoint, run/latest has checkpoint.json (take another name)" \
    convert one run/latest/weights.safetensors --overwrite
fails 1 "run/latest: is a checkpoint, it has checkpoint.json (take another name)" convert one run/latest --overwrite
cp -R directory bert && sed -i 's/"gpt2"/"bert"/' bert/config.json
fails 1 'bert/config.json: model_type: expected "gpt2", "llama", "mistral", "qwen2", "qwen3" or "vit", got "bert"' convert bert to
cp -R directory cut && head -c 20000 directory/model.safetensors >cut/model.safetensors
fails 1 "cut/model.safetensors: at byte 20000: file ends early: ..." convert cut to

# --- convert over an existing output ---

run convert run-gpt2-bf16 directory --overwrite
check "--overwrite replaces a directory" exits 0
run convert directory run --overwrite
check "--overwrite replaces a run" same_weights run run-gpt2-bf16
run convert images one.safetensors --overwrite
check "--overwrite replaces a file" exits 0

# --- no output is half-written ---

# Limit file sizes to 16 KiB and ignore SIGXFSZ. Writes then fail as on a full disk.
cramped() {
    (trap '' XFSZ; ulimit -f 16; timeout $((300 * ${CGP_TEST_PATIENCE:-1})) "$program" convert "$@" >"$out" 2>"$err" </dev/null)
    code=$?
}

for arguments in "directory full" "run full" "images full.safetensors"; do
    cramped $arguments
    check "no room, $arguments: one line" lines 1 "$err"
    check "no room, $arguments: exit code 1" exits 1
    check "no room, $arguments: nothing is left" eval '[ ! -e full ] && [ ! -e full.safetensors ]'
done

run convert "$weights/gpt2" there # must not change the old directory
run train --resume --run there --data tokens.bin --batch 4 --chunks 2 --steps 2 --optimizer sgd
run convert there there-directory
run convert images there.safetensors
for arguments in "run-gpt2-bf16 there-directory" "directory there" "images-again there.safetensors"; do
    target=${arguments#* }
    rm -rf kept && cp -a $target kept
    cramped $arguments --overwrite
    check "no room, $arguments --overwrite: exit code 1" exits 1
    check "no room, $arguments --overwrite: what was there stays" diff -r kept $target
done
run train --resume --run there --steps 4
check "the run that stays goes on" has "resumed      after step 2 of 4" "$out"
run convert directory there --overwrite
check "with room the run that was trained is replaced" test "$(names there)" = "latest published run.json step-00000000 "
mkdir -p there-directory/model.safetensors.d && rm there-directory/model.safetensors && mv there-directory/model.safetensors{.d,}
cp there-directory/config.json kept.json
run convert run there-directory --overwrite
check "weights that cannot be replaced: exit code 1" exits 1
check "weights that cannot be replaced: config.json stays" cmp -s kept.json there-directory/config.json

# Kill `cgpipe convert` after delays of different lengths. The longest delay exceeds the duration of
# an undisturbed conversion. If run.json or config.json exists after a kill, all other files must
# exist too. Every second conversion replaces an existing output. The test counts the kills that
# interrupt writing.
run train gpt2:layers=2,width=128,heads=2,vocab=64,seq=16 --data tokens.bin --steps 1 --batch 4 --run large
run convert large large-directory
both() { # both MICROSECONDS: convert both ways at once; kill both after this time; 0: never
    "$program" convert large-directory killed --overwrite >/dev/null 2>&1 & pid=$!
    "$program" convert large killed-directory --overwrite >/dev/null 2>&1 & other=$!
    if [ "$1" -gt 0 ]; then
        sleep "$(printf '%d.%06d' $(($1 / 1000000)) $(($1 % 1000000)))"
        kill -KILL $pid $other 2>/dev/null
    fi
    wait $pid 2>/dev/null
    pid=$?
    wait $other 2>/dev/null
    other=$?
}
now() { echo $(($(date +%s%N) / 1000)); }
started=$(now)
both 0
took=$(($(now) - started))
check "two conversions at once, undisturbed" test $pid$other = 00
hit_run=0 hit_directory=0 whole=0 i=0
while [ $i -lt 40 ] || { [ $i -lt 400 ] && { [ $hit_run -eq 0 ] || [ $hit_directory -eq 0 ]; }; }; do
    i=$((i + 1))
    [ $((i % 2)) -eq 0 ] || rm -rf killed killed-directory
    rm -rf again
    both $((took * (i % 40 + 1) / 35))
    [ $pid -ne 137 ] || [ ! -d killed ] || { [ -e killed/run.json ] && [ ! -e killed/.new ]; } || hit_run=$((hit_run + 1))
    [ $other -ne 137 ] || [ ! -d killed-directory ] ||
        { [ -e killed-directory/config.json ] && [ "$(names killed-directory)" = "config.json model.safetensors " ]; } ||
        hit_directory=$((hit_directory + 1))
    good=true
    if [ -e killed/run.json ]; then
        run convert killed again
        exits 0 || good=false
        same_weights killed large || good=false
        whole=$((whole + 1))
    fi
    if [ -e killed-directory/config.json ]; then
        cmp -s killed-directory/model.safetensors large-directory/model.safetensors || good=false
        whole=$((whole + 1))
    fi
    run convert large-directory killed --overwrite
    exits 0 && [ "$(names killed)" = "latest published run.json step-00000000 " ] || good=false
    run convert large killed-directory --overwrite
    exits 0 && [ "$(names killed-directory)" = "config.json model.safetensors " ] || good=false
    $good || not_ok "killed after $i: whole or nothing"
done
check "killed $i times: $hit_run times amid a run, $hit_directory amid a directory; $whole were whole" \
    test $hit_run -gt 0 -a $hit_directory -gt 0

# --- the Python libraries read it ---

python=${PYTHON:-python3}
if "$python" -c 'import torch, transformers, safetensors' 2>/dev/null; then
    export PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1
    for case in gpt2 gpt2-shards gpt2-f16 gpt2-bf16 gpt2-other; do
        run convert "$weights/$case" real-run --overwrite
        run convert real-run real --overwrite
        "$python" "$tool" --check gpt2 real "$weights/$case/expected.safetensors" >"$out" 2>"$err"
        code=$?
        check "transformers, $case: $(grep -o 'largest difference.*' "$out")" exits 0
    done
    for case in vit vit-shards; do
        run convert "$weights/$case" real-run --overwrite
        run convert real-run real --overwrite
        "$python" "$(dirname "$tool")/reference_vit.py" --check real "$weights/$case/expected.safetensors" >"$out" 2>"$err"
        code=$?
        check "transformers, $case: $(grep -o 'largest difference.*' "$out")" exits 0
    done
    # The config.json of the directory, and that which cgpipe writes without it.
    for case in llama llama-3 mistral qwen2 qwen2-windows qwen3 qwen3-windows; do
        run convert "$weights/$case" real-run --overwrite
        for config in published written; do
            rm -rf real && run convert real-run real
            "$python" "$(dirname "$tool")/reference_llama.py" --check real "$weights/$case/expected.safetensors" >"$out" 2>"$err"
            code=$?
            check "transformers, $case, $config config.json: $(grep -o 'largest difference.*' "$out")" exits 0
            rm -rf real-run/published
        done
    done
    "$python" "$tool" --check resnet two.safetensors "$weights/resnet20/expected.safetensors" >"$out" 2>"$err"
    code=$?
    check "safetensors, resnet20: $(grep -o 'largest difference.*' "$out")" exits 0
    mkdir made made/mine && echo >made/mine/file
    "$python" "$tool" made >"$out" 2>"$err"
    code=$?
    check "reference weights are made: exit code 0" exits 0
    check "what else is in the directory stays" test -e made/mine/file
    rm made/gpt2/expected.safetensors
    "$python" "$tool" made >"$out" 2>"$err"
    check "a directory that is not the tool's stays" test -e made/gpt2/model.safetensors
else
    echo "skip: $python has no torch, transformers and safetensors to read what was written"
fi

finish
