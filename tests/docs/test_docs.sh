#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_docs.sh SOURCE_DIR BUILD_DIR -- check the pages:
#
#     commands    run in order, in a directory like the project's, unless listed in commands.sh
#                 with a reason. Output in a page must equal the command's output. Examples in
#                 `cgpipe help COMMAND` are run too.
#     spans       `cgpipe ...`, `make ...`, `--option`, `cgp_name()`, `tests/file` must exist
#     links       must lead to a file and a heading
#     the guide   must contain all of examples/guide.c, and name every public header and every
#                 field of the options
#
# The commands use an installation of this build in $HOME/cgpipe.
set -u
shopt -s nullglob
export LC_ALL=C
unset CGP_LOG CGP_FAULT POSIXLY_CORRECT PKG_CONFIG_PATH LD_LIBRARY_PATH CMAKE_PREFIX_PATH DESTDIR MAKEFLAGS
source_dir=$(cd "$1" && pwd)
build_dir=$(cd "$2" && pwd)
tests=$source_dir/tests/docs
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HOME=$work/home
mkdir -p "$HOME" "$work/marks"

declare -A reasons=() additions=() without_numbers=()
skip() { reasons[$1]=$2; }
add() { additions[$1]=$2; }
numbers() { without_numbers[$1]=1; }
source "$tests/commands.sh"

# --- commands, options, targets, functions ---

DESTDIR='' cmake --install "$build_dir" --prefix "$HOME/cgpipe" >"$work/install" || { cat "$work/install"; exit 1; }
rm -f "$build_dir/install_manifest.txt"
PATH=$HOME/cgpipe/bin:$PATH
commands=$(cgpipe help | sed -n 's/^  cgpipe \([a-z]*\) .*/\1/p' | grep -vx help)
for command in $commands; do
    cgpipe help "$command" | sed -n 's/^  \(--[a-z0-9-]*\).*/\1/p' >"$work/options-$command"
done
sort -u "$work"/options-* >"$work/options"
targets=$(sed -n 's/^\([a-z -]*\):.*## .*/\1/p' "$source_dir/Makefile")

# Collect the functions of the public headers with parameter names: "cgp_add model,a,b".
find "$source_dir/include" -name '*.h' -print0 | xargs -0 cat | sed 's|/\*.*\*/||; /^ *#/d; /^ \*/d; s|/\*.*||' | tr '\n' ' ' |
    grep -oE 'cgp_[a-z0-9_]+\([^(){};]*\)( CGP_PRINTF[^;]*)?[ ]*[;{]' | sed 's/\[[^]]*\]//g; s/ *).*//' |
    awk -F'(' '{
        n = split($2, parameter, ",")
        if ($2 == "void" || $2 == "") n = 0
        print $1, n, ($2 ~ /\.\.\./)
    }' >"$work/functions"
declare -A public=() internal=() # names
while IFS= read -r name; do public[$name]=1; done < <(grep -rhoE '\bcgp_[a-z0-9_]+' "$source_dir/include" | sort -u)
while IFS= read -r name; do internal[$name]=1; done < <(grep -rhoE '\bcgp_?_[a-z0-9_]+' "$source_dir"/{src,data,models} | sort -u)

# --- a page's commands ---

# Remove a command's comment and repeated spaces.
plain() { sed 's/ \{1,\}#.*//; s/  */ /g; s/ *$//' <<<"$1"; }

# Return true if a line of an indented block is a command, not code, output or a drawing. The answer
# does not depend on the installed programs. A line is a command if it begins with the name of a
# program that the pages use, or with a script of the project. It is also a command if an option
# follows its first word.
is_command() {
    local words word
    read -ra words <<<"$1"
    while [[ ${words[0]-} =~ ^[A-Z_]+=[^[:space:]]*$ ]]; do words=("${words[@]:1}"); done
    word=${words[0]-}
    case $word in
    cgpipe | make | cc | cmake | cat | echo | cp | mkdir | for | cd | export | git | sudo) return 0 ;;
    build/cgpipe) return 0 ;;
    */*) [ -x "$source_dir/$word" ] && [ ! -d "$source_dir/$word" ] ;;
    *) [[ $1 =~ ^[a-z][a-z0-9_.-]*[[:space:]](.*[[:space:]])?--?[a-z] ]] ;;
    esac
}

unnumbered() { sed 's/[0-9][0-9,.]*/0/g; s/  */ /g'; }

