#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make tests/data/weights: small networks in the formats of published weights, and PyTorch's
results with them. With --check, check files that cgpipe wrote.

    python3 -m venv --system-site-packages venv    # with Debian's python3-torch: PyTorch 1.13
    venv/bin/pip install transformers==4.40.2 safetensors
    venv/bin/python tools/reference_weights.py [DIR]         # default: tests/data/weights
    venv/bin/python tools/reference_weights.py --check gpt2 FOLDER LOGITS
    venv/bin/python tools/reference_weights.py --check resnet FILE LOGITS
                       # FOLDER, FILE: written by cgpipe convert from a run of a case;
                       # LOGITS: expected.safetensors of that case

Every case is a directory. All weights are random, with seed 1:

    gpt2           GPT2LMHeadModel.save_pretrained() of Hugging Face's transformers, which writes
                   model.safetensors with the safetensors library; tied head, gelu_new
    gpt2-shards    the same model in several files with an index (max_shard_size)
    gpt2-f16, gpt2-bf16    the same rounded to 16 bits: outputs are computed in double from the
                   rounded weights
    gpt2-other     untied head, gelu (with erf), another layer_norm_epsilon, n_inner 2.5 n_embd
    resnet20       names and layouts of torchvision's ResNet, written by safetensors.torch.save_file
                   from the network defined below (torchvision has no ResNet-20); running statistics
                   of three batches

Each case has expected.safetensors: `inputs` (tokens i32 [N, T]; images f32 [N, H, W, 3]) and
`outputs`, the logits in f32 that PyTorch computes in evaluation mode.

--check uses the real library to read what cgpipe wrote: AutoConfig and
GPT2LMHeadModel.from_pretrained(), or load_state_dict(strict=True). It computes the outputs, prints
the largest difference, and fails if this difference exceeds 1e-4."""
import json
import os
import shutil
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOLERANCE = 1e-4


# --- GPT-2 ---

def make_gpt2(**other):
    from transformers import GPT2Config, GPT2LMHeadModel
    torch.manual_seed(1)
    sizes = {"vocab_size": 53, "n_positions": 12, "n_embd": 16, "n_layer": 2, "n_head": 2,
             "bos_token_id": None, "eos_token_id": None, "initializer_range": 0.3}
    model = GPT2LMHeadModel(GPT2Config(**{**sizes, **other})).eval()
    # Initially, all biases are zero and the weights of norms are one. If a reader confused them,
    # tests would not notice, so change them.
    for name, p in model.named_parameters():
        if name.endswith("bias") or "ln_" in name:
            p.data += 0.2 * torch.randn_like(p)
    return model


def write_gpt2(directory, model, dtype=torch.float32, **options):
    tokens = torch.randint(0, model.config.vocab_size, (3, model.config.n_positions))
    model = model.to(dtype)
    model.save_pretrained(directory, safe_serialization=True, **options)
    with torch.no_grad():
        logits = model.double()(tokens).logits
    expect(directory, tokens.int(), logits)


def check_gpt2(directory, inputs):
    from transformers import AutoConfig, GPT2LMHeadModel
    config = AutoConfig.from_pretrained(directory)
    model, told = GPT2LMHeadModel.from_pretrained(directory, config=config,
                                                  output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not told[kind], f"{directory}: {kind}: {told[kind]}"
    print(f"{directory}: {type(config).__name__}, {config.activation_function}, "
          f"{sum(p.numel() for p in model.parameters())} parameters")
    return model.eval()(inputs.long()).logits


# --- ResNet-20 with torchvision's names: conv1 bn1 layer1.0.conv1 .. layer3.2.bn2 fc, and
# layer2.0.downsample.0 .1 ---

class Block(nn.Module):
    def __init__(self, channels, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.downsample = None
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False),
                                            nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (self.downsample(x) if self.downsample else x))


class ResNet20(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        channels = width
        for group in range(3):
            blocks = []
            for block in range(3):
                out = width << group
                blocks.append(Block(channels, out, 2 if group > 0 and block == 0 else 1))
                channels = out
            setattr(self, f"layer{group + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        for group in (self.layer1, self.layer2, self.layer3):
            x = group(x)
        return self.fc(x.mean((2, 3)))


def of_images(model, images):
    """Run the network on images [N, H, W, 3], cgpipe's layout."""
    return model(images.permute(0, 3, 1, 2).to(next(model.parameters()).dtype))


