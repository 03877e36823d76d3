#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_tokenize.sh SOURCE_DIR BUILD_DIR -- `cgpipe tokenize` turns text into token numbers and into
# files for --data, and back.
source "$(dirname "$0")/support.sh"

data=$1/tests/data/tokenizer
use="--tokenizer $data"
printf 'The pipeline \xff\n\n  runs, doesn\x27t it?\tYes' >mixed.txt
printf '<|endoftext|>' >end.txt
uint16() { od -An -v -tu2 --endian=little "$1" | tr -s ' \n' ' ' | sed 's/^ //;s/ $//'; }

# --- numbers ---

run tokenize $use text.txt
check "ids of a file are one line" lines 1 "$out"
check "of numbers with spaces between" test -z "$(tr -d '0-9 \n' <"$out")"
cp "$out" text.ids
timeout $((300 * ${CGP_TEST_PATIENCE:-1})) "$program" tokenize $use <text.txt >from-stdin.ids
check "standard input is read without FILE" cmp -s from-stdin.ids text.ids
run tokenize $use mixed.txt empty.txt text.txt
check "a file is a line, an empty one an empty line" lines 3 "$out"
check "as if it had been alone" test "$(sed -n 3p "$out")" = "$(cat text.ids)"
run tokenize $use --decode text.ids
check "numbers are decoded to the text" cmp -s "$out" text.txt

# --- files ---

run tokenize $use --out text.bin text.txt
check "--out says what it wrote" has "text.bin: " "$out"
check "one line" lines 1 "$out"
check "the numbers are those of standard output" test "$(uint16 text.bin)" = "$(cat text.ids)"
run tokenize $use --out both.bin --end-of-text mixed.txt text.txt
check "--end-of-text ends each file" test "$(uint16 both.bin | tr ' ' '\n' | grep -cx 2256)" = 2
run tokenize $use --decode both.bin
check "and is decoded to its name" test "$(cat "$out" | sha256sum)" = \
    "$(cat mixed.txt end.txt text.txt end.txt | sha256sum)"
run tokenize $use --decode --out again.txt text.bin
check "--decode --out writes bytes" cmp -s again.txt text.txt
{ printf '\x88\xd8\x34\x01\x01\0\0\0\x03\0\0\0'; head -c 1012 /dev/zero; head -c 6 text.bin; } >shard.bin
run tokenize $use --decode shard.bin
check "llm.c's header is no token" test "$(wc -c <"$out")" -lt 30

# A text that is too large for one read is split into pieces, if possible at a place that does not
# change the tokens. The tokens equal those of the unsplit text.
for i in 1 2 3 4 5 6; do cat text.txt text.txt text.txt text.txt text.txt text.txt text.txt text.txt; done >large.txt
cat large.txt large.txt >larger.txt
run tokenize $use --out larger.bin larger.txt
run tokenize $use --decode larger.bin
check "a file of several pieces comes back" cmp -s "$out" larger.txt
check "with the tokens of its repetitions" test "$(uint16 larger.bin)" = "$(for i in $(seq 96); do cat text.ids; done | tr '\n' ' ' | sed 's/ $//')"
head -c 2500000 /dev/zero >zeros.txt
run tokenize $use --out zeros.bin zeros.txt
run tokenize $use --decode zeros.bin
check "a file without a place to cut comes back" cmp -s "$out" zeros.txt

# --- training ---

run train gpt2:layers=1,width=32,heads=2,vocab=2257,seq=16 --data text.bin --batch 4 --steps 2 --run run
check "train reads what was written" exits 0
run sample run --tokenizer "$data" --prompt "the line" --length 20 --top-k 5
check "sample writes the text of tokens" test "$(wc -c <"$out")" -ge 20
cp "$out" sample.txt
run sample run --tokenizer "$data" --prompt "the line" --length 20 --top-k 5
check "the same for the same seed" cmp -s "$out" sample.txt
run train $model --data text.txt --batch 4 --steps 2 --run bytes
fails 2 "--tokenizer: has 2257 tokens, expected at most the vocabulary of the model, 256 ..." \
    sample bytes --tokenizer "$data"

# --- tokenizer.json ---

json=$1/tests/data/tokenizer_json
printf 'Hi 12345<|eot_id|>' >hi.txt
run tokenize --tokenizer "$json/llama3.json" hi.txt
cp "$out" hi.ids
check "a special token in the text is one token" test "$(tail -n 1 hi.ids | tr ' ' '\n' | tail -n 1)" = 1161
run tokenize --tokenizer "$json/llama3.json" --add-special-tokens --end-of-text hi.txt
check "--add-special-tokens puts the template around" test "$(cat "$out")" = "1156 $(cat hi.ids) 1157"
run tokenize --tokenizer "$json/llama3.json" --decode hi.ids
check "and all is decoded" cmp -s "$out" hi.txt
mkdir published && cp "$data"/vocab.json "$data"/merges.txt published && cp "$json/qwen2.json" published/tokenizer.json
run tokenize --tokenizer "$json/qwen2.json" mixed.txt text.txt
cp "$out" qwen2.ids
run tokenize --tokenizer published mixed.txt text.txt
check "a directory's tokenizer.json goes before vocab.json" cmp -s "$out" qwen2.ids
run tokenize --tokenizer "$json/llama3.json" --out larger.bin larger.txt
run tokenize --tokenizer "$json/llama3.json" text.txt
check "a file of several pieces has the tokens of its repetitions" test "$(uint16 larger.bin)" = \
    "$(for i in $(seq 96); do cat "$out"; done | tr '\n' ' ' | sed 's/ $//')"
