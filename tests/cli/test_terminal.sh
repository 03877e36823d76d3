#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_terminal.sh SOURCE_DIR BUILD_DIR -- on a terminal, progress is shown in one line, which is
# overwritten repeatedly and fits the terminal's width. If the output is a pipe, or if TERM is
# "dumb" or unset, plain lines appear at intervals.
source "$(dirname "$0")/support.sh"
command -v script >/dev/null || { echo "skipped: there is no script (of util-linux) to make a terminal"; exit 77; }
unset COLUMNS

words="$model --data text.txt --batch 8 --steps 4 --clip 1 --overwrite --run t"

# in_terminal COLUMNS TERM WORDS... : run cgpipe train in a terminal. Write all output, including
# \r, to $out. If TERM is "-", the variable is unset.
in_terminal() { # WORDS: options of cgpipe train
    local columns=$1 term=$2
    shift 2
    [ "$term" = - ] && term="env -u TERM" || term="env TERM=$term"
    timeout $((300 * ${CGP_TEST_PATIENCE:-1})) script -qec "stty cols $columns rows 24; exec $term $program train $*" /dev/null >"$out" 2>"$err" </dev/null
    code=$?
}

# Print the lines that the terminal shows at the end. With the argument `all`, print the overwritten
# lines too.
shown() {
    local from='s/\r$//; s/.*\r\x1b\[K//'
    [ "${1-}" = all ] && from='s/\r$//; s/\r\x1b\[K/\n/g'
    sed "$from" "$out"
}
steps() { shown "${1-}" | grep -E '^step +[0-9]+\/'; }
widest_step() { steps all | widest; }

# shape REGEX... : check that the final progress lines match these regular expressions, one line
# each, in order.
shape() {
    local line
    while IFS= read -r line; do
        [ $# -gt 0 ] && grep -qxE -- "$1" <<<"$line" || { echo "# not of the shape '${1-}': '$line'"; return 1; }
        shift
    done < <(steps)
    [ $# -eq 0 ] || { echo "# no line of the shape $1"; return 1; }
}

loss='loss [0-9]\.[0-9]{4}' lr='lr 0\.001' norm='norm [0-9.]{1,5}' speed='[0-9.,]+[kM]? tok/s' time='[0-9hmd]+s?'
bubble='bubble [0-9.]+ %' peak='peak [0-9.]+ MiB' val='val [0-9]\.[0-9]{4}'

# --- the last line of a run has its duration, and no remaining time ---

in_terminal 200 xterm "$words"
check "200 columns: exit code 0" exits 0
check "200 columns: all there is" shape "step 4/4  $loss  $lr  $norm  $speed  $time  $bubble  $peak"
check "200 columns: it is written over" grep -q $'\r\x1b\\[Kstep 1/4' "$out"
check "200 columns: before the last an end is seen" grep -q $'\x1b\\[Kstep 1/4 .*  eta [0-9]' "$out"
check "200 columns: it fits" test "$(widest_step)" -lt 200
in_terminal 80 xterm "$words"
check "80 columns: it fits" test "$(widest_step)" -lt 80
check "80 columns: what matters most" shape "step 4/4  $loss  $lr  $norm  $speed  $time(  $bubble)?"
check "80 columns: before the last an end is seen, too" grep -qE $'\x1b\\[Kstep 1/4  '"$loss  $lr  $norm  $speed  $time  eta $time" "$out"
in_terminal 40 xterm "$words"
check "40 columns: it fits" test "$(widest_step)" -lt 40
check "40 columns: step, loss and rate" shape "step 4/4  $loss  $lr"
check "40 columns: step, loss and end" grep -qE $'\x1b\\[Kstep 1/4  '"$loss(  $lr)?  eta $time" "$out"
in_terminal 12 xterm "$words"
check "12 columns: the step" shape "step 4/4"
in_terminal 0 xterm "$words"
check "a width that is not known is 80" test "$(widest_step)" -lt 80
in_terminal 80 xterm "${words/--clip 1/}"
check "without clipping there is no norm" shape "step 4/4  $loss  $lr  $speed  $time  $bubble(  $peak)?"
in_terminal 80 xterm "$words --evaluate-every 2"
check "a validation stays" shape "step 2/4  $loss  $val  .*eta .*" "step 4/4  $loss  $val  $lr  .*"
check "a validation: it fits" test "$(widest_step)" -lt 80
in_terminal 80 xterm "$words --lr 1e-5"
check "a small rate is short" shape "step 4/4  $loss  lr 1e-5  .*"

for minutes in 0.02 0.1 0.5; do # a busy machine may need more time for a step
    in_terminal 80 xterm "$words --steps 1000000 --minutes $minutes"
    ! grep -q '1/1000000  .*  eta' "$out" || break
done
check "a long run: the end in minutes, hours or days" \
    grep -qE $'\x1b\\[Kstep       1/1000000  '".*  eta ([0-9]+d[0-9]{2}h|[0-9]+h[0-9]{2}m|[0-9]+m([0-9]{2}s)?)" "$out"
check "a long run: it fits" test "$(widest_step)" -lt 80

# --- without a terminal: plain lines only ---

plain() { ! grep -q $'\x1b' "$out" && ! grep -q $'\r.' "$out"; }
four=("step 1/4  $loss  $lr  $norm  $speed  $time  eta $time(  $bubble)?"
    "step 2/4  $loss  $lr  $norm  $speed  $time  eta $time(  $bubble)?"
    "step 3/4  $loss  $lr  $norm  $speed  $time  eta $time(  $bubble)?"
    "step 4/4  $loss  $lr  $norm  $speed  $time(  $bubble)?")
for term in dumb -; do
    in_terminal 80 "$term" "$words"
    check "TERM=$term: no escape, no return" plain
    check "TERM=$term: lines" shape "${four[@]}"
    check "TERM=$term: they fit" test "$(widest_step)" -lt 80
    in_terminal 40 "$term" "$words"
    check "TERM=$term, 40 columns: they fit" test "$(widest_step)" -lt 40
done
TERM=xterm run train $words
check "a pipe: no escape, no return" plain
check "a pipe: lines of 80 columns" shape "${four[@]}"
check "a pipe: they fit" test "$(widest_step)" -lt 80
COLUMNS=200 run train $words
check "a pipe: COLUMNS says how wide" shape "${four[@]//)\?/  $peak)}"
COLUMNS=40 run train $words
check "a pipe: or how narrow" test "$(widest_step)" -lt 40

# --- an error message starts a new line after the progress ---

in_terminal 80 xterm "$model --data text.txt --batch 8 --steps 40 --lr 1e30 --overwrite --run t"
check "a failure: exit code 1" exits 1
check "a failure: has a line of its own" grep -q '^cgpipe: step [0-9]*: loss: is not finite' "$out"

finish
