#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_groups.sh SOURCE_DIR BUILD_DIR -- tests --gradient-groups in plans, searches, plan files,
# trainings and resumed runs. The option is printed and kept, and results are bit-equal in every
# layout.
source "$(dirname "$0")/support.sh"
command -v jq >/dev/null || { echo "skip: needs jq"; exit 77; }

model=gpt2:layers=4,width=32,heads=2,seq=16,vocab=256
words="--batch 12 --chunks 6"
weights() { sha256sum <"$1/latest/weights.safetensors"; }
groups() { jq -r .options.gradient_groups "$1/run.json"; }

# --- plans ---

run plan $model --stages 2 $words --json one.json
check "plan: one group by default" test "$(jq .gradient_groups one.json) $(grep -c 'gradient groups' "$out")" = "1 0"
run plan $model --stages 2 $words --gradient-groups 1 --json named.json
check "plan --gradient-groups 1: the same plan" cmp one.json named.json
run plan $model --stages 2 $words --gradient-groups 4 --json four.json
check "plan --gradient-groups: in the text" has "precision f32, 4 gradient groups, 1 thread" "$out"
check "plan --gradient-groups: bytes in the text" has "of the total for partial sums of gradients" "$out"
check "plan --gradient-groups: two more buffers for each gradient, nothing else" \
    test "$(jq -c '[.devices[] | .planned_bytes - 2 * .gradient_bytes]' four.json)" = "$(jq -c '[.devices[].planned_bytes]' one.json)"
check "plan --gradient-groups: another plan" test "$(jq .plan_sha256 one.json)" != "$(jq .plan_sha256 four.json)"
run plan $model --stages 2 $words --gradient-groups 4 --search --plan-out plan.json --json found.json
check "plan --search: printed" has "in FLOPs, 4 gradient groups" "$out"
check "plan --search: in the command" has "--gradient-groups 4" <(jq -r .command found.json)
check "plan --search: in the plan file" test "$(jq .options.gradient_groups plan.json)" = 4

# --- trainings ---

train="--data text.txt --steps 3"
run train $model $words $train --run plain
run train $model $words $train --gradient-groups 4 --run one
check "train: printed" has ", 4 gradient groups" "$out"
check "train: kept in run.json" test "$(groups plain) $(groups one)" = "1 4"
check "train: other bits than without" test "$(weights plain)" != "$(weights one)"
run train $model $words $train --gradient-groups 4 --stages 2 --schedule zb-v --run two
check "train: the same bits on other stages" test "$code $(weights one)" = "0 $(weights two)"
run train --plan plan.json $train --run planned
check "train --plan: the same bits" test "$code $(groups planned) $(weights one)" = "0 4 $(weights planned)"
run train --plan plan.json $train --schedule gpipe --run gpipe
check "train --plan, another schedule: the same bits" test "$code $(groups gpipe) $(weights one)" = "0 4 $(weights gpipe)"
run train $model $words --data text.txt --steps 5 --gradient-groups 4 --run whole
run train --resume --run one --steps 5 --stages 3 --schedule gpipe
check "resume on other stages keeps the groups, and the bits" test "$code $(groups one) $(weights one)" = "0 4 $(weights whole)"
run train --resume --run one --steps 6 --gradient-groups 2
check "resume: a change is reported" has "--gradient-groups 4 -> 2" "$out"
run check $model $words --stages 2 --schedule v-half --gradient-groups 8
check "check --gradient-groups: bit for bit" test "$code $(grep -c '^the same to the bit' "$out")" = "0 1"
run bench $model $words --steps 1 --gradient-groups 2 --json bench.json
check "bench --gradient-groups" test "$code $(jq .gradient_groups bench.json)" = "0 2"

# --- what is refused ---

fails 2 "--gradient-groups 0: expected ..." plan $model $words --gradient-groups 0
fails 2 "gradient groups: expected a power of two, got 6 (4 and 8 are the nearest)" \
    train $model $words $train --gradient-groups 6 --run none
fails 2 "gradient groups: expected 1 to 1024, got 2048" plan $model $words --gradient-groups 2048
printf '0F0,0F1,0F2,0F3,0F4,0F5,0B5,0B4,0B3,0B2,0B1,0B0\n' >descending.csv
fails 2 "schedule descending.csv: does not run the backward of each stage in ascending order ..." \
    train $model $words $train --schedule descending.csv --gradient-groups 2 --run none

finish
