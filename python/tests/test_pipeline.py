# SPDX-License-Identifier: Apache-2.0
"""Pipelines: training, evaluation, external losses, parameters, checkpoints, measurements."""

import copy
import gc
import hashlib
import json
import math
import os
import pickle
import tempfile
import threading
import time
import unittest
from unittest import mock

import numpy
import support
import cgpipe
from cgpipe import errors


def trained(steps=3, **options):
    """Return the losses of some steps, and the hash of the weights."""
    options = {"stages": 2, "chunks": 4, "batch": 16, "optimizer": cgpipe.SGD(lr=0.2, momentum=0.9),
               **options}
    with cgpipe.Pipeline(support.model(), **options) as pipeline:
        losses = [pipeline.step(*support.batch(16, seed=i)) for i in range(steps)]
        return losses, pipeline.weights_sha256


class Training(unittest.TestCase):
    def test_schedules_train_to_the_same_bits(self):
        expected = trained(schedule="1f1b")
        for options in ({"schedule": "gpipe"}, {"schedule": "zb-v"},
                        {"schedule": "1f1b", "recompute": "always"},
                        {"schedule": "zb-h1", "balance": [1, 3]}, {"stages": 4}, {"stages": 1},
                        {"schedule": cgpipe.Schedule.from_csv(
                            cgpipe.schedule("1f1b", 2, 4).to_csv())}):
            self.assertEqual(trained(**options), expected, options)

    def test_replicas_are_threads_of_one_process(self):
        expected = trained(gradient_groups=4)
        for options in ({"replicas": 2}, {"replicas": 4, "stages": 1, "shard_optimizer": True}):
            self.assertEqual(trained(gradient_groups=4, **options), expected, options)
        with cgpipe.Pipeline(support.model(), stages=2, chunks=4, batch=16,
                             replicas=2) as pipeline:
            x, y = support.batch(16)
            pipeline.step(x, y)
            self.assertEqual(pipeline.rank, 0)
            self.assertEqual(pipeline.predict(x).shape, (16, 3))
            self.assertTrue(pipeline.times.seconds > 0)
            values = pipeline.parameter("0.weight")
            pipeline.load_state_dict({**pipeline.state_dict(), "0.weight": values + 1})
            self.assertTrue((pipeline.parameter("0.weight") == values + 1).all())

    def test_digests_are_those_of_every_layout(self):
        def digests(**options):
            with cgpipe.Pipeline(support.model(), batch=16, chunks=4,
                                 optimizer=cgpipe.AdamW(lr=1e-3), **options) as pipeline:
                with self.assertRaisesRegex(errors.StateError, "no step to digest"):
                    pipeline.digest()
                pipeline.step(*support.batch(16, seed=1))
                first = pipeline.digest()
                pipeline.step(*support.batch(16, seed=2))
                return first, pipeline.digest()

        one, two = digests(stages=1), digests(stages=2, schedule="zb-v")
        self.assertEqual(one, two)
        self.assertEqual([d.step for d in one], [1, 2])
        self.assertEqual(len(one[0].losses), 1)
        self.assertEqual(hashlib.sha256(one[0].record[:-32]).digest(), one[0].record[-32:])
        names = list(one[0].tensors)
        self.assertEqual({part for _, part in names},
                         {"gradient", "parameter", "exp_avg", "exp_avg_sq"})
        self.assertTrue(all(one[0].tensors[n] != one[1].tensors[n] for n in names))

    def test_the_loss_falls(self):
        for optimizer in (cgpipe.SGD(lr=0.2), cgpipe.AdamW(lr=0.01), cgpipe.Adam(lr=0.01),
                          cgpipe.RMSprop(lr=0.01)):
            with cgpipe.Pipeline(support.model(), stages=2, chunks=2, batch=16,
                                 optimizer=optimizer) as pipeline:
                x, y = support.batch(16)
                first = pipeline.step(x, y)
                for _ in range(20):
                    last = pipeline.step(x, y)
                self.assertLess(last, 0.9 * first, optimizer)
                self.assertEqual(pipeline.updates, 21)

    def test_one_step_of_sgd_is_the_formula(self):
        with cgpipe.Pipeline(support.model(), stages=2, chunks=2, batch=8,
                             optimizer=cgpipe.SGD(lr=0.5)) as pipeline:
            before = pipeline.parameter("1.weight")
            pipeline.step(*support.batch(8), update=False)
            numpy.testing.assert_array_equal(pipeline.parameter("1.weight"), before)
            pipeline.update()
            numpy.testing.assert_allclose(pipeline.parameter("1.weight"),
                                          before - 0.5 * pipeline.gradient("1.weight"), rtol=1e-6)
            with self.assertRaisesRegex(errors.StateError, "step"):
                pipeline.update()

    def test_the_norm_of_gradients_is_clipped(self):
        with cgpipe.Pipeline(support.model(), batch=8,
                             optimizer=cgpipe.SGD(lr=1, clip_norm=1e-3)) as pipeline:
            before = pipeline.state_dict()
            pipeline.step(*support.batch(8))
            norm = math.sqrt(sum(float(((pipeline.parameter(name) - value) ** 2).sum())
                                 for name, value in before.items()))
            self.assertAlmostEqual(norm, 1e-3, places=5)
            self.assertGreater(pipeline.gradient_norm, 1e-3)

    def test_fewer_samples_and_labels_of_64_bits(self):
        with cgpipe.Pipeline(support.model(), stages=2, chunks=4, batch=16) as pipeline:
            x, y = support.batch(5)
            loss = pipeline.step(x, y.astype(numpy.int64), update=False)
            self.assertAlmostEqual(loss, pipeline.evaluate(x, y[:, None]), places=6)

    def test_a_loss_that_is_not_finite_changes_nothing(self):
        with cgpipe.Pipeline(support.model(), stages=2, batch=8) as pipeline:
            before = pipeline.weights_sha256
            x, y = support.batch(8)
            x[3, 3] = numpy.inf
            with self.assertRaisesRegex(errors.StateError, "finite"):
                pipeline.step(x, y)
            self.assertEqual(pipeline.weights_sha256, before)
            pipeline.step(*support.batch(8))

    def test_wrong_inputs_are_refused_and_nothing_ran(self):
        with cgpipe.Pipeline(support.model(), stages=2, batch=8) as pipeline:
            x, y = support.batch(8)
            before = pipeline.weights_sha256
            for inputs, error, text in [((x,), errors.ArgumentError,
                                         r"2 are expected \(x labels\)"),
                                        ((x.astype("f8"), y), TypeError, "float64"),
                                        ((x, y + 3), errors.ArgumentError, "labels"),
                                        ((x[:4], y), errors.ArgumentError, "labels"),
                                        (support.batch(9), errors.ArgumentError, "8"),
                                        ((x[:0], y[:0]), errors.ArgumentError, "")]:
                with self.assertRaisesRegex(error, text):
                    pipeline.step(*inputs)
            self.assertEqual((pipeline.updates, pipeline.weights_sha256), (0, before))


