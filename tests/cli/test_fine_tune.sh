#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_fine_tune.sh SOURCE_DIR BUILD_DIR -- cgpipe train takes a directory of published weights as
# MODEL, and text for its tokenizer. The results are those of convert, tokenize and train, one after
# the other. The run keeps what the directory had, and convert writes it again.
source "$(dirname "$0")/support.sh"

tokenizer=$source_dir/tests/data/tokenizer
names() { ls -A "$1" | tr '\n' ' '; }
hash_of() { sed -n 's/^weights_sha256 //p' "$1"; }
cp "$source_dir/README.md" book.txt
cp "$source_dir/ARCHITECTURE.md" other.txt

# --- a model of the zoo, and text for a tokenizer ---

zoo="llama:layers=2,width=32,heads=4,kv_heads=2,inner=48,seq=32"
run train $zoo --data book.txt --tokenizer "$tokenizer" --steps 60 --batch 8 --lr 0.01 --run zoo
check "text for a tokenizer: exit code 0" exits 0
check "the vocabulary is that of the tokenizer" has "vocab=2257" "$out"
check "its tokens are counted" grep -q '^tokens       [0-9,]* of 6,[0-9]* bytes of text, by .*tests/data/tokenizer$' "$out"
check "a sample is tokens" has "sequences of 32 tokens" "$out"
run tokenize book.txt --tokenizer "$tokenizer" --out book.bin
check "the tokens are those of cgpipe tokenize" cmp book.bin zoo/tokens/train.bin
check "the run keeps the tokenizer" test "$(names zoo/published)" = "merges.txt vocab.json "
run sample zoo --prompt "A schedule" --length 5 --temperature 0
check "sample: the run's tokenizer" exits 0
cp "$out" sampled
run sample zoo --prompt "A schedule" --length 5 --temperature 0 --tokenizer "$tokenizer"
check "sample --tokenizer: the same text" cmp "$out" sampled
run train --resume --run zoo --sample 5 --prompt "A schedule" --temperature 0 --quiet
check "train --sample: the text of cgpipe sample" test "$(cat "$out")" = "$(cat sampled)"
run train "${zoo/seq/vocab=2300,seq}" --data book.bin --tokenizer "$tokenizer" --steps 1 --batch 4 --run from-tokens
check "a token file and --tokenizer: exit code 0" exits 0
run sample from-tokens --prompt "A schedule" --length 5
check "a token file and --tokenizer: the run knows the tokenizer" exits 0

# --- a directory, made from that run ---

run convert zoo published
check "convert writes the tokenizer too" \
    test "$(names published)" = "config.json merges.txt model.safetensors vocab.json "
sed -i 's/"bos_token_id": null/"bos_token_id": 1/; s/"eos_token_id": null/"eos_token_id": 2/
        s/  "model_type"/  "initializer_range": 0.0125,\n  "id2label": {\n    "0": "no"\n  },\n  "model_type"/
        s/"max_position_embeddings": 32/"max_position_embeddings": 1500/' published/config.json
echo >>published/config.json
echo '{"eos_token_id": [2, 3], "temperature": 0.7}' >published/generation_config.json
echo '{{ messages }}' >published/chat_template.jinja
echo 'a licence' >published/LICENSE
echo 'no small file' >published/pytorch_model.bin
echo 'hidden' >published/.hidden

options="--data book.txt --steps 4 --batch 4 --chunks 2 --seed 5 --lr 0.01"
run train published:seq=32 $options --run one --json one.json
check "a directory as MODEL: exit code 0" exits 0
check "its weights are named" has "weights      of published" "$out"
check "its tokenizer is used" has "bytes of text, by published" "$out"
kept="LICENSE chat_template.jinja config.json generation_config.json merges.txt vocab.json "
check "the run keeps its small files" test "$(names one/published)" = "$kept"

# The same in four commands.
run convert published four
run train --resume --run four --data book.bin --steps 4 --batch 4 --chunks 2 --seed 5 --lr 0.01 --json four.json
check "convert keeps max_position_embeddings as the length" grep -q seq=1500 four/run.json
cp -R published short && sed -i 's/"max_position_embeddings": 1500/"max_position_embeddings": 32/' short/config.json
run convert short four --overwrite
run train --resume --run four --data book.bin --steps 4 --batch 4 --chunks 2 --seed 5 --lr 0.01 --json four.json
check "the weights of convert, tokenize and train" \
    test "$(value weights_sha256 one.json)" = "$(value weights_sha256 four.json)"
