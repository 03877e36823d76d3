# SPDX-License-Identifier: Apache-2.0
"""Captured models: torchgpipe's benchmark models and a Hugging Face GPT-2 have the published
numbers of parameters, and PyTorch's results."""

import copy
import unittest

import torch_support  # noqa: F401  skips without PyTorch

import torch
import torch_models
from compare import compare, far
from torch import nn
from torch.nn import functional as F

from cgpipe.torchgpipe import GPipe

try:
    import transformers
except ImportError:
    transformers = None
try:
    import torchvision
except ImportError:
    torchvision = None


def gpt2(**options):
    """Return a small Hugging Face GPT-2, which returns logits."""
    class Logits(nn.Module):
        def __init__(self):
            super().__init__()
            self.gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(
                n_layer=2, n_embd=32, n_head=4, vocab_size=50, n_positions=12, bos_token_id=1,
                eos_token_id=1, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **options))

        def forward(self, ids):
            return self.gpt2(ids, use_cache=False).logits
    return Logits().train()


class Models(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)

    def once(self, make, shape, **options):
        """Call compare() with up to three random draws. Different rounding may move the input of
        one of a million ReLUs to the other side of 0. Then gradients exceed the bound although the
        ops are right."""
        for attempt in range(3):
            try:
                return compare(self, make(), torch.randn(shape), **options)
            except AssertionError:
                if attempt == 2:
                    raise

    def test_sizes_are_the_published(self):
        with torch.device("meta"):
            resnet, amoebanet, unet = (
                torch_models.resnet(), torch_models.amoebanetd(), torch_models.unet(5, 64))
            self.assertEqual((len(resnet), torch_models.count(resnet)), (370, 44549160))
            self.assertEqual((len(amoebanet), torch_models.count(amoebanet)), (24, 81505540))
            self.assertEqual([torch_models.count(c) for c in amoebanet][:5],
                             [1508, 49296, 227032, 446992, 555152])
            self.assertEqual((len(unet), len(torch_models.unet(2, 32))), (241, 109))
            self.assertEqual(torch_models.count(torch_models.unet(2, 32)), 18075760)

    def test_resnet(self):
        self.once(lambda: torch_models.resnet((1, 2, 1, 1), 8, 7), (4, 3, 64, 64),
                  devices=["cpu"] * 2)

    def test_amoebanetd(self):
        self.once(lambda: torch_models.amoebanetd(3, 16, 5, 2), (4, 3, 64, 64), devices=["cpu"] * 2)

    def test_unet(self):
        compare(self, torch_models.unet(2, 4, 3, 0.0), torch.randn(4, 3, 20, 20), chunks=2,
                devices=["cpu"] * 3)

    @unittest.skipIf(transformers is None, "there is no transformers")
    def test_gpt2(self):
        for attention in ("sdpa", "eager"):
            for length in (12, 7):
                with self.subTest(attention=attention, length=length):
                    compare(self, gpt2(attn_implementation=attention),
                            torch.randint(0, 50, (4, length)), chunks=2, devices=["cpu"] * 2)

    @unittest.skipIf(transformers is None, "there is no transformers")
    def test_llama(self):
        class Logits(nn.Module):
            def __init__(self):
                super().__init__()
                self.llama = transformers.LlamaForCausalLM(transformers.LlamaConfig(
                    num_hidden_layers=2, hidden_size=32, intermediate_size=48,
                    num_attention_heads=4, num_key_value_heads=2, vocab_size=50,
                    max_position_embeddings=16))

            def forward(self, ids):
                return self.llama(ids, use_cache=False).logits
        compare(self, Logits().train(), torch.randint(0, 50, (4, 9)), chunks=4, devices=["cpu"] * 2)

    @unittest.skipIf(torchvision is None, "there is no torchvision")
    def test_torchvision(self):
        self.once(lambda: torchvision.models.ResNet(
            torchvision.models.resnet.BasicBlock, [1, 1, 1, 1], 7), (4, 3, 48, 48))


class Training(unittest.TestCase):
    """The losses of twenty steps are close to the losses in PyTorch."""

    def follow(self, module, draw, loss, optimizer, chunks=1, **options):
        """Compare each loss with the loss of PyTorch in float64. The bound is 2e-5, or four times
        the largest error of PyTorch in float32 up to this step."""
        torch.manual_seed(6)
        single, double = copy.deepcopy(module), copy.deepcopy(module).double()
        layers = len(module)
        pipe = GPipe(module, [layers - layers // 2, layers // 2], chunks=chunks)
        updates = [optimizer(model.parameters(), **options) for model in (pipe, single, double)]
        rough = 0.0
        for step in range(20):
            x, y = draw()
            losses = []
            for model, update in zip((pipe, single, double), updates):
                cast = [t.double() if model is double and t.is_floating_point() else t
                        for t in (x, y)]
                update.zero_grad()
                value = loss(model(cast[0]), cast[1])
                value.backward()
                update.step()
                losses.append(float(value.detach()))
            rough = max(rough, abs(losses[1] - losses[2]))
            self.assertLess(abs(losses[0] - losses[2]),
                            max(2e-5 * max(1.0, abs(losses[2])), 4 * rough), f"step {step}")
        for (name, x), y, z in zip(pipe.named_buffers(), double.buffers(), single.buffers()):
            self.assertLess(far(x, y), max(1e-4, 4 * far(z, y)), name)

    def images(self):
        return torch.randn(16, 3, 32, 32), torch.randint(0, 5, (16,))

    def larger(self):
        return torch.randn(8, 3, 64, 64), torch.randint(0, 5, (8,))

    def test_resnet(self):
        for optimizer, options in ((torch.optim.SGD, {"lr": 1e-3, "momentum": 0.9}),
                                   (torch.optim.AdamW, {"lr": 1e-5})):
            self.follow(torch_models.resnet((1, 1), 8, 5), self.images, F.cross_entropy, optimizer,
                        **options)

    def test_amoebanetd(self):
        for optimizer, options in ((torch.optim.SGD, {"lr": 1e-4}),
                                   (torch.optim.AdamW, {"lr": 1e-6})):
            self.follow(torch_models.amoebanetd(3, 8, 5, 2), self.larger, F.cross_entropy,
                        optimizer, **options)

    def test_unet(self):
        def draw():
            return torch.randn(4, 3, 16, 16), torch.rand(4, 1, 16, 16)
        for optimizer, options in ((torch.optim.SGD, {"lr": 0.01}),
                                   (torch.optim.AdamW, {"lr": 1e-4})):
            self.follow(torch_models.unet(1, 4, 2, 0.0), draw, F.binary_cross_entropy_with_logits,
                        optimizer, chunks=2, **options)

    @unittest.skipIf(transformers is None, "there is no transformers")
    def test_gpt2(self):
        def draw():
            ids = torch.randint(0, 50, (4, 13))
            return ids[:, :-1], ids[:, 1:]
        for optimizer, options in ((torch.optim.SGD, {"lr": 0.05}),
                                   (torch.optim.AdamW, {"lr": 1e-3})):
            self.follow(nn.Sequential(gpt2(), nn.Identity()), draw,
                        lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten()), optimizer,
                        chunks=4, **options)


if __name__ == "__main__":
    unittest.main()
