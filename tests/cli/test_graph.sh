#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_graph.sh SOURCE_DIR BUILD_DIR -- cgpipe export writes the graph of a model to a file. If this
# file is used as MODEL, plans and weights equal those of the original model, bit for bit. Runs of a
# graph file can be resumed. The file contains no code; custom ops come from --plugin.
build_dir=$(cd "$2" && pwd)
source "$(dirname "$0")/support.sh"

# plan_of MODEL... : print the report of a plan. Leave out the model's name and file. Also leave out
# --dropout, because a graph file stores dropout in its nodes.
plan_of() { "$program" plan "$@" --json - --quiet | jq -S 'del(.model, .model_sha256, .dropout)'; }

for spec in gpt2:layers=2,width=16,heads=2,vocab=256,seq=16,tied=1 resnet:depth=8,image=16,classes=4 \
    amoebanetd:L=3,D=8,image=64,classes=5 unet:B=2,C=4,depth=2,image=13; do
    name=${spec%%:*}
    run export $spec --out "$name.json"
    check "export $name" exits 0
    run export "$name.json" -o "$name.again"
    check "$name: read and written, the file is the same" cmp -s "$name.json" "$name.again"
    plan_of $spec --stages 2 --batch 4 --chunks 2 >one
    plan_of "$name.json" --stages 2 --batch 4 --chunks 2 >two
    check "$name: the plan, too, with its hash" cmp -s one two
    check "$name: there is a hash" has plan_sha256 one
done
run export resnet20
check "to standard output" has '"format": "cgpipe-graph"' "$out"
check "lines are entries" has '    {"name":"fc.bias","shape":[10],"init":"uniform",' "$out"
run export gpt2:layers=1,width=8,heads=1,vocab=256,seq=8 --dropout 0.25
check "--dropout is in it" has '"attributes":{"p":0.25}' "$out"
fails 2 "export: MODEL is missing (cgpipe export resnet20)" export
fails 1 "none/a.json: ..." export resnet20 -o none/a.json
fails 2 "-o: unknown option" plan resnet20 -o x

# --- train, resume ---

train="--data text.txt --batch 8 --steps 6 --lr 0.01"
run train gpt2:layers=2,width=16,heads=2,vocab=256,seq=16,tied=1 $train --run spec
spec=$(grep weights_sha256 "$out")
run train ./gpt2.json $train --run file --stages 2 --steps 3
run train --resume --run file --steps 6 --stages 3
check "the weights are the same, resumed by the run's path" test "$(grep weights_sha256 "$out")" = "$spec"
check "run.json has the file's name, path and SHA-256" test "$(jq -r '.model, .model_path, .model_sha256' file/run.json)" = \
    "gpt2.json
$PWD/gpt2.json
$(sha256sum <gpt2.json | cut -d' ' -f1)"
mkdir moved && mv gpt2.json moved
fails 1 "$PWD/gpt2.json: cannot be read (No such file or directory)" train --resume --run file --steps 7
run train --resume --run file --steps 7 --model moved/gpt2.json
check "a moved file is found" exits 0
sed 's/"scale":0.02/"scale":0.03/' moved/gpt2.json >gpt2.json
fails 2 "gpt2.json: differs from the file of the run (SHA-256 ..." train --resume --run file --steps 8 --model ./gpt2.json
printf 'model: ./moved/gpt2.json\ndata: text.txt\nsteps: 2\n' >run.yaml
run train --config run.yaml --run third
check "a run file may name a graph file: it has no code" exits 0
run sample file --prompt 1 --length 3
check "sample: from a run of a graph file" exits 0
run convert file w.safetensors
check "convert: a run to weights" exits 0
run convert file w.safetensors --model moved/gpt2.json --overwrite
check "convert: with the file's path" exits 0
fails 2 "gpt2.json: differs from the file of the run (SHA-256 ..." convert file v.safetensors --model ./gpt2.json
run convert w.safetensors weights --model moved/gpt2.json
check "convert: weights to a run" exits 0
run config file
check "config: prints the path" has "model: $PWD/moved/gpt2.json" "$out"

jq '.layers[0] = "a\u001b[2Jb"' moved/gpt2.json >evil.json
fails 1 'evil.json: layers[0]: layer: expected a name in UTF-8 without control characters, got "a\x1b[2Jb"...' plan evil.json

# --- custom ops ---

cc -O1 -w -shared -fPIC -o mine.so -I"$source_dir/include" "$source_dir/tests/support/model_plugin.c" -L"$build_dir" -lcgpipe_data -lcgpipe -lm
run export ./mine.so --out mine.json
check "export of a plug-in's model" exits 0
check "its op is there by name" has '"custom":"swish"' mine.json
check "without a path" test "$(grep -c 'mine.so' mine.json)" = 0
plan_of ./mine.so --stages 2 >one
plan_of ./mine.json --plugin ./mine.so --stages 2 >two
check "the plan is the same" cmp -s one two
run check ./mine.json --plugin ./mine.so --stages 2 --batch 4
check "its op runs" has "the same to the bit" "$out"
fails 1 "./mine.json: nodes[1]: custom: unknown custom op swish (a graph file has no code: give the plug-in that has it, --plugin ./NAME.so)" \
    plan ./mine.json
fails 2 "--plugin: expected a path with a '/' that ends in .so, got mine.so" plan ./mine.json --plugin mine.so
fails 2 "--plugin ./mine.so: expected a graph file as MODEL, got resnet20 (leave it out)" plan resnet20 --plugin ./mine.so
echo "plugin: ./mine.so" >>run.yaml
fails 2 "run.yaml: line 4: plugin: applies to one start only (give --plugin on the command line)" train --config run.yaml --run fourth
sed 's/"swish"/".\/mine.so"/' mine.json >path.json
fails 1 "./path.json: nodes[1]: custom: unknown custom op ./mine.so ..." plan ./path.json
jq '.model_path = "'"$PWD"'/mine.so"' file/run.json >edited && cp edited file/run.json
fails 2 "gpt2.json: differs from the file of the run ..." train --resume --run file --steps 8 # the gpt2.json here is another graph
fails 1 "no.json: cannot be read (No such file or directory)" plan no.json

finish
