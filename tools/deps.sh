#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Install the missing packages that cgpipe needs to build and test. If no package is missing, the
# script does not use the network.
#
#     tools/deps.sh            install with apt-get, as root or with sudo
#     tools/deps.sh --check    only name what is missing to build: `make` and `cmake` never call a
#                              package manager
set -eu

PACKAGES="gcc libc6-dev make cmake ninja-build pkg-config libjansson-dev libssl-dev libjpeg-dev libpng-dev libyaml-dev"
TESTS="libcmocka-dev jq"

# Packages for the transport mpi and for the tests of the Python package. Without these packages the
# tests are skipped.
OPTIONAL="libopenmpi-dev openmpi-bin python3-numpy"

hint_names="gcc, make, cmake, ninja, pkg-config, jansson, libcrypto (OpenSSL), libjpeg(-turbo), libpng, libyaml; cmocka and jq for the tests"
if ! command -v dpkg-query >/dev/null 2>&1; then
    # This is not Debian: check for the tools here, and let CMake name what else is missing.
    for tool in gcc cmake ninja pkg-config; do
        command -v "$tool" >/dev/null 2>&1 || { echo "cgpipe needs $tool; in all: $hint_names" >&2; exit 1; }
    done
    exit 0
fi

missing_of() { # PACKAGE...
    for package; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || printf ' %s' "$package"
    done
}
[ "${1:-}" = --check ] || PACKAGES="$PACKAGES $TESTS"
# shellcheck disable=SC2086
missing=$(missing_of $PACKAGES)
# shellcheck disable=SC2086
[ "${1:-}" = --check ] || optional=$(missing_of $OPTIONAL)
[ -n "$missing${optional:-}" ] || exit 0

hint="cgpipe needs these packages:$missing (names of Debian 12; elsewhere: $hint_names)"
if [ "${1:-}" = --check ]; then
    echo "$hint; \`make deps\` installs them" >&2
    exit 1
fi
give_up() { # MESSAGE
    [ -n "$missing" ] || exit 0
    echo "$1" >&2
    exit 1
}
command -v apt-get >/dev/null 2>&1 || give_up "$hint"
if [ "$(id -u)" = 0 ]; then
    sudo=""
elif command -v sudo >/dev/null 2>&1; then
    sudo="sudo"
else
    give_up "$hint; run as root, or install sudo: apt-get install$missing"
fi
install_packages() { # PACKAGE...
    [ $# -gt 0 ] || return 0
    echo "installing: $*"
    $sudo apt-get install -y --no-install-recommends "$@" >/dev/null 2>&1 ||
        { $sudo apt-get update >/dev/null && $sudo apt-get install -y --no-install-recommends "$@" >/dev/null; }
}
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086
install_packages $missing || { echo "$hint; apt-get could not install them" >&2; exit 1; }
# shellcheck disable=SC2086
install_packages $optional || echo "could not be installed:$optional; the transport mpi, or the tests of the Python package, are left out" >&2
