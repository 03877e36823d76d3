# SPDX-License-Identifier: Apache-2.0
"""Compare common training loops of PyTorch with and without cgpipe."""

import copy
import tempfile
import unittest
import warnings
from unittest import mock

import support  # noqa: F401: skips without NumPy
from torch_support import torch
from torch import nn

import cgpipe
from cgpipe.errors import ArgumentError, StateError
from cgpipe.torchgpipe import GPipe


def layers():
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(),
                         nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 3))


def linear():
    torch.manual_seed(2)
    return nn.Sequential(nn.Flatten(), nn.Linear(72, 72), nn.ReLU(), nn.Linear(72, 72), nn.ReLU(),
                         nn.Linear(72, 3), nn.Identity())


def tied():
    net = linear()
    net[3].weight = net[1].weight
    return net


def data(seed, samples=8):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(samples, 2, 6, 6, generator=generator),
            torch.randint(0, 3, (samples,), generator=generator))


loss_of = nn.CrossEntropyLoss()


def gpipe(net):
    return GPipe(net, balance=[3, 4], chunks=2, checkpoint="never", verify=False)


def pipeline(net, **options):
    x, y = data(0, 4)
    model = cgpipe.from_torch(net, (x,), loss=loss_of, example_target=y, verify=False)
    return cgpipe.Pipeline(model, **{"stages": 2, "batch": 8, "optimizer": cgpipe.SGD(lr=0.1),
                                     **options})


class Loops(unittest.TestCase):
    def close(self, got, expected):
        self.assertEqual(len(got), len(expected))
        for (name, a), b in zip(got.items(), expected.values()):
            torch.testing.assert_close(a, b, rtol=2e-4, atol=2e-5, msg=lambda m: f"{name}: {m}")

    def both(self, loop, net=layers):
        """Run loop(module) with and without GPipe; compare the weights and the returned values.
        Batch norms are in eval mode, because statistics of micro-batches would differ."""
        net_of_torch = net()
        mine = gpipe(net())
        for part in (net_of_torch, mine):
            for norm in part.modules():
                if isinstance(norm, nn.BatchNorm2d):
                    norm.eval()
        expected, got = loop(net_of_torch), loop(mine)
        self.close(dict(enumerate(mine.state_dict().values())),
                   dict(enumerate(net_of_torch.state_dict().values())))
        torch.testing.assert_close(torch.as_tensor(got), torch.as_tensor(expected), rtol=2e-4,
                                   atol=2e-5)

    def test_accumulation_with_a_divided_loss(self):
        def loop(net):
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
            for i in range(6):
                x, y = data(i)
                (loss_of(net(x), y) / 3).backward()
                if i % 3 == 2:
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=True)
            return 0.0

        self.both(loop)

    def test_clipping_by_torch_and_parameters_to_vector(self):
        def loop(net):
            optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
            norms = []
            for i in range(4):
                x, y = data(i)
                optimizer.zero_grad(set_to_none=bool(i % 2))
                loss_of(net(x), y).backward()
                norms.append(float(nn.utils.clip_grad_norm_(net.parameters(), 0.5)))
                optimizer.step()
            vector = nn.utils.parameters_to_vector(net.parameters()).detach().clone()
            nn.utils.vector_to_parameters(0.5 * vector, net.parameters())
            x, y = data(9)
            loss_of(net(x), y).backward()
            optimizer.step()
            return norms + vector.tolist()

        self.both(loop, linear)

    def test_states_are_saved_and_loaded_in_the_middle(self):
        def loop(net):
            optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
            for i in range(6):
                if i == 3:
                    saved = copy.deepcopy((net.state_dict(), optimizer.state_dict(),
                                           scheduler.state_dict()))
                if i == 5:  # go back to step 3
                    for of, state in zip((net, optimizer, scheduler), saved):
                        of.load_state_dict(state)
                x, y = data(i)
                optimizer.zero_grad()
                loss_of(net(x), y).backward()
                optimizer.step()
                scheduler.step()
            return scheduler.get_last_lr()

        self.both(loop)

    def test_fine_tuning_with_a_faster_head_and_frozen_layers(self):
        def loop(net):
            parameters = list(net.parameters())
            for p in parameters[:2]:
                p.requires_grad_(False)
            optimizer = torch.optim.SGD([{"params": parameters[2:-2]},
                                         {"params": parameters[-2:], "lr": 0.5}], lr=0.05)
            for i in range(4):
                if i == 2:  # unfreeze the first layers
                    for p in parameters[:2]:
                        p.requires_grad_(True)
                    optimizer.add_param_group({"params": parameters[:2], "lr": 0.01})
                x, y = data(i)
                optimizer.zero_grad()
                loss_of(net(x), y).backward()
                optimizer.step()
            return 0.0

        self.both(loop)

    def test_evaluation_averages_and_a_smaller_last_batch(self):
        def loop(net):
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            average = {name: p.detach().clone() for name, p in net.named_parameters()}
            found = []
            for i, samples in enumerate((8, 8, 5, 8, 3)):
                net.train()
                for norm in net.modules():
                    if isinstance(norm, nn.BatchNorm2d):
                        norm.eval()
                x, y = data(i, samples)
                optimizer.zero_grad()
                loss = loss_of(net(x), y)
                loss.backward()
                optimizer.step()
                with torch.no_grad():
                    for name, p in net.named_parameters():
                        average[name].lerp_(p, 0.1)
                net.eval()
                with torch.no_grad():
                    out = net(data(20, 6)[0])
                found += [float(loss), float(out.sum()), float(out.argmax(1).float().mean())]
            return found + [float(p.sum()) for p in average.values()]

        self.both(loop)

    def test_tied_weights_are_pytorchs_or_refused(self):
        net, expected = tied(), tied()
        with self.assertRaisesRegex(ValueError, "duplicate parameters in distinct children"):
            GPipe(tied(), balance=[3, 4])
        optimizer = torch.optim.AdamW(expected.parameters(), lr=1e-3)
        with pipeline(net, chunks=2, optimizer=cgpipe.AdamW(lr=1e-3)) as training:
            for i in range(4):
                x, y = data(i)
                training.step(x, y)
                optimizer.zero_grad()
                loss_of(expected(x), y).backward()
                optimizer.step()
            self.close(net.state_dict(), expected.state_dict())

    def test_autocast_is_refused(self):
        mine = gpipe(layers())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            with self.assertRaisesRegex(RuntimeError, "torch.autocast: values are float32 here"):
                mine(data(1)[0])


