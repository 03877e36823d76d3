# SPDX-License-Identifier: Apache-2.0
"""Run llm.c's train_gpt2_fp32.cu on a model of the GPT-2 benchmark's shape: write its input files,
build it and time it.

Facts of commit f1e2ace: the checkpoint is gpt2_124M.bin in the current directory (256 integers,
then f32 parameters). Data is a file of 256 integers and 16-bit tokens. Each step prints a line
"step 3/12: train loss 8.01 (57.1 ms, 143458 tok/s)". TF32 is on."""
import array
import random
import re
import shutil
import statistics
import struct

from check import Failed, NotRun
from machine import find_nvcc

MODEL_MAGIC, MODEL_VERSION = 20240326, 3
DATA_MAGIC, DATA_VERSION = 20240520, 1
TF32 = "int enable_tf32 = deviceProp.major >= 8 ? 1 : 0;"


def header(*values):
    return struct.pack("256i", *values, *[0] * (256 - len(values)))


def padded(vocab):
    return -(-vocab // 128) * 128


def parameter_counts(of):
    """Return (count, is_one) in the order of fill_in_parameter_sizes(); is_one: filled with 1, as a
    norm's weight.
    """
    c, n = of["width"], of["layers"]
    return [(padded(of["vocab"]) * c, False), (of["seq"] * c, False), (n * c, True), (n * c, False),
            (n * 3 * c * c, False), (n * 3 * c, False), (n * c * c, False), (n * c, False),
            (n * c, True), (n * c, False), (n * 4 * c * c, False), (n * 4 * c, False),
            (n * 4 * c * c, False), (n * c, False), (c, True), (c, False)]


def write_checkpoint(path, of):
    draw = random.Random(0)
    noise = array.array("f", (draw.gauss(0, 0.02) for _ in range(1 << 16)))
    with open(path, "wb") as file:
        file.write(header(MODEL_MAGIC, MODEL_VERSION, of["seq"], of["vocab"], of["layers"],
                          of["heads"], of["width"], padded(of["vocab"])))
        for count, ones in parameter_counts(of):
            values = (array.array("f", [1.0]) * count if ones
                      else (noise * (count // len(noise) + 1))[:count])
            file.write(values.tobytes())


def write_tokens(path, of, batches):
    draw = random.Random(1)
    count = batches * of["batch"] * of["seq"] + 1
    tokens = array.array("H", (draw.randrange(of["vocab"]) for _ in range(count)))
    path.write_bytes(header(DATA_MAGIC, DATA_VERSION, count) + tokens.tobytes())


def build(check, source, directory):
    """Build the program from a copy of the source without TF32."""
    program = directory / "train_gpt2_fp32"
    if program.exists():
        return program
    text = (source / "train_gpt2_fp32.cu").read_text()
    if TF32 not in text:
        raise NotRun(f"{source}/train_gpt2_fp32.cu: expected the line '{TF32}', which is to be 0; "
                     "got another version")
    shutil.copytree(source / "llmc", directory / "llmc", dirs_exist_ok=True)
    (directory / "train.cu").write_text(text.replace(TF32, "int enable_tf32 = 0;"))
    done = check.run([find_nvcc() or "nvcc", "-O3", "-arch=native", "train.cu", "-lcublas",
                      "-lcublasLt", "-o", program], cwd=directory)
    if done.returncode != 0:
        raise NotRun(f"llm.c is not built: {done.stderr.strip()[-300:]}")
    return program


def llmc_run(check, source, of):
    directory = check.build / "llm.c"
    directory.mkdir(parents=True, exist_ok=True)
    program = build(check, source, directory)
    if not (directory / "gpt2_124M.bin").exists():
        write_checkpoint(directory / "gpt2_124M.bin", of)
        write_tokens(directory / "train.bin", of, of["steps"])
        write_tokens(directory / "val.bin", of, 1)
    done = check.run([program, "-i", "train.bin", "-j", "val.bin", "-b", of["batch"], "-t",
                      of["seq"], "-v", 1000, "-m", 1, "-s", 1000, "-g", 1], cwd=directory)
    times = [float(ms) for ms in re.findall(r"\(([0-9.]+) ms, \d+ tok/s\)", done.stdout)]
    if done.returncode != 0 or len(times) < 3:
        raise Failed(f"llm.c: exit code {done.returncode}: "
                     f"{(done.stdout + done.stderr).strip()[-300:]}")
    seconds = statistics.median(times[2:]) / 1000
    return {"samples_per_second": of["batch"] / seconds, "step_seconds": seconds}
