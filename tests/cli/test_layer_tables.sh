#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_layer_tables.sh SOURCE_DIR BUILD_DIR -- layer tables. The test checks plans of layer tables,
# and tables that are refused. It checks that `convert` turns profiles of other planners into
# tables. It also checks `plan --layout`, which prints stages for other trainers.
source "$(dirname "$0")/support.sh"
command -v jq >/dev/null || { echo "skip: needs jq"; exit 77; }

header=name,inputs,forward_seconds,input_seconds,weight_seconds,parameter_bytes,saved_bytes,output_bytes
cat > layers.csv <<END
# Make a table of four layers.
$header
a,, 1,1,1, 4000,1000,400
b,, 1,1,1, 4000,1000,400
c,, 1,1,1, 4000,1000,400
d,c a, 1,1,1, 0,1000,400
END

fails 1 "layers.csv: line 6: weight_seconds: expected 0, as the layer has no parameter_bytes, got \"1\"" plan layers.csv
sed -i 's/^d,c a, 1,1,1/d,c a, 1,2,0/' layers.csv

# There are two stages of two layers each. For one micro-batch, F takes 2 s and B takes 4 s. So a
# step of 1f1b with M micro-batches takes (M + 1) x 6 s.
run plan layers.csv --stages 2 --chunks 4 --json plan.json
check "plan: exit code 0" exits 0
check "plan: seconds" jq -e '.run_seconds_simulated == 30' plan.json
check "plan: a sample in each micro-batch" jq -e '.batch == 4 and .chunks == 4' plan.json
check "plan: balance" jq -e '.balance == [2, 2]' plan.json
run plan layers.csv --stages 2 --chunks 4 --optimizer sgd --momentum 0 --json sgd.json
check "plan: parameters and gradients" jq -e \
    '[.devices[] | .parameter_bytes, .gradient_bytes] == [8064, 8064, 4032, 4032]' sgd.json
run plan layers.csv --stages 2 --chunks 4 --batch 8 --json twice.json
check "plan: two samples take twice the time" jq -e '.run_seconds_simulated == 60' twice.json
run plan layers.csv --stages 2 --chunks 4 --search
check "search: exit code 0" exits 0
check "search: the command plans" grep -q '^cgpipe plan layers.csv --stages 2 ' "$out"
cp "$out" table
read -ra words < <(grep '^cgpipe plan' table)
run "${words[@]:1}"
check "search: the command can be run" exits 0

# Use a layer table as the costs of another model.
run plan gpt2:layers=2,width=32,heads=2,seq=16,vocab=64 --stages 2 --batch 4 --chunks 4 --costs layers.csv
check "costs: as many layers" exits 1
check "costs: the message" has "layers.csv: expected 6 layers, got 4" "$err"
{ cat layers.csv; printf 'e,,1,1,1,4,4,4\nf,,1,1,1,4,4,4\n'; } > six.csv
run plan gpt2:layers=2,width=32,heads=2,seq=16,vocab=64 --stages 2 --batch 4 --chunks 4 --costs six.csv --json six.json
check "costs: of a model" jq -e '.run_seconds_simulated > 0' six.json

# Commands that need kernels, and invalid tables, are refused.
for command in train bench check profile export; do
    arguments=()
    [ "$command" = train ] && arguments=(--data random --run run)
    fails 2 "layers.csv: a table of layers has no kernels, and can only be planned (cgpipe plan layers.csv)" \
        "$command" layers.csv "${arguments[@]}"
done
check "train: no run" test ! -e run
fails 2 "--costs: layers.csv has the costs (leave it out)" plan layers.csv --costs layers.csv
refuse() { # MESSAGE ROW...
    printf '%s\n' "${@:2}" > bad.csv
    fails 1 "bad.csv: $1" plan bad.csv
}
refuse 'expected a header and a row for each layer'
refuse 'line 1: header: expected the name of a column, once, got "seconds"' name,seconds
refuse 'line 1: header: expected the name of a column, once, got "name"' name,name
refuse 'line 1: expected the columns name, forward_seconds, ...' name,output_bytes
refuse 'line 2: expected 8 fields, as in the header' "$header" a,1
refuse 'line 2: forward_seconds: expected a number from 0 to 1e+06, got "-1"' "$header" a,,-1,1,1,4,4,4
refuse 'line 2: saved_bytes: expected a number from 0 to 1e+15, got "nan"' "$header" a,,1,1,1,4,nan,4
refuse 'line 2: inputs: expected names of earlier rows, each once, got "b"' "$header" a,b,1,1,1,4,4,4
refuse 'line 3: inputs: expected names of earlier rows, each once, got "a"' "$header" a,,1,1,1,4,4,4 'b,a a,1,1,1,4,4,4'
refuse 'line 3: name: expected 1 to 80 bytes without blanks, ...' "$header" a,,1,1,1,4,4,4 a,,1,1,1,4,4,4

