#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_report.sh SOURCE_DIR BUILD_DIR -- cgpipe report makes a page of a run: well-formed, complete
# in one file, with the numbers of --json. The verdict names planted faults first. Runs that failed,
# were stopped or killed, still run, or are of an older cgpipe have a report that says what is
# missing. Only regular files of a run are read, and only whole reports are written.
source "$(dirname "$0")/support.sh"

page() { # NAME RUN SECTION.. : make page and JSON of a run, and check them
    local name=$1 of=$2
    shift 2
    run report "$of" --out page.html --json page.json
    check "$name: exit code 0" exits 0
    check "$name: the page" python3 "$source_dir/tests/cli/report_page.py" page page.html page.json "$@"
}
sentence() { jq -r ".verdict.sentences[$1]" page.json; }
begins() { case $(sentence "$1") in "$2"*) true ;; *) echo "# $(sentence "$1")"; false ;; esac; }
missing() { jq -r '.missing[]' page.json | grep -qF -- "$1"; }
gpt2=gpt2:layers=6,width=32,heads=2,seq=16
words="--data text.txt --batch 8 --chunks 4 --steps 9"

# --- a training writes the report ---

run train $gpt2 $words --stages 2 --clip 1 --evaluate-every 4 --run a
check "train: its last line names the report" test "$(tail -n 1 "$out")" = "report       a/report.html"
sha256=$(sed -n 's/^weights_sha256 //p' "$out")
check "train: the report is there" has "</html>" a/report.html
check "train: no left-overs" test "$(ls -A a | grep -c '^\.')" = 0
check "train: the measured step is the last" test "$(jq .step a/measured.json)" = 9
page "gpt2" a verdict curves timeline memory balance planner facts
cp page.json a.json
check "gpt2: curves" test "$(jq -c '[.curves | keys[] | select(. != "bubble")]' page.json)" = \
    '["gradient_norm","loss","lr","seconds","tokens_per_second","validation_loss"]'
check "gpt2: all points of a short run" test "$(jq '.curves.loss | length' page.json)" = 9
check "gpt2: losses of the metrics" test "$(jq -c '[.curves.loss[][1]]' page.json)" = \
    "$(jq -s -c '[.[].loss * 100000 | round / 100000]' a/metrics.jsonl)"
check "gpt2: complete" begins 2 "The run is complete: 9 of 9 steps; loss"
check "gpt2: nothing is missing" test "$(jq -c .missing page.json)" = "[]"
check "gpt2: the weights' digest" test "$(jq -r .facts.weights_sha256 page.json)" = "$sha256"
check "gpt2: parts of a device add up to the step" jq -e '.timeline | .measured_seconds as $all |
    all(.devices[]; ([.parts[]] | add - $all | fabs) < 1e-4 * $all + 1e-6)' page.json
check "gpt2: sections of a device add up to the plan" jq -e \
    'all(.memory.devices[]; ([.sections[]] | add) == .planned_bytes)' page.json
check "gpt2: the bytes of cgpipe plan" test "$(jq -c '[.memory.devices[].planned_bytes]' page.json)" = "$("$program" \
    plan "$(jq -r .facts.model page.json)" --stages 2 --batch 8 --chunks 4 --json - 2>/dev/null | jq -c '[.devices[].planned_bytes]')"
check "gpt2: the peak is within the plan" jq -e \
    'all(.memory.devices[]; .peak.bytes <= .planned_bytes and .peak.bytes > 0)' page.json
check "gpt2: every action" test "$(jq '[.timeline.devices[].measured[]] | length' page.json)" = 16
run report a
check "without --out: RUN/report.html" test "$(cat "$out")" = "report       a/report.html"
run report a --text
check "--text: at most 110 columns" test "$(widest "$out")" -le 110
for word in "verdict  " "curve  " "compute" "memory  " "stage  device" "command  "; do
    check "--text has: $word" has "$word" "$out"
done
check "the measured step is a file for --compare" "$program" schedule --compare a/measured.json >"$out" 2>"$err"

# --- planted faults, in recorded steps ---

