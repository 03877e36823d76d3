#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every folder of src/, and models/ and cli/, has its page in docs/design/; each page has 40 to 90 lines, is in the list of README.md there,
# and the files and tests that it names are there: `file.c` in its room, or with its folder from the project's or from include/; a
# `name` of ours; a test as `test_file: function`.
#
#     bash test_design_pages.sh SOURCE_DIR BUILD_DIR
set -u
export LC_ALL=C
source_dir=$(cd "$1" && pwd) || exit 1
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT

rooms=$(cd "$source_dir/src" && find . -mindepth 1 -maxdepth 1 -type d | sed 's|^\./||' | sort)
grep -rhoE '\bcgp__?[a-z0-9_]+|\bCGP__?[A-Z0-9_]+' "$source_dir"/{include,src,models} | sort -u >"$temp/names"
find "$source_dir/tests" -name 'test_*.c' -o -name 'test_*.sh' >"$temp/tests"

check_name() { # check_name PAGE FOLDER SPAN
    local page=$1 folder=$2 span=$3 file
    case $span in
    test_*:\ *)
        file=$(grep -E "/${span%%:*}\.(c|sh)$" "$temp/tests")
        [ -n "$file" ] || { echo "$page: no such test: $span"; return; }
        grep -qF -- "${span#*: }" "$file" || echo "$page: no such test: $span"
        ;;
    test_*)
        grep -qE "/${span%.*}\.(c|sh)$" "$temp/tests" || echo "$page: no such test: $span"
        ;;
    *[\ \<]*) ;;
    */*.[ch] | */*.py | */*.txt | */*.sh | */ | [a-z]*.[ch])
        [ -e "$source_dir/$span" ] || [ -e "$source_dir/include/$span" ] || [ -e "$source_dir/$folder/$span" ] || echo "$page: no such file: $span"
        ;;
    cgp_* | CGP_*)
        grep -qxF -- "${span%%(*}" "$temp/names" || echo "$page: no such name: $span"
        ;;
    esac
}

# check_page PAGE FOLDER
check_page() {
    local lines span
    lines=$(wc -l <"$1")
    [ "$lines" -ge 40 ] && [ "$lines" -le 90 ] || echo "$1: expected 40 to 90 lines, got $lines"
    tr '\n' ' ' <"$1" | grep -oE '`[^`]+`' | tr -d '`' | sort -u | while IFS= read -r span; do
        check_name "$1" "$2" "$span"
    done
}

# check_all FOLDER: the pages in it
check_all() {
    local room page folder
    for room in $rooms models cli; do
        [ -f "$1/$room.md" ] || { echo "no page docs/design/$room.md"; continue; }
        grep -qF "($room.md)" "$1/README.md" || echo "docs/design/README.md: does not lead to $room.md"
    done
    for page in "$1"/*.md; do
        room=$(basename "$page" .md)
        [ "$room" = README ] && continue
        folder=src/$room
        case $room in models | cli) folder=$room ;; esac
        if [ -d "$source_dir/$folder" ]; then check_page "$page" "$folder"; else echo "$page: there is no room $room"; fi
    done
}

# The check itself finds what is wrong.
failed=0
try() { # WHAT EXPECTED, after a change in $temp/pages
    check_all "$temp/pages" | grep -qF -- "$2" || { echo "not ok: the check does not find $1"; failed=1; }
    rm -rf "$temp/pages"
    cp -r "$source_dir/docs/design" "$temp/pages"
}
cp -r "$source_dir/docs/design" "$temp/pages"
rm "$temp/pages/plan.md"
try "a missing page" "no page docs/design/plan.md"
cp "$temp/pages/plan.md" "$temp/pages/cellar.md"
try "a page without a room" "there is no room cellar"
echo 'and `plan_b.c`' >>"$temp/pages/plan.md"
try "a file" "no such file: plan_b.c"
echo 'and `test_base: nothing_is_tested`' >>"$temp/pages/base.md"
try "a test" "no such test: test_base: nothing_is_tested"
echo 'and `cgp__plan_guess`' >>"$temp/pages/plan.md"
try "a name" "no such name: cgp__plan_guess"
sed -i '/transport/d' "$temp/pages/README.md"
try "a page that is not in the list" "does not lead to transport.md"

check_all "$source_dir/docs/design" >"$temp/wrong"
cat "$temp/wrong"
[ ! -s "$temp/wrong" ] && [ $failed = 0 ] && echo "ok: $(echo "$rooms" | wc -w) rooms and 2 folders on top of them have their pages"
[ ! -s "$temp/wrong" ] && [ $failed = 0 ]