# same EXPECTED GOT: compare two files. A line `...` in EXPECTED stands for one or more lines.
same() {
    local line pattern="" got
    while IFS= read -r line; do
        if [ "$line" = ... ]; then pattern+=$'\n*'; else pattern+=$'\n'$(sed 's/[][\\*?]/\\&/g' <<<"$line"); fi
    done <"$1"
    got=$'\n'$(cat "$2")
    # shellcheck disable=SC2053
    [[ $got == $pattern ]]
}

# run_command COMMAND [EXPECTED_FILE]: run a command in this shell, because it may change directory
# and variables. Print what is wrong.
run_command() {
    local command expected=${2-} code began=${EPOCHREALTIME/./}
    command=$(plain "$1")
    : >"$work/marks/$(sha256sum <<<"$command" | cut -c 1-20)"
    [ -z "${reasons[$command]-}" ] || return 0
    if [[ $command =~ ^([A-Z_]+=[^[:space:]]*[[:space:]])*(sudo|make|git|bench/|tests/|tools/) ]]; then
        echo "$page: is not run by a test: give the reason in commands.sh: $command"
        return
    fi
    eval "$command ${additions[$command]-}" >"$work/out" 2>&1 </dev/null
    code=$?
    echo "$(((${EPOCHREALTIME/./} - began) / 1000)) ms: $command" >>"$work/ran"
    if [ -z "$expected" ]; then
        [ $code = 0 ] && return
        echo "$page: exit code $code (mend it, or give the reason in commands.sh): $command"
        tail -n 5 "$work/out"
        return
    fi
    if [ -n "${without_numbers[$command]-}" ]; then
        unnumbered <"$work/out" >"$work/got"
        unnumbered <"$expected" >"$work/wanted"
    else
        cp "$work/out" "$work/got"
        cp "$expected" "$work/wanted"
    fi
    same "$work/wanted" "$work/got" && return
    echo "$page: prints something else: $command"
    diff "$work/wanted" "$work/got" | head -n 20
}

# Run the commands of a page, from the records of blocks.awk.
run_page() {
    local page=$1 record kind text prompt="" in_file=no
    while IFS= read -r record <&3; do
        kind=${record%% *} text=${record#* }
        [ "$kind" = output ] && { echo "$text" >>"$work/expected"; continue; }
        if [ -n "$prompt" ]; then
            if [ -s "$work/expected" ]; then run_command "$prompt" "$work/expected"; else run_command "$prompt"; fi
            prompt=""
        fi
        case $kind in
        prompt) prompt=$text; : >"$work/expected" ;;
        command) run_command "$text" ;;
        line) if is_command "$text"; then run_command "$text"; fi ;;
        file)
            [ $in_file = yes ] || : >CMakeLists.txt
            in_file=yes
            echo "$text" >>CMakeLists.txt
            ;;
        end) in_file=no ;;
        unknown) echo "$page: a block of '$text': expected sh, console, c, cmake or text" ;;
        esac
    done 3<"$2"
}

# --- a page's spans and links ---

check_options() { # FILE WORDS... : check that the list in FILE has each option among the words
    local list=$1 word
    shift
    for word in "$@"; do
        word=${word%%[=\[,.:;)]*}
        [[ $word =~ ^--[a-z] ]] || continue
        grep -qxF -- "$word" "$list" || echo "$page: no such option: $word (in \`$span\`)"
    done
}

