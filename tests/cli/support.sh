# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# support.sh -- functions and files for the tests of the program. Source it with the arguments
# SOURCE_DIR BUILD_DIR.
#
# A test runs in its own directory, which has text.txt, empty.txt and short.txt. `finish` ends the
# test.
set -u
export LC_ALL=C
unset CGP_LOG CGP_FAULT CGP_LIMITS CGP_PLUGIN_PATH POSIXLY_CORRECT
export CGP_GPU_FILE=/nowhere # hide GPUs of this machine

set -- "$(cd "$1" && pwd)" "$(cd "$2" && pwd)" # make paths absolute, because the test changes its directory
source_dir=$1 program=$2/cgpipe
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/files" && cd "$work/files" || exit 1

# Return true if the random draws and long searches of a test are not shortened, as in .ci/run.
is_whole() { awk "BEGIN {exit !(${CGP_TEST_SCALE:-1} >= 0.5)}"; }

passed=0 failed=0
out=$work/stdout err=$work/stderr code=0

ok() { echo "ok - $1"; passed=$((passed + 1)); }
not_ok() { echo "not ok - $1"; failed=$((failed + 1)); }

# run WORDS... : run the program; keep its output and exit code.
run() {
    timeout $((300 * ${CGP_TEST_PATIENCE:-1})) "$program" "$@" >"$out" 2>"$err" </dev/null
    code=$?
}

# check NAME COMMAND... : run the command, which tests a condition. If the command fails, show the
# last output of cgpipe.
check() {
    local name=$1
    shift
    if "$@"; then ok "$name"; else
        not_ok "$name (failed: $*)"
        echo "# exit code $code; stdout: $(head -c 300 "$out"); stderr: $(head -c 600 "$err")"
    fi
}

# Return true if an error line of `cgpipe COMMAND ..` begins with "cgpipe: ", not followed by the
# name of another command.
names_itself() { # COMMAND LINE
    local name=${2#cgpipe: }
    [ "$name" != "$2" ] || return 1
    name=${name%%[: ]*}
    [ "$name" = "$1" ] && return
    case ${2#cgpipe: } in
    train:* | sample:* | config:* | tokenize:* | convert:* | plan:* | profile:* | check:* | bench:* | schedule:* | diagnose:* | stop:* | supervise:* | compare:* | report:* | completion:*) return 1 ;;
    esac
}

# fails CODE LINE WORDS... : run the program. Expect this exit code, no output, no new files, and
# the single line "cgpipe: LINE" on stderr. If LINE ends in "...", only the text before "..." is
# compared.
fails() {
    local expected_code=$1 expected="cgpipe: $2"
    shift 2
    local before after line good=true
    before=$(find . | sort)
    run "$@"
    after=$(find . | sort)
    line=$(cat "$err")
    [ "$code" -eq "$expected_code" ] || good=false
    [ "$(wc -l <"$err")" -eq 1 ] || good=false
    [ -s "$out" ] && good=false
    names_itself "${1-}" "$line" || good=false
    [ "$before" = "$after" ] || good=false
    case $expected in
    *...) [ "${line#"${expected%...}"}" != "$line" ] || good=false ;;
    *) [ "$line" = "$expected" ] || good=false ;;
    esac
    if $good; then ok "refused ($expected_code): $line"; else
        not_ok "cgpipe $*"
        echo "# expected code $expected_code and: $expected"
        echo "# got      code $code and: $line"
        echo "# stdout: $(head -c 200 "$out")"
        diff <(echo "$before") <(echo "$after") | sed 's/^/# files: /'
    fi
}

has() { grep -qF -- "$1" "$2"; }
exits() { [ "$code" -eq "$1" ]; }
empty() { [ ! -s "$1" ]; }
widest() { awk 'length > m { m = length } END { print m }' "$@"; }
lines() { [ "$(wc -l <"$2")" -eq "$1" ]; }
value() { sed -n "s/^ *\"$1\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}$/\1/p" "$2" | head -n 1; }

keys() { # keys FILE KEY... : return true if the JSON file has all keys
    local file=$1 key
    shift
    for key in "$@"; do
        grep -q "^ *\"$key\": " "$file" || { echo "# $file: no key $key"; return 1; }
    done
}

# Make text.txt: 24 KB of text that a small model can learn.
for i in $(seq 1 400); do
    echo "the $i. line says that $((i * 7)) follows $((i * 7 - 1)) and so on"
done >text.txt
: >empty.txt
echo "too short" >short.txt
model=gpt2:layers=1,width=32,heads=2,seq=16

finish() {
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
    exit
}
