#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_new.sh SOURCE_DIR BUILD_DIR -- cgpipe new model NAME writes a whole directory or nothing.
# tests/install/test_new_model.sh builds and runs the result against an installed copy.
source "$(dirname "$0")/support.sh"

run new model mine
check "exit code 0" exits 0
check "the files" test "$(cd mine && echo *)" = "Makefile README.md mine.c op.test.c"
check "the name is in place" has "cgpipe train ./mine.so" mine/README.md
check "no place is left" sh -c '! grep -r "@NAME@\|SPDX" mine'
check "nothing else is left" test "$(find . -name '.cgpipe*')" = ""
run new model A-b_9
check "letters, digits, _ and -" test -f A-b_9/A-b_9.c

fails 1 "mine: is there already (take another name)" new model mine
mkdir empty
fails 1 "empty: is there already (take another name)" new model empty
ln -s nowhere link
fails 1 "link: is there already (take another name)" new model link
check "nothing came into it" test "$(ls empty)" = ""
for name in "" a/b ../a .hidden -x 9lives "two words" 'a$b' a.b $'a\nb' ä "$(printf 'a%.0s' {1..65})"; do
    run new model -- "$name"
    check "a bad name is refused: $(printf %q "$name")" exits 2
    check "with what is expected" has "expected a name of at most 64 letters, digits, _ and -, that begins with a letter" "$err"
done
fails 2 "new: model NAME is missing (cgpipe new model mine)" new
fails 2 "new: NAME is missing (cgpipe new model mine)" new model
fails 2 "new: expected model NAME, got data (cgpipe new model mine)" new data x
fails 2 "more: unexpected argument after model" new model x more

# If the directory is not writable, or the disk is full, no file is left.
if [ "$(id -u)" -ne 0 ]; then
    mkdir closed && chmod 500 closed
    (cd closed && ! "$program" new model x 2>/dev/null)
    check "a closed directory" test $? -eq 0
fi
(ulimit -f 1 && trap '' XFSZ && "$program" new model large) >"$out" 2>"$err"
check "no room: exit code 1" test $? -eq 1
check "no room: the reason" has "cgpipe: large: cannot be written (File too large)" "$err"
check "no room: nothing is left" test "$(find . -name 'large*' -o -name '.cgpipe*')" = ""

finish
