#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_programs.sh BUILD [CTEST OPTION...] -- print the targets of the test programs that ctest
# would run with these options. One program NAME can be several tests: NAME, NAME_late, NAME_ranks,
# NAME_cuda_host and NAME_no_library. test_fuzz is one program with a test for each reader.
set -euo pipefail
source_dir=$(cd "$(dirname "$0")/.." && pwd)
build=$1
shift
(cd "$build" && ctest -N "$@") | sed -nE 's/.*Test +#[0-9]+: (test_[a-z0-9_]+)$/\1/p' | sed -E 's/_(late|ranks|cuda_host|no_library)$//; s/^(test_fuzz)_.*/\1/' | LC_ALL=C sort -u |
    while read -r name; do
        ! compgen -G "$source_dir/tests/*/$name.c" >/dev/null || echo "$name"
    done
