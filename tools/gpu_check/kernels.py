# SPDX-License-Identifier: Apache-2.0
"""Compute the occupancy of kernels from the output of ptxas while the plug-in was built."""
import re
import subprocess

# Limits of an SM of sm_90. A warp allocates registers in units of 256; a thread block needs 1 KiB
# of shared memory besides its own.
REGISTERS, SHARED, THREADS, BLOCKS = 65536, 227 * 1024, 2048, 32
BLOCK = 256  # threads of most kernels (cuda.cuh)
OTHERS = {"forward_tile": 256, "queries_tile": 256, "keys_tile": 256, "norm_weight": 128,
          "embedding_forward": 128, "embedding_weight": 128, "sum_groups": 512}


def threads_of(kernel):
    """Return the threads of a block; in a GEMM tile each thread has TM x TN results."""
    shape = re.search(r"shape<(\d+), (\d+), \d+, (\d+), (\d+)", kernel)
    if shape:
        bm, bn, tm, tn = map(int, shape.groups())
        return bm // tm * (bn // tn)
    return OTHERS.get(re.split(r"[<(]", kernel)[0], BLOCK)


def resident(registers, shared, threads):
    """Return the number of resident thread blocks per SM."""
    warps = -(-threads // 32)
    by_registers = REGISTERS // (-(-registers * 32 // 256) * 256 * warps)
    return min(by_registers, SHARED // (shared + 1024), THREADS // (32 * warps), BLOCKS)


def plain(names):
    """Demangle names, and drop argument and result types."""
    try:
        told = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True,
                              text=True).stdout.splitlines()
    except OSError:
        told = names
    return [re.sub(r"\(.*", "", name.replace("void ", "", 1)) for name in told]


def said_by_ptxas(build):
    """Return (file, kernel, registers, bytes of shared memory) for one architecture: sm_90 if it
    was built."""
    found = []
    for path in sorted((build / "cuda").glob("*.ptxas")):
        for part in path.read_text().split("Compiling entry function ")[1:]:
            name, arch = re.match(r"'(.*)' for '(.*)'", part).groups()
            used, shared = re.search(r"Used (\d+) registers",
                                     part), re.search(r"(\d+) bytes smem", part)
            found.append((arch, path.stem.removesuffix("_cu"), name, int(used[1]), int(shared[1])
                          if shared else 0))
    archs = {arch for arch, *_ in found}
    one = "sm_90" if "sm_90" in archs else min(archs, default="")
    return [row for arch, *row in found if arch == one]


def occupancy(build):
    """Return a line for each f32 kernel; none if the build has no output of ptxas."""
    rows = said_by_ptxas(build)
    lines = []
    for (file, _, registers, shared), kernel in zip(rows, plain([row[1] for row in rows])):
        if "unsigned short" not in kernel:
            threads = threads_of(kernel)
            lines.append(f"{file}: {kernel}: {registers} registers, {shared} bytes shared, "
                         f"{threads} threads: "
                         f"{resident(registers, shared, threads)} resident blocks")
    return ["on a multiprocessor of sm_90 at most:", *lines] if lines else []
