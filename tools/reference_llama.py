#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the cases llama*, mistral and qwen* of tests/data/weights: small models as transformers
writes them, and their outputs. With --check, check files that cgpipe wrote.

    python3 -m venv venv && venv/bin/pip install torch transformers safetensors
                       # PyTorch 2.15, transformers 5.24
    venv/bin/python tools/reference_llama.py [DIR]     # default: tests/data/weights
    venv/bin/python tools/reference_llama.py --check FOLDER LOGITS
                       # FOLDER: written by cgpipe convert from a run of a case;
                       # LOGITS: expected.safetensors of that case

Every case is a directory. All weights are random, with seed 1. transformers writes config.json,
except that llama-linear and llama-3 have rope settings in the format of published files:

    llama          LlamaForCausalLM: 6 heads that share 2 heads of keys and values
    llama-linear   untied head, as many heads of keys and values, rope_scaling of type linear
    llama-3        tied head, heads wider than hidden_size / heads, rope_scaling of type llama3,
                   bf16
    mistral        MistralForCausalLM: a window of 5 tokens
    qwen2          Qwen2ForCausalLM: biases of q, k and v, tied head, several files with an index
    qwen2-windows  Qwen2ForCausalLM: a window of 4 tokens from the second of three layers on
    qwen3          Qwen3ForCausalLM: norms of q and k, heads wider than hidden_size / heads
    qwen3-windows  Qwen3ForCausalLM: a window of 3 tokens in layers 1 and 3 of four

Each case has expected.safetensors: `inputs` (tokens i32 [N, T]) and `outputs`, the logits in f32.
`losses`, f32 [10], are the losses of ten steps of AdamW (lr 1e-3, weight decay 0.01) on `inputs`
and `targets`. Outputs and losses are computed in double from the stored weights.

