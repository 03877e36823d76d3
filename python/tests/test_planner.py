# SPDX-License-Identifier: Apache-2.0
"""Test schedules, plans and optimizers without a pipeline."""

import unittest

import support
import cgpipe
from cgpipe import errors


class Schedules(unittest.TestCase):
    def test_every_schedule_is_generated_and_checked(self):
        names = cgpipe.schedules()
        self.assertIn("zb-v", names)
        for name in names:
            made = cgpipe.schedule(name, 3, 6)
            report = made.check()
            self.assertEqual((made.devices, made.chunks, len(report.peak_slots)), (3, 6, 3), name)
            self.assertGreater(made.simulate().makespan, 0)

    def test_1f1b_is_drawn(self):
        made = cgpipe.schedule("1f1b", 2, 3)
        self.assertEqual(made.draw(), "F0 F1  . B0 F2 B1  . B2\n . F0 B0 F1 B1 F2 B2  .\n")
        self.assertEqual([str(action) for action in made.actions(1) if action.kind in "FB"],
                         ["1F0", "1B0", "1F1", "1B1", "1F2", "1B2"])
        self.assertEqual(made.check().peak_in_flight, [2, 1])

    def test_simulation_takes_costs(self):
        made = cgpipe.schedule("gpipe", 2, 4)
        timeline = made.simulate(forward=1, backward_input=1, backward_weight=1)
        self.assertEqual((timeline.makespan, timeline.measured), (15, False))  # (m + n - 1) (1 + 2)
        self.assertAlmostEqual(timeline.bubble, 1 / 5)
        self.assertEqual(made.simulate(forward=[1, 2], backward_input=[1, 1],
                                       backward_weight=[0, 0], latency=0.5).makespan, 15)
        self.assertEqual(len(timeline.start(0)), len(made.actions(0)))
        with self.assertRaisesRegex(errors.ArgumentError, "forward: 2 are expected, got 3"):
            made.simulate(forward=[1, 2, 3])

    def test_tables_go_round(self):
        made = cgpipe.schedule("zb-v", 2, 4)
        self.assertEqual(["SEND" in made.to_csv(transfers) for transfers in (False, True)],
                         [False, True])
        for transfers in (False, True):
            again = cgpipe.Schedule.from_csv(made.to_csv(transfers))
            self.assertEqual([again.actions(d) for d in range(2)],
                             [made.actions(d) for d in range(2)])
        with self.assertRaisesRegex(errors.FormatError, "bad.csv"):
            cgpipe.Schedule.from_csv("0X0\n", "bad.csv")

    def test_a_wrong_table_is_shown(self):
        made = cgpipe.Schedule.from_csv("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n")
        with self.assertRaisesRegex(errors.ArgumentError, "deadlock|cycle|order|ascend"):
            made.check()
        self.assertIn("[", made.diagnostic())
        with self.assertRaises(errors.ArgumentError):
            made.draw()

    def test_drawings_are_svg_and_trace(self):
        timeline = cgpipe.schedule("1f1b", 2, 3).simulate()
        self.assertTrue(timeline._repr_svg_().lstrip().startswith("<svg"))
        self.assertIn("traceEvents", timeline.trace())
        self.assertEqual(len(timeline.draw(40).splitlines()[0]), 40)

    def test_an_unknown_name_has_the_nearest(self):
        with self.assertRaisesRegex(errors.ArgumentError, "did you mean 1f1b"):
            cgpipe.schedule("1f1c", 2, 2)


