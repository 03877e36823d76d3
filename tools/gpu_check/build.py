# SPDX-License-Identifier: Apache-2.0
"""The part `build`: the library, the program, both plug-ins, the digests program, and the op
tests."""
import os
import shutil

from check import Failed, ROOT, result
from machine import find_nvcc, gpu

TARGETS = ("cgpipe_program", "cgpipe_plugins", "cuda_digests", "test_op_backends",
           "test_op_properties")


def options(check):
    words = ["-DCGP_MPI=OFF", "-DCGP_CUDA=ON" if check.backend == "cuda" else "-DCGP_CUDA=OFF"]
    if check.backend == "cuda":
        found = gpu()
        words.append(f"-DCGP_NVCC={find_nvcc()}")
        if found:
            words.append(f"-DCGP_CUDA_ARCHITECTURES={found['capability']}")
    if check.packed:
        words += [f"-DPKG_CONFIG_EXECUTABLE={check.packed / 'pkg-config'}",
                  f"-DCMAKE_PREFIX_PATH={check.packed}",
                  f"-DCMAKE_C_FLAGS=-isystem {check.packed}/include -isystem "
                  f"{check.packed}/include/libpng16"]
    if shutil.which("ninja"):
        words += ["-G", "Ninja"]
    return words


def build(check):
    if check.backend == "cuda" and not find_nvcc():
        raise Failed("no nvcc on PATH or in /usr/local/cuda/bin: the backend cuda cannot be built "
                     "here (--backend cuda-host needs none)")
    check.build.mkdir(parents=True, exist_ok=True)
    jobs = ["--parallel", os.environ.get("JOBS") or len(os.sched_getaffinity(0))]
    for words in (["cmake", "-S", ROOT, "-B", check.build, *options(check)],
                  ["cmake", "--build", check.build, *jobs, "--target", *TARGETS]):
        done = check.run(words)
        with open(check.build / "gpu_check.log", "a") as log:
            log.write(" ".join(map(str, words)) + "\n" + done.stdout + done.stderr)
        if done.returncode != 0:
            raise Failed(f"{' '.join(map(str, words[:3]))} ...: "
                         f"{(done.stderr or done.stdout).strip()[-600:]} "
                         f"({check.build}/gpu_check.log)")
    plugin = check.build / ("plugins" if check.backend == "cuda"
                            else "tests/plugins") / f"libcgpipe-{check.backend}.so"
    if not plugin.exists():
        raise Failed(f"the build has no {plugin.name} ({check.build}/gpu_check.log says why)")
    return result("passed", [f"{len(TARGETS)} targets in {check.build}"])
