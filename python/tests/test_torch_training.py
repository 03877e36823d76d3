# SPDX-License-Identifier: Apache-2.0
"""Training loops of PyTorch's users, beside PyTorch: accumulation, clipping."""

import copy
import unittest

import support  # noqa: F401: skips without NumPy
import cgpipe
from torch_support import torch
from torch import nn


def module(tied=False):
    torch.manual_seed(1)
    found = nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 3))
    if tied:
        found[2].weight = found[0].weight
    return found


def data(samples=16, seed=2):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(samples, 6, generator=generator),
            torch.randint(0, 3, (samples,), generator=generator))


def captured(net, **options):
    x, y = data(4)
    model = cgpipe.from_torch(net, (x,), loss=nn.CrossEntropyLoss(), example_target=y)
    return cgpipe.Pipeline(model, **{"stages": 2, "chunks": 4, "batch": 16, **options})


class Beside(unittest.TestCase):
    def close(self, got, expected):
        for (name, a), (_, b) in zip(got.named_parameters(), expected.named_parameters()):
            torch.testing.assert_close(a, b, rtol=2e-5, atol=1e-6, msg=name)

    def test_accumulation_and_clipping(self):
        for tied in (False, True):
            net = module(tied)
            expected = copy.deepcopy(net)
            optimizer = torch.optim.SGD(expected.parameters(), lr=0.5, momentum=0.9)
            x, y = data()
            with captured(net, optimizer=cgpipe.SGD(lr=0.5, momentum=0.9)) as training:
                for _ in range(3):
                    for part in (slice(0, 5), slice(5, 16)):
                        loss = nn.functional.cross_entropy(expected(x[part]), y[part])
                        loss.backward()
                        self.assertAlmostEqual(training.step(x[part], y[part], update=False),
                                               loss.item(), places=5)
                        for a, b in zip(net.parameters(), expected.parameters()):
                            torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-6)
                    norm = nn.utils.clip_grad_norm_(expected.parameters(), 0.1)
                    self.assertAlmostEqual(training.clip_grad_norm_(0.1), norm.item(), places=5)
                    optimizer.step()
                    optimizer.zero_grad()
                    training.update()
                    self.close(net, expected)
                training.step(x, y, update=False)
                training.zero_grad()
                training.step(x[:5], y[:5])
                nn.functional.cross_entropy(expected(x[:5]), y[:5]).backward()
                optimizer.step()
                self.close(net, expected)


if __name__ == "__main__":
    unittest.main()
