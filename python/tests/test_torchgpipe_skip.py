# SPDX-License-Identifier: Apache-2.0
"""Skips by name: their declarations, matching and values, with and without GPipe."""

import copy
import threading
import unittest

from torch_support import torch
from torch import nn

from cgpipe.torchgpipe.skip import Namespace, pop, skippable, stash, verify_skippables


def stashes(*names):
    @skippable(stash=names)
    class Stash(nn.Module):
        def forward(self, x):
            for name in names:
                yield stash(name, x * 2)
            return x + 1

    return Stash()


def pops(*names):
    @skippable(pop=names)
    class Pop(nn.Module):
        def forward(self, x):
            for name in names:
                x = x + (yield pop(name))
            return x

    return Pop()


class Namespaces(unittest.TestCase):
    def test_two_namespaces_differ(self):
        self.assertNotEqual(Namespace(), Namespace())

    def test_a_copy_equals_its_original(self):
        one = Namespace()
        for other in (copy.copy(one), copy.deepcopy(one)):
            self.assertIsNot(one, other)
            self.assertEqual(one, other)
            self.assertEqual(hash(one), hash(other))

    def test_namespaces_have_an_order(self):
        one, two = sorted([Namespace(), Namespace()])
        self.assertTrue(one < two and two > one and not two < one)

    def test_none_is_the_default_namespace(self):
        self.assertIsInstance(None, Namespace)
        self.assertNotEqual(Namespace(), None)


class Verify(unittest.TestCase):
    def problems(self, *layers):
        with self.assertRaises(TypeError) as caught:
            verify_skippables(nn.Sequential(*layers))
        return str(caught.exception)

    def test_a_pair_matches(self):
        verify_skippables(nn.Sequential(stashes("a"), nn.ReLU(), pops("a")))

    def test_a_layer_may_pop_one_and_stash_another(self):
        @skippable(stash=["b"], pop=["a"])
        class Both(nn.Module):
            pass

        verify_skippables(nn.Sequential(stashes("a"), Both(), pops("b")))

    def test_a_stash_needs_a_pop(self):
        self.assertIn("no module declared 'a' as poppable but stashed", self.problems(stashes("a")))

    def test_a_pop_needs_a_stash_before_it(self):
        self.assertIn("'0' declared 'a' as poppable but it was not stashed",
                      self.problems(pops("a"), stashes("a")))

    def test_a_second_stash_is_refused(self):
        self.assertIn("'1' redeclared 'a' as stashable",
                      self.problems(stashes("a"), stashes("a"), pops("a")))

    def test_a_second_pop_is_refused(self):
        self.assertIn("'2' redeclared 'a' as poppable",
                      self.problems(stashes("a"), pops("a"), pops("a")))

    def test_one_layer_may_not_stash_and_pop_one_name(self):
        @skippable(stash=["a"], pop=["a"])
        class Both(nn.Module):
            pass

        self.assertIn("'0' declared 'a' both as stashable and as poppable", self.problems(Both()))

    def test_all_problems_are_listed(self):
        text = self.problems(stashes("a"), pops("a"), stashes("a"), pops("a"), pops("b"))
        for problem in ("'2' redeclared 'a' as stashable", "'3' redeclared 'a' as poppable",
                        "'4' declared 'b'"):
            self.assertIn(problem, text)

    def test_namespaces_keep_names_apart(self):
        one, two = Namespace(), Namespace()
        verify_skippables(nn.Sequential(stashes("a").isolate(one), pops("a").isolate(one),
                                        stashes("a").isolate(two), pops("a").isolate(two)))
        self.assertIn("'1' declared 'a'",
                      self.problems(stashes("a").isolate(one), pops("a").isolate(two)))

    def test_only_some_names_may_be_isolated(self):
        one = Namespace()
        verify_skippables(nn.Sequential(stashes("a", "b").isolate(one, only=["a"]), pops("b"),
                                        pops("a").isolate(one)))

    def test_a_name_in_place_of_a_list_is_refused(self):
        with self.assertRaisesRegex(TypeError, "stash: a list of names is expected"):
            skippable(stash="skip")


class WithoutGPipe(unittest.TestCase):
    x = torch.tensor([1.0, 2.0])

    def test_a_stash_is_popped(self):
        y = nn.Sequential(stashes("a"), nn.Identity(), pops("a"))(self.x)
        self.assertEqual(y.tolist(), [4.0, 7.0])

    def test_none_may_be_stashed(self):
        @skippable(stash=["a"])
        class Stash(nn.Module):
            def forward(self, x):
                yield stash("a", None)
                return x

        seen = []

        @skippable(pop=["a"])
        class Pop(nn.Module):
            def forward(self, x):
                seen.append((yield pop("a")))
                return x

        nn.Sequential(Stash(), Pop())(self.x)
        self.assertEqual(seen, [None])

    def test_what_is_declared_must_be_used(self):
        @skippable(stash=["a"])
        class Stash(nn.Module):
            def forward(self, x):
                return x

        @skippable(pop=["a"])
        class Pop(nn.Module):
            def forward(self, x):
                return x

        for layer, verb in ((Stash(), "stashed"), (Pop(), "popped")):
            with self.assertRaisesRegex(RuntimeError, f"'a' must be {verb} but have not"):
                layer(self.x)

    def test_what_is_used_must_be_declared(self):
        @skippable()
        class Stash(nn.Module):
            def forward(self, x):
                yield stash("a", x)
                return x

        @skippable()
        class Pop(nn.Module):
            def forward(self, x):
                yield pop("a")
                return x

        for layer, word in ((Stash(), "stashable"), (Pop(), "poppable")):
            with self.assertRaisesRegex(RuntimeError, f"'a' has not been declared as {word}"):
                layer(self.x)

    def test_what_was_never_stashed_cannot_be_popped(self):
        with self.assertRaisesRegex(RuntimeError, "'never' has not been stashed"):
            pops("never")(self.x)

    def test_a_stash_is_popped_once(self):
        nn.Sequential(stashes("once"), pops("once"))(self.x)
        with self.assertRaises(RuntimeError):
            pops("once")(self.x)

    def test_other_yields_are_refused(self):
        @skippable()
        class Wrong(nn.Module):
            def forward(self, x):
                yield x
                return x

        with self.assertRaises(TypeError):
            Wrong()(self.x)

    def test_threads_have_their_own_skips(self):
        stashes("mine")(self.x)
        failures = []

        def other():
            try:
                pops("mine")(self.x)
            except RuntimeError as error:
                failures.append(error)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        self.assertEqual(len(failures), 1)
        pops("mine")(self.x)

    def test_the_wrapped_layer_shows(self):
        @skippable(stash=["a"])
        class Layer(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(2, 2)

        layer = Layer()
        self.assertTrue(repr(layer).startswith("@skippable(Layer("), repr(layer))
        self.assertEqual(type(layer).__name__, "Layer")
        self.assertEqual(sorted(layer.state_dict()), ["module.fc.bias", "module.fc.weight"])

    def test_gradients_flow_through_a_skip(self):
        x = self.x.clone().requires_grad_()
        nn.Sequential(stashes("a"), pops("a"))(x).sum().backward()
        self.assertEqual(x.grad.tolist(), [3.0, 3.0])


if __name__ == "__main__":
    unittest.main()