check_call() { # `cgp_name(a, b)`: check the number of parameters, unless there is `...`
    local name=${span%%(*} inside=${span#*(} count
    [ -n "$inside" ] && [ "$inside" != ")" ] || return 0
    [[ $inside =~ \.\.\. || $inside =~ [\(\{] ]] && return
    count=$(awk -F, '{ print NF }' <<<"$inside")
    awk -v name="$name" -v n="$count" '$1 == name { found = 1; if ($2 == n || $3 && n >= $2 - 1) good = 1 } END { exit found && !good }' \
        "$work/functions" || echo "$page: another number of parameters: \`$span\`"
}

is_name() { # pages for developers may name internal functions
    [ -n "${public[$1]-}" ] && return
    case $page in docs/design/* | docs/decisions/* | ARCHITECTURE.md | CONTRIBUTING.md) [ -n "${internal[$1]-}" ] ;; *) false ;; esac
}

check_span() {
    local words
    read -ra words <<<"$span"
    case $span in
    cgpipe\ *)
        case ${words[1]} in --version | help | ... | COMMAND) return ;; esac
        if ! grep -qxF -- "${words[1]}" <<<"$commands"; then echo "$page: no such command: \`$span\`"; return; fi
        check_options "$work/options-${words[1]}" "${words[@]}"
        # Run a command of a span if it only prints.
        if [[ ${#words[@]} -ge 3 && ! $span =~ [[:space:]][A-Z]+ && ! $span =~ \.\.\. ]]; then
            case $span in cgpipe\ plan\ * | *--plan-only* | cgpipe\ schedule\ [a-z]*) run_command "$span" ;; esac
        fi
        ;;
    make\ *)
        for word in "${words[@]:1}"; do
            [[ $word == *=* || $word == ... ]] || grep -qwF -- "$word" <<<"$targets" || echo "$page: no such target: \`$span\`"
        done
        ;;
    --[a-z]*) check_options "$work/options" "${words[0]}" ;;
    cgp_*\(*)
        is_name "${span%%(*}" || echo "$page: no such function: \`$span\`"
        check_call
        ;;
    cgp_*) [[ $span =~ [^a-z0-9_] ]] || is_name "$span" || echo "$page: no such name: \`$span\`" ;;
    src/* | data/* | include/* | tests/* | docs/* | examples/* | bench/* | cli/* | models/* | python/* | recipes/* | tools/* | cmake/*)
        # shellcheck disable=SC2206
        local there=("$source_dir"/${words[0]}) # may be a glob pattern
        [ -e "${there[0]-none}" ] || echo "$page: no such file: \`$span\`"
        ;;
    build/tests/*) [ -n "$(find "$source_dir/tests" -name "${words[0]##*/}.[cs]*")" ] || echo "$page: no such test: \`$span\`" ;;
    esac
}

slugs() { sed -n 's/^##* //p' "$1" | tr 'A-Z' 'a-z' | sed 's/[^a-z0-9 _-]//g; s/ /-/g'; }

check_links() {
    local link file anchor
    grep -oE '\]\([^)]*\)' "$source_dir/$page" | sed 's/^](//; s/)$//' | while IFS= read -r link; do
        case $link in http*) continue ;; esac
        file=${link%%#*} anchor=${link#"${link%%#*}"}
        if [ -n "$file" ]; then file=$source_dir/$(dirname "$page")/$file; else file=$source_dir/$page; fi
        if [ ! -e "$file" ]; then echo "$page: a link to what is not there: $link"; continue; fi
        [ -z "$anchor" ] || slugs "$file" | grep -qxF -- "${anchor#\#}" || echo "$page: no such heading: $link"
    done
}

# Create $directory, in which a page's commands run. It contains links to the project's own files,
# and commands write through these links. A developer who followed the guide may have book.txt and
# runs in the project's directory. These are not linked.
make_directory() {
    local entry
    directory=$(mktemp -d "$work/page-XXXXXX")
    ln -s "$build_dir" "$directory/build"
    for entry in README.md ARCHITECTURE.md CHANGELOG.md LICENSE Makefile bench cli cmake docs examples include models python recipes src tests tools; do
        [ ! -e "$source_dir/$entry" ] || ln -s "$source_dir/$entry" "$directory"
    done
    cat "$source_dir/README.md" "$source_dir/ARCHITECTURE.md" "$source_dir"/docs/*.md "$source_dir"/docs/*/*.md >"$directory/book.txt"
    mkdir "$directory/gpt2-files" # a small GPT-2, with another model's tokenizer
    ln -s "$source_dir"/tests/data/weights/gpt2/* "$source_dir"/tests/data/tokenizer/* "$directory/gpt2-files"
    for entry in {1..400}; do printf '\1\0\5\0\11\0\52\0\7\0'; done >"$directory/book.bin" # known tokens
    ln -s "$source_dir/tests/data/tokenizer" "$directory/gpt2"
}

# Run the examples in the output of `cgpipe help`. (The manual pages contain the same examples.)
check_help() {
    local directory command page example
    make_directory
    cd "$directory" || return
    for command in $commands; do
        page="cgpipe help $command"
        example=$(cgpipe help "$command" | sed -n 's/^example: //p')
        if [ -n "$example" ]; then run_command "$example"; else echo "$page: has no example"; fi
    done
    cd "$source_dir" || return
}

# check_page PAGE: print what is wrong with a page.
check_page() {
    local page=$1 span directory
    make_directory
    awk -f "$tests/blocks.awk" "$source_dir/$page" >"$directory.records"
    (
        cd "$directory" || exit 1
        run_page "$page" "$directory.records"
    )
    (
        cd "$directory" || exit 1
        sed -n 's/^span //p' "$directory.records" | sort -u >"$directory.spans"
        while IFS= read -r span <&4; do check_span; done 4<"$directory.spans"
    )
    check_links
}

# --- the guide's program and tables ---

# Check the c blocks of the guide. Together, blocks of examples/guide.c must be the whole program in
# order, except for its first comment. Each other block must be in another example.
check_program() {
    local file others=()
    for file in "$source_dir"/examples/*.c; do
        [ "${file##*/}" = guide.c ] || others+=("$file")
    done
    awk '
        FILENAME ~ /\/guide\.c$/ { if ($0 ~ /^#/) started = 1; if (started) guide[++n] = $0; next }
        FILENAME ~ /\.c$/ { others = others "\n" $0; next }
        FNR == 1 { at = 1 }
        /^c / || $0 == "c" { block[++size] = substr($0, 3); next }
        $0 == "end" && size {
            for (i = at; guide[i] == "" && i <= n; i++);
            for (k = 1; k <= size && guide[i + k - 1] == block[k]; k++);
            if (k > size)
                at = i + size
            else if (k > 1) { # this block should be next, but differs
                print "docs/guide.md: expected \"" guide[i + k - 1] "\" of examples/guide.c, got \"" block[k] "\""
                exit wrong = 1
            } else {
                text = ""
                for (j = 1; j <= size; j++) text = text "\n" block[j]
                if (!index(others "\n", text "\n"))
                    print "docs/guide.md: stands in no example, from \"" block[k] "\" on"
            }
            size = 0
        }
        END { if (at <= n && !wrong) print "docs/guide.md: lacks a part of examples/guide.c: " guide[at + (guide[at] == "")] }' \
        "$source_dir/examples/guide.c" "${others[@]}" "$1"
}

# Check that each c block of the README is a whole example, except for the example's first comment.
check_readme() {
    awk '
        FILENAME ~ /\.c$/ { if ($0 ~ /^#/) text[FILENAME, 0] = 1; if (text[FILENAME, 0]) example[FILENAME] = example[FILENAME] "\n" $0; next }
        /^c / || $0 == "c" { block = block "\n" substr($0, 3); next }
        $0 == "end" && block {
            found = 0
            for (name in example) found = found || example[name] == block
            if (!found) print "README.md: is no whole example: " substr(block, 2, index(substr(block, 2), "\n"))
            block = ""
        }' "$source_dir"/examples/*.c "$1"
}

fields() { # print the members of a struct in a header
    sed -n "/^typedef struct $2 {/,/^}/p" "$source_dir/include/cgpipe/$1" | sed 's|/\*.*\*/||' | tr '\n' ' ' | sed -E 's:/\*([^*]|\*+[^*/])*\*+/::g' |
        grep -oE '[a-z_0-9]+(\[[A-Z_a-z0-9]*\])?[ ]*[,;]' | sed 's/[^a-z0-9_].*//'
}

check_headers() { # PAGE : check its table of headers, and what cgpipe.h includes
    local header
    while IFS= read -r header; do
        sed -n 's/^| \(cgpipe\/[^|]*\)|.*/\1/p' "$1" | tr -d ' ' | tr , '\n' | grep -qxF -- "$header" ||
            echo "docs/guide.md: its table lacks the header $header"
        case $header in cgpipe/ext/backend.h | cgpipe/ext/ops* | cgpipe/ext/plugin.h | cgpipe/ext/model_plugin.h) continue ;; esac # headers for plug-ins
        case $header in cgpipe/cgpipe.h | cgpipe/models/* | cgpipe/data.h | cgpipe/images.h | cgpipe/tokenizer.h) continue ;; esac
        grep -qxF -- "#include <$header>" "$source_dir/include/cgpipe/cgpipe.h" || echo "docs/guide.md: cgpipe/cgpipe.h lacks $header"
    done < <(cd "$source_dir/include" && find cgpipe -name '*.h' | sort)
    ! grep -q '<cgpipe/models/' "$source_dir/include/cgpipe/cgpipe.h" || echo "docs/guide.md: cgpipe/cgpipe.h has headers of cgpipe/models/"
}

check_tables() {
    local name
    for name in $(fields plan.h cgp_plan_options) $(fields optim.h cgp_optim); do
        grep -qF "\`$name\`" "$1" || echo "docs/guide.md: does not say what the field $name means"
    done
    for name in $(sed -n 's/^CGP_API cgp_value \(cgp_[a-z0-9_]*\)(.*/\1/p' "$source_dir/include/cgpipe/model.h"); do
        grep -qF "\`$name" "$1" || grep -qF "$name(" "$1" || echo "docs/guide.md: does not name $name"
    done
    for name in $(sed -n 's/^ *X([A-Z0-9_]*, \([a-z0-9_]*\), .*/\1/p' "$source_dir"/include/cgpipe/ext/ops{,/elementwise}.h); do
        grep -qF "\`$name\`" docs/reference/graph-files.md || echo "docs/reference/graph-files.md: does not name the op $name"
    done
}

# --- the checks above find faults ---

failed=0
find_fault() { # find_fault WHAT EXPECTED <page
    local real=$source_dir
    source_dir=$work/fault
    rm -rf "$source_dir"
    mkdir -p "$source_dir/docs"
    for entry in README.md ARCHITECTURE.md tests; do ln -s "$real/$entry" "$source_dir"; done
    cat >"$source_dir/docs/page.md"
    echo mine >"$source_dir/book.txt"
    check_page docs/page.md >"$work/found"
    if [ "$(cat "$source_dir/book.txt")" != mine ]; then
        echo "not ok: a book.txt in the project's directory is written over"
        failed=1
    fi
    source_dir=$real
    grep -qF -- "$2" "$work/found" && return
    echo "not ok: the check does not find $1; it says:"
    cat "$work/found"
    failed=1
}
find_fault "a command that fails" "exit code 2" <<<$'text\n\n    cgpipe plan gpt3 --stages 2'
find_fault "a command of another program" "exit code 2" <<<$'```sh\nls none\n```'
find_fault "one in an indented block" "exit code 2" <<<$'text\n\n    ls -l none'
find_fault "a program that is not there" "exit code 127" <<<$'text\n\n    cgpype plan gpt2 --stages 2'
find_fault "a target without a reason" "give the reason" <<<$'```sh\nmake clean\n```'
find_fault "another output" "prints something else" <<<$'text\n\n    $ cgpipe --version\n    cgpipe 0.0.0'
find_fault "a missing line of output" "prints something else" <<<$'```console\n$ printf "a\\nb\\n"\na\n```'
find_fault "an unknown kind of block" "expected sh" <<<$'```bash\nls\n```'
find_fault "an option in a span" "no such option: --shedule" <<<'see `cgpipe plan --shedule gpipe`'
find_fault "a span that fails" "exit code" <<<$'see `cgpipe plan gpt2:layers=2\n--stages 99`'
find_fault "a target" "no such target" <<<'see `make coffee`'
find_fault "a function" "no such function" <<<'see `cgp_plan_draw()`'
find_fault "a parameter too many" "another number of parameters" <<<'see `cgp_plan_destroy(plan, model)`'
find_fault "a file" "no such file" <<<'see `docs/none.md`'
find_fault "a link" "what is not there" <<<'see [this](none.md)'
find_fault "a heading" "no such heading" <<<$'# One\nsee [two](#two)'
rm -rf "$work/marks" "$work/ran"
mkdir "$work/marks"

# --- all pages ---

cd "$source_dir" || exit 1
pages=(README.md ARCHITECTURE.md CONTRIBUTING.md SECURITY.md CHANGELOG.md KNOWN_ISSUES.md docs/*.md docs/*/*.md examples/README.md bench/README.md bench/*/README.md)
for page in "${pages[@]}"; do
    check_page "$page"
done >"$work/wrong"
check_help >>"$work/wrong"
awk -f "$tests/blocks.awk" docs/guide.md >"$work/guide"
awk -f "$tests/blocks.awk" README.md >"$work/readme"
{
    check_program "$work/guide"
    check_readme "$work/readme"
    check_tables docs/guide.md
    check_headers docs/guide.md
    for command in "${!reasons[@]}" "${!additions[@]}" "${!without_numbers[@]}"; do
        [ -e "$work/marks/$(sha256sum <<<"$command" | cut -c 1-20)" ] || echo "commands.sh: no page has: $command"
    done
} >>"$work/wrong"
sed 's/^/# /' "$work/ran"
cat "$work/wrong"
[ -s "$work/wrong" ] && failed=1
[ $failed = 0 ] && echo "ok: ${#pages[@]} pages, $(wc -l <"$work/ran") commands run, ${#reasons[@]} not run with a reason"
exit $failed