planted() { # NAME SLOWNESS LATENCY BEGINNING OPTIONS..
    local name=$1 slowness=$2 latency=$3 beginning=$4
    shift 4
    rm -rf p
    run train $gpt2 $words --stages 2 --quiet --run p "$@"
    python3 "$source_dir/tests/cli/report_page.py" plant p/measured.json "$slowness" "$latency"
    page "$name" p timeline planner
    check "$name: named first" begins 0 "$beginning"
}
planted "imbalance" 1,1 0 "An imbalance limits the step: stage 0 " --balance 8,2
check "imbalance: the change" test "$(jq -r '.changes[0].kind' page.json)" != device
check "imbalance: what waits" grep -q "stage 1 waits for F of stage 0" <(sentence 0)
planted "slow link" 1,1 4 "A slow link limits the step: a message from device " --balance 5,5
check "slow link: the change" test "$(jq -r '.changes[0].kind' page.json)" = link
planted "slow device" 1,3 0 "A slow device limits the step: device 1 (rank 1 on node1) takes 3.0 times" --balance 5,5
check "slow device: the change" test "$(jq -r '.changes[0].kind' page.json)" = device
planted "no fault" 1,1 0 "The bubble of the schedule limits the step" --balance 5,5
run report p --text
check "no fault: --text has at most 62 lines" test "$(wc -l <"$out")" -le 62
planted "one device" 1 0 "Computation limits the step" --stages 1
planted "other options" 1,1 0 "" --schedule interleaved --virtual 2 --group 2 --chunks 7
check "other options: the command has all that differ" test "$(jq -r '.changes[] | select(.kind == "schedule").words |
    test("--virtual [12]") and test("--group 2|without --group")' page.json)" = true
check "other options: one warning about micro-batches" test "$(grep -c 'micro-batches of' "$err")" -le 1
planted "recomputation" 1,1 0 "" --recompute always --balance 5,5
check "recomputation: the command has the balance" test "$(jq -r '.changes[] | select(.kind == "recompute").words |
    test("^--recompute never --balance [0-9]+,[0-9]+$")' page.json)" = true

# --- other models, schedules and states of a run ---

run train resnet20 --data shapes --batch 8 --chunks 2 --steps 3 --stages 2 --evaluate-every 2 --quiet --run r --schedule zb-h1
page "resnet" r curves timeline memory balance planner facts
check "resnet: accuracy" jq -e '.curves | has("top1") and has("images_per_second")' page.json
check "resnet: I and W" test "$(jq -c '[.timeline.devices[].measured[][0]] | unique' page.json)" = '["F","I","W"]'
CGP_FAULT=fail:1F3@6 run train $gpt2 $words --stages 2 --save-every 2 --run f
check "failed: exit code" exits 1
page "failed" f curves timeline memory balance planner facts
check "failed: the message comes first" begins 0 "The run failed after 6 of 9 steps: stage 1, micro-batch 3, 1F3:"
check "failed: a measured step" test "$(jq .timeline.step page.json)" = 4
CGP_FAULT=kill:0F0@5 run train $gpt2 $words --stages 2 --save-every 2 --run k
page "killed" k curves timeline
check "killed: told" begins 2 "The run has ended after 5 of 9 steps: it was killed, or"
run train --resume --run k --quiet
page "resumed" k curves timeline
check "resumed: complete" begins 2 "The run is complete: 9 of 9 steps"
check "resumed: two starts" test "$(jq '.facts.starts | length' page.json)" = 2
"$program" train $gpt2 --data text.txt --batch 8 --chunks 4 --steps 1000000 --save-every 0 --stages 2 --quiet --run b 2>"$err" &
training=$!
until [ -e b/measured.json ] || ! kill -0 $training; do sleep 0.05; done
page "running" b curves timeline
check "running: told" begins 2 "The run is in progress:"
run stop b --wait
wait $training
page "stopped" b curves timeline
check "stopped: told" begins 2 "The run was stopped (stop request) after"
cp -r "$source_dir/tests/data/run-0.1/run" old
chmod -R u+w old
page "0.1.0" old curves memory missing
check "0.1.0: no measured step" missing "timeline: there is no measured.json"
run train $gpt2 $words --stages 2 --balance time --quiet --run t
page "--balance time" t balance planner
check "--balance time: the balance of the run" test "$(jq -c '[.balance.stages[].layers]' page.json)" = "$(jq -c .balance t/measured.json)"
run train $gpt2 $words --steps 1 --quiet --run one
page "one step" one timeline balance planner

# --- starts without a measured step ---

