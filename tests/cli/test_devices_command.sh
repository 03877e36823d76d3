#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_devices_command.sh SOURCE_DIR BUILD_DIR -- cgpipe devices lists backends with their memory
# and capabilities, transports and plug-ins, as text and as JSON. For a missing plug-in, it gives
# the reason. The test also checks which directories are searched for plug-ins.
source "$(dirname "$0")/support.sh"
plugins=$2/tests/plugins
# List the plug-ins that this build did not make, with the reason of each.
not_built=$(grep -o 'X("[^"]*", "[^"]*")' "$2/generated/not_built.h" | sed 's/X("\(.*\)", "\(.*\)")/\1: was not built: \2/')

line() { grep -E "^$1" "$out" | tr -s ' '; }

# Copy the program and the libraries of the build, but not the plug-ins in the same directory.
built=$program program=$work/bin/cgpipe
mkdir "$work/bin" "$work/lib"
cp "$built" "$work/bin/" && cp -a "$2"/libcgpipe.so* "$2"/libcgpipe_data.so* "$work/lib/"
export LD_LIBRARY_PATH=$work/lib

run devices
check "exit code 0" exits 0
check "cpu is here, with memory" grep -qE '^cpu:0 +[0-9.]+ [KMGT]iB +synchronous, host memory, custom ops +cgpipe$' "$out"
check "so is ref" grep -qE '^ref:0 +[0-9.]+ [KMGT]iB ' "$out"
check "a transport, too" test "$(grep -v '^left out' "$out" | tail -n 2 | tr -s ' ')" = "transport from
inproc cgpipe"
check "plug-ins that were not built, and nothing else" test \
    "$(grep -vE '^(device|cpu:0|ref:0|transport|inproc) ' "$out" | sed 's/^left out  *//')" = "$not_built"
check "there is one for GPUs, or none was built" test "$([ -e "$2/plugins/libcgpipe-cuda.so" ] && echo built)" = "$([[ $not_built == *libcgpipe-cuda.so* ]] || echo built)"
run devices --json devices.json
check "the same as JSON" test "$(jq -c '[.backends[] | [.name, .plugin, .asynchronous, .host_addressable, .custom_ops, .reason,
    (.devices | length)]]' devices.json)" = '[["cpu",null,false,true,true,null,1],["ref",null,false,true,true,null,1]]'
check "free memory is a number" test "$(jq '.backends[0].devices[0] | .ordinal == 0 and .free_bytes > 1000000 and .reason == null' devices.json)" = true
check "transports" test "$(jq -c .transports devices.json)" = '[{"name":"inproc","plugin":null}]'
check "no plug-ins but those" test "$(jq -r '.plugins[] | "\(.path): \(.reason)"' devices.json)" = "$not_built"
check "the version" test "$(jq -r .version devices.json)" = "$("$program" --version | cut -d' ' -f2)"
run devices --json -
check "to standard output, the text beside it" test "$(jq -r '.backends[1].name' "$out") $(grep -c '^ref:0 ' "$err")" = "ref 1"
fails 2 "devices: expected no operand, got cpu" devices cpu
fails 2 "--batch: unknown option" devices --batch 3

export CGP_PLUGIN_PATH=$plugins/abi:$plugins/refuses:$plugins/good:relative
run devices --json plugins.json
check "a plug-in's devices" grep -qE "^good:0 +3.00 GiB +synchronous, host memory +$plugins/good/libcgpipe-good.so$" "$out"
check "of memory that is not known" grep -qE '^good:1 +unknown ' "$out"
check "one that was left out, with the reason" grep -qE "^left out +$plugins/abi/libcgpipe-abi.so: expected CGP_PLUGIN_ABI 2, got 100 " "$out"
check "one that refuses" grep -qE "^left out +$plugins/refuses/libcgpipe-refuses.so: refuses: no driver here$" "$out"
check "a relative directory is refused" grep -qxF \
    'cgpipe: [plugin] warning: CGP_PLUGIN_PATH: expected absolute directories with colons between, got "relative" (left out)' "$err"
check "the same as JSON" test "$(jq -c '[.plugins[] | [(.path | split("/")[-1]), .name, (.reason | if . then split(",")[0] else null end)]] | .[:3]' plugins.json)" = \
    '[["libcgpipe-abi.so",null,"expected CGP_PLUGIN_ABI 2"],["libcgpipe-refuses.so",null,"refuses: no driver here"],["libcgpipe-good.so","good",null]]'
check "its backend too" test "$(jq -c '.backends[2] | [.name, (.plugin | split("/")[-1]), .custom_ops, [.devices[].free_bytes]]' plugins.json)" = \
    '["good","libcgpipe-good.so",false,[3221225472,null]]'
check "a plug-in's transport" grep -qE "^good-transport +$plugins/good/libcgpipe-good.so$" "$out"
check "the same as JSON" test "$(jq -c '[.transports[] | [.name, (.plugin | if . then split("/")[-1] else null end)]]' plugins.json)" = \
    '[["inproc",null],["good-transport","libcgpipe-good.so"]]'
export CGP_PLUGIN_PATH=$plugins/abi:$plugins/good
fails 2 "device: expected cpu, ref or good, got \"abi\"; plug-in $plugins/abi/libcgpipe-abi.so: expected CGP_PLUGIN_ABI 2, got 100 ..." \
    plan gpt2:layers=1,width=32,heads=2,seq=16 --devices abi

