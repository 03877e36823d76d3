# SPDX-License-Identifier: Apache-2.0
"""GPipe as a module: arguments, attributes, container methods, types of inputs and outputs,
copies."""

import copy
import io
import pickle
import unittest
from collections import OrderedDict

from torch_support import torch
from torch import nn

import cgpipe
from cgpipe.torchgpipe import GPipe, is_checkpointing, is_recomputing


def two(**options):
    return GPipe(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)), [1, 1], **options)


class Arguments(unittest.TestCase):
    def test_attributes_have_their_types(self):
        class Mode:
            def __str__(self):
                return "always"

        model = GPipe(nn.Sequential(nn.Linear(1, 1)), (1,), devices=("cpu",), chunks=42.0,
                      checkpoint=Mode())
        self.assertEqual((model.balance, model.devices, model.chunks, model.checkpoint),
                         ([1], [torch.device("cpu")], 42, "always"))
        self.assertIs(type(model.chunks), int)
        self.assertIs(type(model.checkpoint), str)

    def test_a_balance_of_another_sum_is_refused(self):
        for balance in ([1], [3]):
            with self.assertRaisesRegex(ValueError, r"module: 2, sum of balance: \d"):
                GPipe(nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1)), balance)

    def test_entries_below_1_are_refused(self):
        for balance in ([0, 2], [-1, 3]):
            with self.assertRaisesRegex(ValueError, "positive integer"):
                GPipe(nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1)), balance)

    def test_a_missing_balance_is_advised(self):
        with self.assertRaisesRegex(ValueError, "cgpipe.torchgpipe.balance"):
            GPipe(nn.Sequential())

    def test_chunks_below_1_are_refused(self):
        for chunks in (0, -1):
            with self.assertRaises(ValueError):
                two(chunks=chunks)

    def test_an_unknown_mode_is_refused(self):
        with self.assertRaisesRegex(ValueError,
                                    "checkpoint is not one of 'always', 'except_last', or 'never'"):
            two(checkpoint="sometimes")

    def test_too_few_devices_are_refused(self):
        with self.assertRaises(IndexError):
            two(devices=["cpu"])

    def test_surplus_devices_are_left_out(self):
        self.assertEqual(two(devices=["cpu"] * 5).devices, [torch.device("cpu")] * 2)

    def test_without_devices_each_stage_has_a_cpu(self):
        self.assertEqual(two().devices, [torch.device("cpu")] * 2)

    def test_only_sequentials_of_different_layers_are_taken(self):
        shared = nn.Linear(1, 1)

        class Holder(nn.Module):
            def __init__(self):
                super().__init__()
                self.part = shared

        with self.assertRaisesRegex(TypeError, "nn.Sequential"):
            GPipe(nn.Linear(1, 1), [1])
        with self.assertRaisesRegex(ValueError, "duplicate children"):
            GPipe(nn.Sequential(shared, shared), [2])
        with self.assertRaisesRegex(ValueError, "duplicate parameters"):
            GPipe(nn.Sequential(Holder(), Holder()), [2])


class Containers(unittest.TestCase):
    def test_layers_are_counted_listed_and_indexed(self):
        layers = [nn.Linear(1, 1) for _ in range(4)]
        for balance in ([4], [1, 3], [2, 2], [1, 1, 1, 1]):
            model = GPipe(nn.Sequential(*layers), balance)
            self.assertEqual(len(model), 4)
            self.assertEqual(list(model), layers)
            for i in range(-4, 4):
                self.assertIs(model[i], layers[i])
            for i in (4, -5):
                with self.assertRaises(IndexError):
                    model[i]
            with self.assertRaises(TypeError):
                model[0:2]

    def test_partitions_are_sequentials_with_the_names_of_the_children(self):
        model = GPipe(nn.Sequential(OrderedDict(a=nn.Linear(1, 1), b=nn.Linear(1, 1))), [1, 1])
        self.assertIsInstance(model.partitions, nn.ModuleList)
        self.assertIsInstance(model.partitions[0], nn.Sequential)
        self.assertEqual(sorted(model.state_dict()),
                         ["partitions.0.a.bias", "partitions.0.a.weight", "partitions.1.b.bias",
                          "partitions.1.b.weight"])
        with self.assertRaises(AttributeError):
            model.a

    def test_moves_are_denied_and_casts_are_not(self):
        model = two()
        for move in (model.cuda, model.cpu, lambda: model.to("cuda"), lambda: model.to(0),
                     lambda: model.to(device="cpu"), lambda: model.to(torch.device("cpu")),
                     lambda: model.to(torch.rand(1)), lambda: model.to(tensor=torch.rand(1))):
            with self.assertRaises(TypeError):
                move()
        self.assertIs(model.half().to(torch.double).to(dtype=torch.float), model)

    def test_flags_are_off(self):
        self.assertEqual((is_checkpointing(), is_recomputing()), (False, False))

    def test_nothing_is_changed_by_wrapping(self):
        norm = nn.BatchNorm2d(3)
        GPipe(nn.Sequential(norm), [1], chunks=2, deferred_batch_norm=True)
        self.assertIs(type(norm), nn.BatchNorm2d)


