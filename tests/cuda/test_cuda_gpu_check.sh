#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_cuda_gpu_check.sh SOURCE_DIR BUILD_DIR -- tests tools/gpu_check.sh on cuda-host. Every part
# of the check runs, or its message says why it cannot run. After a killed call, the next call
# continues the check. Valid results are not measured again. A change of a source file invalidates
# exactly the results that depend on that file. A sanitizer that did not run is never reported as
# clean.
set -u
source_dir=$(cd "$1" && pwd) build=$(cd "$2" && pwd)
command -v python3 >/dev/null || { echo "skip: needs python3"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset CGP_LOG CGP_FAULT CGP_LIMITS CGP_PLUGIN_PATH OUT
export PYTHONDONTWRITEBYTECODE=1
failed=0
fail() { echo "not ok - $*"; failed=1; }
ok() { echo "ok - $*"; }
says() { if grep -qE -- "$1" "$work/out"; then ok "says: $1"; else fail "does not say: $1"; cat "$work/out"; fi; }

# A fake python3 with PyTorch. Its benchmark scripts print a speed; the script of the U-Net fails.
mkdir "$work/bin"
cat >"$work/bin/python" <<'END'
#!/bin/sh
case "$*" in
*main.py*) exec python3 "$@" ;;
*version*) echo 9.9 ;;
*unet*) echo "no U-Net here" >&2; exit 1 ;;
*_torch.py*) echo '{"samples_per_second": 2.0}' ;;
esac
END
chmod +x "$work/bin/python"
export PYTHON=$work/bin/python
tree=$source_dir built=$build
check() { "$tree/tools/gpu_check.sh" --backend cuda-host --built "$built" --out "$work/results" "$@"; }

# run EXPECTED_CODE WORDS... : run the script with these arguments, and check the exit code.
run() {
    local expected=$1
    shift
    check "$@" >"$work/out" 2>&1
    local code=$?
    [ $code = "$expected" ] && return
    fail "gpu_check.sh $*: exit code $code, expected $expected"
    cat "$work/out"
}

# Without a GPU nothing runs, and nothing is written.
if ! command -v nvidia-smi >/dev/null; then
    "$source_dir/tools/gpu_check.sh" --built "$build" --out "$work/none" --report "$work/none" >"$work/out" 2>&1
    code=$?
    says '^gpu_check: expected a GPU'
    if [ $code != 2 ] || [ -e "$work/none" ]; then fail "without a GPU: exit code $code"; fi
fi

run 3 --minutes 0
says '^to run: digests 50 s, bits 20 s, memory 10 s, ops 60 s, .* sanitizers 60 s; 565 s in all, 0 s are there$'
says '^digests +not run'
says '^    no time: 50 s are needed, 0 s are there$'
says '^left: digests bits memory ops'

# Kill a call in the middle of a part, and edit a measurement that this call has saved. The next
# call must print the edited measurement instead of measuring again.
(exec "$tree/tools/gpu_check.sh" --backend cuda-host --built "$built" --out "$work/results") >"$work/first" 2>&1 &
killed=$!
until grep -qs '"ResNet-101 f32": [0-9]' "$work"/results/*.json; do
    kill -0 $killed 2>/dev/null || { fail "the call ended before it was killed"; cat "$work/first"; break; }
    sleep 0.05
done
kill -9 $killed
wait $killed 2>/dev/null
sed -i 's/\("ResNet-101 f32": \)[0-9.]*/\112345/' "$work"/results/*.json
run 0
says '^to run: (linear 25 s, )?images 45 s, peers 60 s, (ranks 10 s, )?(torch 15 s, )?(probe 10 s, )?.* ops 60 s; '
says '^    ResNet-101 f32: 12,345.0 samples/s$'
says '^    ops, cuda-host here and committed: all [0-9]{3} equal$'
says '^    10 steps, (cuda-host here and committed: all 6 equal|committed: of another libm)'
says '^    PyTorch U-Net\(5, 64\) f32: did not run: .*no U-Net here$'
says '^    2 of 5 seeds passed: 11244888711800 1$'
for part in digests bits memory ops; do says "^$part +passed +[0-9]"; done
for part in gpt2 bf16 tables grid images peers; do says "^$part +measured +[0-9]"; done
for part in linear ranks torch probe; do says "^$part +(passed|measured|not run) "; done
says '^sanitizers +not run'
says '^    no GPU$'

