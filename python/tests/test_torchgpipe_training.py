# SPDX-License-Identifier: Apache-2.0
"""GPipe trains like PyTorch: outputs, gradients, statistics, optimizers, modes, and autograd's
rules."""

import copy
import threading
import unittest
import warnings
from unittest import mock

from torch_support import torch
import torch.nn.functional as F
from torch import nn

from cgpipe.torchgpipe import GPipe
from cgpipe.torchgpipe.skip import pop, skippable, stash

MODES = ("always", "except_last", "never")


def linears():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 6), nn.Tanh(),
                         nn.Linear(6, 2))


def images(norm=True):
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6) if norm
              else nn.Identity(), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 4, 1), nn.ReLU(),
              nn.Flatten(), nn.Linear(4 * 4 * 4, 5)]
    return nn.Sequential(*layers)


def pair(module, balance, **options):
    """Return a module, and a GPipe made from a copy of the module."""
    return module, GPipe(copy.deepcopy(module), balance, **options)


class Comparing(unittest.TestCase):
    def close(self, got, expected, rtol=1e-4, atol=1e-6):
        torch.testing.assert_close(got.detach(), expected.detach(), rtol=rtol, atol=atol)

    def same_gradients(self, model, module, rtol=1e-4):
        for (name, p), q in zip(model.named_parameters(), module.parameters()):
            self.assertIsNotNone(p.grad, name)
            scale = max(1e-3, q.grad.abs().max().item())
            self.assertLess((p.grad - q.grad).abs().max().item(), rtol * scale, name)