class Outputs(unittest.TestCase):
    def test_predictions_are_those_of_numpy(self):
        from math import erf

        with cgpipe.Pipeline(support.model(layers=2), stages=2, chunks=2, batch=4) as pipeline:
            x, y = support.batch(11)  # more samples than the planned mini-batch
            p = pipeline.state_dict()
            hidden = x @ p["0.weight"].T + p["0.bias"]
            hidden = hidden * 0.5 * (1 + numpy.vectorize(erf)(hidden / math.sqrt(2)))
            logits = hidden @ p["1.weight"].T + p["1.bias"]
            numpy.testing.assert_allclose(pipeline.predict(x), logits, rtol=1e-4, atol=1e-5)
            shifted = logits - logits.max(axis=1, keepdims=True)
            expected = numpy.mean(numpy.log(numpy.exp(shifted).sum(axis=1))
                                  - shifted[numpy.arange(11), y])
            self.assertAlmostEqual(pipeline.evaluate(x, y), float(expected), places=5)

    def test_an_external_loss_trains_like_the_models_own(self):
        options = {"stages": 2, "chunks": 2, "batch": 8, "optimizer": cgpipe.SGD(lr=0.5)}
        x, y = support.batch(8)
        with cgpipe.Pipeline(support.model(loss=False), external_loss=True, **options) as pipeline:
            output = pipeline.forward(x)
            exponents = numpy.exp(output - output.max(axis=1, keepdims=True))
            gradient = exponents / exponents.sum(axis=1, keepdims=True)
            gradient[numpy.arange(8), y] -= 1
            self.assertEqual(pipeline.backward((gradient / 8).astype(numpy.float32)), [None])
            pipeline.update()
            with self.assertRaisesRegex(errors.StateError, "forward"):
                pipeline.backward(gradient)
            ours = pipeline.state_dict()
        with cgpipe.Pipeline(support.model(), schedule="gpipe", **options) as pipeline:
            pipeline.step(x, y)
            for name, value in pipeline.state_dict().items():
                numpy.testing.assert_allclose(ours[name], value, rtol=1e-5, atol=1e-6)

    def test_several_outputs_and_gradients_of_inputs(self):
        graph = support.graph(layers=3, loss=False)
        graph["inputs"][0]["gradient"] = True
        graph["outputs"].append(graph["nodes"][1]["output"])
        x, _ = support.batch(8)
        with cgpipe.Pipeline(cgpipe.Model.from_json(graph), stages=2, chunks=2, batch=8,
                             external_loss=True) as pipeline:
            last, hidden = pipeline.forward(x)
            self.assertEqual((last.shape, hidden.shape), ((8, 3), (8, 16)))
            (gradient,) = pipeline.backward(numpy.ones_like(last), numpy.full_like(hidden, 2))
            step = numpy.zeros_like(x)
            step[2, 5] = 1e-2
            totals = [float((a.sum(dtype="f8") + 2 * b.sum(dtype="f8"))) for a, b in
                      (pipeline.predict(x + step), pipeline.predict(x - step))]
            self.assertAlmostEqual(gradient[2, 5], (totals[0] - totals[1]) / 2e-2, places=3)

    def test_a_loss_is_named_at_the_pipeline(self):
        with cgpipe.Pipeline(support.model(loss=False), loss="cross_entropy", stages=2,
                             batch=8) as named, \
                cgpipe.Pipeline(support.model(), stages=2, batch=8) as own:
            self.assertEqual(named.step(*support.batch(8)), own.step(*support.batch(8)))