def write_resnet(directory):
    torch.manual_seed(1)
    model = ResNet20(4, 7)
    for name, p in model.named_parameters():
        if "bn" in name or "downsample.1" in name:
            p.data += 0.3 * torch.randn_like(p)
    with torch.no_grad():
        for _ in range(3):
            of_images(model, 2 * torch.randn(8, 16, 16, 3))
    os.makedirs(directory)
    save_file(model.state_dict(), os.path.join(directory, "resnet20.safetensors"))
    images = torch.randn(3, 16, 16, 3)
    with torch.no_grad():
        logits = of_images(model.double().eval(), images)
    expect(directory, images, logits)


def check_resnet(file, inputs):
    model = ResNet20(4, 7)
    state = load_file(file)
    model.load_state_dict(state, strict=True)
    print(f"{file}: {len(state)} tensors, conv1.weight {list(state['conv1.weight'].shape)}, "
          f"bn1.num_batches_tracked {state['bn1.num_batches_tracked']} "
          f"({state['bn1.num_batches_tracked'].dtype})")
    return of_images(model.eval(), inputs)


# --- both ---

def expect(directory, inputs, outputs):
    save_file({"inputs": inputs.contiguous(), "outputs": outputs.float().contiguous()},
              os.path.join(directory, "expected.safetensors"))


CASES = ("gpt2", "gpt2-shards", "gpt2-f16", "gpt2-bf16", "gpt2-other", "resnet20")


def make(root):
    """Replace the directories of the cases, each of which must have expected.safetensors. Other
    files in `root` are kept."""
    os.makedirs(root, exist_ok=True)
    directories = [os.path.join(root, case) for case in CASES]
    for directory in directories:
        if os.path.lexists(directory) and not os.path.exists(os.path.join(directory,
                                                                          "expected.safetensors")):
            sys.exit(f"{directory}: expected a directory of this tool, got one without "
                     "expected.safetensors (another DIR)")
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)
    write_gpt2(os.path.join(root, "gpt2"), make_gpt2())
    write_gpt2(os.path.join(root, "gpt2-shards"), make_gpt2(), max_shard_size="8KB")
    write_gpt2(os.path.join(root, "gpt2-f16"), make_gpt2(), torch.float16)
    write_gpt2(os.path.join(root, "gpt2-bf16"), make_gpt2(), torch.bfloat16)
    write_gpt2(os.path.join(root, "gpt2-other"),
               make_gpt2(tie_word_embeddings=False, activation_function="gelu",
                         layer_norm_epsilon=0.01, n_inner=40, n_layer=1))
    write_resnet(os.path.join(root, "resnet20"))
    for directory in sorted(directories):
        for file in sorted(os.listdir(directory)):
            if file == "generation_config.json":
                os.remove(os.path.join(directory, file))
                continue
            print(os.path.join(directory, file), os.path.getsize(os.path.join(directory, file)))


def check(kind, path, expected):
    told = load_file(expected)
    with torch.no_grad():
        outputs = {"gpt2": check_gpt2, "resnet": check_resnet}[kind](path, told["inputs"])
    far = (outputs - told["outputs"]).abs().max().item()
    print(f"{path}: largest difference of {outputs.numel()} outputs, up to "
          f"{told['outputs'].abs().max().item():.2f}: {far:.1e}")
    return far < TOLERANCE


def main():
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["--check"]:
        sys.exit(0 if check(*sys.argv[2:]) else 1)
    make(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "tests", "data", "weights"))


if __name__ == "__main__":
    main()