class Gradients(Comparing):
    def test_outputs_and_gradients_are_pytorchs_in_every_layout(self):
        for balance in ([6], [3, 3], [1, 2, 2, 1]):
            for chunks in (1, 3, 8):
                for mode in MODES:
                    module, model = pair(linears(), balance, chunks=chunks, checkpoint=mode)
                    x = torch.rand(7, 3, requires_grad=True)
                    z = x.detach().clone().requires_grad_()
                    expected, got = module(x), model(z)
                    self.close(got, expected, 1e-5)
                    expected.square().mean().backward()
                    got.square().mean().backward()
                    self.same_gradients(model, module)
                    self.close(z.grad, x.grad)

    def test_layouts_are_equal_bit_for_bit(self):
        results = []
        for balance in ([6], [2, 4], [2, 2, 2]):
            for mode in MODES:
                model = GPipe(linears(), balance, chunks=4, checkpoint=mode)
                y = model(torch.arange(24.0).view(8, 3) / 24)
                y.square().sum().backward()
                results.append([y.detach().clone()] + [p.grad.clone() for p in model.parameters()])
        for other in results[1:]:
            self.assertTrue(all(torch.equal(a, b) for a, b in zip(results[0], other)))

    def test_images_have_pytorchs_gradients(self):
        for format in (torch.contiguous_format, torch.channels_last):
            module, model = pair(images(norm=False), [4, 4], chunks=3)
            x = torch.randn(5, 3, 8, 8).to(memory_format=format).requires_grad_()
            z = x.detach().clone().requires_grad_()
            module(x).square().mean().backward()
            model(z).square().mean().backward()
            self.same_gradients(model, module)
            self.close(z.grad, x.grad)

    def test_an_input_without_gradient_has_none(self):
        model = GPipe(linears(), [3, 3])
        x = torch.rand(2, 3)
        y = model(x)
        self.assertTrue(y.requires_grad)
        y.sum().backward()
        self.assertIsNone(x.grad)

    def test_gradients_add_up_until_they_are_cleared(self):
        module, model = pair(linears(), [3, 3], chunks=2)
        for step in range(3):
            x = torch.rand(4, 3)
            module(x).square().mean().backward()
            model(x).square().mean().backward()
            self.same_gradients(model, module)
        for set_to_none in (False, True):
            module.zero_grad(set_to_none=set_to_none)
            model.zero_grad(set_to_none=set_to_none)
            module(x).mean().backward()
            model(x).mean().backward()
            self.same_gradients(model, module)

    def test_gradients_are_views_of_one_buffer(self):
        model = GPipe(linears(), [3, 3])
        places = []
        for _ in range(2):
            model.zero_grad()
            model(torch.rand(4, 3)).mean().backward()
            places.append([p.grad.data_ptr() for p in model.parameters()])
        self.assertEqual(places[0], places[1])

    def test_frozen_parameters_get_no_gradient(self):
        model = GPipe(linears(), [3, 3])
        model[0].weight.requires_grad_(False)
        model(torch.rand(2, 3)).sum().backward()
        self.assertIsNone(model[0].weight.grad)
        self.assertIsNotNone(model[0].bias.grad)

    def test_freezing_between_steps_is_seen(self):
        torch.manual_seed(0)
        module, model = pair(nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(),
                                           nn.Flatten(), nn.Linear(64, 3)), [2, 3], chunks=1)
        x = torch.randn(4, 2, 6, 6)
        for frozen in ((), (0,), (0, 1), (1, 4), (0, 1, 4), ()):
            for sequence in (module, model):
                sequence.requires_grad_(True)
                sequence.zero_grad()
                for i in frozen:
                    sequence[i].requires_grad_(False)
            expected, got = module(x), model(x)
            self.close(got, expected, 1e-5)
            self.assertEqual(got.requires_grad, expected.requires_grad)
            if got.requires_grad:
                expected.square().mean().backward()
                got.square().mean().backward()
            for (name, p), q in zip(model.named_parameters(), module.parameters()):
                self.assertEqual(p.grad is None, q.grad is None, name)
                if q.grad is not None:
                    scale = max(1e-3, q.grad.abs().max().item())
                    self.assertLess((p.grad - q.grad).abs().max().item(), 1e-4 * scale, name)
            self.close(model[1].running_var, module[1].running_var, 1e-5)

    def test_torch_autograd_grad_leaves_grad_alone(self):
        module, model = pair(linears(), [3, 3], chunks=2)
        x = torch.rand(4, 3)
        expected = torch.autograd.grad(module(x).square().mean(), list(module.parameters()))
        got = torch.autograd.grad(model(x).square().mean(), list(model.parameters()))
        model(2 * x).sum().backward()  # must not overwrite `got`
        for a, b in zip(got, expected):
            self.close(a, b)

    def test_hooks_of_parameters_run(self):
        model = GPipe(linears(), [3, 3])
        seen = []
        model[0].weight.register_hook(lambda gradient: seen.append(gradient.shape))
        model(torch.rand(2, 3)).sum().backward()
        self.assertEqual(seen, [model[0].weight.shape])

    def test_two_inputs_and_two_outputs(self):
        class Two(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(2, 3), nn.Linear(2, 3)

            def forward(self, pair):
                a, b = pair
                return self.a(a) + self.b(b), self.b(b)

        torch.manual_seed(0)
        module, model = pair(nn.Sequential(Two()), [1], chunks=2)
        for used in ((True, True), (True, False), (False, True)):
            inputs = [torch.rand(5, 2, requires_grad=True) for _ in range(4)]
            expected, got = module(tuple(inputs[:2])), model(tuple(inputs[2:]))
            with torch.no_grad():
                inputs[2].copy_(inputs[0])
                inputs[3].copy_(inputs[1])
            got = model(tuple(inputs[2:]))
            sum(y.square().sum() for y, use in zip(expected, used) if use).backward()
            sum(y.square().sum() for y, use in zip(got, used) if use).backward()
            for x, z in zip(inputs[:2], inputs[2:]):
                self.close(z.grad, torch.zeros(5, 2) if x.grad is None else x.grad)

    def test_tokens_are_taken_as_int64(self):
        torch.manual_seed(0)
        module, model = pair(nn.Sequential(nn.Embedding(11, 4), nn.Linear(4, 11)), [1, 1], chunks=2)
        ids = torch.randint(0, 11, (5, 6))
        F.cross_entropy(module(ids).flatten(0, 1), ids.flatten()).backward()
        F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
        self.same_gradients(model, module)


class Batches(Comparing):
    def test_any_number_of_samples_runs_without_a_warning(self):
        module, model = pair(linears(), [3, 3], chunks=4)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for samples in (7, 2, 1, 12, 4):
                x = torch.rand(samples, 3)
                module.zero_grad()
                model.zero_grad()
                module(x).square().sum().backward()
                y = model(x)
                y.square().sum().backward()
                self.assertEqual(y.shape, (samples, 2))
                self.same_gradients(model, module)

    def test_micro_batches_are_torch_chunks(self):
        """A batch norm shows how a mini-batch is cut, because it normalizes each micro-batch
        separately."""
        for samples, chunks in ((8, 4), (7, 4), (5, 3), (9, 2)):
            module, model = pair(nn.Sequential(nn.BatchNorm2d(2)), [1], chunks=chunks)
            x = torch.randn(samples, 2, 3, 3)
            expected = torch.cat([module(chunk) for chunk in x.chunk(chunks)])
            y = model(x)
            y.sum().backward()
            self.close(y, expected)
            self.close(model[0].running_var, module[0].running_var, 1e-5)

    def test_other_shapes_are_captured_anew(self):
        torch.manual_seed(0)
        module, model = pair(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()), [1, 1])
        for size in (5, 8, 5):
            x = torch.randn(2, 1, size, size)
            module.zero_grad()
            model.zero_grad()
            module(x).sum().backward()
            model(x).sum().backward()
            self.same_gradients(model, module)


