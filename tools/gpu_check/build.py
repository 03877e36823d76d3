# SPDX-License-Identifier: Apache-2.0
"""Build the programs that the parts run, and pack them for a machine without a compiler, libraries
or network."""
import json
import os
import re
import shutil
import subprocess

import machine
from check import Failed, ROOT

TARGETS = ["cgpipe_program", "cgpipe_plugins", "cuda_digests", "test_op_backends",
           "test_op_properties"]
FILES = ["cgpipe", "*.so.*.*", "plugins/*.so", "tests/plugins/libcgpipe-cuda-host.so",
         "tests/cuda_digests", "tests/cuda_probe", "tests/cuda_probe_host",
         "tests/test_op_backends", "tests/test_op_properties"]
# Libraries that ldd lists but that are not copied: the machine has the C library, and libcgpipe is
# in the build.
THERE = re.compile(r"linux-vdso|ld-linux|lib(c|m|dl|rt|pthread|resolv|gcc_s)\.so|libcgpipe")


def run(*words):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, words[:3]))} ...: "
                     f"{(done.stderr or done.stdout).strip()[-600:]}")
    return done.stdout


def build(backend, arch=None):
    """Build in build-gpu/build, for this machine's GPU or for `arch`. Return the build
    directory."""
    at = ROOT / "build-gpu" / "build"
    nvcc = machine.find_nvcc()
    words = ["-DCGP_CUDA=OFF"]
    if backend == "cuda":
        if not nvcc:
            raise Failed("no nvcc on PATH or in /usr/local/cuda/bin: the backend cuda cannot be "
                         "built here (--built uses a pack, --backend cuda-host needs none)")
        words = ["-DCGP_CUDA=ON", f"-DCGP_NVCC={nvcc}",
                 f"-DCGP_CUDA_ARCHITECTURES={arch or machine.gpu()['capability']}"]
    if shutil.which("ninja"):
        words += ["-G", "Ninja"]
    print(f"build in {at} ...", flush=True)
    run("cmake", "-S", ROOT, "-B", at, *words)
    probe = "cuda_probe" if backend == "cuda" else "cuda_probe_host"
    run("cmake", "--build", at, "--parallel", os.environ.get("JOBS")
        or len(os.sched_getaffinity(0)), "--target", *TARGETS, probe)
    return at


def pack(to, built, arch):
    """Copy a build, without debug information, and the libraries that it needs."""
    at = (built or build("cuda", arch)).resolve()
    files = [path for name in FILES for path in sorted(at.glob(name)) if not path.is_symlink()]
    if at / "cgpipe" not in files:
        raise Failed(f"{at}: expected a build, found no cgpipe")
    if to.exists() and any(to.iterdir()) and not machine.packed(to):
        raise Failed(f"{to}: expected a new directory or an older pack, found other files")
    shutil.rmtree(to, ignore_errors=True)
    (to / "lib").mkdir(parents=True)
    for path in files:
        soname = re.findall(r"SONAME.*\[(.*)\]", run("readelf", "-d", path))
        copy = to / path.relative_to(at).with_name(soname[0] if soname else path.name)
        copy.parent.mkdir(parents=True, exist_ok=True)
        run("strip", "-o", copy, path)
    for path in files:
        if path.name == "libcgpipe-mpi.so":
            continue
        for name, library in re.findall(r"^\s*(\S+) => (/\S+)", run("ldd", path), re.M):
            if not THERE.match(name):
                shutil.copy(library, to / "lib" / name)
    (to / "pack.json").write_text(json.dumps({
        "commit": machine.commit(), "toolkit": machine.toolkit(),
        "sources": machine.key(machine.COMPILED)}) + "\n")
    size = sum(path.stat().st_size for path in to.rglob("*"))
    without = "" if at / "plugins/libcgpipe-cuda.so" in files else ", without libcgpipe-cuda.so"
    libc = os.confstr("CS_GNU_LIBC_VERSION")
    print(f"{to}: {size / 2**20:.1f} MiB{without}, for {libc} or later: tools/gpu_check.sh --built "
          "DIR")
    return 0


def check_build(check):
    """Refuse a directory that lacks the plug-in, and a pack that was built from other sources."""
    pack_of = machine.packed(check.built)
    if not check.plugin.exists():
        raise Failed(f"{check.built}: expected a build or a pack, found no {check.plugin.name} "
                     "(--pack DIR makes one)")
    if pack_of and pack_of["sources"] != machine.key(machine.COMPILED):
        raise Failed(f"{check.built}: expected a pack of these sources, got one of other sources "
                     f"(commit {pack_of['commit']}; --pack DIR makes it again)")
