#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_links.sh SOURCE_DIR BUILD_DIR -- in a run's directory, cgpipe changes only the run's own
# files. It never follows links inside the directory, and keeps files with other names. A pipe or
# socket in place of a file is refused without blocking.
source "$(dirname "$0")/support.sh"

words="$model --data text.txt --batch 8 --chunks 2 --keep 0 --save-every 3"
files() { find "$1" -printf '%P %y %l\n' -type f -exec sha256sum {} + | LC_ALL=C sort; }
untouched() { # NAME BEFORE DIRECTORY
    check "$1: not touched" test "$2" = "$(files "$3")"
}
sha() { sed -n 's/^weights_sha256 //p' "$out"; }

run train $words --steps 6 --run kept
run train $words --steps 8 --run straight
whole=$(sha)
mkdir thesis
echo "years of work" | tee thesis/chapter-1 thesis/weights.safetensors >/dev/null
cp -r kept other-run
thesis=$(files thesis) other=$(files other-run)

# --- checkpoints that are links ---

for option in "--resume --from-step 6 --steps 8" "--overwrite $words --steps 8"; do
    cp -r kept a
    ln -s ../thesis a/step-00000099
    run train $option --run a
    check "step-00000099 -> thesis, ${option%% *}: exit code 0" exits 0
    untouched "step-00000099 -> thesis, ${option%% *}" "$thesis" thesis
    check "step-00000099 -> thesis, ${option%% *}: the same weights" test "$(sha)" = "$whole"
    check "step-00000099 -> thesis, ${option%% *}: the link is gone" test ! -L a/step-00000099
    rm -r a
done
cp -r kept a
ln -s ../other-run/step-00000006 a/step-00000009
run train --resume --run a --from-step 9 --steps 12
check "--from-step of a link: refused" exits 1
check "--from-step of a link: told" has "a/step-00000009: is a link" "$err"
check "--from-step of a link: it is still there" test -L a/step-00000009
run sample a --from-step 9 --length 3
check "sample --from-step of a link: refused" exits 1
run train --resume --run a --steps 9
check "a checkpoint in place of a link: exit code 0" exits 0
check "a checkpoint in place of a link: a directory" test -d a/step-00000009 -a ! -L a/step-00000009
untouched "a checkpoint in place of a link" "$other" other-run
rm -r a

# --- links inside a checkpoint ---

cp -r kept a
rm -r a/step-00000003/weights.safetensors
ln -s ../../thesis/chapter-1 a/step-00000003/weights.safetensors
ln -s ../../thesis a/step-00000003/more
run train --resume --run a --steps 8 --keep 1
check "links in an old checkpoint: exit code 0" exits 0
check "links in an old checkpoint: it is deleted" test ! -e a/step-00000003
untouched "links in an old checkpoint" "$thesis" thesis
rm -r a
for file in weights.safetensors checkpoint.json checkpoint.sha256; do
    cp -r kept a
    mv "a/step-00000006/$file" "moved"
    ln -s ../../moved "a/step-00000006/$file"
    run train --resume --run a --steps 8
    check "$file is a link: refused" exits 1
    check "$file is a link: told" has "a/step-00000006/$file: is a link" "$err"
    check "$file is a link: the whole one before is named" has "--from-step 3" "$err"
    rm -r a moved
done

if [ "$(id -u)" -ne 0 ]; then # root may read all files
    cp -r kept a
    chmod 0 a/step-00000006
    run train --resume --run a --steps 8
    check "a checkpoint that cannot be read: the whole one before is named" has "--from-step 3)" "$err"
    chmod 700 a/step-00000006
    rm -r a
fi

# --- latest ---

cp -r kept a
rm a/latest
ln -s ../other-run/step-00000006 a/latest
run train --resume --run a --steps 8
check "latest leads out of the run: refused" exits 1
check "latest leads out of the run: told" has "a/latest: leads to ../other-run/step-00000006" "$err"
run sample a --length 3
check "sample, latest leads out of the run: refused" exits 1
run train --resume --run a --from-step 6 --steps 8
check "latest leads out of the run, --from-step: exit code 0" exits 0
check "latest leads out of the run, --from-step: replaced" test "$(readlink a/latest)" = step-00000008
untouched "latest leads out of the run" "$other" other-run
rm -r a
cp -r kept a
ln -sfn ../other-run a/latest
run train --overwrite $words --steps 8 --run a
check "latest leads out of the run, --overwrite: exit code 0" exits 0
untouched "latest leads out of the run, --overwrite" "$other" other-run
rm -r a

# --- .new ---