class Parameters(unittest.TestCase):
    def test_parameters_go_round(self):
        with cgpipe.Pipeline(support.model(), stages=2) as a, \
                cgpipe.Pipeline(support.model(), stages=1, seed=5) as b:
            self.assertNotEqual(a.weights_sha256, b.weights_sha256)
            b.load_state_dict(a.state_dict())
            self.assertEqual(a.weights_sha256, b.weights_sha256)
            b.set_parameter(0, numpy.ones((16, 16), numpy.float32))
            self.assertEqual(b.parameter("0.weight").sum(), 256)
            self.assertEqual(b.parameter(numpy.int64(0)).sum(), 256)
            for call, text in ((lambda: b.parameter("nothing"), "nothing"),
                               (lambda: b.parameter(99), "0 to 7"),
                               (lambda: b.set_parameter(0, numpy.ones((4, 16), numpy.float32)),
                                r"\[16, 16\] is expected"),
                               (lambda: b.load_state_dict({}), "missing"),
                               (lambda: b.load_state_dict({**a.state_dict(), "more": 0}),
                                "more: unknown")):
                with self.assertRaisesRegex(errors.ArgumentError, text):
                    call()

    def test_a_state_dict_that_does_not_fit_changes_nothing(self):
        with cgpipe.Pipeline(support.model(), stages=2) as pipeline, \
                cgpipe.Pipeline(support.model(), seed=5) as other:
            before, values = pipeline.weights_sha256, other.state_dict()
            for name in values:
                for wrong, error in ((values[name][:1], errors.ArgumentError),
                                     (values[name].astype("f8"), TypeError), (None, TypeError),
                                     (values[name][None], errors.ArgumentError)):
                    if (getattr(wrong, "shape", None) != values[name].shape
                            or wrong.dtype != values[name].dtype):
                        with self.assertRaisesRegex(error, name):
                            pipeline.load_state_dict({**values, name: wrong})
                        self.assertEqual(pipeline.weights_sha256, before, name)
            pipeline.load_state_dict(values)
            self.assertEqual(pipeline.weights_sha256, other.weights_sha256)

    def test_a_checkpoint_goes_on_to_the_bit(self):
        with tempfile.TemporaryDirectory() as directory, \
                cgpipe.Pipeline(support.model(), stages=2, chunks=2, batch=8,
                                optimizer=cgpipe.AdamW(lr=0.01)) as pipeline:
            run = os.path.join(directory, "run")
            pipeline.step(*support.batch(8))
            pipeline.save(run, note="one step")
            expected = pipeline.step(*support.batch(8))
            with cgpipe.Pipeline(support.model(), stages=4, schedule="gpipe", batch=8,
                                 optimizer=cgpipe.AdamW(lr=0.01)) as other:
                self.assertEqual(other.load(run), "one step")
                self.assertEqual((other.updates, other.step(*support.batch(8))), (1, expected))
            with cgpipe.Pipeline(support.model(),
                                 batch=8) as other, self.assertRaises(errors.FormatError):
                other.load(run)  # the checkpoint has another optimizer's states
            with self.assertRaises(errors.FileError):
                pipeline.load(os.path.join(directory, "none"))


