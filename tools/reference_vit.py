#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the cases vit* of tests/data/weights: small image classifiers as transformers writes them,
and their outputs. With --check, check files that cgpipe wrote.

    python3 -m venv venv && venv/bin/pip install torch transformers safetensors
                       # PyTorch 2.15, transformers 5.24
    venv/bin/python tools/reference_vit.py [DIR]       # default: tests/data/weights
    venv/bin/python tools/reference_vit.py --check FOLDER LOGITS
                       # FOLDER: written by cgpipe convert from a run of a case;
                       # LOGITS: expected.safetensors of that case

Every case is a directory of ViTForImageClassification. All weights are random, with seed 1:

    vit            9 patches, 3 heads, the norms' default eps of 1e-12
    vit-shards     16 patches, an eps of 0.01, bf16, several files with an index

Each case has expected.safetensors: `inputs` (images f32 [N, S, S, 3], channels last) and `outputs`,
the logits in f32. `losses`, f32 [10], are the losses of ten steps of AdamW (lr 1e-3, weight decay
0.01) on `inputs` and `targets` (labels i32 [N, 1]). Outputs and losses are computed in double from
the stored weights.

--check uses transformers to read what cgpipe wrote. It computes the logits, prints the largest
difference, and fails if this difference exceeds 1e-4."""
import os
import shutil
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageClassification, ViTConfig, ViTForImageClassification

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOLERANCE = 1e-4
SAMPLES, STEPS = 3, 10
CASES = {
    "vit": dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40,
                image_size=15, patch_size=5, num_labels=7),
    "vit-shards": dict(hidden_size=16, num_hidden_layers=3, num_attention_heads=2,
                       intermediate_size=64, image_size=16, patch_size=4, num_labels=5,
                       layer_norm_eps=1e-2),
}


def make(name):
    """Return a model whose weights are far from their initial values, so that all of them
    matter."""
    torch.manual_seed(1)
    model = ViTForImageClassification(ViTConfig(**CASES[name], attn_implementation="eager"))
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.data += 0.3 * torch.randn_like(parameter)
        else:
            parameter.data = 0.2 * torch.randn_like(parameter)
    return model


def write(name, directory):
    model = make(name)
    if name == "vit-shards":
        model = model.to(torch.bfloat16)
    model.save_pretrained(directory, **({"max_shard_size": "8KB"} if name == "vit-shards" else {}))
    # Read the weights again in the form in which they were stored.
    model = ViTForImageClassification.from_pretrained(directory, attn_implementation="eager",
                                                      dtype=torch.float32).double()
    side = CASES[name]["image_size"]
    images = torch.randn(SAMPLES, side, side, 3)
    labels = torch.randint(0, CASES[name]["num_labels"], (SAMPLES, 1))
    with torch.no_grad():
        logits = logits_of(model, images.double())
    save_file({"inputs": images, "targets": labels.int(), "outputs": logits.float().contiguous(),
               "losses": train(model, images.double(), labels)},
              os.path.join(directory, "expected.safetensors"))


def logits_of(model, images):
    return model(images.permute(0, 3, 1, 2)).logits


def train(model, images, labels):
    """Return the losses of ten steps. As in cgpipe, weight decay applies to matrices, and not to
    norms and biases."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.01},
                                   {"params": others, "weight_decay": 0.0}], lr=1e-3)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(logits_of(model, images), labels.flatten())
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
        for file in sorted(os.listdir(directory)):
            print(os.path.join(directory, file), os.path.getsize(os.path.join(directory, file)))


def check(directory, expected):
    model, said = AutoModelForImageClassification.from_pretrained(directory,
                                                                  output_loading_info=True,
                                                                  attn_implementation="eager")
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not said[kind], f"{directory}: {kind}: {said[kind]}"
    numbers = load_file(expected)
    with torch.no_grad():
        outputs = logits_of(model.eval(), numbers["inputs"])
    difference = (outputs - numbers["outputs"]).abs().max().item()
    print(f"{directory}: {type(model).__name__}, largest difference of {outputs.numel()} outputs, "
          f"up to {numbers['outputs'].abs().max().item():.2f}: {difference:.1e}")
    return difference < TOLERANCE


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["--check"]:
        sys.exit(0 if check(*sys.argv[2:]) else 1)
    main(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "tests", "data", "weights"))
