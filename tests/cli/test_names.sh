# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# test_names.sh -- file names may contain control characters and invalid UTF-8. These could control
# a terminal, so cgpipe never prints them unchanged. Run with: SOURCE_DIR BUILD_DIR
. "$(dirname "$0")/support.sh"

e=$(printf 'e\033[2J\a\233x')     # clears the screen, rings the bell; 0x9b is a control character in Latin-1
shown='e\x1b[2J\x07\x9bx'
tiny=gpt2:layers=1,width=8,heads=2,vocab=256,seq=8

# Assert that neither output contains the invalid byte, nor a control character other than line
# ends.
clean() {
    ! cat "$out" "$err" | grep -q "$(printf '[\001-\010\013-\037\177]')" && ! cat "$out" "$err" | grep -q "$(printf 'a\233x')"
}
shows() { has "$shown" "$1"; }

u=$(printf 'e\033[2J\a')x # valid UTF-8, because run.json requires it in data paths
cp text.txt "$u.txt"
run train "$tiny" --data "$u.txt" --batch 2 --chunks 1 --steps 2 --run "$e" --trace "$e.json,$e.txt2.txt"
check "a run whose names have escape characters goes" exits 0
check "and prints none of them" clean
check "but shows them" shows "$out"
check "the timeline as text has the name of the schedule alone" test -s "$e.txt2.txt"

run train --resume --run "$e" --steps 3
check "it resumes" exits 0
check "and prints none either" clean

run sample "$e" --prompt x --length 1
check "sampling prints none" clean

run convert "$e" "$e.safetensors"
check "a conversion goes" exits 0
check "and prints none" clean
check "but shows both names" shows "$out"

printf '0F0,0F1,0B0,0B1\n' >"$e.csv"
run schedule --csv "$e.csv"
check "a table prints none" clean
run plan "$tiny" --schedule "$e.csv" --stages 1 --chunks 2 --batch 2
check "nor does a plan by it" clean

for words in "train $tiny --data missing$e" "sample missing$e" "stop missing$e" "diagnose missing$e" "supervise $e" "$e" "train --$e" \
    "plan $e" "schedule $e" "compare $e" "plan gpt2:$e=1" "tokenize --tokenizer $e --out x text.txt" "plan $tiny --costs missing$e --balance time"; do
    # shellcheck disable=SC2086 # split into words
    run $words
    check "an error line about such a name is clean ($(printf '%s' "$words" | tr -d '\000-\037\177-\377'))" clean
    check "and the command fails" test "$code" -ne 0
done

# A costs file must not be longer than a limit, which depends on the model's number of layers.
head -c 1000000 /dev/zero | tr '\0' '[' >large.json
run plan "$tiny" --stages 2 --balance time --costs large.json
check "costs that are too long for the model are not read" exits 1
check "and the message says so" has "large.json: expected at most 106496 bytes, got 1000000" "$err"
mkfifo pipe
run plan "$tiny" --stages 2 --balance time --costs pipe
check "nor is a pipe waited for" has "pipe: is not a regular file" "$err"

finish