# Valid results are not measured again, and are also read from the directory of reports. The part
# `ops` runs in every call, with one more random seed.
cannot=
for part in linear ranks probe sanitizers; do
    [ -n "$(jq -r ".parts.$part.verdict // empty" "$work"/results/*.json)" ] || cannot+=" $part"
done
check --minutes 0 --out "$work/fresh" --report "$work/results" 2>&1 | sed -n 's/^to run: \(.*\); .*/\1/p' | sed 's/ [0-9]* s//g; s/,//g' >"$work/out"
says "^${cannot# } ops$"

# Change one source file at a time in a copy of the tree, and print the parts whose results become
# invalid.
mkdir -p "$work/tree/tests"
cp -r "$source_dir"/{src,include,bench,tools,python} "$work/tree"
cp -r "$source_dir"/tests/{op,cuda,fakes} "$work/tree/tests"
python3 - "$work"/tree "$work"/results/*.json >"$work/out" 2>&1 <<'END'
import json, pathlib, sys
tree, results = map(pathlib.Path, sys.argv[1:])
sys.path.insert(0, str(tree / "tools/gpu_check"))
import main
report = json.loads(results.read_text())
for name in ("src/backend/cpu/backend.c", "src/backend/cuda/gemm.cu", "src/pipeline/op_times.c",
             "include/cgpipe/plan.h", "tools/gpu_check/speed.py", "bench/torch_peer.py",
             "bench/published.py", "tests/cuda/digests.txt", "tests/op/bounds.h"):
    before = (tree / name).read_bytes()
    (tree / name).write_bytes(before + b"\n")
    print(name, *(part for part, function, _, sources in main.PARTS if report["parts"].get(part)
                  and report["parts"][part]["key"] != main.key_of(report, part, function, sources)))
    (tree / name).write_bytes(before)
END
steps="digests bits memory( linear)? gpt2 bf16 tables grid images( ranks)? torch"
says '^src/backend/cpu/backend.c$'
says "^src/backend/cuda/gemm.cu ${steps/memory/memory ops}$"
says "^src/pipeline/op_times.c $steps$"
says "^include/cgpipe/plan.h $steps$"
says '^tools/gpu_check/speed.py gpt2 bf16 tables grid images$'
says '^bench/torch_peer.py peers$'
says '^bench/published.py tables$'
says '^tests/cuda/digests.txt digests$'
says '^tests/op/bounds.h ops( linear)?$'

# A pack (--pack) contains all built files that a call needs. A pack of other sources is refused.
"$source_dir/tools/gpu_check.sh" --pack "$work/pack" --built "$build" >"$work/out" 2>&1 || fail "--pack: exit code $?"
says 'MiB(, without libcgpipe-cuda.so)?, for glibc'
built=$work/pack
run 0 --part memory
sed -i 's/"sources": "/&0/' "$work/pack/pack.json"
run 2 --part memory
says '^gpu_check: .*/pack: expected a pack of these sources, got one of other sources'
"$source_dir/tools/gpu_check.sh" --pack "$work/tree" --built "$build" >"$work/out" 2>&1 && fail "a pack replaces other files"
says '^gpu_check: .*/tree: expected a new directory or an older pack, found other files$'
"$source_dir/tools/gpu_check.sh" --pack "$work/pack" --built "$work" >"$work/out" 2>&1 && fail "a directory without cgpipe is packed"
says '^gpu_check: .*: expected a build, found no cgpipe$'
built=$build

# alone SECONDS <LINES : run lines of Python after setting up a check of backend `cuda`. All
# external programs are fakes.
alone() {
    PATH=$work/bin:$PATH python3 - "$source_dir" "$work" "$1" >"$work/out" 2>&1 <<END
import pathlib, sys, time
sys.path.insert(0, sys.argv[1] + "/tools/gpu_check")
import check, exactness, ops, report
work, end = pathlib.Path(sys.argv[2]), time.monotonic() + float(sys.argv[3])
facts = {"backend": "cuda", **dict.fromkeys((*report.OF_A_PART, "device", "torch", "kernels_tree"), "x")}
store = report.Store(work / "alone.json", work / "none", facts, dict.fromkeys(("gpt2", "peers", "sanitizers"), "key"))
of = check.Check("cuda", work, "python3", facts, end, store, "sanitizers")
def sanitizers():
    try:
        print(*ops.sanitizers(of).values(), sep="\n")
    except (check.NotRun, check.OutOfTime) as reason:
        print(type(reason).__name__, reason)
$(cat)
END
}

alone 60 <<'END'
expected = exactness.committed_digests()["ops"]
name = next(iter(expected))
print(exactness.compare("a digest", {**expected, name: 64 * "0"}, expected))
END
says '^FAILED a digest: 1 of [0-9]+ differ: forward, '

# Fake sanitizers find nothing, find errors, or do not end. A further call runs only the sanitizers
# that have no result yet.
fake() { sed "s/^ *//" >"$work/bin/compute-sanitizer" && chmod +x "$work/bin/compute-sanitizer"; }
fake <<'END'
    #!/bin/sh
    case $2 in
    memcheck) echo "0000000000000000000000000000000000000000000000000000000000000000  sum of squares, search, add, 100003 elements"
        echo "========= ERROR SUMMARY: 0 errors" ;;
    racecheck) echo "========= RACECHECK SUMMARY: ${HAZARDS-0} hazards displayed (3 errors, 0 warnings)" ;;
    synccheck) exec sleep 60 ;;
    esac