cp -r kept a
ln -s ../other-run a/.new
run train --resume --run a --steps 8
check ".new -> another run, --resume: exit code 0" exits 0
untouched ".new -> another run, --resume" "$other" other-run
ln -sfn ../other-run a/.new
run train --overwrite $words --steps 3 --run a
untouched ".new -> another run, --overwrite" "$other" other-run
rm -r a
cp -r kept a
mkdir -p a/.new/step-00000002 a/.new/.cgpipe-step-00000004-1-0.tmp
echo x | tee a/.new/run.json a/.new/step-00000002/weights.safetensors a/.new/.cgpipe-step-00000004-1-0.tmp/x >/dev/null
ln -s ../../thesis a/.new/step-00000009
run train --resume --run a --steps 8
check ".new of a killed conversion: exit code 0" exits 0
check ".new of a killed conversion: gone" test -z "$(ls -A a | grep -E '^\.')"
untouched ".new of a killed conversion: links in it" "$thesis" thesis
mkdir a/.new && echo mine >a/.new/notes.txt
run train --resume --run a --steps 9
check ".new with a file of the user's: exit code 0" exits 0
check ".new with a file of the user's: a warning" has "cgpipe: warning: a/.new: cannot be deleted" "$err"
check ".new with a file of the user's: it stays" has mine a/.new/notes.txt
rm -r a

# --- run.json and metrics.jsonl ---

for file in run.json metrics.jsonl; do
    cp -r kept a
    mv "a/$file" precious
    ln -s ../precious "a/$file"
    before=$(sha256sum <precious) all=$(files a)
    for option in "--resume" "--overwrite $words"; do
        run train $option --run a --steps 8
        check "$file is a link, ${option%% *}: refused" exits 1
        check "$file is a link, ${option%% *}: told" has "a/$file: is a link" "$err"
        check "$file is a link, ${option%% *}: its target is as it was" test "$before" = "$(sha256sum <precious)"
        untouched "$file is a link, ${option%% *}: the run" "$all" a
    done
    rm -r a precious
done
cp -r kept a && mv a/run.json precious && ln -s ../precious a/run.json
run sample a --length 3
check "sample, run.json is a link: refused" exits 1
run convert a exported
check "convert, run.json is a link: refused" exits 1
rm -r a precious
ln -s nowhere dangling.json && mkdir a && ln -s ../nowhere a/metrics.jsonl
run train $words --steps 3 --run a --overwrite
check "metrics.jsonl leads nowhere: nothing is made there" test ! -e nowhere
rm -r a dangling.json

# --- other files stay ---

cp -r kept a
mkdir -p a/step-5 a/step-00000004.mine a/step-000000099
echo mine | tee a/step-5/notes.txt a/notes.txt a/step-00000004.mine/x a/step-000000099/x a/.cgpipe-mine >/dev/null
mine=$(files a | grep -a mine$; files a/step-5; files a/step-000000099; files a/step-00000004.mine; cat a/notes.txt a/.cgpipe-mine)
run train --overwrite $words --steps 8 --run a
check "--overwrite beside other names: exit code 0" exits 0
check "--overwrite beside other names: they stay" test "$mine" = "$(files a | grep -a mine$; files a/step-5
    files a/step-000000099; files a/step-00000004.mine; cat a/notes.txt a/.cgpipe-mine)"
run train --resume --run a --from-step 3 --steps 8
check "--from-step beside other names: step-5 stays" has mine a/step-5/notes.txt
rm -r a
mkdir -p a/step-5 && echo mine >a/step-5/notes.txt
run train $words --steps 3 --run a
check "step-5 alone is no run: exit code 0" exits 0
check "step-5 alone is no run: it stays" has mine a/step-5/notes.txt
rm -r a

# --- the run itself may be a link ---

mkdir -p scratch
ln -s scratch linked
run train $words --steps 6 --run linked
check "the run is a link: exit code 0" exits 0
check "the run is a link: it is in its target" test -e scratch/step-00000006/checkpoint.json
run train --resume --run linked/ --steps 8
check "the run is a link: resumed to the same weights" test "$(sha)" = "$whole"
run train --resume --run linked --from-step 6 --steps 8
check "the run is a link, --from-step: the same weights" test "$(sha)" = "$whole"
run sample linked --length 3
check "the run is a link: sample" exits 0
run train --overwrite $words --steps 8 --run linked
check "the run is a link, --overwrite: the same weights" test "$(sha)" = "$whole"
check "the run is a link: the link stays" test "$(readlink linked)" = scratch
rm -r scratch linked
mkdir scratch elsewhere
ln -s scratch linked
CGP_FAULT=delay:0F1:0.1 "$program" train $words --steps 8 --run linked >"$out" 2>"$err" </dev/null &
process=$!
for _ in $(seq 1000); do
    grep -qs '"step":2,' scratch/metrics.jsonl && break
    sleep 0.02
