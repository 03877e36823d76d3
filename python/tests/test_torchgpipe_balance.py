# SPDX-License-Identifier: Apache-2.0
"""Balances of nn.Sequential modules: the cuts are optimal for times of the engine or of PyTorch,
and for computed bytes. Balancing does not change the module."""

import unittest
from types import SimpleNamespace
from unittest import mock

from torch_support import torch
from torch import nn

from cgpipe import errors
from cgpipe.torchgpipe import GPipe, balance
from cgpipe.torchgpipe.balance import balance_by_size, balance_by_time

# A simulated clock that only the layers advance, so that the machine's load does not matter.
clock = SimpleNamespace(now=0.0, perf_counter=lambda: clock.now)


class Delay(nn.Module):
    def __init__(self, ms):
        super().__init__()
        self.seconds = ms / 1000

    def forward(self, x):
        clock.now += self.seconds
        return x


class Unlike(nn.Module):
    """A module that cannot be captured."""

    def forward(self, x):
        return x.sort(dim=0).values


class ByTime(unittest.TestCase):
    def test_the_cut_is_exact(self):
        for ms, expected in (([10, 20, 30, 40, 50, 60], [4, 2]),
                             ([60, 10, 10, 10, 10, 10], [1, 5])):
            model = nn.Sequential(*[Delay(t) for t in ms])
            with mock.patch.object(balance, "time", clock):
                self.assertEqual(balance_by_time(2, model, torch.rand(1), timeout=0), expected)

    def test_the_engines_times_count(self):
        model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
                              nn.Linear(512, 2048), nn.Linear(2048, 512))
        found = balance_by_time(2, model, torch.rand(32, 512))
        self.assertEqual(sum(found), 6)
        self.assertIn(found, ([4, 2], [5, 1]))
        GPipe(model, found)(torch.rand(8, 512))

    def test_neither_mode_nor_state_nor_gradients_change(self):
        model = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.Dropout(0.5)).eval()
        model[1].train()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        balance_by_time(2, model, torch.rand(2, 3, 8, 8), timeout=0)
        self.assertEqual([part.training for part in model], [False, True, False])
        self.assertTrue(all(torch.equal(value, before[name])
                            for name, value in model.state_dict().items()))
        self.assertTrue(all(p.grad is None for p in model.parameters()))

    def test_layers_run_in_training_mode(self):
        class Training(nn.Module):
            def forward(self, x):
                assert self.training
                return x

        balance_by_time(1, nn.Sequential(Training()).eval(), torch.rand(1), timeout=0)

    def test_existing_gradients_are_refused(self):
        model = nn.Sequential(nn.Linear(1, 1))
        model(torch.rand(1, 1)).sum().backward()
        with self.assertRaisesRegex(ValueError, "some parameter already has gradient"):
            balance_by_time(1, model, torch.rand(1, 1))

    def test_impossible_numbers_of_partitions_are_refused(self):
        for partitions in (0, -1, 3):
            with self.assertRaisesRegex(ValueError, "partitions"):
                balance_by_time(partitions, nn.Sequential(nn.Linear(1, 1), nn.ReLU()),
                                torch.rand(1, 1), timeout=0)

    def test_a_device_that_is_not_there_is_refused(self):
        for module, sample in ((nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.rand(2, 4)),
                               (nn.Sequential(nn.Linear(4, 4), Unlike()), torch.rand(2, 4))):
            for device in ("cuda", torch.device("cuda:1"), "meta"):
                with self.assertRaises(errors.CgpipeError):
                    balance_by_time(2, module, sample, timeout=0, device=device)
            with self.assertRaisesRegex(RuntimeError, "gpu"):
                balance_by_time(2, module, sample, timeout=0, device="gpu")
            self.assertEqual(balance_by_time(2, module, sample, timeout=0), [1, 1])
        with self.assertRaises(errors.CgpipeError):
            balance_by_size(2, nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.rand(2, 4),
                            device="meta")

    def test_tuples_pass_between_layers(self):
        class Twin(nn.Module):
            def forward(self, x):
                return x * 2, x.detach()

        class Add(nn.Module):
            def forward(self, pair):
                return pair[0] + pair[1]

        self.assertEqual(
            balance_by_time(2, nn.Sequential(Twin(), Add()), torch.rand(1, 2), timeout=0), [1, 1])


class BySize(unittest.TestCase):
    def test_parameters_and_saved_values_are_weighed(self):
        # Parameters of 2, 6, 12, 20, 30 and 42 x 10^4 numbers: the best cut gives sums of 70 and
        # 42.
        growing = nn.Sequential(*[nn.Linear(100 * i, 100 * (i + 1)) for i in range(1, 7)])
        self.assertEqual(balance_by_size(2, growing, torch.rand(1, 100)), [5, 1])
        shrinking = nn.Sequential(*[nn.Linear(100 * (i + 1), 100 * i) for i in range(6, 0, -1)])
        self.assertEqual(balance_by_size(2, shrinking, torch.rand(1, 700)), [1, 5])

    def test_the_scale_of_parameters_decides(self):
        model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Tanh(), nn.Tanh(), nn.Tanh(),
                              nn.Linear(64, 512))
        self.assertEqual(balance_by_size(2, model, torch.rand(4096, 64), param_scale=100), [5, 1])
        self.assertNotEqual(balance_by_size(2, model, torch.rand(4096, 64), param_scale=0), [5, 1])

    def test_nothing_changes(self):
        model = nn.Sequential(nn.Linear(2, 2), nn.ReLU()).eval()
        balance_by_size(2, model, torch.rand(4, 2), chunks=2)
        self.assertFalse(model.training)


if __name__ == "__main__":
    unittest.main()