class Norms(Comparing):
    def test_deferred_statistics_are_those_of_the_whole_mini_batch(self):
        for momentum in (0.1, None):
            for mode in MODES:
                module, model = pair(nn.Sequential(nn.BatchNorm2d(3, momentum=momentum)), [1],
                                     chunks=4, checkpoint=mode, deferred_batch_norm=True)
                for samples in (8, 8, 6, 2):
                    x = 3 * torch.randn(samples, 3, 5, 5) + 1
                    module(x).mean().backward()
                    model(x).mean().backward()
                    self.close(model[0].running_mean, module[0].running_mean, 1e-5)
                    self.close(model[0].running_var, module[0].running_var, 1e-5)
                    self.assertEqual(model[0].num_batches_tracked, module[0].num_batches_tracked)

    def test_statistics_count_once_whatever_is_recomputed(self):
        for mode in MODES:
            model = GPipe(nn.Sequential(nn.BatchNorm2d(3)), [1], chunks=2, checkpoint=mode)
            model(torch.randn(4, 3, 2, 2)).sum().backward()
            self.assertEqual(model[0].num_batches_tracked, 2)

    def test_one_micro_batch_has_the_gradients_of_a_plain_norm(self):
        module, model = pair(nn.Sequential(nn.BatchNorm2d(3)), [1], deferred_batch_norm=True)
        x = torch.randn(4, 3, 5, 5)
        (module(x) ** 3).mean().backward()
        (model(x) ** 3).mean().backward()
        self.same_gradients(model, module)

    def test_evaluation_uses_the_statistics(self):
        module, model = pair(images(), [4, 4])
        for _ in range(3):
            x = torch.randn(6, 3, 8, 8)
            module(x).sum().backward()
            model(x).sum().backward()
        module.eval()
        model.eval()
        with torch.no_grad():
            self.close(model(x), module(x), 1e-4, 1e-5)

    def test_statistics_may_be_loaded(self):
        module, model = pair(images(), [4, 4])
        x = torch.randn(6, 3, 8, 8)
        model(x).sum().backward()
        with torch.no_grad():
            model[1].running_mean.fill_(0.25)
            model[1].num_batches_tracked.fill_(7)
        module.load_state_dict(nn.Sequential(*model).state_dict())
        with torch.no_grad():
            self.close(model.eval()(x), module.eval()(x), 1e-4, 1e-5)
        model.train()(x).sum().backward()
        self.assertEqual(model[1].num_batches_tracked, 8)