done
ln -sfn elsewhere linked
wait $process
code=$?
check "the link leads elsewhere while the run goes on: exit code 0" exits 0
check "the link leads elsewhere while the run goes on: one run in one place" test -e scratch/step-00000008 -a -e scratch/run.json
check "the link leads elsewhere while the run goes on: nothing there" test -z "$(ls -A elsewhere)"
rm -r scratch linked elsewhere

# --- convert into a run ---

run convert kept exported
run convert exported a
ln -s ../thesis a/step-00000099
ln -s ../other-run a/.new
run convert exported a --overwrite
check "convert --overwrite: exit code 0" exits 0
untouched "convert --overwrite, step-00000099 -> thesis" "$thesis" thesis
untouched "convert --overwrite, .new -> another run" "$other" other-run
rm -r a
cp -r kept a && mkdir a/step-5 && echo mine >a/step-5/notes.txt
run convert exported a --overwrite
check "convert --overwrite: a step-5 of the user's stays" has mine a/step-5/notes.txt
check "convert --overwrite: the run is the new one" test "$(ls -d a/step-0*)" = a/step-00000000
rm -r a

for kind in file directory; do
    cp -r kept a
    [ $kind = file ] && echo mine >a/.new || { mkdir a/.new && echo mine >a/.new/notes.txt; }
    before=$(files a)
    run convert exported a --overwrite
    check "convert --overwrite, .new is a $kind of the user's: refused" exits 1
    untouched "convert --overwrite, .new is a $kind of the user's" "$before" a
    rm -r a
done

# --- hard links: a snapshot by cp -al ---

for option in "--resume --steps 8" "--resume --from-step 3 --steps 8" "--overwrite $words --steps 8"; do
    rm -rf a
    cp -al kept a && echo '{}' >kept/restarts.jsonl && ln kept/restarts.jsonl a
    kept=$(files kept)
    run train $option --run a
    check "hard links, ${option%% --steps*}: the same weights" test "$(sha)" = "$whole"
    run supervise --restarts 0 --run a -- false
    untouched "hard links, ${option%% --steps*}: the other run" "$kept" kept
    rm kept/restarts.jsonl
done
rm -r a
truncate -s 257M kept/digests.bin # too large to be read into memory
cp -al kept a
run train --resume --steps 8 --run a
check "a large file with hard links: exit code 0" exits 0
check "a large file with hard links: copied" test "$(stat -c '%h %s' a/digests.bin)" = "1 $((257 << 20))"
rm -r a kept/digests.bin

# --- pipes and sockets do not block ---

for file in run.json metrics.jsonl latest/checkpoint.json latest/checkpoint.sha256 latest/weights.safetensors \
    latest/optimizer.safetensors; do
    cp -r kept a
    rm "a/$file" && mkfifo "a/$file"
    timeout $((120 * ${CGP_TEST_PATIENCE:-1})) "$program" train --resume --run a --steps 8 >"$out" 2>"$err" </dev/null
    code=$?
    check "$file is a pipe: refused at once" exits 1
    check "$file is a pipe: told" grep -q "${file#latest/}: is not a regular file" "$err"
    check "$file is a pipe: it is still there" test -p "a/$file"
    rm -r a
done
for command in "sample a --length 3" "convert a exported --overwrite"; do
    cp -r kept a
    rm a/run.json && mkfifo a/run.json
    timeout $((120 * ${CGP_TEST_PATIENCE:-1})) "$program" $command >"$out" 2>"$err" </dev/null
    code=$?
    check "${command%% *}, run.json is a pipe: refused at once" exits 1
    rm -r a
done
# --- files that would take all memory ---

cp -r kept a
printf '[%.0s' {1..70} >a/run.json
fails 1 "a/run.json: expected JSON nested at most 64 deep, got 70" train --resume --run a --steps 8
printf '{"model": [%s[]]}' "$(printf '[],%.0s' {1..100000})" >a/run.json
CGP_LIMITS=json=20000000 fails 1 "a/run.json: expected JSON that takes at most 19 MiB of memory, ..." sample a
rm -r a
cp -r kept a
truncate -s 20G a/metrics.jsonl # appends zeros to the run's lines
run train --resume --run a --steps 8
check "metrics.jsonl of 20 GB: exit code 0" exits 0
check "metrics.jsonl of 20 GB: the lines of the run are left" lines 8 a/metrics.jsonl
rm -r a
cp -r kept a
rm a/run.json && mkdir a/run.json
fails 1 "a/run.json: is a directory, expected a file of the run" train --resume --run a --steps 8
rm -r a

finish
