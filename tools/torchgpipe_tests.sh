#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# torchgpipe_tests.sh -- run torchgpipe's tests against cgpipe.torchgpipe and compare with
# python/tests/torchgpipe_expected.txt.
#
#     TORCHGPIPE_SRC=DIR [PYTHON=python3] tools/torchgpipe_tests.sh [PYTEST OPTION...]
#
# DIR is a checkout of torchgpipe v0.0.7; PYTHON needs torch and pytest. If one of them is missing,
# the exit code is 77.
set -eu
exec "${PYTHON:-python3}" "$(dirname "$0")/../python/tests/torchgpipe_tests.py" "$@"