--check uses transformers to read what cgpipe wrote. It computes the logits, prints the largest
difference, and fails if this difference exceeds 1e-4."""
import json
import os
import shutil
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from transformers import (AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, MistralConfig,
                          MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config,
                          Qwen3ForCausalLM)

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOLERANCE = 1e-4
SAMPLES, STEPS = 3, 10
SIZES = dict(vocab_size=37, hidden_size=24, intermediate_size=40, num_hidden_layers=2,
             num_attention_heads=6, max_position_embeddings=13, rms_norm_eps=1e-5,
             bos_token_id=None, eos_token_id=None)
LINEAR = {"rope_type": "linear", "factor": 4.0}
# Three frequencies: one is kept, one is interpolated, and one is divided.
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 0.2, "high_freq_factor": 1.5,
          "original_max_position_embeddings": 12}


def sizes(**changes):
    return {**SIZES, **changes}


CASES = {
    "llama": (LlamaForCausalLM, LlamaConfig, sizes(num_key_value_heads=2), {}),
    "llama-linear": (LlamaForCausalLM, LlamaConfig, sizes(num_key_value_heads=6),
                     {"rope_theta": 10000.0, "rope_scaling": LINEAR}),
    "llama-3": (LlamaForCausalLM, LlamaConfig,
                sizes(num_key_value_heads=3, head_dim=6, tie_word_embeddings=True),
                {"rope_theta": 500.0, "rope_scaling": LLAMA3}),
    "mistral": (MistralForCausalLM, MistralConfig, sizes(num_key_value_heads=2, sliding_window=5),
                {}),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config,
              sizes(num_key_value_heads=2, tie_word_embeddings=True, use_sliding_window=False), {}),
    "qwen2-windows": (Qwen2ForCausalLM, Qwen2Config,
                      sizes(num_key_value_heads=2, num_hidden_layers=3, use_sliding_window=True,
                            sliding_window=4, max_window_layers=1), {}),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, sizes(num_key_value_heads=2, head_dim=8), {}),
    "qwen3-windows": (Qwen3ForCausalLM, Qwen3Config,
                      sizes(num_key_value_heads=3, head_dim=4, num_hidden_layers=4,
                            use_sliding_window=True, sliding_window=3,
                            layer_types=["sliding_attention", "full_attention"] * 2), {}),
}


def make(name):
    """Return a model whose weights are far from their initial values, so that all of them
    matter."""
    build, configure, options, rope = CASES[name]
    if rope:
        options = {**options,
                   "rope_parameters": {"rope_theta": rope["rope_theta"], **rope["rope_scaling"]}}
    torch.manual_seed(1)
    model = build(configure(**options, attn_implementation="eager"))
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.data += 0.3 * torch.randn_like(parameter)
        else:
            parameter.data = 0.2 * torch.randn_like(parameter)
    return model


def write(name, directory):
    model = make(name)
    if name == "llama-3":
        model = model.to(torch.bfloat16)
    model.save_pretrained(directory, **({"max_shard_size": "8KB"} if name == "qwen2" else {}))
    published = CASES[name][3]
    if published:
        path = os.path.join(directory, "config.json")
        with open(path) as file:
            config = json.load(file)
        del config["rope_parameters"]
        with open(path, "w") as file:
            json.dump({**config, **published}, file, indent=2)
            file.write("\n")
    # Read the model again, because to(bfloat16) has also rounded the frequencies of the rotary
    # embedding.
    model = CASES[name][0].from_pretrained(directory, attn_implementation="eager",
                                           dtype=torch.float32).double()
    tokens = torch.randint(0, SIZES["vocab_size"], (SAMPLES, SIZES["max_position_embeddings"]))
    targets = torch.randint(0, SIZES["vocab_size"], tokens.shape)
    targets[0, :3] = -100
    with torch.no_grad():
        logits = model(tokens).logits
    save_file({"inputs": tokens.int(), "targets": targets.int(),
               "outputs": logits.float().contiguous(), "losses": train(model, tokens, targets)},
              os.path.join(directory, "expected.safetensors"))


def train(model, tokens, targets):
    """Return the losses of ten steps. As in cgpipe, weight decay applies to matrices, and not to
    norms and biases."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.01},
                                   {"params": others, "weight_decay": 0.0}], lr=1e-3)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens).logits.flatten(0, 1), targets.flatten(),
                               ignore_index=-100)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses)


def main(root):
    """Replace the directories of the cases, each of which must have expected.safetensors. Other
    files in `root` are kept."""
    for name in CASES:
        directory = os.path.join(root, name)
        if os.path.lexists(directory) and not os.path.exists(os.path.join(directory,
                                                                          "expected.safetensors")):
            sys.exit(f"{directory}: expected a directory of this tool, got one without "
                     "expected.safetensors (another DIR)")
    for name in CASES:
        directory = os.path.join(root, name)
        shutil.rmtree(directory, ignore_errors=True)
        write(name, directory)
        generation = os.path.join(directory, "generation_config.json")
        if os.path.exists(generation):
            os.remove(generation)
        for file in sorted(os.listdir(directory)):
            print(os.path.join(directory, file), os.path.getsize(os.path.join(directory, file)))


def check(directory, expected):
    model, said = AutoModelForCausalLM.from_pretrained(directory, output_loading_info=True,
                                                       attn_implementation="eager")
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not said[kind], f"{directory}: {kind}: {said[kind]}"
    numbers = load_file(expected)
    with torch.no_grad():
        outputs = model.eval()(numbers["inputs"].long()).logits
    difference = (outputs - numbers["outputs"]).abs().max().item()
    print(f"{directory}: {type(model).__name__}, largest difference of {outputs.numel()} outputs, "
          f"up to {numbers['outputs'].abs().max().item():.2f}: {difference:.1e}")
    return difference < TOLERANCE


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["--check"]:
        sys.exit(0 if check(*sys.argv[2:]) else 1)
    main(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "tests", "data", "weights"))