class Modes(Comparing):
    def test_without_gradient_there_is_no_graph(self):
        model = GPipe(linears(), [3, 3], chunks=2)
        for mode in (True, False):
            with torch.no_grad():
                self.assertIsNone(model.train(mode)(torch.rand(4, 3)).grad_fn)

    def test_training_without_gradient_changes_statistics(self):
        module, model = pair(images(), [4, 4])
        x = torch.randn(6, 3, 8, 8)
        with torch.no_grad():
            self.close(model(x), module(x), 1e-4, 1e-5)
            self.close(model(x), module(x), 1e-4, 1e-5)
        self.close(model[1].running_mean, module[1].running_mean)

    def test_dropout_is_on_in_training_alone(self):
        model = GPipe(nn.Sequential(nn.Dropout(0.5), nn.Identity()), [1, 1], chunks=2)
        x = torch.ones(20, 50, requires_grad=True)
        y = model(x)
        self.assertEqual(sorted(y.unique().tolist()), [0.0, 2.0])
        y.sum().backward()
        self.assertTrue(torch.equal(x.grad, y))
        self.assertTrue(torch.equal(model.eval()(x), x))

    def test_masks_follow_torch_manual_seed(self):
        model = GPipe(nn.Sequential(nn.Dropout(0.5)), [1], chunks=2)
        x = torch.ones(20, 50)
        torch.manual_seed(5)
        a, b = model(x), model(x)
        torch.manual_seed(5)
        c, d = model(x), model(x)
        self.assertFalse(torch.equal(a, b))
        self.assertTrue(torch.equal(a, c) and torch.equal(b, d))

    def test_masks_do_not_depend_on_the_layout(self):
        results = []
        for balance in ([2], [1, 1]):
            for chunks in (1, 2, 5):
                for mode in MODES:
                    torch.manual_seed(5)
                    model = GPipe(nn.Sequential(nn.Dropout(0.3), nn.Dropout(0.3)), balance,
                                  chunks=chunks, checkpoint=mode)
                    results.append(model(torch.ones(10, 7)))
        self.assertTrue(all(torch.equal(results[0], y) for y in results))

    def test_gradients_in_eval_mode(self):
        module, model = pair(linears(), [3, 3], chunks=2)
        module.eval()
        model.eval()
        x = torch.rand(5, 3, requires_grad=True)
        z = x.detach().clone().requires_grad_()
        module(x).square().sum().backward()
        y = model(z)
        model(2 * z)  # a second forward before backward is harmless
        y.square().sum().backward()
        self.same_gradients(model, module)
        self.close(z.grad, x.grad)

    def test_layers_may_have_modes_of_their_own(self):
        model = GPipe(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Dropout(0.5)), [1, 2])
        model[1].eval()
        y = model(torch.rand(20, 3))
        self.assertEqual([layer.training for layer in model], [True, False, True])
        self.assertLess((y == 0).float().mean(), 0.7)  # one mask: about 0.5; two masks: about 0.75

    def test_training_and_evaluation_alternate(self):
        module, model = pair(images(), [4, 4], chunks=1)
        ours, theirs = (torch.optim.SGD(m.parameters(), 0.05) for m in (model, module))
        for step in range(4):
            x = torch.randn(6, 3, 8, 8)
            for m, optimizer in ((model, ours), (module, theirs)):
                m.train()
                optimizer.zero_grad()
                m(x).square().mean().backward()
                optimizer.step()
                m.eval()
            with torch.no_grad():
                self.close(model(x), module(x), 1e-3, 1e-4)

    def test_evaluation_uses_the_parameters_of_training(self):
        for mode in MODES:
            model = GPipe(linears(), [3, 3], chunks=2, checkpoint=mode)
            model(torch.randn(4, 3)).sum().backward()
            model.eval()(torch.randn(4, 3))
            (_, runtime), = model._runtimes.values()
            training, evaluation = runtime.engines.values()
            self.assertIs(evaluation.handles.owner, training.handles, mode)