# If the hardware of a backend is missing, its count() returns the reason.
export CGP_PLUGIN_PATH=$plugins/away
run devices --json away.json
check "a backend without hardware says why" grep -qxE "away +unavailable: away: no driver of it here \(from $plugins/away/libcgpipe-away.so\)" "$out"
check "the same as JSON" test "$(jq -c '.backends[2] | [.name, .reason, .devices]' away.json)" = '["away","away: no driver of it here",[]]'

# No file in the current directory is opened as a plug-in, whatever the file's name is.
unset CGP_PLUGIN_PATH
cp "$plugins/good/libcgpipe-good.so" . && mkdir -p cgpipe && cp "$plugins/good/libcgpipe-good.so" cgpipe/
for path in "" . ./ cgpipe :; do
    CGP_PLUGIN_PATH=$path run devices
    check "CGP_PLUGIN_PATH=\"$path\" opens nothing here" test "$code$(grep -c good "$out")" = 00
done
rm -r cgpipe libcgpipe-good.so

# If a plug-in is not found, the message gives the plug-in's name, the searched directories, and the
# fix.
places="$work/bin/plugins, $work/lib/cgpipe, $work/lib/plugins" path="name the plug-in's directory in CGP_PLUGIN_PATH"
fails 2 "device: expected cpu or ref, got \"cuda\": no libcgpipe-cuda.so in $places (build cgpipe where nvcc is, or $path)" plan $model --devices cuda:0
fails 2 "transport: expected inproc, got \"mpi\": no libcgpipe-mpi.so in $places (install an MPI, as Debian's libopenmpi-dev is, and build cgpipe again, or $path)" \
    bench $model --transport mpi
CGP_PLUGIN_PATH=$plugins/away fails 2 "device: expected cpu, ref or away, got \"toy\": no libcgpipe-toy.so in $plugins/away, $places ($path)" \
    plan $model --devices toy
fails 2 "device: expected cpu or ref, got \"cpuu\" (did you mean cpu?)" plan $model --devices cpuu

# Plug-ins are searched first next to the program and then next to the library, whatever the current
# directory is.
opens() { # NAME FILE... : check that exactly these plug-ins are opened
    check "$1" test "$code $(grep -o "[^ (]*/libcgpipe-[a-z-]*\.so" "$out" | sort -u | xargs)" = "0 ${*:2}"
}
good=libcgpipe-good.so away=libcgpipe-away.so
for at in bin/plugins lib/cgpipe lib/plugins; do
    mkdir "$work/$at" && cp "$plugins/good/$good" "$work/$at/"
    run devices
    opens "in $at" "$work/$at/$good"
    ln -sf "$work/bin/cgpipe" "$work/linked"
    program=$work/linked run devices
    opens "in $at, by a link" "$work/$at/$good"
    (cd "$work" && bin/cgpipe devices) >"$out" 2>"$err" </dev/null
    opens "in $at, by a relative path" "$work/$at/$good"
    rm -r "${work:?}/$at"
done
mkdir "$work/bin/plugins" "$work/lib/cgpipe"
cp "$plugins/good/$good" "$work/bin/plugins/" && cp "$plugins/good/$good" "$plugins/away/$away" "$work/lib/cgpipe/"
run devices
check "the program's counts" grep -qE "^good:0 .* $work/bin/plugins/$good$" "$out"
check "one of the same name beside the library is left out" grep -qF "left out     $work/lib/cgpipe/$good: backend good: expected a name of its own" "$out"
check "another one there is opened" grep -qF "(from $work/lib/cgpipe/$away)" "$out"
rm -r "$work/bin/plugins" "$work/lib/cgpipe"
for at in bin/plugins lib/cgpipe; do echo "no directory" >"$work/$at"; done
run devices
opens "files of these names are no directories"
rm "$work/bin/plugins" "$work/lib/cgpipe"
mkdir -p "$work/bin/plugins/libcgpipe-directory.so"
mkfifo "$work/bin/plugins/libcgpipe-pipe.so"
for bytes in 0 100 1000 5000; do head -c $bytes "$plugins/good/$good" >"$work/bin/plugins/libcgpipe-cut$bytes.so"; done
run devices
check "what is no whole file is left out" test "$code$(grep -c "^left out     $work/bin/plugins/libcgpipe-" "$out")" = 06
check "one that is cut short says so" grep -q 'libcgpipe-cut5000.so: expected a whole shared object, got 5000 bytes' "$out"
rm -r "$work/bin/plugins"
if [ "$(id -u)" = 0 ]; then
    mkdir "$work/bin/plugins" && cp "$plugins/good/$good" "$work/bin/plugins/"
    chown 12345 "$work/bin/plugins"
    run devices
    opens "a directory of another user is left out"
    check "with a warning" grep -qF "$work/bin/plugins: belongs to another user (left out; CGP_PLUGIN_PATH may name it)" "$err"
    chown 12345 "$work/bin/cgpipe"
    run devices
    opens "unless the program is that user's, too" "$work/bin/plugins/$good"
fi

# The program of the build finds the build's plug-ins, except cuda-host, which is a fake GPU for
# tests.
unset LD_LIBRARY_PATH
program=$built
run devices
ours=$(cd "$2/plugins" 2>/dev/null && ls -d "$PWD"/libcgpipe-*.so)
# shellcheck disable=SC2086 # split into words
opens "those of the build" $ours
CGP_PLUGIN_PATH=$2/plugins run devices
check "cuda-host is not one of them" test "$code$(grep -c cuda-host "$out")" = 00
finish
