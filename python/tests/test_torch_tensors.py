# SPDX-License-Identifier: Apache-2.0
"""The library uses PyTorch tensors and the weights of modules without copies. PyTorch may be
imported before or after cgpipe, although the process then has two OpenMP runtimes."""

import copy
import os
import subprocess
import sys
import unittest

import support
from torch_support import torch
from torch import nn

import cgpipe
from cgpipe import errors, tensors
from cgpipe.model import Value

ORDER = '''
import sys
sys.path.insert(0, {tests!r})
def ours():
    import support, cgpipe
    global pipeline, batch
    pipeline = cgpipe.Pipeline(support.model(width=64), stages=2, chunks=2, batch=32, threads=2)
    batch = support.batch(32, width=64)
def theirs():
    import torch
    global a
    torch.set_num_threads(2)
    a = torch.randn(300, 300)
for part in {order}:
    part()
losses = []
for _ in range(5):
    b = a @ a
    losses.append(pipeline.step(*batch))
assert abs((b - a @ a).max()) == 0
print(losses, pipeline.weights_sha256)
'''


class Tensors(unittest.TestCase):
    def test_a_tensor_is_not_copied(self):
        x = torch.zeros(2, 3)
        struct, keep = tensors.tensor(x, Value("x", (3,), "float32"))
        self.assertEqual(struct.data, x.data_ptr())
        struct, keep = tensors.tensor(torch.tensor([1, 2]), Value("ids", (1,), "int32"))
        self.assertEqual((keep.dtype, keep.tolist()), (torch.int32, [1, 2]))
        self.assertEqual(
            tensors.tensor(x.t().contiguous().t(), Value("x", (3,), "float32"))[1].tolist(),
            x.tolist())

    def test_what_does_not_fit_is_refused(self):
        value = Value("x", (3,), "float32")
        with self.assertRaisesRegex(TypeError, "torch.float64"):
            tensors.tensor(torch.zeros(2, 3, dtype=torch.float64), value)
        with self.assertRaisesRegex(errors.ArgumentError, "host memory"):
            tensors.tensor(torch.zeros(2, 3, device="meta"), value)
        with self.assertRaisesRegex(errors.ArgumentError, "2147483648"):
            tensors.tensor(torch.tensor([2**31]), Value("ids", (1,), "int32"))

    def test_tensors_train_like_arrays_and_come_back(self):
        x, y = support.batch(16)
        with cgpipe.Pipeline(support.model(), stages=2, batch=16) as a, \
                cgpipe.Pipeline(support.model(), stages=2, batch=16) as b:
            for _ in range(2):
                self.assertEqual(a.step(x, y),
                                 b.step(torch.from_numpy(x), torch.from_numpy(y).long()))
            out = b.predict(torch.from_numpy(x).requires_grad_())
            self.assertIsInstance(out, torch.Tensor)
            self.assertTrue((out.numpy() == a.predict(x)).all())
            b.load_state_dict({name: torch.from_numpy(value)
                               for name, value in a.state_dict().items()})


class Modules(unittest.TestCase):
    def test_a_module_trains_in_a_pipeline(self):
        torch.manual_seed(3)
        module = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 3))
        theirs = copy.deepcopy(module)
        x, y = map(torch.from_numpy, support.batch(8))
        for options in ({"loss": nn.functional.cross_entropy, "example_target": y.long()}, {}):
            with self.subTest(**options):
                ours = copy.deepcopy(theirs)
                model = cgpipe.from_torch(ours, (x,), **options)
                named = {} if options else {"loss": "cross_entropy"}
                with cgpipe.Pipeline(model, stages=2, chunks=2, batch=8,
                                     optimizer=cgpipe.SGD(lr=0.5), **named) as pipeline:
                    torch_trains = copy.deepcopy(theirs)
                    optimizer = torch.optim.SGD(torch_trains.parameters(), lr=0.5)
                    for _ in range(3):
                        loss = nn.functional.cross_entropy(torch_trains(x), y.long())
                        optimizer.zero_grad()
                        loss.backward()
                        optimizer.step()
                        self.assertAlmostEqual(pipeline.step(x, y), loss.item(), places=5)
                    torch.testing.assert_close(pipeline.predict(x), torch_trains(x).detach(),
                                               rtol=1e-4, atol=1e-5)
                    torch.testing.assert_close(ours[0].weight, torch_trains[0].weight, rtol=1e-4,
                                               atol=1e-5)
                torch.testing.assert_close(ours[2].bias, torch_trains[2].bias, rtol=1e-4, atol=1e-5)


    def test_a_tensor_that_is_kept_outlives_the_pipeline(self):
        def captured():
            module = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 3))
            x, y = torch.randn(8, 64), torch.randint(0, 3, (8,))
            model = cgpipe.from_torch(module, (x,), loss=nn.CrossEntropyLoss(), example_target=y)
            pipeline = cgpipe.Pipeline(model, stages=2, batch=8)
            pipeline.step(x, y)
            return module, pipeline

        module, pipeline = captured()
        weight, gradient = module[0].weight.data, module[0].weight.grad
        expected = weight.clone(), gradient.clone()
        pipeline.close()
        others = [captured() for _ in range(3)]  # these would reuse freed memory
        self.assertEqual(len(others), 3)
        for found, wanted in zip((weight, gradient), expected):
            torch.testing.assert_close(found, wanted, rtol=0, atol=0)

    def test_a_module_that_has_changed_since_its_capture_is_left_alone(self):
        module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
        model = cgpipe.from_torch(module, (torch.randn(2, 4),))
        module[1].weight = nn.Parameter(torch.ones(1, 4))
        before = module[0].weight.data.data_ptr()
        with self.assertRaisesRegex(errors.ArgumentError,
                                    r"1.weight: shape \[3, 4\] is expected, got \[1, 4\]"):
            cgpipe.Pipeline(model, loss="cross_entropy")
        self.assertEqual(module[0].weight.data.data_ptr(), before)


    def test_a_lazy_negation_is_computed_and_a_sparse_tensor_refused(self):
        x = torch.arange(6, dtype=torch.float32).reshape(2, 3)
        found, _ = tensors.tensor(torch._neg_view(x), Value("x", (3,), "float32"))[::-1]
        torch.testing.assert_close(found, -x)
        self.assertFalse(found.is_neg())
        with self.assertRaisesRegex(TypeError, "x: a dense tensor"):
            tensors.tensor(x.to_sparse(), Value("x", (3,), "float32"))


class Imports(unittest.TestCase):
    def test_torch_before_and_after_gives_the_same(self):
        tests = os.path.dirname(os.path.abspath(__file__))
        outs = []
        for order in ("(ours, theirs)", "(theirs, ours)"):
            done = subprocess.run([sys.executable, "-c", ORDER.format(tests=tests, order=order)],
                                  capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, 0, done.stderr)
            outs.append(done.stdout)
        self.assertEqual(*outs)


if __name__ == "__main__":
    unittest.main()