class Plans(unittest.TestCase):
    def test_a_plan_has_its_bytes(self):
        plan = cgpipe.plan(support.model(), stages=2, chunks=4, batch=30,
                           optimizer=cgpipe.AdamW(lr=1e-3))
        self.assertEqual((sum(plan.balance), plan.microbatch, plan.chunks, plan.batch),
                         (4, 8, 4, 30))
        for device in plan.devices:
            self.assertEqual(device.gradient_bytes, device.parameter_bytes)
            self.assertEqual(device.optimizer_bytes, 2 * device.parameter_bytes)
        self.assertIn("layer0", str(plan))
        self.assertIn("<table>", plan._repr_html_())
        self.assertIn("0F0", plan.csv())
        self.assertEqual(plan.hash, cgpipe.plan(support.model(), stages=2, chunks=4, batch=30,
                                                optimizer=cgpipe.AdamW(lr=1e-3)).hash)

    def test_options_reach_the_plan(self):
        model = support.model(layers=8)
        self.assertEqual(cgpipe.plan(model, stages=2, balance=[3, 5]).balance, [3, 5])
        self.assertEqual(len(cgpipe.plan(model, stages=2, schedule="interleaved", virtual_stages=2,
                                         chunks=4, batch=4).stages), 4)
        self.assertEqual(cgpipe.plan(model, stages=2, inference=True).schedule.name, "forward-only")
        self.assertEqual(cgpipe.plan(model, stages=2, devices=["cpu", "cpu@1GiB"]).devices[1].name,
                         "cpu:1")
        less = cgpipe.plan(model, chunks=4, batch=64, recompute="always",
                           precision="bf16").devices[0].activation_bytes
        self.assertLess(less, cgpipe.plan(model, chunks=4, batch=64).devices[0].activation_bytes)
        tiled = cgpipe.plan(model, stages=2, balance=[3, 5], convolution="winograd")
        self.assertNotEqual(tiled.hash, cgpipe.plan(model, stages=2, balance=[3, 5]).hash)
        self.assertEqual(
            sum(cgpipe.plan(model, stages=2, convolution="winograd", balance="time").balance), 8)

    def test_memory_searches_what_is_not_given(self):
        model, options = support.model(layers=8), {"stages": 2, "chunks": 4, "batch": 64}
        default = cgpipe.plan(model, **options)
        most = max(device.planned_bytes for device in default.devices)
        self.assertEqual(cgpipe.plan(model, memory=most, **options).balance, default.balance)
        fitted = cgpipe.plan(model, memory=most - 4096, **options)
        self.assertLess(max(device.planned_bytes for device in fitted.devices), most)
        self.assertEqual((fitted.chunks, fitted.batch), (4, 64))
        kept = cgpipe.plan(model, memory=most - 4096, schedule="1f1b", balance=default.balance,
                           **options)
        self.assertEqual((kept.schedule.name, kept.balance), ("1f1b", default.balance))
        with self.assertRaisesRegex(errors.LimitError, "the least that would do is [0-9]+ bytes"):
            cgpipe.plan(model, memory=1000, **options)
        for fixed in ({"memory_limit": most - 4096},
                      {"memory": most - 4096, "recompute": "never", "schedule": "1f1b",
                       "balance": default.balance}):
            with self.assertRaises(errors.LimitError):
                cgpipe.plan(model, **options, **fixed)

    def test_memory_keeps_the_bits(self):
        options = {"stages": 2, "chunks": 4, "batch": 64}
        plan = cgpipe.plan(support.model(layers=8), **options)
        less = max(device.planned_bytes for device in plan.devices) - 4096
        hashes = []
        for more in ({}, {"memory": less}):
            pipeline = cgpipe.Pipeline(support.model(layers=8), **options, **more)
            pipeline.step(*support.batch(64))
            hashes.append(pipeline.weights_sha256)
        self.assertNotEqual(pipeline.plan.hash, plan.hash)
        self.assertEqual(hashes[0], hashes[1])

    def test_a_table_is_taken(self):
        table = cgpipe.Schedule.from_csv(cgpipe.schedule("1f1b", 2, 4).to_csv())
        self.assertEqual(
            cgpipe.plan(support.model(), stages=2, schedule=table, chunks=4, batch=8).csv(),
            table.to_csv())

    def test_what_is_wrong_is_said(self):
        model = support.model()
        for error, text, options in [
                (errors.ArgumentError, "sums to 2 but the model has 4",
                 {"stages": 2, "balance": [1, 1]}),
                (errors.LimitError, "limited to 100 B", {"memory_limit": 100}),
                (errors.ArgumentError, "did you mean always", {"recompute": "alway"}),
                (errors.ArgumentError, "f16", {"precision": "f16"}),
                (errors.ArgumentError, "direct or winograd", {"convolution": "fft"}),
                (errors.ArgumentError, "direct or winograd",
                 {"convolution": "fft", "balance": "time"}),
                (errors.ArgumentError, "a list of names", {"devices": "cpu"}),
                (TypeError, "stage", {"stage": 3})]:
            with self.assertRaisesRegex(error, text):
                cgpipe.plan(model, **options)


class Optimizers(unittest.TestCase):
    def test_schedules_change_the_rate(self):
        cosine = cgpipe.SGD(lr=1.0, schedule=cgpipe.CosineLr(10, warmup=4))
        self.assertEqual([cosine.lr_at(t) for t in (1, 2, 4)], [0.25, 0.5, 1])
        self.assertAlmostEqual(cosine.lr_at(11), 0)
        step = cgpipe.Adam(lr=1.0, schedule=cgpipe.StepLr(2, gamma=0.5))
        self.assertEqual([step.lr_at(t) for t in (1, 2, 3, 5)], [1, 0.5, 0.5, 0.25])
        stones = cgpipe.RMSprop(lr=1.0, schedule=cgpipe.MilestonesLr([2, 3], gamma=0.1))
        self.assertEqual([round(stones.lr_at(t), 9) for t in (2, 3, 4)], [1, 0.1, 0.01])

    def test_wrong_constants_are_refused(self):
        for optimizer in (cgpipe.SGD(lr=-1), cgpipe.SGD(lr=1, nesterov=True),
                          cgpipe.AdamW(lr=1, betas=(1.5, 0.9)), cgpipe.SGD(lr=1, clip_norm=0.0),
                          cgpipe.SGD(lr=1, schedule=cgpipe.MilestonesLr(range(1, 10)))):
            with self.assertRaises(errors.ArgumentError):
                optimizer.lr_at(1)


if __name__ == "__main__":
    unittest.main()
