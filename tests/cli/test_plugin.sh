#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_plugin.sh SOURCE_DIR BUILD_DIR -- every command accepts a model plug-in as MODEL. Runs store
# the SHA-256 of the plug-in. Code is loaded only from a path on the command line. A plug-in that
# violates the interface contract is refused.
build_dir=$(cd "$2" && pwd)
source "$(dirname "$0")/support.sh"

# plugin FILE DEFINITIONS... : build FILE from tests/support/model_plugin.c with these macros.
plugin() {
    local file=$1
    shift
    # shellcheck disable=SC2154 # set by support.sh
    cc -O1 -Wall -Wextra -Werror -Wno-unused -Wno-unreachable-code -shared -fPIC "${@/#/-D}" -o "$file" -I"$source_dir/include" \
        "$source_dir/tests/support/model_plugin.c" -L"$build_dir" -lcgpipe_data -lcgpipe -lm 2>"$err" || not_ok "build $file: $(cat "$err")"
}
weights_of() { grep weights_sha256 "$out" | cut -d' ' -f2; }

plugin mine.so
names='mine.so:width=16,layers=3,act=swish,eps=1e-05'

# --- a plug-in that sets a locale with a decimal comma ---

if command -v localedef >/dev/null && mkdir locales && localedef -i de_DE -f ISO-8859-1 locales/de_DE.ISO-8859-1; then
    mkdir comma && { cat "$source_dir/tests/support/model_plugin.c" && echo '#include <locale.h>
static void __attribute__((constructor)) comma(void) { setlocale(LC_ALL, "de_DE.ISO-8859-1"); }'; } >comma/model.c
    cc -O1 -w -shared -fPIC -o comma/comma.so -I"$source_dir/include" comma/model.c -L"$build_dir" -lcgpipe_data -lcgpipe -lm
    export LOCPATH=$PWD/locales
    run plan ./comma/comma.so:eps=1.5e-05
    check "numbers have a decimal point beside it" has "comma.so:width=16,layers=3,act=swish,eps=1.5e-05" "$out"
    unset LOCPATH
else
    echo "skip: no localedef"
fi

# --- every command ---

run plan ./mine.so --stages 2 --json plan.json
check "plan" exits 0
check "plan: all values are written out" has "model        $names" "$out"
check "plan: the file's SHA-256 is in the report" test "$(jq -r .model_sha256 plan.json)" = "$(sha256sum <mine.so | cut -d' ' -f1)"
run plan "$PWD/mine.so:layers=5,act=relu" --stages 6 --batch 8
check "plan: an absolute path, and keys" exits 0
check "plan: they count" has "mine.so:width=16,layers=5,act=relu,eps=1e-05" "$out"
run check ./mine.so --stages 2 --schedule zb-v --batch 8 --chunks 4 --recompute always
check "check: its op computes the same in every layout" has "the same to the bit" "$out"
run profile ./mine.so --batch 8 --repeats 1 --json costs.json
check "profile" exits 0
run plan ./mine.so --stages 2 --balance time --costs costs.json
check "plan by measured times" exits 0
run bench ./mine.so --batch 8 --steps 2
check "bench" exits 0
run config ./mine.so
check "config: a run, no model" exits 1

# --- train, stop, resume ---

train="train ./mine.so:layers=2 --data plugin --batch 16 --steps 24"
run $train --run whole
check "train" exits 0
whole=$(weights_of)
check "train: weights have a hash" test -n "$whole"
run train ./mine.so:layers=2 --data plugin --batch 16 --steps 24 --run parts --stages 2
check "train in two stages: the same bits" test "$(weights_of)" = "$whole"
run train ./mine.so:layers=2 --data plugin --batch 16 --steps 10 --run parts --overwrite
check "train: some steps" exits 0
run train --resume --run parts --steps 24 --stages 3 --model ./mine.so
check "resume: the same bits, with the run's keys" test "$(weights_of)" = "$whole"
check "run.json has the file's SHA-256" \
    test "$(jq -r .model_sha256 parts/run.json)" = "$(sha256sum <mine.so | cut -d' ' -f1)"
check "so has the checkpoint" test "$(jq -r '.note | fromjson | .model_sha256' parts/latest/checkpoint.json)" = "$(jq -r .model_sha256 parts/run.json)"
run train --resume --run parts --steps 26 "$PWD/mine.so"
check "resume: MODEL as an operand, by another path" exits 0
# In the validation loss, each mini-batch is weighted by its number of targets. Here, four
# mini-batches have 16, 16, 16 and 1 targets, or 16, 4, 0 and 0. In both cases, the loss equals the
# loss of a single mini-batch with all samples.
for labelled in 49 20; do
    export UNLABELLED=$labelled
    run $train --run labelled --overwrite --json parts.json
    check "validation, $labelled of 64 samples labelled: exit code 0" exits 0
    run train --resume --run labelled --model ./mine.so --batch 64 --json all.json
    unset UNLABELLED
    check "validation, $labelled of 64 samples labelled: the mean over the labels" \
        jq -es '.[0].validation_loss - .[1].validation_loss | fabs < 1e-6' parts.json all.json
done
fails 2 "parts/run.json: names the plug-in mine.so, and code is loaded only from a path on the command line (give it there: --model ./mine.so)" \
    train --resume --run parts --steps 28
fails 2 "./mine.so:layers=3: the run has the model mine.so:width=16,layers=2,act=swish,eps=1e-05 (leave it out, or another --run)" \
    train --resume --run parts --model ./mine.so:layers=3
fails 2 "sample: expected a model from tokens [T] to logits [T, V], got mine" sample parts --model ./mine.so
fails 1 "w.safetensors: ..." convert w.safetensors new --model ./mine.so
run convert parts w.safetensors --model ./mine.so
check "convert: a run to weights" exits 0
run convert w.safetensors again --model ./mine.so:layers=2
check "convert: weights to a run" exits 0
run train --resume --run again --data plugin --steps 2 --model ./mine.so
check "train goes on with converted weights" exits 0
fails 2 "parts/run.json: names the plug-in mine.so, ..." convert parts v.safetensors
run config parts
check "config: says where the model is from" has "# The model is mine.so:width=16,layers=2" "$out"
check "config: names no model" test "$(grep -c '^model:' "$out")" = 0

# --- another file ---

mkdir other
plugin other/mine.so OTHER
fails 2 "mine.so: differs from the file of the run (SHA-256 ..." train --resume --run parts --steps 28 --model ./other/mine.so
fails 2 "mine.so: differs from the file of the run (SHA-256 ..." convert parts v.safetensors --model ./other/mine.so
run train --resume --run parts --steps 28 --model ./other/mine.so --new-model
check "--new-model goes on with it" exits 0
run train --resume --run parts --steps 29 --model ./other/mine.so
check "and from there on it is the run's" exits 0
jq '.model_sha256 = "'"$(sha256sum <mine.so | cut -d' ' -f1)"'"' parts/run.json >edited && cp edited parts/run.json
run train --resume --run parts --steps 30 --model ./mine.so
check "an edited SHA-256 is found: exit code 1" exits 1
check "an edited SHA-256 is found" has "cgpipe: parts/run.json: model_sha256 is " "$err"
run train gpt2:layers=1,width=8,heads=1,vocab=16,seq=8 --data random --steps 1 --run zoo
fails 2 "--new-model: expected a model of a file, got gpt2:..." train --resume --run zoo --steps 2 --new-model

# --- where code is loaded from ---

jq '.model = "./mine.so" | .options.model = "./mine.so"' parts/run.json >edited && cp edited parts/run.json
fails 2 "parts/run.json: names the plug-in ./mine.so, and code is loaded only from a path on the command line (give it there: --model ./mine.so)" \
    train --resume --run parts --steps 30
echo "model: ./mine.so" >run.yaml
fails 2 "run.yaml: names the plug-in ./mine.so, and code is loaded only from a path on the command line (give it there: --model ./mine.so)" plan --config run.yaml
fails 2 "run.yaml: names the plug-in ./mine.so, ..." train --config run.yaml --data plugin
run plan ./mine.so --config run.yaml
check "the command line wins" exits 0
fails 2 "mine.so: expected a path with a '/' to a model plug-in (./mine.so)" plan mine.so
fails 2 "mine.so: expected a path with a '/' to a model plug-in (./mine.so:width=2)" plan mine.so:width=2
export LD_LIBRARY_PATH=$PWD
fails 2 "mine.so: expected a path with a '/' to a model plug-in (./mine.so)" plan mine.so
unset LD_LIBRARY_PATH
run train --steps 2 --data plugin ./mine.so --run behind
check "MODEL behind --data" exits 0

# --- keys ---

fails 2 "./mine.so: widht: unknown key (did you mean width?)" plan ./mine.so:widht=2
fails 2 "./mine.so: colour: unknown key (keys: width layers act eps)" plan ./mine.so:colour=2
fails 2 "./mine.so: width: expected a whole number from 1 to 4096, got \"0\"" plan ./mine.so:width=0
fails 2 "./mine.so: eps: expected a number from 1e-12 to 1, got \"nan\"" plan ./mine.so:eps=nan
fails 2 "./mine.so: act: expected one of relu swish, got \"tanh\"" plan ./mine.so:act=tanh
fails 2 "./mine.so: width: is there twice (leave out one)" plan ./mine.so:width=2,width=2
fails 2 "./mine.so: expected key=value, got \"width\"" plan ./mine.so:width
fails 2 "--dropout 0.1: mine.so has none (leave it out)" plan ./mine.so --dropout 0.1

# --- plug-ins that break the contract ---

# refused DEFINITION LINE [KEYS]: build a plug-in with this macro; check that `plan` fails with this
# line.
refused() {
    plugin bad.so "$1"
    fails "${4:-2}" "./bad.so: $2" plan "./bad.so${3:-}"
}
refused NO_VERSION "has no symbol cgpipe_plugin_version (CGP_MODEL_PLUGIN; in its source, see cgpipe/ext/model_plugin.h)"
refused OTHER_RELEASE "was built for cgpipe 99.0.0, this is ..."
refused OTHER_SIZES "expected a cgp_tensor of ..."
refused NO_BUILD "has no function cgpipe_model_build ..."
refused BUILD_REFUSES "width: expected an even number, got 7" :width=7
refused BUILD_SAYS_NOTHING "cgpipe_model_build returned CGP_ENOMEM, and gave no reason; model bad: has no layer" "" 1
refused BUILD_IS_WRONG "layer head, linear: ..."
refused BUILD_RETURNS=77 "cgpipe_model_build: expected a cgp_status, got 77"
refused BAD_KEY "layers: expected a whole number from 1 to 100, got \"3000\""
refused NEEDS_KEY "layers: is missing (./bad.so:layers=...)"
refused MISSING "cannot be loaded (./bad.so: undefined symbol: symbol_that_is_nowhere)"
refused OWN_LIBRARY "has another copy of libcgpipe than the program (link it with \$(pkg-config --libs cgpipe), not with the static library)"
echo 'int cgpipe_plugin_version = 1;' | cc -shared -fPIC -x c -o bad.so -
fails 2 "./bad.so: was built for cgpipe of another form, this is ..." plan ./bad.so
echo 'int cgpipe_plugin_version(void) { return 1; }' | cc -shared -fPIC -x c -o bad.so -
fails 2 "./bad.so: cgpipe_plugin_version: expected data, got a function (see cgpipe/ext/model_plugin.h)" plan ./bad.so
plugin bad.so NO_DATA
fails 1 "--data plugin: expected a model plug-in with cgpipe_data_open, got bad.so, which has none" train ./bad.so --data plugin
plugin bad.so DATA_FAILS
fails 1 "--data plugin:points.csv: points.csv: cannot be read" train ./bad.so --data plugin:points.csv
plugin bad.so ONE_INPUT
fails 2 "model bad: has no loss to train ..." train ./bad.so --data plugin
fails 1 "--data plugin: expected a model plug-in with cgpipe_data_open, got resnet" train resnet20 --data plugin
fails 1 "--data random: gives ..." train ./mine.so --data random
head -c 9000 mine.so >bad.so
fails 2 "./bad.so: expected a whole shared object, got 9000 bytes, of which the end is missing (build it again)" plan ./bad.so
echo "#!/bin/sh" >bad.so
fails 2 "./bad.so: expected a shared object, got another file" plan ./bad.so
fails 1 "./none.so: cannot be read (No such file or directory)" plan ./none.so
mkdir directory.so
fails 1 "./directory.so: is not a regular file" plan ./directory.so

finish