run train gpt2:layers=1,width=32,heads=2,vocab=1162,seq=16 --data larger.bin --batch 4 --steps 2 --run llama-run
for special in "" --add-special-tokens; do
    run sample llama-run --tokenizer "$json/llama3.json" --prompt "the line" --length 20 --temperature 0 $special
    check "sample uses a tokenizer.json $special" test "$(wc -c <"$out")" -ge 20
done

# A vocabulary of more than 65,536 tokens needs llm.c's header and 4 bytes per token.
awk 'BEGIN { for (i = 0; i < 65000; i++) printf ",{\"id\":%d,\"content\":\"<|%d|>\",\"single_word\":false,\"lstrip\":false," \
    "\"rstrip\":false,\"normalized\":false,\"special\":true}", 1162 + i, i }' >added.txt
jq -c --slurpfile more <(printf '['; cut -c2- added.txt; printf ']') '.added_tokens += $more[0]' "$json/llama3.json" >large.json
{ cat text.txt; printf '<|64999|>'; } >large.txt
run tokenize --tokenizer large.json --out large.bin large.txt
uint32() { od -An -v -tu4 --endian=little "$1" | tr -s ' \n' ' ' | sed 's/^ //;s/ $//'; }
check "a large vocabulary has llm.c's header" test "$(uint32 large.bin | cut -d ' ' -f 1,2,4)" = "20240801 7 0"
run tokenize --tokenizer large.json large.txt
check "and tokens of 4 bytes" test "$(uint32 large.bin | cut -d ' ' -f 257-)" = "$(cat "$out")"
check "whose number it has" test "$(uint32 large.bin | cut -d ' ' -f 3)" = "$(wc -w <"$out")"
check "the last is above 65,535" test "$(tr ' ' '\n' <"$out" | tail -n 1)" = 66161
run tokenize --tokenizer large.json --decode large.bin
check "they are decoded" cmp -s "$out" large.txt
run train gpt2:layers=1,width=8,heads=2,vocab=66162,seq=8 --data large.bin --batch 2 --steps 1 --run large-run
check "train reads them" exits 0
head -c 1029 large.bin >part.bin
fails 1 "part.bin: expected tokens of 4 bytes, got part of a token" tokenize $use --decode part.bin

# --- refused ---

fails 2 "tokenize: --tokenizer PATH is missing (a tokenizer.json, or a directory with it or vocab.json and merges.txt)" \
    tokenize text.txt
fails 1 "nowhere: no such file" tokenize --tokenizer nowhere text.txt
mkdir nothing
fails 1 "nothing/vocab.json: no such file" tokenize --tokenizer nothing text.txt
fails 2 "--add-special-tokens: cannot be with --decode (leave out one)" tokenize $use --decode --add-special-tokens text.ids
fails 1 "$data/vocab.json: model: expected an object (is it a tokenizer.json?), got 374" \
    tokenize --tokenizer "$data/vocab.json" text.txt
fails 2 "--out tokens.txt: expected a name that ends in .bin, by which --data recognizes tokens" \
    tokenize $use --out tokens.txt text.txt
fails 2 "--end-of-text: cannot be with --decode (leave out one)" tokenize $use --decode --end-of-text text.ids
fails 1 "missing.txt: no such file" tokenize $use missing.txt
fails 1 ".: is a directory, expected a file" tokenize $use --out all.bin .
fails 1 "nowhere/x.bin: cannot be written ..." tokenize $use --out nowhere/x.bin text.txt
fails 1 "text.txt: at byte 0: expected ids, numbers with spaces between (token files end in .bin)" \
    tokenize $use --decode text.txt
echo "1 99999999999" >large.ids
fails 1 "large.ids: at byte 11: expected ids, ..." tokenize $use --decode large.ids
echo "5 2257" >unknown.ids
fails 1 "tokenizer: token 1: expected an id from 0 to 2256, got 2257 (of another tokenizer?)" \
    tokenize $use --decode unknown.ids
printf 'abc' >odd.bin
fails 1 "odd.bin: expected tokens of 2 bytes, got an odd number of bytes" tokenize $use --decode odd.bin
mkdir broken && cp "$data"/merges.txt broken && echo '{"a": 0' >broken/vocab.json
fails 1 "broken/vocab.json: line 2, byte 0: ..." tokenize --tokenizer broken text.txt

finish
