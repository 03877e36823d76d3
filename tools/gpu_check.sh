#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Check and measure the CUDA kernels on a machine with a GPU (docs/how-to/check-a-gpu.md). The parts
# are in tools/gpu_check/.
#
#     tools/gpu_check.sh                       build, then run all parts without a valid result
#     tools/gpu_check.sh --pack DIR            build, and copy what another machine needs to DIR
#     tools/gpu_check.sh --built DIR           run a pack on that machine, which needs only python3
#     tools/gpu_check.sh --backend cuda-host   without a GPU: try the script
#     tools/gpu_check.sh --help                the other options
#
# If python3, or the interpreter PYTHON, has PyTorch, then PyTorch is measured too.
set -euo pipefail
export PYTHONDONTWRITEBYTECODE=1
exec "${PYTHON:-python3}" "$(dirname "$0")/gpu_check/main.py" "$@"