class Measurements(unittest.TestCase):
    def test_a_step_is_measured(self):
        with cgpipe.Pipeline(support.model(), stages=2, schedule="zb-h1", chunks=4,
                             batch=16) as pipeline, \
                tempfile.TemporaryDirectory() as directory:
            with self.assertRaises(errors.StateError):
                pipeline.timeline
            pipeline.step(*support.batch(16))
            timeline = pipeline.timeline
            self.assertTrue(timeline.measured)
            self.assertEqual(len(pipeline.times.busy), 2)
            self.assertAlmostEqual(timeline.makespan, pipeline.times.seconds, places=6)
            for parts in timeline.compare():
                self.assertAlmostEqual(sum(parts.values()), timeline.makespan, places=9)
            path = os.path.join(directory, "step.json")
            self.assertIn("traceEvents", json.loads(pipeline.trace(path)))
            with open(path) as file:
                self.assertIn("cgpipe", json.load(file))
            self.assertIn("<svg", timeline.svg())


class Lives(unittest.TestCase):
    def test_a_closed_pipeline_says_so(self):
        pipeline = cgpipe.Pipeline(support.model())
        pipeline.close()
        pipeline.close()
        with self.assertRaisesRegex(errors.StateError, "closed"):
            pipeline.updates

    def test_pipelines_are_collected_with_their_threads(self):
        for _ in range(5):
            cgpipe.Pipeline(support.model(), stages=2, batch=4).step(*support.batch(4))
        gc.collect()
        for thread in threading.enumerate():
            if thread.name == "cgpipe":
                thread.join(10)
        self.assertNotIn("cgpipe", [thread.name for thread in threading.enumerate()])

    def test_any_thread_may_call(self):
        with cgpipe.Pipeline(support.model(), stages=2, batch=8) as pipeline:
            losses = []
            threads = [threading.Thread(
                target=lambda: losses.append(pipeline.step(*support.batch(8)))) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual((len(losses), pipeline.updates), (4, 4))

    def test_a_call_that_is_overtaken_by_close_ends_well(self):
        pipeline = cgpipe.Pipeline(support.model(), stages=2, batch=8)
        call = pipeline._worker.call

        def overtaken(*arguments):  # simulates another thread that closes first
            pipeline._worker.call = call
            pipeline.close()
            return call(*arguments)

        pipeline._worker.call = overtaken
        self.assertGreater(pipeline.step(*support.batch(8)), 0)
        with self.assertRaisesRegex(errors.StateError, "closed"):
            pipeline.step(*support.batch(8))

    def test_what_owns_memory_is_not_copied(self):
        for made in (support.model(), cgpipe.schedule("1f1b", 2, 4),
                     cgpipe.schedule("1f1b", 2, 4).simulate(), cgpipe.plan(support.model()),
                     cgpipe.Pipeline(support.model())):
            for call in (copy.copy, copy.deepcopy, pickle.dumps):
                with self.assertRaisesRegex(TypeError, "cannot be copied"):
                    call(made)

    def test_a_pipeline_is_gone_after_an_interrupt_of_its_creation(self):
        before = len(os.listdir("/proc/self/task"))

        def interrupted(worker, function, *arguments):
            function(*arguments)
            raise KeyboardInterrupt

        with mock.patch("cgpipe.worker.Worker.call",
                        interrupted), self.assertRaises(KeyboardInterrupt):
            cgpipe.Pipeline(support.model(), stages=2)
        gc.collect()
        for _ in range(2000):  # wait for threads to end
            if len(os.listdir("/proc/self/task")) <= before:
                break
            time.sleep(0.01)
        self.assertLessEqual(len(os.listdir("/proc/self/task")), before)

    def test_a_child_process_closes_nothing(self):
        with cgpipe.Pipeline(support.model(), stages=2, batch=8) as pipeline:
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    with pipeline:
                        pass
                    code = 0
                finally:
                    os._exit(code)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            self.assertGreater(pipeline.step(*support.batch(8)), 0)

    def test_a_child_process_is_told(self):
        with cgpipe.Pipeline(support.model(), stages=2) as pipeline:
            child = os.fork()
            if child == 0:
                try:
                    pipeline.updates
                    os._exit(1)
                except errors.StateError:
                    os._exit(0)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)

    def test_a_plan_stands_for_its_options(self):
        plan = cgpipe.plan(support.model(), stages=2, chunks=2, batch=8)
        with cgpipe.Pipeline(plan) as pipeline:
            self.assertIs(pipeline.plan, plan)
            self.assertGreater(pipeline.step(*support.batch(8)), 0)
        with self.assertRaisesRegex(errors.ArgumentError, "a plan has all options"):
            cgpipe.Pipeline(plan, chunks=3)


if __name__ == "__main__":
    unittest.main()