class Types(unittest.TestCase):
    def test_an_empty_module_is_the_identity(self):
        model = GPipe(nn.Sequential(), [])
        self.assertEqual(model(torch.tensor(42)), torch.tensor(42))
        self.assertEqual(model((torch.tensor(42),)), (torch.tensor(42),))
        with self.assertRaises(TypeError):
            model(42)

    def test_layers_without_arithmetic_are_the_identity(self):
        x = torch.rand(5, 2, requires_grad=True)
        y = GPipe(nn.Sequential(nn.Identity(), nn.Identity()), [1, 1], chunks=2)(x)
        self.assertTrue(torch.equal(x, y))
        y.sum().backward()
        self.assertEqual(x.grad.unique().tolist(), [1.0])

    def test_one_input_is_taken(self):
        with self.assertRaises(TypeError):
            two()(torch.rand(1, 2), torch.rand(1, 2))

    def test_inputs_are_tensors(self):
        for wrong in ("text", 1, [torch.rand(1, 2)], (torch.rand(1, 2), "text"), None):
            with self.assertRaises(TypeError):
                two()(wrong)

    def test_a_layer_returns_tensors(self):
        for value in ("text", ("text",), [1]):
            class Layer(nn.Module):
                def forward(self, x):
                    return value

            with self.assertRaises(TypeError):
                GPipe(nn.Sequential(Layer(), nn.Identity()), [1, 1])(torch.rand(1, 2))

    def test_an_exception_of_a_layer_arrives(self):
        class Expected(Exception):
            pass

        class Layer(nn.Module):
            def forward(self, x):
                raise Expected("mine")

        model = GPipe(nn.Sequential(nn.Linear(2, 2), Layer()), [1, 1], chunks=3)
        for _ in range(2):
            with self.assertRaisesRegex(Expected, "mine"):
                model(torch.rand(3, 2))

    def test_what_cannot_be_captured_names_its_module(self):
        class Inverse(nn.Module):
            def forward(self, x):
                return torch.linalg.inv(x)

        class Mixes(nn.Module):
            def forward(self, x):
                return x - x.mean(0)

        for layer, op in ((Inverse(), "linalg_inv"), (Mixes(), "mean")):
            with self.assertRaisesRegex(cgpipe.CgpipeError, f"partitions.1.1: {op}"):
                GPipe(nn.Sequential(nn.Linear(2, 2), layer), [1, 1],
                      fallback=False)(torch.rand(2, 2, 2))

    def test_a_tuple_of_one_stays_one(self):
        class One(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(2, 2)

            def forward(self, x):
                (x,) = x
                return (self.fc(x),)

        model = GPipe(nn.Sequential(One(), One()), [1, 1], chunks=2)
        a = torch.rand(4, 2, requires_grad=True)
        (y,) = model((a,))
        y.mean().backward()
        self.assertEqual(a.grad.shape, a.shape)

    def test_inputs_of_different_sizes_are_refused(self):
        class Add(nn.Module):
            def forward(self, pair):
                a, b = pair
                return a + 1, b + 1

        with self.assertRaisesRegex(ValueError, "2 and 8"):
            GPipe(nn.Sequential(Add()), [1], chunks=4)((torch.rand(2, 1), torch.rand(8, 1)))

    def test_scalars_are_refused(self):
        with self.assertRaises(RuntimeError):
            two()(torch.tensor(1.0))

    def test_tensors_elsewhere_are_refused(self):
        with self.assertRaisesRegex(ValueError, "host's memory is expected, got one on meta"):
            two()(torch.rand(1, 2, device="meta"))

    def test_devices_that_are_not_there_are_refused(self):
        if torch.cuda.is_available():
            self.skipTest("there is a GPU")
        with self.assertRaises(cgpipe.CgpipeError):
            two(devices=["cuda:0", "cuda:1"])(torch.rand(1, 2))

    def test_other_types_of_weights_are_refused(self):
        for model in (two().half(), two().double()):
            with self.assertRaisesRegex(TypeError, "float32"):
                model(torch.rand(1, 2).to(model[0].weight.dtype))


class Copies(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)
        self.x = torch.rand(4, 2)
        self.model = two(chunks=2)
        self.y = self.model(self.x)

    def trains_alone(self, other):
        with torch.no_grad():
            before = [p.clone() for p in self.model.parameters()]
            for p in other.parameters():
                p.add_(1)
        other(self.x).sum().backward()
        self.assertTrue(all(torch.equal(p, q) for p, q in zip(before, self.model.parameters())))
        self.assertTrue(all(p.grad is None for p in self.model.parameters()))

    def test_a_deep_copy_has_an_engine_of_its_own(self):
        other = copy.deepcopy(self.model)
        self.assertTrue(torch.equal(other(self.x), self.y))
        self.trains_alone(other)

    def test_a_pickled_one_computes_the_same(self):
        other = pickle.loads(pickle.dumps(self.model))
        self.assertTrue(torch.equal(other(self.x), self.y))
        self.trains_alone(other)

    def test_a_state_is_saved_and_loaded(self):
        file = io.BytesIO()
        torch.save(self.model.state_dict(), file)
        file.seek(0)
        other = two(chunks=1)
        other(self.x)
        other.load_state_dict(torch.load(file))
        self.assertTrue(torch.equal(other(self.x), self.y))

    def test_the_wrapped_module_still_runs_in_pytorch(self):
        with torch.no_grad():
            expected = nn.Sequential(*self.model)(self.x)
        torch.testing.assert_close(self.y.detach(), expected)


if __name__ == "__main__":
    unittest.main()