cp -r a again
run train --resume --run again
check "resumed without a step: exit code 0" exits 0
check "resumed without a step: measured.json stays" cmp -s a/measured.json again/measured.json
check "resumed without a step: the report" has "9 of 9 steps" again/report.html
page "resumed without a step" again timeline balance planner
check "resumed without a step: complete" begins 2 "The run is complete: 9 of 9 steps"
check "resumed without a step: nothing is missing" test "$(jq -c .missing page.json)" = "[]"
cp -r a wider
CGP_FAULT=fail:1F3@9 run train --resume --run wider --steps 12 --quiet
check "failed in its first step: exit code 1" exits 1
check "failed in its first step: measured.json stays" cmp -s a/measured.json wider/measured.json
check "failed in its first step: no report of the earlier start" test ! -e wider/report.html
page "failed in its first step" wider curves
check "failed in its first step: told" begins 2 "The run has ended after 9 of 12 steps: it was killed, or"

# --- measured.json cannot be written ---

cp -r b blocked
rm blocked/measured.json
mkdir blocked/measured.json
"$program" train --resume --run blocked --quiet >"$out" 2>"$err" &
training=$!
until [ -s "$err" ] || ! kill -0 $training; do sleep 0.05; done
rmdir blocked/measured.json
"$program" stop blocked --wait >/dev/null
wait $training
check "cannot be written: one warning" test "$(grep -c 'warning: blocked/measured.json: ' "$err")" = 1
check "cannot be written: tried again" jq -e '.end.state == "stopped"' blocked/measured.json
cp -r k blocked2
rm blocked2/measured.json
mkdir blocked2/measured.json
run train --resume --run blocked2 --steps 12 --quiet
check "cannot be written: exit code 0" exits 0
check "cannot be written: the page says complete" has "The run is complete: 12 of 12 steps" blocked2/report.html

# --- two runs ---

run report a r --out page.html --json page.json
check "two runs: the page" python3 "$source_dir/tests/cli/report_page.py" page page.html page.json settings results curves
check "two runs: settings come first" awk '/class="settings"/ {s = NR} /class="curves"/ {exit !(s && s < NR)}' page.html
check "two runs: a setting that differs" has "<td>schedule</td><td>1f1b</td><td>zb-h1</td>" page.html
check "two runs: no setting that is equal" test "$(grep -c '<td>optimizer</td>' page.html)" = 0
check "two runs: two lines in a drawing" has 'class="line s1"' page.html
fails 2 "report: two runs need a file for the page (--out FILE.html)" report a r
fails 2 "c: unexpected argument after a" report a b c

# --- many steps, many actions ---

cp -r a many
awk 'BEGIN {for (i = 1; i <= 30000; i++) printf "{\"step\":%d,\"loss\":%s,\"lr\":0.1,\"seconds\":0.5}\n", i,
    i == 12345 ? 99 : i == 20001 ? -7 : 1 + 1 / i}' >many/metrics.jsonl
echo '{"step":30001,"loss":' >>many/metrics.jsonl
page "30,000 steps" many curves
check "30,000 steps: at most 2,000 points" jq -e '.curves.loss | length <= 2000 and length > 500' page.json
check "30,000 steps: first, last, least and greatest" jq -e '.curves.loss | .[0][0] == 1 and .[-1][0] == 30000 and
    any(.[]; . == [12345, 99]) and any(.[]; . == [20001, -7])' page.json
check "30,000 steps: steps ascend" jq -e '[.curves.loss[][0]] | . == unique' page.json
check "30,000 steps: the line that is cut off" missing "1 of 30001 lines of metrics.jsonl cannot be used"
cp -r a ulps
for i in 1 2 3 4; do
    echo "{\"step\":$i,\"loss\":1.000000000000000$((i % 2 * 2)),\"lr\":0,\"seconds\":0.5}"
done >ulps/metrics.jsonl
run_limited() { timeout 60 "$program" "$@" >"$out" 2>"$err"; }
check "a range of an ulp: ends" run_limited report ulps --out page.html
check "a range of an ulp: few marks" test "$(grep -o '<path class="g"' page.html | wc -l)" -le 60
cp -r a nan
awk 'BEGIN {for (i = 1; i <= 3000; i++) printf "{\"step\":%d,\"loss\":%s,\"seconds\":0.5}\n", i,
    (i == 7 || i > 2500) ? "null" : 1 + 1 / i}' >nan/metrics.jsonl
page "no loss" nan curves
check "no loss: gaps" jq -e '.curves.loss | length <= 2000 and .[-1] == [3000, null] and any(.[]; . == [7, null])' page.json
check "no loss: the drawing has gaps" test "$(grep -o 'data-curve="loss".*' page.html | sed 's/<.svg>.*//' |
    grep -o 'class="line s0" d="[^"]*' | grep -o 'M' | wc -l)" = 2