END
alone 3 <<<'sanitizers()'
says "^OutOfTime memcheck: clean; racecheck: not run \(exit code 0: .*\); synccheck: not run \(compute-sanitizer: not done after [0-9]+ s\)$"
HAZARDS=3 alone 3 <<<'of.state = {"memcheck": "clean"}; sanitizers()'
says '^failed$'
says "'memcheck: clean', 'FAILED racecheck: 3 errors', 'synccheck: not run"
fake <<'END'
    #!/bin/sh
    [ "$2" = synccheck ] || echo "========= Error: Race reported between Write access and Read access"
    echo "Device not supported" >&2
    exit 1
END
alone 60 <<<'of.state = {"memcheck": "clean", "racecheck": "clean"}; sanitizers()'
says '^NotRun memcheck: clean; racecheck: clean; synccheck: not run \(exit code 1: Device not supported\)$'
alone 60 <<<'of.state = {"memcheck": "clean", "synccheck": "clean"}; sanitizers()'
says "'FAILED racecheck: 1 errors'"
fake <<'END'
    #!/bin/sh
    echo "========= Target application terminated before first instrumented API call"
    echo "========= ERROR SUMMARY: 0 errors"
END
alone 60 <<<'sanitizers()'
says '^NotRun memcheck: not run \(it saw no call of CUDA\)'

# A failed test of ops is reported with its seed and message.
mkdir "$work/tests"
printf '#!/bin/sh\necho "[  FAILED  ] x is y"; echo "ERROR: x is 1, not 2" >&2; exit 1\n' >"$work/tests/test_op_backends"
chmod +x "$work/tests/test_op_backends"
cp "$work/tests/test_op_backends" "$work/tests/test_op_properties"
alone 60 <<<'print(*ops.seeds(of)["lines"], sep="\n")'
says '^0 of 5 seeds passed: $'
says '^FAILED test_op_backends, seed 11244888711800: x is y: x is 1, not 2$'

# A speed below the required speed is reported as "slow", not as a failure.
alone 60 <<'END'
store.keep("gpt2", verdict="measured", lines=[], figures={"gpt2 M=1": 10.0, "gpt2 M=64": 6.0})
store.keep("peers", verdict="measured", lines=[], figures={"PyTorch gpt2 M=1": 10.0})
print("exit code", report.write(store, ["gpt2", "peers"], {}, [], None))
END
says '^gpt2 +slow '
says '^    MISSED: M=1 over PyTorch eager: 1.000, to be at least 1.1$'
says '^    met: M=64 over M=1: 0.600, to be at least 0.5$'
says '^exit code 0$'

[ $failed = 0 ] && echo "ok: gpu_check.sh on cuda-host"
exit $failed
