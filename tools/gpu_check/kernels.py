# SPDX-License-Identifier: Apache-2.0
"""Occupancy by kernel, of what ptxas has said while the plug-in was built."""
import re
import subprocess

# Of a multiprocessor of sm_90. A warp takes registers in units of 256, a thread block 1 KiB of
# shared memory besides its own.
REGISTERS, SHARED, THREADS, BLOCKS = 65536, 227 * 1024, 2048, 32
BLOCK = 256  # most kernels' threads (cuda.cuh)
OTHERS = {"forward_tile": 256, "queries_tile": 256, "keys_tile": 256, "norm_weight": 128,
          "embedding_forward": 128, "embedding_weight": 128, "sum_groups": 512}


def threads_of(kernel):
    """Of a thread block; a tile of a GEMM has TM x TN results in each thread."""
    shape = re.search(r"shape<(\d+), (\d+), \d+, (\d+), (\d+)", kernel)
    if shape:
        bm, bn, tm, tn = map(int, shape.groups())
        return bm // tm * (bn // tn)
    return OTHERS.get(re.split(r"[<(]", kernel)[0], BLOCK)


def resident(registers, shared, threads):
    """Thread blocks on a multiprocessor at once."""
    warps = -(-threads // 32)
    by_registers = REGISTERS // (-(-registers * 32 // 256) * 256 * warps)
    return min(by_registers, SHARED // (shared + 1024), THREADS // (32 * warps), BLOCKS)


def plain(names):
    """Names without a compiler's marks, arguments and types of results."""
    try:
        told = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True,
                              text=True).stdout.splitlines()
    except OSError:
        told = names
    return [re.sub(r"\(.*", "", name.replace("void ", "", 1)) for name in told]


def said_by_ptxas(build):
    """(file, kernel, registers, bytes of shared memory) of one architecture, sm_90 where it is
    among them."""
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
    """A line for each kernel of f32; nothing where the build has no word of ptxas."""
    rows = said_by_ptxas(build)
    lines = []
    for (file, _, registers, shared), kernel in zip(rows, plain([row[1] for row in rows])):
        if "unsigned short" not in kernel:
            threads = threads_of(kernel)
            lines.append(f"{file}: {kernel}: {registers} registers, {shared} bytes shared, "
                         f"{threads} threads: "
                         f"{resident(registers, shared, threads)} resident blocks")
    return ["on a multiprocessor of sm_90 at most:", *lines] if lines else []
