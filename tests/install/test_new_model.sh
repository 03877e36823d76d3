#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_new_model.sh SOURCE_DIR BUILD_DIR -- build the output of `cgpipe new model` against an
# installed copy of cgpipe. The model compiles without warnings, and its test passes. Then the
# script profiles and trains the model, kills the training, and resumes it, as in the guide.
set -u
source "$(dirname "$0")/support.sh"
build_dir=$(cd "$2" && pwd)
unset PKG_CONFIG_PATH LD_LIBRARY_PATH DESTDIR CGP_PLUGIN_PATH CPATH LIBRARY_PATH

cmake --install "$build_dir" --prefix "$work/first" >"$work/out" 2>&1
check "install" test $? -eq 0
rm -f "$build_dir/install_manifest.txt"
mv "$work/first" "$work/prefix"
lib=$(dirname "$(find "$work/prefix" -name libcgpipe.so)")
export PKG_CONFIG_PATH=$lib/pkgconfig PATH=$work/prefix/bin:$PATH
cd "$work" || exit 1

check "a new model" cgpipe new model mine
cd mine || exit 1
check "make test, without a warning" make test CFLAGS="-O2 -Wall -Wextra -Wpedantic -Werror"
check "a program of C++ takes the header" g++ -x c++ -Wall -Wextra -Werror -fsyntax-only -I"$work/prefix/include" - <<'END'
#include <cgpipe/ext/model_plugin.h>
CGP_MODEL_PLUGIN;
cgp_status cgpipe_model_build(cgp_model *, const cgp_model_value *) { return CGP_OK; }
END
check "its library is the program's" test "$(readelf -d mine.so | grep -o 'libcgpipe\.so\.[0-9.]*')" = \
    "$(readelf -d "$(command -v cgpipe)" | grep -o 'libcgpipe\.so\.[0-9.]*')"
check "profile" cgpipe profile ./mine.so --batch 16 --repeats 1

# --- one run without interruption, one killed and resumed in another layout: the same weights ---

train="--data plugin --batch 64 --lr 0.002"
# shellcheck disable=SC2086 # split into words
cgpipe train ./mine.so $train --steps 200 --run whole >whole.txt 2>&1
check "train" test $? -eq 0
check "it learns" awk '/^validation/ { learned = $3 < 0.5 } END { exit !learned }' whole.txt
# shellcheck disable=SC2086 # split into words
CGP_FAULT=delay:0F0:0.02 cgpipe train ./mine.so $train --steps 200 --save-every 10 --stages 2 --run parts >parts.txt 2>&1 &
pid=$!
for _ in $(seq 2400); do
    [ -e parts/latest ] && break
    sleep 0.05
done
kill -9 $pid
wait $pid 2>/dev/null
check "it was killed in between" sh -c '[ -e parts/latest ] && ! grep -q weights_sha256 parts.txt'
check "resume" cgpipe train --resume --run parts --model ./mine.so --stages 3 --schedule zb-h1 --steps 200
check "killed and resumed, the weights are the same" test "$(grep weights_sha256 "$work/out")" = "$(grep weights_sha256 whole.txt)"
check "resume needs the code on the command line" sh -c '! cgpipe train --resume --run parts --steps 210 2>said && grep -q "model ./mine.so" said'

finish