class States(unittest.TestCase):
    """A pipeline's state_dict() has the weights in the module's layout."""

    def same(self, got, expected):
        self.assertEqual(list(got), list(expected))
        for name, value in expected.items():
            self.assertEqual(got[name].dtype, value.dtype, name)
            self.assertTrue(torch.equal(got[name], value), name)

    def test_a_captured_modules_state_goes_both_ways(self):
        net, other = layers(), layers()
        with pipeline(net) as training:
            for i in range(2):
                training.step(*data(i))
            self.same(training.state_dict(), net.state_dict())
            other.load_state_dict(training.state_dict())  # into a plain PyTorch module
            before = copy.deepcopy(other.state_dict())
            training.step(*data(3))
            training.load_state_dict(before)
            self.same(training.state_dict(), before)
            self.same(net.state_dict(), before)
            x = data(4)[0]
            torch.testing.assert_close(training.predict(x), other.eval()(x), rtol=1e-4, atol=1e-5)
            training.step(*data(3))
            with tempfile.NamedTemporaryFile() as file:
                torch.save(net.state_dict(), file.name)
                other.load_state_dict(torch.load(file.name, weights_only=True))
            torch.testing.assert_close(training.predict(x), other(x), rtol=1e-4, atol=1e-5)

    def test_a_state_that_does_not_fit_changes_nothing(self):
        with pipeline(layers()) as training:
            before = training.state_dict()
            less = {name: value for name, value in before.items() if name != "3.weight"}
            for wrong, message in (
                    (less, "3.weight: missing"), ({**before, "head": before["6.bias"]}, "unknown"),
                    ({**before, "3.weight": before["3.weight"].permute(0, 2, 3, 1)},
                     r"3.weight: shape \[4, 4, 3, 3\] is expected, got \[4, 3, 3, 4\]"),
                    ({**before, "6.bias": 1.0}, "6.bias: a tensor is expected, got float")):
                with self.assertRaisesRegex(ArgumentError, message):
                    training.load_state_dict(wrong)
                self.same(training.state_dict(), before)

    def test_tied_weights_have_all_their_names(self):
        net = tied()
        with pipeline(net) as training:
            training.step(*data(1))
            self.same(training.state_dict(), net.state_dict())
            doubled = {name: 2 * value for name, value in training.state_dict().items()}
            training.load_state_dict(doubled)
            self.same(net.state_dict(), doubled)


class Launchers(unittest.TestCase):
    def test_gpipe_in_one_of_several_processes_says_so(self):
        for environment in ({"RANK": "1", "WORLD_SIZE": "4"}, {"OMPI_COMM_WORLD_SIZE": "4"}):
            with mock.patch.dict("os.environ", environment):
                with self.assertWarnsRegex(UserWarning, "GPipe: one process is expected, but 4 .*"
                                           "mpirun -n 4 with cgpipe.Pipeline"):
                    gpipe(layers())
        for environment in ({}, {"RANK": "0", "WORLD_SIZE": "1"}):
            with mock.patch.dict("os.environ", environment), warnings.catch_warnings():
                warnings.simplefilter("error")
                gpipe(layers())

    def test_a_pipeline_in_one_of_several_processes_is_refused(self):
        with mock.patch.dict("os.environ", {"RANK": "1", "WORLD_SIZE": "4"}):
            with self.assertRaisesRegex(StateError, "ranks: 4 processes .* torchrun"):
                pipeline(layers())


if __name__ == "__main__":
    unittest.main()
