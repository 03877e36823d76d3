# SPDX-License-Identifier: Apache-2.0
"""Pipeline.evaluate() and predict() of captured modules give the results of module.eval()."""

import copy
import unittest
import warnings

from torch_support import torch

import cgpipe
import torch.nn.functional as F
from cgpipe.errors import ArgumentError, StateError
from cgpipe.torch import ranks
from cgpipe.torch.modes import noting_reads
from torch import nn


class Layer(nn.Module):
    """A linear layer whose forward is a given function of the module and its inputs."""

    def __init__(self, forward, **children):
        super().__init__()
        self.a = nn.Linear(6, 6)
        for name, child in children.items():
            setattr(self, name, child)
        self.function = forward

    def forward(self, *inputs):
        return self.function(self, *inputs)


class DropPath(nn.Module):
    def forward(self, x):
        if not self.training:
            return x
        kept = torch.rand(x.shape[0], 1) > 0.3
        return x * kept / 0.7


class Dropped(nn.Dropout):
    def forward(self, x):
        return x * (torch.rand_like(x) > self.p) / (1 - self.p) if self.training else x


class Statistics(nn.Module):
    """A custom batch norm."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.rand(6)), nn.Parameter(torch.zeros(6))
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("var", torch.ones(6))

    def forward(self, x):
        return F.batch_norm(x, self.mean, self.var, self.weight, self.bias, self.training)


def fixed(layer):
    """Put a layer into eval mode."""
    layer.training = False
    return layer


def with_auxiliary(module, x):
    h = F.relu(module.a(x))
    return (module.b(h), module.c(h)) if module.training else module.b(h)


def of_both(output, target):
    if not isinstance(output, tuple):
        return F.cross_entropy(output, target)
    return F.cross_entropy(output[0], target) + 0.4 * F.cross_entropy(output[1], target)


def sequence(forward, **children):
    return nn.Sequential(nn.Linear(6, 6), Layer(forward, **children), nn.Linear(6, 3))


#: Modules whose training graph also serves evaluation.
SHARED = {
    "F.dropout in the module's mode": lambda: sequence(
        lambda m, x: F.dropout(m.a(x), 0.5, m.training)),
    "attention whose dropout follows the mode": lambda: sequence(
        lambda m, x: F.scaled_dot_product_attention(
            *[m.a(x).reshape(-1, 2, 3, 1)] * 3,
            dropout_p=0.2 if m.training else 0.0).reshape(-1, 6)),
    "a path that is the same": lambda: sequence(
        lambda m, x: F.relu(m.a(x)) if m.training else m.a(x).relu()),
}
#: Modules whose forward takes another path in evaluation.
OTHER = {
    "a factor in training": lambda: sequence(lambda m, x: m.a(x) * 3 if m.training else m.a(x)),
    "a factor in evaluation": lambda: sequence(
        lambda m, x: m.a(x) if m.training else m.a(x) * 0.5),
    "the mode of a child": lambda: sequence(
        lambda m, x: m.a(x).tanh() if m.drop.training else m.a(x), drop=nn.Dropout(0.0)),
    "a child that keeps the mode of evaluation": lambda: sequence(
        lambda m, x: (m.a(x) + 1 if m.drop.training else m.a(x)) * (2 if m.training else 1),
        drop=fixed(nn.Dropout(0.5))),
    "another order of dimensions": lambda: sequence(
        lambda m, x: (m.a(x).reshape(-1, 2, 3) if m.training
                      else m.a(x).reshape(-1, 3, 2).transpose(1, 2)).flatten(1)),
    "a layer of evaluation alone": lambda: sequence(
        lambda m, x: m.a(x) if m.training else m.b(m.a(x)), b=nn.Linear(6, 6)),
    "a layer of training alone": lambda: sequence(
        lambda m, x: m.b(m.a(x)) if m.training else m.a(x), b=nn.Linear(6, 6)),
    "a batch norm in training alone": lambda: sequence(
        lambda m, x: m.b(m.a(x)) if m.training else m.a(x), b=nn.BatchNorm1d(6)),
    "statistics that training changes": lambda: sequence(
        lambda m, x: m.b(m.a(x)) * (2 if m.training else 1), b=nn.BatchNorm1d(6, affine=False)),
    "two outputs in training": lambda: Layer(with_auxiliary, b=nn.Linear(6, 3), c=nn.Linear(6, 3)),
    "a temperature": lambda: sequence(
        lambda m, x: m.a(x) / (2.0 if not m.training else 1.0), drop=nn.Dropout(0.2)),
    "an average over runs": lambda: sequence(
        lambda m, x: m.a(x) if m.training else sum(m.a(x * k) for k in (0.5, 1, 1.5)) / 3),
}
#: Modules that PyTorch runs inside the pipeline: custom layers, and layers of PyTorch.
RUN_BY_TORCH = {
    "drop path": lambda: nn.Sequential(nn.Linear(6, 6), DropPath(), nn.Linear(6, 3)),
    "a dropout of one's own": lambda: nn.Sequential(nn.Linear(6, 6), Dropped(0.4), nn.Linear(6, 3)),
    "a batch norm of one's own": lambda: nn.Sequential(
        nn.Linear(6, 6), Statistics(), nn.Linear(6, 3)),
    "control flow": lambda: sequence(
        lambda m, x: m.a(x) * 2 if m.training and x.sum() > -1e9 else m.a(x)),
    "layers of PyTorch": lambda: nn.Sequential(
        nn.Linear(6, 6), nn.RReLU(), nn.AlphaDropout(0.3), nn.BatchNorm1d(6, affine=False),
        nn.Unflatten(1, (2, 3)), nn.InstanceNorm1d(2, track_running_stats=True), nn.Dropout1d(0.3),
        nn.Flatten(), nn.Dropout(0.5), nn.Linear(6, 3)),
}


def data(seed=0, n=4):
    torch.manual_seed(seed)
    return torch.randn(n, 6), torch.randint(0, 3, (n,))


def pipeline(module, loss=of_both, verify=None, **options):
    x, y = data()
    model = cgpipe.from_torch(module, (x,), loss=loss, example_target=y, verify=verify)
    return cgpipe.Pipeline(model, **{"stages": min(2, len(model.layers)), "chunks": 2, "batch": 4,
                                     "optimizer": cgpipe.SGD(lr=0.1), **options})


class Evaluation(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore")

    def check(self, training, module, x, y, loss=of_both):
        """Check loss and output against a copy of the module in eval mode."""
        other = copy.deepcopy(module).eval()
        with torch.no_grad():
            expected = other(x)
            torch.testing.assert_close(training.evaluate(x, y), float(loss(expected, y)),
                                       rtol=1e-5, atol=1e-5)
        for inputs in ((x,), (x, y), (x, None)):
            torch.testing.assert_close(training.predict(*inputs), expected, rtol=1e-4, atol=1e-5)

    def run_all(self, table, number):
        """Train and evaluate each module. ``number`` is the expected number of extra pipelines for
        evaluation."""
        for name, make in table.items():
            with self.subTest(name):
                torch.manual_seed(3)
                module = make()
                modes = [m.training for m in module.modules()]
                with pipeline(module, verify=False) as training:
                    for i in range(2):
                        training.step(*data(i))
                        self.check(training, module, *data(i + 7))
                    self.check(training, module, *data(4, n=3))
                    self.assertEqual(modes, [m.training for m in module.modules()])
                    found = training._evaluations._found.values() if training._evaluations else ()
                    self.assertEqual(number, sum(other is not None for _, other in found))

    def test_a_forward_that_asks_for_the_mode_of_dropout_keeps_its_graph(self):
        self.run_all(SHARED, 0)

    def test_a_forward_that_takes_another_path_in_eval_mode_takes_it(self):
        self.run_all(OTHER, 2)

    def test_modules_that_pytorch_runs_evaluate_as_in_eval_mode(self):
        self.run_all(RUN_BY_TORCH, 0)

    def test_a_capture_in_eval_mode_is_proven(self):
        module = OTHER["a factor in training"]()
        with pipeline(module) as training:
            self.check(training, module, *data())
            for captured, _ in training._evaluations._found.values():
                self.assertIsNotNone(captured.proof)

    def test_the_report_has_the_memory_of_a_second_pipeline(self):
        module = OTHER["a factor in training"]()
        with pipeline(module, verify=False) as training:
            self.assertNotIn("evaluation", training.model.report())
            training.predict(data()[0])
            (_, other), = training._evaluations._found.values()
            self.assertTrue(other.shares)
            own = other.plan.devices[0].planned_bytes - other.plan.devices[0].parameter_bytes
            self.assertLess(0, own)
            self.assertIn("evaluation: another pipeline takes", training.model.report())
        self.assertNotIn("evaluation", training.model.report())

    def test_layers_of_pytorch_need_no_second_capture(self):
        module = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 3))
        with pipeline(module) as training:
            training.step(*data())
            self.check(training, module, *data(1))
            self.assertIsNone(training._evaluations)

    def test_dropout_that_is_always_on_stays_on(self):
        module = sequence(lambda m, x: F.dropout(m.a(x), 0.5))
        with pipeline(module) as training:
            x, _ = data()
            outputs = [training.predict(x[:1].expand(4, 6).contiguous()) for _ in range(2)]
            self.assertFalse(torch.equal(outputs[0][0], outputs[0][1]))

    def test_a_plan_for_inference_and_an_added_loss_evaluate_too(self):
        x, y = data()
        module = OTHER["a factor in training"]()
        model = cgpipe.from_torch(module, (x,))
        with cgpipe.Pipeline(model, stages=2, chunks=2, batch=4, inference=True) as running:
            torch.testing.assert_close(running.predict(x), module.eval()(x), rtol=1e-4, atol=1e-5)
        with cgpipe.Pipeline(cgpipe.from_torch(module.train(), (x,)), loss="cross_entropy",
                             batch=4) as training:
            training.step(x, y.int())
            expected = F.cross_entropy(copy.deepcopy(module).eval()(x), y)
            self.assertAlmostEqual(training.evaluate(x, y.int()), float(expected), places=5)

    def test_weights_of_another_order_are_copied_before_each_evaluation(self):
        module = Layer(lambda m, x: m.b(m.a(x)) if m.training else m.a(m.b(x)), b=nn.Linear(6, 6))
        with pipeline(module, F.cross_entropy) as training:
            for i in range(2):
                training.step(*data(i))
                self.check(training, module, *data(9), loss=F.cross_entropy)
            self.assertFalse(training._evaluations._found[True][1].shares)
            module.a.weight.data.mul_(2)
            self.check(training, module, *data(9), loss=F.cross_entropy)

    def test_a_pipeline_that_evaluated_closes(self):
        module = OTHER["a factor in training"]()
        for closes in (True, False):
            training = pipeline(module)
            training.step(*data())
            training.evaluate(*data())
            if closes:
                training.close()
            del training
        self.assertTrue(torch.isfinite(module(data()[0])).all())

    def test_a_changed_attribute_is_refused(self):
        module = sequence(lambda m, x: m.a(x) * (m.factor if m.training else 1), drop=nn.Dropout())
        module[1].factor = 2.0
        with pipeline(module) as training:
            training.evaluate(*data())
            module[1].factor = 3.0
            with self.assertRaisesRegex(ArgumentError, "1.factor has changed since"):
                training.evaluate(*data())

    def test_several_ranks_evaluate_the_graph_of_training_alone(self):
        for table, name in ((SHARED, "a path that is the same"), (OTHER, "a factor in training")):
            module = table[name]()
            with pipeline(module) as training:
                training.plan._options.ranks = 2  # pretend that there are two ranks
                training.hooks = [module.register_state_dict_pre_hook(ranks._refuse)]
                x, _ = data()
                if table is SHARED:
                    torch.testing.assert_close(training.predict(x), module.eval()(x), rtol=1e-4,
                                               atol=1e-5)
                else:
                    with self.assertRaisesRegex(ArgumentError, "takes another path than training, "
                                                "for which one rank is expected, got 2"):
                        training.predict(x)
                with self.assertRaisesRegex(StateError, "state_dict: the module has the weights"):
                    module.state_dict()
                training.plan._options.ranks = 1

    def test_an_exception_of_eval_mode_is_the_modules(self):
        def fails(module, x):
            if not module.training:
                raise KeyError("no evaluation")
            return module.a(x)
        with pipeline(sequence(fails)) as training:
            training.step(*data())
            with self.assertRaisesRegex(KeyError, "no evaluation"):
                training.predict(data()[0])
            training.step(*data())

    def test_modes_are_plain_attributes_after_a_capture(self):
        module = nn.Linear(1, 1)
        with noting_reads() as reads:
            module.eval()
            self.assertFalse(module.training)
        self.assertTrue(reads.found)
        self.assertNotIn("training", vars(nn.Module))
        self.assertFalse(module.training)


if __name__ == "__main__":
    unittest.main()
