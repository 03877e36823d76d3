#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many tokens per second does `cgpipe sample` generate with its cache, compared with
transformers' generate() with its own cache?

    bench/generation.py             3 rounds; each program makes 128 tokens on one core
    bench/generation.py 5           more rounds
    PYTHON=venv/bin/python          interpreter that has torch and transformers
    LENGTH=64 THREADS=2             fewer tokens; threads of each program

The model is a Llama with 12 blocks of width 768 (inner width 2048, 4 heads of keys and values,
vocabulary 32,000, T = 512) with random weights, made by transformers and read by `cgpipe convert`.
Decoding is greedy. The time of a token comes from the difference between runs of LENGTH + 1 tokens
and of one token. So this time excludes loading the model and processing the prompt. The programs
run alternately. The output has the median and the minimum over the rounds, both of wall-clock time
and of processor time. Other programs disturb processor time less."""
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from cases import PROGRAM, RESULTS, cpu_name

LENGTH = int(os.environ.get("LENGTH") or 128)
THREADS = int(os.environ.get("THREADS") or 1)
PYTHON = os.environ.get("PYTHON") or sys.executable
PROMPT = "Once"
FIELDS = ("cgpipe", "transformers")

MAKE = """
import sys, torch, transformers
torch.manual_seed(0)
config = transformers.LlamaConfig(hidden_size=768, intermediate_size=2048, num_hidden_layers=12, \
num_attention_heads=12,
                                  num_key_value_heads=4, vocab_size=32000, \
max_position_embeddings=512)
transformers.LlamaForCausalLM(config).float().save_pretrained(sys.argv[1])
print("torch", torch.__version__ + ", transformers", transformers.__version__)
"""

PEER = """
import sys, time, torch, transformers
path, length, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(threads)
model = transformers.LlamaForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
prompt = torch.tensor([[ord(c) for c in sys.argv[4]]])

def seconds(n):
    start = time.time(), time.process_time()
    with torch.inference_mode():
        model.generate(prompt, max_new_tokens=n, min_new_tokens=n, do_sample=False, use_cache=True)
    return time.time() - start[0], time.process_time() - start[1]

seconds(4)
one, all = seconds(1), seconds(length + 1)
print(*one, *all)
"""


def run(words):
    """Run a command, and return its output, wall-clock seconds and processor seconds."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wall, after = time.time() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}\n{done.stderr.decode()}exit code {done.returncode}")
    return done.stdout.decode(errors="replace"), wall, after.ru_utime - before.ru_utime


def ours(directory):
    """Return wall-clock and processor seconds of one token, then of LENGTH + 1 tokens."""
    words = [str(PROGRAM), "sample", directory + "/run", "--prompt", PROMPT, "--temperature", "0",
             "--threads-per-device", str(THREADS)]
    return [second for n in (1, LENGTH + 1) for second in run(words + ["--length", str(n)])[1:]]


def theirs(directory):
    words = [PYTHON, "-c", PEER, directory + "/files", str(LENGTH), str(THREADS), PROMPT]
    return [float(word) for word in run(words)[0].split()[-4:]]


def main():
    if not PROGRAM.exists():
        sys.exit(f"{PROGRAM}: no such file (make, or BUILD=FOLDER)")
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    RESULTS.mkdir(parents=True, exist_ok=True)
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        versions = run([PYTHON, "-c", MAKE, directory + "/files"])[0].strip().splitlines()[-1]
        run([str(PROGRAM), "convert", directory + "/files", directory + "/run"])
        for i in range(rounds):
            for name, measure in zip(FIELDS, (ours, theirs)):
                print(f"generation: round {i + 1} of {rounds}, {name}", file=sys.stderr)
                rows.append((i + 1, name, *measure(directory)))
    lines = [f"{cpu_name()}, threads {THREADS}; {versions}; {LENGTH} tokens, greedy; {rounds} "
             "rounds",
             f"{'':14}{'tokens/s':>22}{'':4}{'processor, ms a token':>24}",
             f"{'':14}{'median':>11}{'best':>11}{'':4}{'median':>12}{'best':>12}"]
    for name in FIELDS:
        samples = list(zip(*(row[2:] for row in rows if row[1] == name)))
        wall, cpu = ([(reduce(samples[k + 2]) - reduce(samples[k])) / LENGTH
                      for reduce in (statistics.median, min)] for k in (0, 1))
        lines.append(f"{name:14}{1 / wall[0]:11.1f}{1 / wall[1]:11.1f}{'':4}"
                     f"{1e3 * cpu[0]:12.1f}{1e3 * cpu[1]:12.1f}")
    with open(RESULTS / "generation.csv", "w") as file:
        file.write("round,program,seconds_of_one,processor_seconds_of_one,"
                   "seconds_of_all,processor_seconds_of_all\n")
        file.writelines(f"{row[0]},{row[1]},{','.join(f'{second:.6f}' for second in row[2:])}\n"
                        for row in rows)
    text = "\n".join(lines) + "\n"
    (RESULTS / "generation.txt").write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
