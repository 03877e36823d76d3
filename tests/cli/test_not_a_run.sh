#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_not_a_run.sh SOURCE_DIR BUILD_DIR -- a path inside a run, or published weights, given where a
# RUN is wanted: the message says what to type.
source "$(dirname "$0")/support.sh"

run train gpt2:layers=1,width=8,heads=2,vocab=256,seq=8 --data text.txt --batch 2 --chunks 1 --steps 2 --run one --save-every 1
check "a run" exits 0
mkdir hf empty
echo '{"model_type":"gpt2"}' >hf/config.json
: >hf/model.safetensors

inside="one/latest: is a part of the run one (type one)"
for command in sample config stop report diagnose; do
    fails 1 "$inside" $command one/latest
done
fails 1 "$inside" compare one one/latest
fails 1 "$inside" convert one/latest weights.safetensors
fails 1 "$inside" train --resume --run one/latest
fails 1 "$inside" plan gpt2:layers=1,width=8,heads=2,vocab=256,seq=8 --tflops 1 --calibrate one/latest
fails 1 "one/latest//: is a part of the run one (type one)" sample one/latest//
fails 1 "one/run.json: is a part of the run one (type one)" sample one/run.json
fails 1 "$PWD/one/latest: is a part of the run $PWD/one (type $PWD/one)" sample "$PWD/one/latest"
fails 1 "one/step-00000001: is a part of the run one (type one; sample and convert take a step by --from-step 1)" sample one/step-00000001
run sample one --from-step 1 --length 1
check "that does it" exits 0
file=$(cd one/latest && ls -- *.safetensors | head -n 1)
fails 1 "one/step-00000001/$file: is a part of the run one (type one; sample and convert take a step by --from-step 1)" \
    sample "one/step-00000001/$file"
cd one/latest || exit 1
fails 1 ".: is a part of the run .. (type ..)" sample .
cd .. || exit 1
fails 1 "latest: is a part of the run . (type .)" sample latest
fails 1 "./latest: is a part of the run . (type .)" sample ./latest
run sample . --length 1
check "and so does that" exits 0
cd .. || exit 1

weights="has config.json of published weights, expected the directory of a run (cgpipe convert"
for command in sample config stop report diagnose; do
    fails 1 "hf: $weights hf RUN makes a run from them)" $command hf
done
fails 1 "hf: $weights hf RUN makes a run from them)" train --resume --run hf
fails 1 "hf/model.safetensors: is a file of weights, expected the directory of a run ..." sample hf/model.safetensors

# Other paths have the message of a missing file.
fails 1 "empty/run.json: cannot be read (No such file or directory)" sample empty
fails 1 "text.txt/run.json: cannot be read (Not a directory)" sample text.txt
fails 1 "run directory one/nothing: no such directory" sample one/nothing
mkdir one/inner
run train gpt2:layers=1,width=8,heads=2,vocab=256,seq=8 --data text.txt --batch 2 --chunks 1 --steps 1 --run one/inner
check "a run may be made inside another" exits 0
run diagnose one/inner
check "and counts as a run" has "one/inner/diagnosis: cannot be read" "$err"
finish
