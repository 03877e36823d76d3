#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_version.sh SOURCE_DIR BUILD_DIR -- cgpipe --version, and --version --json: the facts that a
# bug report needs.
source "$(dirname "$0")/support.sh"
include=$source_dir/include/cgpipe
define() { sed -n "s/^#define $1 \"\{0,1\}\([^\" ]*\)\"\{0,1\}.*/\1/p" "$2"; }
fact() { jq -c "$1" facts.json; }

run --version
check "the version" test "$code $(cat "$out")" = "0 cgpipe $(define CGP_VERSION "$include/base.h")"
cp "$out" version
run -V
check "-V is the same" cmp -s "$out" version
run --version --json
check "as JSON to standard output" exits 0
cp "$out" facts.json
check "it has no other keys" test "$(fact keys_unsorted)" = '["version","abi","compiler","libc","jansson","isa","libm","system","processor","usable_cores","memory_bytes","environment","backends","transports","plugins"]'
check "its version" test "$(fact .version)" = "\"$(define CGP_VERSION "$include/base.h")\""
check "the interfaces of plug-ins" test "$(fact .abi)" = \
    "{\"plugin\":$(define CGP_PLUGIN_ABI "$include/ext/plugin.h"),\"backend\":$(define CGP_BACKEND_ABI "$include/ext/backend.h"),\"transport\":$(define CGP_TRANSPORT_ABI "$include/ext/transport.h")}"
check "compiler and libraries" test "$(fact '[.compiler, .libc, .jansson] | map(type == "string" and length > 2) | all')" = true
check "the machine" test "$(fact '(.system | startswith("Linux ")) and .usable_cores >= 1 and .memory_bytes > 1e8')" = true
run devices --json devices.json
same() { diff <(jq -S '[.backends[] | del(.devices)], .transports, .plugins' facts.json) <(jq -S '[.backends[] | del(.devices)], .transports, .plugins' devices.json); }
check "backends, transports and plug-ins are those of cgpipe devices" same
run train gpt2:layers=1,width=8,heads=2,vocab=256,seq=8 --data text.txt --batch 2 --chunks 1 --steps 1 --run one
check "instruction set and libm are those of a run" test "$(fact '[.isa.f32, .libm]')" = "$(jq -c '[.versions.isa, .versions.libm]' one/run.json)"
check "nothing is wrong with them" test "$(fact .isa.reason)" = null
CGP_CPU_ISA=v9 run --version --json facts.json
check "into a file" test "$code$(wc -c <"$out")" = 00
check "a wrong instruction set is a fact, too" test "$(fact '[.isa.f32, .libm, (.isa.reason | startswith("CGP_CPU_ISA: expects"))]')" = '[null,null,true]'
check "and so is the variable" test "$(fact '.environment.CGP_CPU_ISA')" = '"v9"'
CGP_LOG=$(printf 'x\233') run --version --json facts.json
check "a variable that is not UTF-8 is null" test "$(fact '.environment | has("CGP_LOG"), .CGP_LOG')" = "true
null"

fails 2 "--jsn: unexpected argument after --version (--version --json [FILE])" --version --jsn
fails 2 "more: unexpected argument after x.json (--version --json [FILE])" --version --json x.json more
fails 1 "nowhere/x.json: cannot be written ..." --version --json nowhere/x.json
finish
