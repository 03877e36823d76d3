# SPDX-License-Identifier: Apache-2.0
"""Training loops in PyTorch's style: gradient accumulation, zero_grad, clipping."""

import math
import unittest

import numpy
import support
import cgpipe
from cgpipe import errors


def pipeline(**options):
    return cgpipe.Pipeline(support.model(), **{"stages": 2, "chunks": 4, "batch": 16,
                                               "optimizer": cgpipe.SGD(lr=0.2, momentum=0.9),
                                               **options})


def parts(x, y, *ends):
    """Cut a mini-batch into parts. ``ends`` has the index after each part's last sample."""
    begins = [0, *ends]
    return [(x[b:e], y[b:e]) for b, e in zip(begins, [*ends, len(x)])]


class Accumulation(unittest.TestCase):
    def test_parts_with_the_targets_of_all_are_one_mini_batch(self):
        x, y = support.batch(16)
        with pipeline() as whole, pipeline(optimizer=whole.plan.optimizer) as cut:
            for _ in range(3):
                loss = whole.step(x, y)
                first, second, third = parts(x, y, 4, 8)
                sums = [cut.step(*first, update=False, targets=16),
                        cut.step(*second, update=False, targets=[16]),
                        cut.step(*third, targets=16)]
                self.assertAlmostEqual(sum(sums), loss, places=12)
                self.assertEqual(cut.weights_sha256, whole.weights_sha256)

    def test_the_update_uses_the_sum_of_mean_losses(self):
        x, y = support.batch(16)
        with pipeline(optimizer=cgpipe.SGD(lr=0.5)) as training:
            before = training.parameter("1.weight")
            gradients = []
            for part in parts(x, y, 5):
                training.step(*part, update=False)
                gradients.append(training.gradient("1.weight"))
                training.zero_grad()
            for last in (False, True):  # update in the last step, or by update()
                for part, update in zip(parts(x, y, 5), (False, last)):
                    training.step(*part, update=update)
                if not last:
                    training.update()
                numpy.testing.assert_allclose(training.gradient("1.weight"), sum(gradients),
                                              rtol=1e-5, atol=1e-7)
                numpy.testing.assert_allclose(training.parameter("1.weight"),
                                              before - 0.5 * sum(gradients), rtol=1e-5, atol=1e-7)
                with self.assertRaises(errors.StateError):
                    training.update()
                training.set_parameter("1.weight", before)
                for i in range(8):  # restore the other parameters as well
                    if training.model.parameters[i].name != "1.weight":
                        training.set_parameter(i, self.start[i])

    def setUp(self):
        with pipeline() as training:
            self.start = [training.parameter(i) for i in range(8)]

    def test_zero_grad_forgets(self):
        x, y = support.batch(16)
        with pipeline() as once, pipeline() as twice:
            once.step(x, y)
            twice.step(x[:4], y[:4], update=False)
            twice.zero_grad()
            with self.assertRaises(errors.StateError):
                twice.update()
            twice.step(x, y)
            self.assertEqual(once.weights_sha256, twice.weights_sha256)

    def test_backwards_add_up(self):
        x, _ = support.batch(16)
        model = support.model(loss=False)
        options = {"external_loss": True, "stages": 2, "chunks": 4, "batch": 16,
                   "optimizer": cgpipe.SGD(lr=0.5)}
        with cgpipe.Pipeline(model, **options) as whole, cgpipe.Pipeline(model, **options) as cut:
            whole.backward(numpy.ones_like(whole.forward(x)))
            whole.update()
            cut.backward(numpy.ones_like(cut.forward(x[:8])))
            self.assertEqual(cut.forward(x[8:]).shape, (8, 3))
            with self.assertRaises(errors.StateError):  # backward must come first
                cut.update()
            cut.backward(numpy.ones((8, 3), numpy.float32))
            cut.update()
            self.assertEqual(cut.weights_sha256, whole.weights_sha256)
            # Many PyTorch loops call zero_grad() between forward and backward.
            for training, again in ((whole, False), (cut, True)):
                if again:
                    training.backward(numpy.ones_like(training.forward(x[:8])))
                out = training.forward(x)
                training.zero_grad()
                training.backward(numpy.ones_like(out))
                training.update()
            self.assertEqual(cut.weights_sha256, whole.weights_sha256)

    def test_a_part_that_is_not_finite_refuses_the_update(self):
        x, y = support.batch(16)
        with pipeline() as training:
            before = training.weights_sha256
            training.step(x[:8], y[:8], update=False)
            self.assertTrue(math.isnan(training.step(x * numpy.float32("nan"), y, update=False)))
            with self.assertRaisesRegex(errors.StateError, "not finite"):
                training.step(x, y)
            self.assertEqual(training.weights_sha256, before)
            training.step(x, y)
            with pipeline() as other:
                other.step(x, y)
                self.assertEqual(training.weights_sha256, other.weights_sha256)

    def test_wrong_targets_are_refused(self):
        x, y = support.batch(16)
        with pipeline() as training:
            for targets in (0, -1, [1, 2], []):
                with self.assertRaisesRegex(errors.ArgumentError, "targets"):
                    training.step(x, y, targets=targets)
            with self.assertRaisesRegex((TypeError, errors.ArgumentError), "targets"):
                training.step(x, y, targets=1.5)
            self.assertEqual(training.updates, 0)
            training.step(x, y)


class Clipping(unittest.TestCase):
    def test_a_call_clips_as_the_option_does(self):
        x, y = support.batch(16)
        with pipeline(optimizer=cgpipe.SGD(lr=1, clip_norm=1e-3)) as option, \
                pipeline(optimizer=cgpipe.SGD(lr=1)) as call:
            option.step(x, y)
            call.step(x, y, update=False)
            norm = call.clip_grad_norm_(1e-3)
            self.assertEqual(norm, option.gradient_norm)
            squares = sum(float((call.gradient(i).astype(numpy.float64) ** 2).sum())
                          for i in range(8))
            self.assertAlmostEqual(norm, math.sqrt(squares), places=6)
            with self.assertRaisesRegex(errors.StateError, "clipped"):
                call.step(x, y)
            call.update()
            self.assertEqual(call.weights_sha256, option.weights_sha256)

    def test_the_norm_is_that_of_the_sum(self):
        x, y = support.batch(16)
        with pipeline() as training:
            for part in parts(x, y, 5):
                training.step(*part, update=False)
            norm = training.clip_grad_norm_(math.inf)
            squares = sum(float((training.gradient(i).astype(numpy.float64) ** 2).sum())
                          for i in range(8))
            self.assertAlmostEqual(norm, math.sqrt(squares), places=6)
            training.update()
            with self.assertRaises(errors.StateError):
                training.clip_grad_norm_(1)
            training.step(x, y, update=False)
            for bad in (-1, math.nan):
                with self.assertRaisesRegex(errors.ArgumentError, "max_norm"):
                    training.clip_grad_norm_(bad)


if __name__ == "__main__":
    unittest.main()
