#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Build cgpipe for aarch64 on x86-64, and run the tests of ops, bit equality and plans under
# qemu-user:
#
#     tools/aarch64.sh                       in build-aarch64; needs, once: apt-get install
#                                            gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
#     JOBS=8 tools/aarch64.sh -R attention   options of ctest instead of the chosen tests
#
# Debian's arm64 packages are downloaded and unpacked in build-aarch64/sysroot; nothing is
# installed. Then the script compares the plans of this build, byte by byte, with the plans of
# PROGRAM [build/cgpipe], a build for this machine. Exit code 1: a test failed, or a plan differs.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$PWD/build-aarch64
root=$build/sysroot
program=${PROGRAM:-build/cgpipe}
packages="libc6-dev libgomp1 libjansson-dev libssl-dev libcmocka-dev libjpeg-dev libpng-dev libyaml-dev"

for tool in aarch64-linux-gnu-gcc qemu-aarch64 apt-get dpkg; do
    command -v $tool >/dev/null || { echo "aarch64: expects $tool, found none (apt-get install gcc-aarch64-linux-gnu qemu-user)" >&2; exit 1; }
done

# Use an empty apt state, so that apt-get downloads everything that the packages need.
download() {
    local apt=$build/apt
    mkdir -p "$apt"/lists/partial "$apt"/archives/partial
    : >"$apt/status"
    local options=(-qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$apt" -o Dir::State::status="$apt/status"
        -o Dir::Cache="$apt" -o Debug::NoLocking=1 -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update
    # shellcheck disable=SC2086
    apt-get "${options[@]}" install -y -d --no-install-recommends $packages
    for package in "$apt"/archives/*.deb; do
        dpkg -x "$package" "$root.part"
    done
    mv "$root.part" "$root"
}

[ -d "$root" ] || { rm -rf "$root.part"; download; }
cmake -S . -B "$build" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/aarch64.cmake" -DCGP_SYSROOT="$root" -DCGP_WERROR=ON -DCGP_MPI=OFF \
    -DCGP_CUDA=OFF -DCGP_EXAMPLES=ON >/dev/null
cmake --build "$build" -j "${JOBS:-2}" -- --quiet

# Run the tests of ops on all backends, of bit equality between layouts, and of plans.
if [ $# -eq 0 ]; then
    set -- -R '^test_(op_|attention_memory|bit_equality|plan|input_gradients|external_loss|schedules|gradients|generation|precision|rng)' -E '_(ranks|cuda|page|resident)'
fi
ctest --test-dir "$build" --output-on-failure -j "${JOBS:-2}" --timeout 3000 "$@"

plan() { # plan COMMAND... -- a plan without its date and command
    "$@" --stages 2 --batch 8 --chunks 4 --json - --quiet | jq 'del(.date, .command)'
}
failed=0
for model in gpt2:layers=4,width=64,heads=4,vocab=101,seq=32 resnet20 resnet50 amoebanetd:L=3,D=8 unet:B=1,C=4,depth=3; do
    for options in "--schedule 1f1b" "--schedule zb-v --recompute except_last" "--precision bf16 --recompute always+selective"; do
        # shellcheck disable=SC2086
        here=$(plan "$program" plan $model $options)
        # shellcheck disable=SC2086
        there=$(plan qemu-aarch64 -L "$root" "$build/cgpipe" plan $model $options)
        if [ -n "$here" ] && [ "$here" = "$there" ]; then
            echo "same plan: $model $options"
        else
            echo "DIFFERENT plan: $model $options"
            failed=1
        fi
    done
done
exit $failed