# Convert profiles of other planners to layer tables.
tab=$'\t'
cat > graph.txt <<END
node3 -- ReLU(inplace) -- forward_compute_time=1.000, backward_compute_time=2.000, activation_size=[100.0; 20.0], parameter_size=0.000 -- stage_id=0
node1 -- Input -- forward_compute_time=9.000, backward_compute_time=0.000, activation_size=64.0, parameter_size=0.000
node2 -- Linear(4, 4, bias=True) -- forward_compute_time=3.000, backward_compute_time=5.000, activation_size=100.0, parameter_size=80.000
node4 -- Add -- forward_compute_time=0.500, backward_compute_time=0.500, activation_size=100.0, parameter_size=0.000
${tab}node1 -- node2
${tab}node2 -- node3
${tab}node2 -- node4
${tab}node3 -- node4
END
run convert graph.txt pipedream.csv
check "PipeDream: exit code 0" exits 0
cat > expected.csv <<END
name,inputs,forward_seconds,input_seconds,weight_seconds,recompute_seconds,update_seconds,parameter_bytes,saved_bytes,output_bytes
node2,,0.003,0.0025,0.0025,0.003,0,80,100,100
node3,node2,0.001,0.002,0,0.001,0,0,120,120
node4,node2 node3,0.0005,0.0005,0,0.0005,0,0,100,100
END
check "PipeDream: the table" cmp pipedream.csv expected.csv
run plan pipedream.csv --stages 2
check "PipeDream: planned" exits 0
fails 1 "pipedream.csv: is there already (--overwrite replaces it)" convert graph.txt pipedream.csv
run convert graph.txt pipedream.csv --overwrite
check "PipeDream: --overwrite" exits 0
{ cat graph.txt; printf '\tnode4 -- node2\n'; } > cycle.txt
fails 1 "cycle.txt: expected edges without a cycle" convert cycle.txt cycle.csv
check "PipeDream: no table after an error" test ! -e cycle.csv
{ cat graph.txt; printf '\tnode4 -- node9\n'; } > edge.txt
fails 1 'edge.txt: line 9: expected "nodeN -- nodeM" of two nodes, ...' convert edge.txt edge.csv

node() { # ID SECONDS BYTES A
    printf '{"id": %s, "TMPCs": {"1": [{"id": "vanilla", "timePerSample": %s, "parameterSize": %s, "memoryUsageA": %s}, {"id": "activation recomp", "timePerSample": %s5}]}}' \
        "$1" "$2" "$3" "$4" "$2"
}
printf '{"nodes": [%s, %s, %s], "edges": [{"sourceId": 0, "destId": 1, "communicationCost": 8}, {"sourceId": 1, "destId": 2, "communicationCost": 16}]}\n' \
    "$(node 2 0.6 40 100)" "$(node 0 0.0 0 8)" "$(node 1 0.3 40 100)" > piper.json
run convert piper.json piper.csv
check "Piper: exit code 0" exits 0
cat > expected.csv <<END
name,inputs,forward_seconds,input_seconds,weight_seconds,recompute_seconds,update_seconds,parameter_bytes,saved_bytes,output_bytes
node1,,0.1,0.1,0.1,0.05,0,40,100,16
node2,node1,0.2,0.2,0.2,0.05,0,40,100,0
END
check "Piper: the table" cmp piper.csv expected.csv
sed 's/vanilla/chocolate/' piper.json > other.json
fails 1 'other.json: nodes[0].TMPCs: expected a choice "vanilla" for 1 device' convert other.json other.csv

# Print the stages for other trainers.
layout() { # EXPECTED-LINES ARGUMENTS
    run plan "${@:2}"
    check "layout: ${*:2}" test "$(tail -n "$(wc -l <<<"$1")" "$out")" = "$1"
}
gpt2=gpt2:layers=4,width=32,heads=2,seq=16,vocab=64
llama=llama:layers=4,width=32,heads=2,kv_heads=2,inner=64,seq=16,vocab=64
layout "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et|t*3L'" \
    $gpt2 --stages 2 --balance 3,5 --layout megatron
layout "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'E|t*2|t*2|L'" \
    $gpt2 --stages 2 --schedule interleaved --balance 2,2,2,2 --layout megatron
layout "# ln_f is in the stage of lm_head there
--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et*4|L'" \
    $gpt2 --stages 2 --balance 7,1 --layout megatron
layout 'module_fqns_per_model_part = [
  ["tok_embeddings", "layers.0", "layers.1"],
  ["layers.2", "layers.3", "norm", "output"],
]' $llama --stages 2 --balance 3,4 --layout torchtitan
layout 'parts = [0, 3, 8]' $gpt2 --stages 2 --balance 3,5 --layout deepspeed
refuses() { # MESSAGE ARGUMENTS
    run plan "${@:2}"
    check "layout: refused: ${*:2}" grep -q -e "^cgpipe: $1" "$err"
    check "layout: the exit code" test "$code" -ne 0
}
refuses '--layout: expected megatron, torchtitan or deepspeed, got "x"' $gpt2 --layout x
check "layout: a wrong name is refused before the plan" test "$code" -eq 2 -a ! -s "$out"
refuses '--layout torchtitan: expected llama, got gpt2' $gpt2 --layout torchtitan
refuses '--layout megatron: expected gpt2 or llama, got layers.csv' layers.csv --layout megatron
refuses '--layout megatron: expected stage j on device j mod 2, got stage 2 on device 1 with zb-v' \
    $gpt2 --stages 2 --schedule zb-v --layout megatron
refuses '--layout deepspeed: expected a stage on each device, got 4 on 2 devices' \
    $gpt2 --stages 2 --schedule zb-v --layout deepspeed
refuses '--layout: expected no --search' $gpt2 --search --layout megatron
finish
