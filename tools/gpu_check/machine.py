# SPDX-License-Identifier: Apache-2.0
"""Describe the machine, and hash the sources that a result depends on."""
import datetime
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
KERNELS = ROOT / "src" / "backend" / "cuda"
# Files and directories that a packed build was built from.
COMPILED = ("src", "include", "cli", "models", "tests/op", "tests/support", "tests/cuda",
            "tests/fakes")
# Peak TFLOP/s of dense bf16 GEMMs that add in f32, from NVIDIA's data sheets.
BF16_PEAKS = {"A100": 312.0, "H100": 989.4, "H200": 989.4, "B200": 2250.0}


def output(*words):
    """Return the output of a command; "" if it does not exist or fails."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=ROOT)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def git_object(kind, data):
    return hashlib.sha1(f"{kind} {len(data)}\0".encode() + data)


def tree_hash(directory=KERNELS):
    """Return git's hash of a directory, computed from the files on disk. git itself is not used,
    because a copy of the sources has no .git and may have changes."""
    def entries(at):
        for path in at.iterdir():
            if path.is_dir():
                yield path.name + "/", "40000", path.name, tree(path)
            else:
                mode = "100755" if os.access(path, os.X_OK) else "100644"
                yield path.name, mode, path.name, git_object("blob", path.read_bytes()).digest()

    def tree(at):
        return git_object("tree", b"".join(f"{mode} {name}\0".encode() + digest
                                           for _, mode, name,
                                           digest in sorted(entries(at)))).digest()
    return tree(directory).hex()


def key(names, *facts):
    """Hash the files below `names`, relative to ROOT, and the facts."""
    paths = [path for name in names for path in ((ROOT / name).rglob("*") if (ROOT / name).is_dir()
                                                 else ROOT.glob(name))]
    lines = [f"{path.relative_to(ROOT)} {hashlib.sha1(path.read_bytes()).hexdigest()}"
             for path in sorted(set(paths)) if path.is_file() and "__pycache__" not in path.parts]
    return hashlib.sha1("\n".join([*map(str, facts), *lines]).encode()).hexdigest()


def packed(built):
    """Return the facts that --pack recorded about a build; {} if the directory is no pack."""
    at = built / "pack.json"
    return json.loads(at.read_text()) if at.exists() else {}


def commit():
    changed = " and changes" if output("git", "status", "--porcelain", "-uno") else ""
    found = output("git", "rev-parse", "HEAD")
    return found + changed if found else None


def cpu_name():
    names = re.findall(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return names[0] if names else "unknown CPU"


def find_nvcc():
    return shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")


def toolkit():
    nvcc = find_nvcc()
    found = re.findall(r"release [^,]*, (V\S+)", output(nvcc, "--version")) if nvcc else []
    return found[0] if found else None


def libraries(python):
    """Return the directories of CUDA libraries, both in the toolkit and in PyTorch's packages."""
    nvcc = find_nvcc()
    places = []
    if nvcc:
        directory = pathlib.Path(nvcc).resolve().parent.parent
        places = [directory / name for name in ("lib64", "lib", "targets/x86_64-linux/lib")]
    wheels = output(python, "-c", "import nvidia; print(*nvidia.__path__)").split()
    return [*map(str, places), *(str(at) for wheel in wheels
                                 for at in pathlib.Path(wheel).glob("*/lib"))]


def gpu():
    """Return name, driver and compute capability ("90") of the first GPU, or None if there is no
    GPU."""
    line = output("nvidia-smi", "--query-gpu=name,driver_version,compute_cap",
                  "--format=csv,noheader").partition("\n")[0]
    parts = [part.strip() for part in line.split(",")]
    return {"name": parts[0], "driver": parts[1],
            "capability": parts[2].replace(".", "")} if len(parts) == 3 else None


def facts(backend, python, built):
    """Return the head of a report."""
    found = gpu() if backend == "cuda" else None
    pack = packed(built)
    return {
        "backend": backend,
        "date": datetime.date.today().isoformat(),
        "device": found["name"] if found else f"{backend} on {cpu_name()}",
        "driver": found["driver"] if found else None,
        "toolkit": pack.get("toolkit") or toolkit(),
        "torch": output(python, "-c",
                        "from importlib.metadata import version; print(version('torch'))") or None,
        "commit": commit() or pack.get("commit") or "unknown",
        "kernels_tree": tree_hash(),
    }


def slug(text):
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def bf16_peak(device):
    return next((peak for name, peak in BF16_PEAKS.items() if name in device), None)