class Autograd(Comparing):
    def test_two_forwards_may_precede_their_backwards(self):
        module, model = pair(images(norm=False), [4, 4], chunks=2)
        for order in (1, -1):
            a, b = torch.randn(4, 3, 8, 8), torch.randn(6, 3, 8, 8)
            for m in (module, model):
                m.zero_grad()
                for loss in [m(x).square().mean() for x in (a, b)][::order]:
                    loss.backward()
            self.same_gradients(model, module)
            (module(a).mean() + module(b).mean()).backward()
            (model(a).mean() + model(b).mean()).backward()
            self.same_gradients(model, module)

    def test_a_forward_that_is_repeated_has_its_masks_and_counts_once(self):
        model = GPipe(nn.Sequential(nn.BatchNorm2d(2), nn.Dropout(0.5)), [1, 1], chunks=1,
                      checkpoint="always")
        plain = nn.BatchNorm2d(2)
        a, b = (torch.randn(4, 2, 3, 3, requires_grad=True) for _ in range(2))
        older, newer = model(a), model(b)
        older.sum().backward()
        mask = (older != 0).float() * 2
        z = a.detach().clone().requires_grad_()
        (plain(z) * mask).sum().backward()
        self.close(a.grad, z.grad, 1e-4, 1e-5)
        newer.sum().backward()
        plain(b)
        self.assertEqual(model[0].num_batches_tracked, 2)
        self.close(model[0].running_mean, plain.running_mean)
        self.close(model[0].running_var, plain.running_var)

    def test_backward_may_run_twice_where_the_graph_is_retained(self):
        module, model = pair(linears(), [3, 3])
        x = torch.rand(2, 3)
        for m in (module, model):
            y = m(x).sum()
            y.backward(retain_graph=True)
            y.backward()
            with self.assertRaisesRegex(RuntimeError, "second time"):
                y.backward()
        self.same_gradients(model, module)

    def test_gradients_of_gradients_are_refused(self):
        x = torch.rand(2, 3, requires_grad=True)
        (gradient,) = torch.autograd.grad(GPipe(linears(), [3, 3])(x).square().sum(), x,
                                          create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "once_differentiable"):
            gradient.sum().backward()

    def test_parameters_changed_before_backward_are_noticed(self):
        model = GPipe(linears(), [3, 3])
        y = model(torch.rand(2, 3)).sum()
        with torch.no_grad():
            model[0].weight.add_(1)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            y.backward()

    def test_any_thread_may_call(self):
        module, model = pair(linears(), [3, 3], chunks=2)
        x = torch.rand(4, 3)
        module(x).sum().backward()
        y = model(x).sum()
        thread = threading.Thread(target=y.backward)
        thread.start()
        thread.join()
        self.same_gradients(model, module)

    def test_inplace_operations_are_right(self):
        """In-place operations have the module's gradients. torchgpipe's recomputation refuses the
        first of the operations below and computes a wrong result for the second."""
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True))
        model = GPipe(copy.deepcopy(module), [1, 1], checkpoint="always")
        x = torch.randn(4, 3)
        module(x).sum().backward()
        model(x).sum().backward()
        self.same_gradients(model, module)

    def test_what_is_kept_of_a_model_outlives_it(self):
        model = GPipe(linears(), [3, 3])
        model(torch.rand(2, 3)).sum().backward()
        weight, grad = model[0].weight, model[0].weight.grad
        expected = weight.detach().clone(), grad.clone()
        del model
        self.assertTrue(torch.equal(weight, expected[0]) and torch.equal(grad, expected[1]))


@skippable(stash=["1to3"])
class First(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)

    def forward(self, x):
        yield stash("1to3", x)
        return self.conv(x)


class Second(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)

    def forward(self, x):
        return self.conv(x)


@skippable(pop=["1to3"])
class Third(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)

    def forward(self, x):
        skip = yield pop("1to3")
        return self.conv(x) + skip


class Skips(Comparing):
    def test_a_skip_trains_in_every_balance(self):
        torch.manual_seed(0)
        module = nn.Sequential(First(), Second(), Third())
        x = torch.rand(6, 3, 5, 5, requires_grad=True)
        expected = module(x)
        expected.square().mean().backward()
        for balance in ([3], [1, 2], [2, 1], [1, 1, 1]):
            for mode in MODES:
                other = copy.deepcopy(module)
                other.zero_grad()
                model = GPipe(other, balance, chunks=3, checkpoint=mode)
                z = x.detach().clone().requires_grad_()
                y = model(z)
                y.square().mean().backward()
                self.close(y, expected, 1e-5)
                self.same_gradients(model, module)
                self.close(z.grad, x.grad)

    def test_none_and_unused_skips_train(self):
        @skippable(stash=["none", "unused"])
        class Stash(nn.Module):
            def forward(self, x):
                yield stash("none", None)
                yield stash("unused", x * 2)
                return x * 3

        @skippable(pop=["none", "unused"])
        class Pop(nn.Module):
            def forward(self, x):
                assert (yield pop("none")) is None
                yield pop("unused")
                return x + 1

        x = torch.rand(10, 2, requires_grad=True)
        GPipe(nn.Sequential(Stash(), Pop()), [1, 1], chunks=5)(x).sum().backward()
        self.assertEqual(x.grad.unique().tolist(), [3.0])