check "no loss: named" grep -q "the loss is not a number since step 2501" <(sentence 2)
cp -r a large
jq '.model = "gpt2:layers=64,width=8,heads=1,vocab=16,seq=8" | .options.stages = 64 | .options.chunks = 512 |
    .options.batch = 512 | .options.devices = null' a/run.json >large/run.json
rm large/measured.json
cp many/metrics.jsonl large
page "64 devices, 512 micro-batches" large timeline memory missing
check "64 devices, 512 micro-batches: runs of actions" test "$(jq .timeline.each_action page.json)" = false
check "64 devices, 512 micro-batches: a row each" test "$(jq '.timeline.devices | length' page.json)" = 64

run train gpt2:layers=4,width=8,heads=1,seq=8 --data text.txt --batch 1024 --chunks 1024 --steps 2 --stages 4 --quiet --run limited
check "20,000 actions: a training does not search" has "plans are searched for 2 s, and for at most 20000 actions" limited/report.html
page "20,000 actions" limited timeline planner
check "20,000 actions: cgpipe report does" jq -e '(.plans | length) == 5 and .missing == []' page.json

# --- files that are not the run's, and bad files ---

fails 2 "report: RUN is missing (the directory of cgpipe train)" report
fails 1 "run directory nowhere: no such directory" report nowhere
fails 1 "page.d/x.html: cannot be written (page.d/: No such file or directory)" report a --out page.d/x.html
cp -r a bad
echo secret >secret
rm bad/measured.json bad/metrics.jsonl bad/report.html
ln -s ../secret bad/measured.json
ln -s ../secret bad/metrics.jsonl
ln -s ../secret bad/report.html
page "links" bad missing
check "links: told" missing "bad/measured.json: is a link"
check "links: not read" test "$(grep -c secret page.json)" = 0
run report bad
check "report.html is a link: refused" exits 1
check "report.html is a link: not followed" test "$(cat secret)" = secret
rm bad/measured.json bad/metrics.jsonl bad/report.html
mkfifo bad/measured.json bad/metrics.jsonl
page "pipes" bad missing
check "pipes: told" missing "bad/measured.json: is not a regular file"
rm bad/measured.json
head -c 500 a/measured.json >bad/measured.json
page "cut off" bad missing
check "cut off: told" missing "bad/measured.json: line 1:"
jq '.cgpipe.end_seconds[0] = [1] | .costs.layers[0].forward_seconds = [-1]' a/measured.json >bad/measured.json
page "wrong times" bad missing
check "wrong times: told" missing "bad/measured.json: cgpipe.end_seconds: expected the times of the"
check "wrong costs: told" missing "bad/measured.json: layer 0: forward_seconds: expected a number >= 0"
jq '.balance = [1, -1, 99999999999]' a/measured.json >bad/measured.json
page "wrong balance" bad missing
check "wrong balance: told" missing "plan: "
jq 'del(.step)' a/measured.json >bad/measured.json
page "no step" bad timeline missing
check "no step: told" missing "timeline: the number of the measured step is missing"
jq '.end.weights_sha256 = "\u001b[31mred" | .plan_sha256 = "\u001b[31mred" |
    .places[0].host = "\u001b[31mred"' a/measured.json >bad/measured.json
run report bad --text
check "terminal escapes: shown, not written" test "$(grep -c red "$out")" -ge 2 -a "$(tr -d -c '\033' <"$out" | wc -c)" = 0
jq '.cgpipe_measured = 99' a/measured.json >bad/measured.json
page "another format" bad missing
check "another format: told" missing "cgpipe_measured: expected 1"
jq '.options.schedule = "<script>alert(1)</script>" | .model = "<b>&\"" | .versions = {"x<y": "&", "z": "\ufffe\uffff\u0001"}' a/run.json >bad/run.json
page "markup" bad missing
check "markup: escaped" test "$(grep -c '<script>alert\|<b>' page.html)" = 0
echo '{' >bad/run.json
fails 1 "bad/run.json: line 2: ..." report bad --text
mkdir 'a "<run>'
cp -r a/* 'a "<run>'
page "a path with markup" 'a "<run>' curves

# --- a disk that is full ---

run train $gpt2 $words --quiet --run full
(
    ulimit -f 1
    "$program" report full --json - >/dev/null 2>"$err"
    "$program" report full --out full.html >"$out" 2>"$err"
    echo $? >full.code
)
check "no space: exit code 1" test "$(cat full.code)" = 1
check "no space: told" has "full.html: " "$err"
check "no space: no partial file" test ! -e full.html -a -z "$(find . -maxdepth 1 -name '.cgpipe-*')"

finish
