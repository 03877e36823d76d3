#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_cuda_gpu_check.sh SOURCE_DIR BUILD_DIR -- tools/gpu_check.sh on cuda-host: digests equal the
# committed digests, and a different digest is detected. A sanitizer that did not run is never
# reported as clean. Finished parts are kept, and the remaining parts are listed.
set -u
source_dir=$(cd "$1" && pwd) build=$(cd "$2" && pwd)
command -v python3 >/dev/null || { echo "skip: needs python3"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset CGP_LOG CGP_FAULT CGP_LIMITS CGP_PLUGIN_PATH
export PYTHON=python3
failed=0
fail() { echo "not ok - $*"; failed=1; }
ok() { echo "ok - $*"; }

# run EXPECTED_CODE WORDS... : run the script with its own directory of results.
run() {
    local expected=$1
    shift
    "$source_dir/tools/gpu_check.sh" --backend cuda-host --built "$build" --out "$work/results" "$@" >"$work/out" 2>&1
    local code=$?
    [ $code = "$expected" ] && return
    fail "gpu_check.sh $*: exit code $code, expected $expected"
    cat "$work/out"
}
says() { if grep -qE -- "$1" "$work/out"; then ok "says: $1"; else fail "does not say: $1"; cat "$work/out"; fi; }

# Without a GPU nothing runs, and nothing is written.
if ! command -v nvidia-smi >/dev/null; then
    "$source_dir/tools/gpu_check.sh" --built "$build" --out "$work/none" --report "$work/none" >"$work/out" 2>&1
    code=$?
    says '^gpu_check: expected a GPU'
    if [ $code != 2 ] || [ -e "$work/none" ]; then fail "without a GPU: exit code $code"; fi
fi

run 3 --minutes 0
says '^digests +left'
says '^left: digests bits'
run 0 --part digests
says 'ops, cuda-host here and committed: all [0-9]{3} equal'
says '10 steps, (cuda-host here and committed: all 6 equal|committed: of another libm)'
run 3 --minutes 0
says '^digests +passed'

# Change one digest in the saved cells of an interrupted part, which then resumes from them.
python3 - "$work"/results/*/digests.json <<'END'
import json, sys
with open(sys.argv[1]) as file:
    part = json.load(file)
part["verdict"] = "not finished"
name = next(iter(part["cells"]["cuda-host"]["ops"]))
part["cells"]["cuda-host"]["ops"][name] = 64 * "0"
with open(sys.argv[1], "w") as file:
    json.dump(part, file)
END
run 1 --part digests
says 'FAILED ops, cuda-host here and committed: 1 of [0-9]+ differ: forward, '

# Test sanitizers that report no error, that find errors, and two whose output is not valid.
tried() { # BACKEND [SECONDS]
    PATH=$work/bin:$PATH PYTHONDONTWRITEBYTECODE=1 python3 - "$source_dir" "$work" "$@" >"$work/out" 2>&1 <<'END'
import pathlib, sys, time
sys.path.insert(0, sys.argv[1] + "/tools/gpu_check")
import check, exactness
work, end = pathlib.Path(sys.argv[2]), time.monotonic() + int(sys.argv[4:][0] if sys.argv[4:] else 3600)
found = exactness.sanitizers(check.Check(sys.argv[3], work, work / "sanitizers", None, "python3", {}, end, "sanitizers", end))
print("verdict:", found["verdict"], *found["lines"], sep="\n")
END
}
mkdir "$work/bin"
cat >"$work/bin/compute-sanitizer" <<'END'
#!/bin/sh
case $2 in
memcheck) echo "0000000000000000000000000000000000000000000000000000000000000000  sum of squares, search, add, 100003 elements"
    echo "========= ERROR SUMMARY: 0 errors" ;;
racecheck) echo "========= RACECHECK SUMMARY: 3 hazards displayed (3 errors, 0 warnings)" ;;
synccheck) echo "========= ERROR SUMMARY: 0 errors"; exit 1 ;;
initcheck) echo "Device not supported" >&2; exit 1 ;;
esac
END
chmod +x "$work/bin/compute-sanitizer"
tried cuda
says '^failed$'
says '^memcheck: clean$'
says 'FAILED racecheck: 3 errors$'
says 'synccheck: not run \(exit code 1'
says 'initcheck: not run \(exit code 1: Device not supported\)$'
sed -i 's/3 hazards/0 hazards/' "$work/bin/compute-sanitizer"
tried cuda
says '^not run$'
sed -i 's/ERROR SUMMARY/Target application terminated before first instrumented API call\n&/' "$work/bin/compute-sanitizer"
tried cuda
says '^memcheck: not run \(it saw no call of CUDA\)$'
# Test two sanitizers that do not finish: one has found an error, the other has found none so far.
cat >"$work/bin/compute-sanitizer" <<'END'
#!/bin/sh
[ "$2" = racecheck ] && echo "========= Error: Race reported between Write access and Read access"
exec sleep 60
END
tried cuda 4
says '^FAILED racecheck: 1 errors$'
says '^initcheck: not run \(compute-sanitizer: not done after [0-9]+ s\)$'
PATH=$work/bin:$PATH run 0 --part sanitizers
says '^sanitizers +not run'
says '^    no GPU$'

# A failed op test is reported with its name, seed and message. An interrupted part reports the
# results that it has.
mkdir -p "$work/tests"
printf '#!/bin/sh\necho CGP_TEST_SEED=7; echo "[  FAILED  ] x is y"; echo "ERROR: x is 1, not 2" >&2; exit 1\n' >"$work/tests/test_x"
chmod +x "$work/tests/test_x"
PYTHONDONTWRITEBYTECODE=1 python3 - "$source_dir" "$work" >"$work/out" 2>&1 <<'END'
import pathlib, sys, time
sys.path.insert(0, sys.argv[1] + "/tools/gpu_check")
import check, exactness, report
work, end = pathlib.Path(sys.argv[2]), time.monotonic() + 60
of = check.Check("cuda", work, work / "others", None, "python3", {}, end, "bf16", end)
said = exactness.property_test(of, "test_x")
print(*report.so_far({"ours": {"samples_per_second": 2.0}, "test_x": said, "test_y": "passed", "gemms": ["one"]}), sep="\n")
END
says '^ours: 2.0 samples/s$'
says '^FAILED test_x: x is y \(CGP_TEST_SEED=7\): x is 1, not 2$'
says '^test_y: passed$'

# A foreign program that fails is reported in a line and has no median.
PYTHONDONTWRITEBYTECODE=1 python3 - "$source_dir" "$work" >"$work/out" 2>&1 <<'END'
import pathlib, sys, time
sys.path.insert(0, sys.argv[1] + "/tools/gpu_check")
import check, speed
work, end = pathlib.Path(sys.argv[2]), time.monotonic() + 60
sys.argv[1:] = []  # bench/cases.py reads them
of = check.Check("cuda", work, work / "others", None, "no-such-python", {}, end, "gpt2", end)
print(of.rounds({"ours": lambda: {"samples_per_second": 2.0}, "PyTorch": lambda: speed.gpt2_torch(of, 1)}, 2), *speed.did_not_run(of), sep="\n")
END
says "^\{'ours': 2.0\}$"
says '^PyTorch: did not run: no-such-python: No such file'

[ $failed = 0 ] && echo "ok: gpu_check.sh on cuda-host"
exit $failed