for layout in "--stages 2 --schedule zb-h1" "--stages 3 --recompute always"; do
    # shellcheck disable=SC2086 # split into words
    run train published:seq=32 $options $layout --run layout --overwrite
    check "$layout: the same weights" test "$(hash_of "$out")" = "$(value weights_sha256 one.json)"
done
run train --data book.txt published:seq=32 --steps 4 --batch 4 --chunks 2 --seed 5 --lr 0.01 --run layout --overwrite
check "MODEL after --data: the same weights" test "$(hash_of "$out")" = "$(value weights_sha256 one.json)"
run train published/ --data book.txt --steps 1 --batch 1 --run default
check "without seq: at most 1024 tokens" has "note         a sample has 1024 tokens, the model takes up to 1500 (published:seq=N)" "$out"

# --- the other commands that take a MODEL ---

for command in "plan" "check --batch 2 --stages 2" "profile --batch 1 --repeats 1" "bench --batch 2 --steps 1" "export"; do
    read -ra words <<<"$command"
    run "${words[0]}" published:seq=16 "${words[@]:1}"
    check "${words[0]}: a directory as MODEL" exits 0
done
run plan published:seq=16 --stages 2 --plan-out p.json
run train published:seq=16 --plan p.json --data book.txt --steps 1 --batch 8 --run planned
check "a plan file of a directory" exits 0
run config one
check "config: MODEL is the directory" has "model: $PWD/published:seq=32" "$out"
cp "$out" run.yaml
run train --config run.yaml --run again
check "config: a run file repeats the run" test "$(hash_of "$out")" = "$(value weights_sha256 one.json)"

# --- the tokens are made once ---

run train published:seq=32 $options --run one --overwrite
check "the same text: its tokens are there" has "by published (made before)" "$out"
check "and the same weights" test "$(hash_of "$out")" = "$(value weights_sha256 one.json)"
printf x | dd of=one/tokens/train.bin bs=1 seek=100 conv=notrunc 2>/dev/null
run train published:seq=32 $options --run one --overwrite
check "damaged tokens are made again" eval "! grep -q 'made before' '$out'"
check "and give the same weights" test "$(hash_of "$out")" = "$(value weights_sha256 one.json)"
run train published:seq=32 --data other.txt --steps 1 --batch 4 --run one --overwrite
check "another text: its tokens are made" eval "! grep -q 'made before' '$out'"
run tokenize other.txt --tokenizer "$tokenizer" --out other.bin
check "and are those of that text" cmp other.bin one/tokens/train.bin
run train published:seq=32 --data other.txt --end-of-text --steps 1 --batch 4 --run one --overwrite
run tokenize other.txt --tokenizer "$tokenizer" --end-of-text --out other-end.bin
check "--end-of-text: the tokens of cgpipe tokenize" cmp other-end.bin one/tokens/train.bin
cp -R published endless && sed -i 's/<|endoftext|>/<|other|>/' endless/vocab.json
fails 1 "--end-of-text: the vocabulary of endless has no <|endoftext|> or <|end_of_text|>" \
    train endless:seq=32 --data other.txt --end-of-text --run none
run train published:seq=32 --data book.txt --validation other.txt --steps 1 --batch 4 --run one --overwrite
check "--validation PATH: its tokens are made too" cmp other.bin one/tokens/validation.bin
mkdir texts && cp book.txt texts/a.txt && cp other.txt texts/b.txt && : >texts/c.txt
run train published:seq=32 --data texts --steps 1 --batch 4 --run one --overwrite
run tokenize book.txt other.txt --tokenizer "$tokenizer" --out both.bin
check "a directory of texts: its files by name, without empty ones" cmp both.bin one/tokens/train.bin

# --- resume ---

run train published:seq=32 $options --run parts --steps 2
mv published away && mv book.txt moved.txt
fails 1 "book.txt: no such file" train --resume --run parts --steps 4 --data book.txt
run train --resume --run parts --steps 4 --data moved.txt
check "resumed without the directory, the text elsewhere: the same weights" \
    test "$(hash_of "$out")" = "$(value weights_sha256 one.json)"
mv away published && mv moved.txt book.txt
run train --resume --run parts --steps 6 --data other.txt
check "resumed with another text: exit code 1" exits 1
check "resumed with another text: says so" has "data: differ from the run's (identity" "$err"
cp -R "$tokenizer" changed && sed -i '$d' changed/merges.txt
fails 2 "--tokenizer changed: differs from the tokenizer of the run, which keeps it (leave it out, or another --run)" \
    train --resume --run parts --steps 6 --tokenizer changed
