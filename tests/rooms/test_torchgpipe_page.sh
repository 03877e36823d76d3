#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# docs/torchgpipe.md has a row for each of torchgpipe's 167 tests and 15 defects, and every test that it names is there: a
# function that its program runs, or a text of a script.
#
#     bash test_torchgpipe_page.sh SOURCE_DIR BUILD_DIR
set -u
export LC_ALL=C
source_dir=$1
page=$source_dir/docs/torchgpipe.md
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT

# "file: function", a line for each that is defined and handed on to cmocka.
find "$source_dir/tests" -name 'test_*.c' | while IFS= read -r file; do
    comm -12 <(sed -n 's/^static void \([a-z0-9_]*\)(void \*\*.*/\1/p' "$file" | sort -u) \
        <(grep -oE '[A-Za-z_]+\([a-z0-9_]+[,)]' "$file" | sed 's/.*(//; s/.$//' | sort -u) |
        sed "s/^/$(basename "$file"): /"
done >"$temp/functions"

# check PAGE: print what is wrong with it.
check() {
    grep -oE '`test_[a-z_]*\.sh: [^`]*`' "$1" | tr -d '`' | sort -u | while IFS= read -r name; do
        find "$source_dir/tests" -name "${name%%: *}" -exec grep -qF -- "${name#*: }" {} \; -exec echo "$name" \;
    done >"$temp/texts"
    awk -F'|' '
        FILENAME != page { there[$0] = 1; next }
        /^All rows: / { told = $0 }
        $2 !~ /^ D?[0-9]+ $/ { next }
        {
            rows++
            expected = rows <= 167 ? " " rows " " : " D" rows - 167 " "
            if ($2 != expected) { print "row" $2 "where" expected "is expected"; exit }
            kind = "no answer"
            if ($4 ~ /^ same( |:)/) kind = "same"
            if ($4 ~ /^ better: ./) kind = "better"
            if ($4 ~ /^ not applicable: ./) kind = "not applicable"
            count[kind]++
            if (kind == "no answer")
                print "row" $2 ": expected same, better or not applicable, got" $4
            if (NF != 6)
                print "row" $2 ": expected four columns, got " NF - 2
            n = split($5, parts, "`")
            if (n < 3 && kind != "not applicable")
                print "row" $2 ": names no test"
            for (i = 2; i <= n; i += 2)
                if (!(parts[i] in there))
                    print "row" $2 ": no such test: " parts[i]
        }
        END {
            if (rows != 167 + 15)
                print "expected 182 rows, got " rows + 0
            sum = "All rows: " count["same"] + 0 " same, " count["better"] + 0 " better, " \
                  count["not applicable"] + 0 " not applicable."
            if (index(told, sum) != 1)
                print "expected: " sum
        }' page="$1" "$temp/functions" "$temp/texts" "$1"
}

# The check itself finds what is wrong.
failed=0
try() { # WHAT SED EXPECTED
    sed "$2" "$page" >"$temp/page.md"
    if ! check "$temp/page.md" | grep -qF -- "$3"; then
        echo "not ok: the check does not find $1"
        failed=1
    fi
}
try "a function that is not there" '/^| 4 |/s/that_make_no_sense/that_make_sense/' "row 4 : no such test: "
try "a file that is not there" '/^| 16 |/s/test_torchgpipe\.c/test_torchpipe.c/' "row 16 : no such test: "
try "a text that is not in a script" 's/exit code 130/exit code 131/' "row D9 : no such test: "
try "a missing row" '/^| 99 |/d' "row 100 where 99 is expected"
try "a missing last row" '/^| D15 |/d' "expected 182 rows, got 181"
try "a row without a test" '/^| 42 |/s/`//g' "row 42 : names no test"
try "a row without an answer" '/^| D3 |/s/better: /perhaps: /' "row D3 : expected same, better or not applicable"
try "a wrong sum" '/^All rows: /s/[0-9]* better/0 better/' "expected: All rows: "

check "$page" >"$temp/wrong"
cat "$temp/wrong"
[ ! -s "$temp/wrong" ] && [ "$failed" = 0 ] &&
    echo "ok: 182 rows, $(grep -oE '`test_[^`]*\.(c|sh): [^`]*`' "$page" | sort -u | wc -l) tests, all there"