class Steps(Comparing):
    """The losses of 20 steps differ from PyTorch's by at most 2e-5."""

    def follow(self, module, balance, make, batch, loss, **options):
        module, model = pair(module, balance, **options)
        ours, theirs = make(model.parameters()), make(module.parameters())
        for step in range(20):
            x, target = batch()
            losses = []
            for m, optimizer in ((model, ours), (module, theirs)):
                optimizer.zero_grad()
                value = loss(m(x), target)
                value.backward()
                optimizer.step()
                losses.append(value.item())
            self.assertLess(abs(losses[0] - losses[1]), 2e-5 * max(1, abs(losses[1])),
                            f"step {step}: {losses}")
        return module, model

    optimizers = (lambda p: torch.optim.SGD(p, 0.05, momentum=0.9),
                  lambda p: torch.optim.AdamW(p, 1e-3))

    def test_linears(self):
        for make in self.optimizers:
            torch.manual_seed(1)
            self.follow(linears(), [2, 4], make, lambda: (torch.rand(8, 3), torch.rand(8, 2)),
                        F.mse_loss, chunks=4)

    def test_images_with_norms(self):
        for make in self.optimizers:
            torch.manual_seed(1)
            module, model = self.follow(
                images(), [4, 4], make,
                lambda: (torch.randn(8, 3, 8, 8), torch.randint(0, 5, (8,))),
                F.cross_entropy, chunks=1, checkpoint="always")
            self.close(model[1].running_mean, module[1].running_mean, 1e-3, 1e-4)
            self.close(model[1].running_var, module[1].running_var, 1e-3, 1e-4)

    def test_skips(self):
        torch.manual_seed(1)
        self.follow(nn.Sequential(First(), Second(), Third()), [1, 1, 1], self.optimizers[0],
                    lambda: (torch.rand(6, 3, 5, 5), torch.rand(6, 3, 5, 5)), F.mse_loss, chunks=3)

    def test_readme_of_torchgpipe(self):
        """A script from torchgpipe's README runs with only the import changed."""
        torch.manual_seed(0)
        a, b, c, d = nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 2)
        loader = [torch.rand(16, 4) for _ in range(5)]
        model = nn.Sequential(a, b, c, d)
        model = GPipe(model, balance=[1, 1, 1, 1], chunks=8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for input in loader:
            optimizer.zero_grad()
            output = model(input)
            loss = output.square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        self.assertLess(losses[-1], losses[0])


def is_mapped(address):
    """Return whether an address is mapped in this process."""
    with open("/proc/self/maps") as maps:
        ranges = [line.split()[0].split("-") for line in maps]
    return any(int(begin, 16) <= address < int(end, 16) for begin, end in ranges)


class LargeOutputs(Comparing):
    def test_they_are_the_modules_and_leave_no_gap(self):
        """The memory of a 2 MiB output returns to the system when its last tensor is deleted. Loss
        and gradients are equal to the loss and gradients of the module."""
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 4096))
        model = GPipe(copy.deepcopy(module), balance=[1, 1], chunks=4)
        x, target = torch.rand(128, 16), torch.randint(4096, (128,))
        for _ in range(3):
            output = model(x)
            address = output.data_ptr()
            loss = F.cross_entropy(output, target)
            self.assertTrue(is_mapped(address))
            del output
            self.assertFalse(is_mapped(address))
            model.zero_grad()
            loss.backward()
        expected = F.cross_entropy(module(x), target)
        expected.backward()
        self.close(loss, expected, 1e-5)
        self.same_gradients(model, module)

    def test_what_their_loss_left_is_returned(self):
        model = GPipe(nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 4096)), balance=[1, 1],
                      chunks=4)
        model(torch.rand(64, 16))
        for samples, calls in ((64, 1), (8, 0)):
            with mock.patch("cgpipe.torch.runtime.return_memory") as returned:
                model(torch.rand(samples, 16))
            self.assertEqual(returned.call_count, calls)


if __name__ == "__main__":
    unittest.main()
