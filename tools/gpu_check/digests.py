#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Print the digests of cuda-host in the format of tests/cuda/digests.txt:
tools/gpu_check/digests.py BUILD"""
import math
import pathlib
import sys

from check import Check
from exactness import all_digests, digest_lines

if len(sys.argv) != 2:
    sys.exit(__doc__)
build = pathlib.Path(sys.argv[1]).resolve()
print(digest_lines(all_digests(Check("cuda-host", build, sys.executable, {}, math.inf),
                               "cuda-host")), end="")