run train --resume --run parts --steps 6 --tokenizer "$tokenizer" --data book.txt
check "resumed with the same tokenizer" exits 0

# A run that was killed before its first checkpoint loads the directory again.
cp -R one first && run train published:seq=32 $options --run first --overwrite --keep 0
check "there is a checkpoint of step 0" test -d first/step-00000000
rm -r first/step-* first/latest
run train --resume --run first
check "killed before the first checkpoint: the same weights" \
    test "$(hash_of "$out")" = "$(value weights_sha256 one.json)"

# --- convert carries what the directory had ---

run train published:seq=32 $options --run one --overwrite
run convert one tuned
check "convert: exit code 0" exits 0
check "convert: all small files" test "$(names tuned)" = "${kept/merges.txt/merges.txt model.safetensors}"
check "convert: config.json as it was" diff published/config.json tuned/config.json
for file in LICENSE chat_template.jinja generation_config.json merges.txt vocab.json; do
    check "convert: $file as it was" cmp published/$file tuned/$file
done
check "convert: other weights" eval "! cmp -s published/model.safetensors tuned/model.safetensors"
run train tuned:seq=32 $options --run further
check "the result is a MODEL again" exits 0
touch tuned/notes.txt && run convert zoo tuned --overwrite
check "convert --overwrite: other files stay" test -e tuned/notes.txt
check "convert --overwrite: files of the run replace them" cmp tuned/vocab.json zoo/published/vocab.json
sed -i 's/"bos_token_id": 1/"bos_token_id": 1, "torch_dtype": "bfloat16"/; s/"torch_dtype": "float32"/"use_cache": true/' published/config.json
run convert published half && run convert half half-directory
check "convert: the type of the weights is that of the file" has '"torch_dtype": "float32"' half-directory/config.json
check "convert: other keys stay" has '"use_cache": true' half-directory/config.json
cp -R "$source_dir/tests/data/weights/gpt2" gpt2-directory
run convert gpt2-directory gpt2-run
run train --resume --run gpt2-run --data random --steps 1 --batch 2 --dropout 0.25
run convert gpt2-run gpt2-out
check "convert: another dropout" has '"attn_pdrop": 0.25' gpt2-out/config.json
check "convert: its other keys" has '"initializer_range"' gpt2-out/config.json

# --- a sample ends at the end of a text ---

sampled() { run sample one --prompt "A schedule" --length "$1" --temperature 0; } # NUMBER OF TOKENS
sampled 2 && cp "$out" two
sampled 3 && cp "$out" three
sampled 5 && cp "$out" five
third=$(tail -c +$(($(wc -c <two) + 1)) three | "$program" tokenize --tokenizer "$tokenizer")
check "the third token has an id" eval '[ -n "$third" ] && [ "$third" = "${third% *}" ]'
sed -i "s/\[2, 3\]/[2, $third]/" one/published/generation_config.json
sampled 5
check "the text ends before the third token, $third" cmp "$out" two
rm one/published/generation_config.json
sampled 5
check "config.json: another token ends a text" cmp "$out" five
sed -i "s/\"eos_token_id\": 2/\"eos_token_id\": $third/" one/published/config.json
sampled 5
check "config.json: the text ends before that token" cmp "$out" two

# --- a tokenizer.json with settings for batches ---

grep -o '"truncation": *null' "$source_dir/tests/data/tokenizer_json/gpt2.json" >"$out"
check "the tokenizer.json of the tests has no truncation" lines 1 "$out"
sed 's/"truncation": *null/"truncation": {"max_length": 3}/' "$source_dir/tests/data/tokenizer_json/gpt2.json" >cut.json
run tokenize book.txt --tokenizer "$source_dir/tests/data/tokenizer_json/gpt2.json" --out whole.bin
check "without truncation: no warning" empty "$err"
run tokenize book.txt --tokenizer cut.json --out cut.bin
check "truncation: a warning" has "[tokenizer] warning: cut.json: truncation is ignored: a text gets all of its tokens" "$err"
check "truncation: all tokens" cmp whole.bin cut.bin

# --- refusals; none leaves a file ---

