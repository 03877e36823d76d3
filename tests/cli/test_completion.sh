#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_completion.sh SOURCE_DIR BUILD_DIR -- the scripts of `cgpipe completion` offer the commands,
# options and values of the program. bash runs its script as for a key press; fish and zsh do if
# they are installed.
source "$(dirname "$0")/support.sh"

run completion bash
check "a script for bash" exits 0
cp "$out" script.bash
check "bash reads it" bash -n script.bash
command -v shellcheck >/dev/null && check "shellcheck finds nothing in it" shellcheck script.bash
# shellcheck disable=SC1091
source ./script.bash
check "and completes cgpipe with it" test "$(complete -p cgpipe)" = "complete -F _cgpipe cgpipe"

# offers WORDS... : print what bash offers for the last word, in one line. bash splits words at `=`.
offers() {
    COMP_WORDS=() COMP_CWORD=0 COMPREPLY=()
    COMP_WORDS=(cgpipe "$@") COMP_CWORD=$#
    _cgpipe cgpipe "${!#}" "${COMP_WORDS[COMP_CWORD - 1]}"
    printf '%s\n' "${COMPREPLY[@]}" | sort -u | paste -sd ' '
}
same_words() { # A B: compare two lists of words in any order
    diff <(tr ' ' '\n' <<<"$1" | sort) <(tr ' ' '\n' <<<"$2" | sort)
}

run help
commands=$(sed -n 's/^  cgpipe \([a-z]*\) .*/\1/p' "$out" | sort -u | xargs)
check "commands are known" test "$(wc -w <<<"$commands")" -ge 20
check "the first word is a command" same_words "$(offers "")" "$commands --help --version"
check "the beginning of a command" test "$(offers tra)" = train
check "an operand of help" same_words "$(offers help "")" "$(tr ' ' '\n' <<<"$commands" | grep -vxE 'help|completion' | xargs)"
check "the shells" test "$(offers completion "")" = "bash fish zsh"
for command in $commands; do
    case $command in help | completion) continue ;; esac
    run help "$command"
    check "the options of $command" same_words "$(offers "$command" -)" "$(sed -n 's/^  \(--[a-z0-9-]*\) .*/\1/p' "$out" | paste -sd ' ') -h"
done

# --- values ---

touch "a b.yaml" && mkdir -p runs
listed() { "$program" schedule --list | sed -n 's/^\([a-z0-9][a-z0-9-]*\) .*/\1/p' | xargs; }
check "schedules" same_words "$(offers schedule "")" "$(listed)"
check "of an option, files too" same_words "$(offers train --schedule "")" "$(listed) $(ls -d -- * | grep -v ' ' | xargs) a b.yaml"
check "the beginning of one" test "$(offers train --schedule zb-v)" = zb-v
check "after a =" test "$(offers train --schedule = zb-v)" = zb-v
check "right after a =" test "$(offers train --optimizer =)" = "adam adamw rmsprop sgd"
check "a file with a space in its name" test "$(offers train --config a)" = "a b.yaml"
check "a run is a directory" test "$(offers sample "")" = runs
check "of an option, too" test "$(offers train --run "")" = runs
check "a model" test "$(offers train gp)" = gpt2
check "bench has messages, too" test "$(offers bench transp)" = transport
check "new has a word" test "$(offers new "")" = model
check "numbers are not completed" test -z "$(offers train --batch "")"
check "nor is the option after one" test "$(offers train --batch 3 --optimiz)" = --optimizer
check "a flag has no value" test "$(offers train --resume --optimiz)" = --optimizer
check "a command of supervise" test "$(offers supervise -- xarg)" = xargs
check "and its file" test "$(offers supervise -- xargs tex)" = text.txt
check "supervise's own option" test "$(offers supervise --gra)" = --grace
check "--version" test "$(offers --version --)" = --json
check "an unknown command has nothing" test -z "$(offers nonsense --)$(offers nonsense "")"

# The program refuses a wrong value with a list of the right values.
refused() { "$program" "$1" $model "--$2" xyz 2>&1 | sed 's/.*expected//; s/, got.*//; s/`.*`//' | grep -oE '[a-z0-9_]+' | xargs; }
for option in optimizer precision convolution lr-schedule layout; do
    check "the values of --$option" same_words "$(offers plan "--$option" "")" "$(refused plan $option | sed 's/ or / /')"
done
for word in $(offers plan --recompute ""); do
    run plan $model --recompute "$word" --memory-limit 1GiB
    check "--recompute $word is one" exits 0
done
for word in $(offers plan --balance ""); do
    run check $model --balance "$word" --stages 2 --batch 2 --chunks 2
    check "--balance $word is one" exits 0
done
for word in gpt2 llama resnet20 resnet50 resnet101 amoebanetd unet vit; do
    check "$word is offered" test "$(offers export "$word")" = "$word"
    run export "$word:nokey=1"
    check "and is a model" has "nokey" "$err"
done

# --- other shells ---

run completion fish
cp "$out" script.fish
if command -v fish >/dev/null; then
    fish_offers() { fish --no-config -c "source script.fish; complete -C '$1'" | cut -f 1 | xargs; }
    check "fish reads its script" fish -n script.fish
    check "fish: commands" same_words "$(fish_offers "cgpipe ")" "$commands"
    check "fish: an option" test "$(fish_offers "cgpipe train --optimiz")" = --optimizer
    check "fish: a value" test "$(fish_offers "cgpipe train --optimizer ada")" = "adam adamw"
    check "fish: a run" test "$(fish_offers "cgpipe sample r")" = runs/
    check "fish: options of another command are not offered" test -z "$(fish_offers "cgpipe stop --optimiz")"
else
    echo "skip: fish (not installed)"
fi
run completion zsh
cp "$out" _cgpipe
if command -v zsh >/dev/null; then
    check "zsh reads its script" zsh -n _cgpipe
    # Functions of zsh's completion are replaced by ones that print their arguments.
    zsh_offers() { # WORDS...
        zsh -f -c 'compdef() { :; }; _describe() { print -l -- ${(P)2%%:*}; }; compadd() { print -l -- ${@:#--}; }
            _arguments() { print -l -- $@; }; _files() { :; }; source ./_cgpipe; words=("$@"); CURRENT=$#; _cgpipe' zsh "$@"
    }
    check "zsh: commands" same_words "$(zsh_offers cgpipe "" | xargs)" "$commands --help --version"
    for command in train report supervise; do
        run help "$command"
        check "zsh: the options of $command" same_words "$(zsh_offers cgpipe "$command" "" | sed -n 's/^\**\(--[a-z0-9-]*\).*/\1/p' | paste -sd ' ')" \
            "$(sed -n 's/^  \(--[a-z0-9-]*\) .*/\1/p' "$out" | paste -sd ' ')"
    done
    check "zsh: shells" test "$(zsh_offers cgpipe completion "" | xargs)" = "bash zsh fish"
else
    echo "skip: zsh (not installed)"
fi

fails 2 "completion: the shell is missing (bash, zsh or fish)" completion
fails 2 'completion: expected bash, zsh or fish, got "tcsh"...' completion tcsh
fails 2 "more: unexpected argument after bash" completion bash more
run help completion
check "help says how to use it" has "source <(cgpipe completion bash)" "$out"
finish