train="train published:seq=32 --data book.txt --steps 1 --batch 4 --run none"
cp -R published bare && rm bare/model.safetensors bare/pytorch_model.bin
fails 1 "bare: expected model.safetensors or model.safetensors.index.json, got neither" \
    train bare:seq=32 --data book.txt --run none
cp -R published mute && rm mute/vocab.json
fails 2 "--data book.txt: is text, and mute has no tokenizer (tokenizer.json, or vocab.json and merges.txt) to make tokens of it (--tokenizer PATH)" \
    train mute:seq=32 --data book.txt --run none
run train mute:seq=32 --data book.bin --steps 1 --batch 4 --run mute-run
check "tokens need no tokenizer" exits 0
cp -R published mamba && sed -i 's/"llama"/"mamba"/' mamba/config.json
fails 1 "mamba/config.json: model_type: expected ..." train mamba --data book.txt --run none
fails 2 "texts: unknown model ..." train texts --data book.txt --run none
fails 2 "./texts: expected a directory of published weights, which has config.json, got a directory without" \
    train ./texts --data book.txt --run none
cp -R published gpt2
fails 2 "gpt2: is a model of the zoo, and a directory with config.json here (./gpt2 for the directory, gpt2:KEY=VALUE,.. for a model of the zoo)" \
    train gpt2 --data book.txt --run none
run train ./gpt2:seq=32 --data book.txt --steps 1 --batch 4 --run clear
check "./gpt2 is the directory" exits 0
fails 2 'published: expected the key seq=N with a directory of weights (config.json has all others), got "layers=3"' \
    train published:layers=3 --data book.txt --run none
fails 2 'published: seq: expected a whole number from 1 to 1500, the max_position_embeddings of config.json, got "1501"' \
    train published:seq=1501 --data book.txt --run none
fails 1 "nowhere/vocab.json: no such file" $train --tokenizer nowhere/vocab.json
mkdir large && sed 's/}$/, "xyzxyz": 2257}/' "$tokenizer/vocab.json" >large/vocab.json && cp "$tokenizer/merges.txt" large
fails 2 "large: has 2258 tokens, expected at most the vocabulary of the model, 2257 (--tokenizer PATH of another one)" \
    $train --tokenizer large
fails 1 "empty.txt: is empty, expected text" train published:seq=32 --data empty.txt --run none
fails 1 "the tokens of short.txt: needs at least ..." train published:seq=32 --data short.txt --run none
fails 2 "the tokens of short.txt: needs at least ..." train published:seq=32 --data short.txt --epochs 1 --run none
fails 1 "nowhere.txt: no such file" train published:seq=32 --data nowhere.txt --run none
fails 2 "--tokenizer: expected text as --data, got random (leave it out)" \
    train published:seq=32 --data random --tokenizer "$tokenizer" --run none
fails 1 "search: no plan fits ..." train published:seq=32 --data book.txt --memory-limit 100K --epochs 1 --run none
printf '\x80\x02}q\x01.' >a.pkl
fails 1 "a.pkl: ..." train published:seq=32 --data a.pkl --run none
touch mute/run.json # a run in the place of a run without a tokenizer
fails 1 "run directory one: has a run already (--resume continues it, --overwrite deletes it; or another --run)" \
    train published:seq=32 --data book.txt --run one

# --- killed while the tokens are made ---

for _ in $(seq 1 100); do cat book.txt other.txt; done >part.txt
for _ in $(seq 1 40); do cat part.txt; done >long.txt
began() { # began RUN: wait until the directory of tokens is there
    for _ in $(seq 1 400); do
        [ -d "$1/tokens" ] && return 0
        sleep 0.01
    done
    return 1
}
"$program" train published:seq=32 --data long.txt --steps 1 --batch 4 --run killed >/dev/null 2>&1 &
pid=$!
check "the tokens of a long text are being made" began killed
kill -KILL $pid && wait $pid 2>/dev/null
check "killed: no file of tokens" test -z "$(find killed -type f)"
run train published:seq=32 --data long.txt --steps 1 --batch 4 --run killed
check "killed: the next start makes them" exits 0
"$program" train published:seq=32 --data long.txt --steps 1 --batch 4 --run stopped >"$out" 2>"$err" &
pid=$!
began stopped
kill -TERM $pid && wait $pid
code=$?
check "SIGTERM: exit code 130" exits 130
check "SIGTERM: says that no step was made" has "SIGTERM: stopped before a step" "$err"
check "SIGTERM: leaves nothing" test ! -e stopped

finish
