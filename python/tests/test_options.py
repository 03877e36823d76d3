# SPDX-License-Identifier: Apache-2.0
"""Options: each keyword value has its effect, and an unsuitable value is refused, never ignored."""

import os
import tempfile
import unittest
from unittest import mock

import numpy
import support
import cgpipe
from cgpipe import _c, errors

RECOMPUTE = ["never", "always", "except_last", "selective", "never+selective", "always+selective",
             "except_last+selective"]
FORWARD_FIRST = ["gpipe", "looped-bfs", "looped-bfs-zb"]


def again(made):
    """Return the number of micro-batches that a schedule recomputes."""
    return sum(action.kind == "R" for device in range(made.devices)
               for action in made.actions(device))


def computed(made):
    """Return the compute actions of each device, without transfers."""
    return [[str(action) for action in made.actions(device) if len(action.kind) == 1]
            for device in range(made.devices)]


def planned(**options):
    model = support.model(layers=8, loss=not options.get("external_loss"))
    return cgpipe.plan(**{"model": model, "stages": 2, "chunks": 4, "batch": 16, **options})


class Schedules(unittest.TestCase):
    def test_every_schedule_plans_and_trains(self):
        for name in cgpipe.schedules():
            if name == "forward-only":
                with self.assertRaisesRegex(errors.ArgumentError, "one with a backward"):
                    planned(schedule=name)
                continue
            plan = planned(schedule=name)
            self.assertEqual(plan.schedule.name, name)
            if name not in ("zb-1p", "zb-2p"):  # these depend on the plan's FLOPs
                self.assertEqual(computed(plan.schedule), computed(cgpipe.schedule(name, 2, 4)))
            with cgpipe.Pipeline(plan) as pipeline:
                self.assertGreater(pipeline.step(*support.batch(16)), 0)

    def test_an_external_loss_has_every_schedule_whose_forwards_come_first(self):
        self.assertEqual(planned(external_loss=True).schedule.name, "gpipe")
        for name in cgpipe.schedules():
            if name in FORWARD_FIRST:
                self.assertEqual(planned(external_loss=True, schedule=name).schedule.name, name)
                continue
            with self.assertRaisesRegex(errors.ArgumentError, "backward"):
                planned(external_loss=True, schedule=name)

    def test_inference_has_its_own_schedule_alone(self):
        for name in (None, "forward-only"):
            self.assertEqual(planned(inference=True, schedule=name).schedule.name, "forward-only")
        for name in [*cgpipe.schedules(), cgpipe.schedule("1f1b", 2, 4)]:
            if name != "forward-only":
                with self.assertRaisesRegex(errors.ArgumentError, "for inference"):
                    planned(inference=True, schedule=name)

    def test_an_unknown_schedule_is_refused_everywhere(self):
        for options in ({}, {"external_loss": True}, {"inference": True}):
            with self.assertRaisesRegex(errors.ArgumentError, "did you mean 1f1b"):
                planned(schedule="1f1c", **options)

    def test_placements_and_costs_reach_the_schedule(self):
        self.assertEqual(
            [cgpipe.schedule("forward-only", 2, 4, virtual_stages=2, placement=p).device_of(2)
             for p in ("loop", "v")], [0, 1])
        with self.assertRaisesRegex(errors.ArgumentError, "placement"):
            cgpipe.schedule("gpipe", 2, 4, placement="v")
        with self.assertRaisesRegex(errors.ArgumentError, "loop or v"):
            cgpipe.schedule("forward-only", 2, 4, placement="V")
        for name in cgpipe.schedules():
            plain = cgpipe.schedule(name, 4, 8)
            for costs in ({"forward": 3.0}, {"backward_input": 3.0}, {"backward_weight": 3.0},
                          {"latency": 2.0}):
                if name in ("zb-1p", "zb-2p"):
                    self.assertEqual(cgpipe.schedule(name, 4, 8, **costs).stages, plain.stages)
                    continue
                with self.assertRaisesRegex(errors.ArgumentError, f"{next(iter(costs))}: .*zb-1p"):
                    cgpipe.schedule(name, 4, 8, **costs)
        self.assertNotEqual(*(cgpipe.schedule("zb-1p", 4, 8, latency=latency).to_csv()
                              for latency in (0, 2)))

    def test_groups_limits_and_virtual_stages_are_refused_where_there_are_none(self):
        self.assertNotEqual(*(planned(schedule="interleaved", group=group).csv()
                              for group in (0, 4)))
        self.assertNotEqual(*(planned(schedule="v-flex", stages=3, in_flight=limit).csv()
                              for limit in (4, 6)))
        self.assertNotEqual(*(cgpipe.schedule("v-flex", 3, 4, in_flight=limit).to_csv()
                              for limit in (4, 0)))
        self.assertEqual(len(planned(schedule="looped-bfs", virtual_stages=4).stages), 8)
        for options, text in (({"group": 4}, "group"), ({"virtual_stages": 2}, "virtual"),
                              ({"in_flight": 4}, "in_flight"),
                              ({"schedule": cgpipe.schedule("1f1b", 2, 4), "group": 4}, "group")):
            with self.assertRaisesRegex(errors.ArgumentError, text):
                planned(**options)


class Recomputation(unittest.TestCase):
    def test_every_mode_reaches_plans(self):
        plans = {mode: planned(recompute=mode, schedule="gpipe") for mode in RECOMPUTE}
        self.assertEqual([again(plans[mode].schedule) for mode in RECOMPUTE], [0, 8, 6, 0, 0, 8, 6])
        self.assertEqual(plans["selective"].hash, plans["never+selective"].hash)
        self.assertEqual(len({plan.hash for plan in plans.values()}), 6)

    def test_every_mode_trains_to_the_same_bits(self):
        found = set()
        for mode in RECOMPUTE:
            with cgpipe.Pipeline(planned(recompute=mode)) as pipeline:
                pipeline.step(*support.batch(16))
                found.add(pipeline.weights_sha256)
        self.assertEqual(len(found), 1)

    def test_a_budget_keeps_its_limit_and_the_bits(self):
        plan = planned()
        limit = max(device.planned_bytes for device in plan.devices) - 1
        budget = planned(recompute="budget", memory_limit=limit)
        self.assertLessEqual(max(device.planned_bytes for device in budget.devices), limit)
        found = set()
        for each in plan, budget:
            with cgpipe.Pipeline(each) as pipeline:
                pipeline.step(*support.batch(16))
                found.add(pipeline.weights_sha256)
        self.assertEqual(len(found), 1)
        with self.assertRaisesRegex(errors.ArgumentError, "budget needs a memory limit"):
            planned(recompute="budget")
        with self.assertRaisesRegex(errors.ArgumentError, "budget, which needs a plan"):
            cgpipe.schedule("gpipe", 2, 4, recompute="budget")

    def test_every_mode_reaches_schedules_and_tables(self):
        table = cgpipe.schedule("gpipe", 2, 4).to_csv()
        for mode, expected in zip(RECOMPUTE, [0, 8, 6, 0, 0, 8, 6]):
            self.assertEqual(again(cgpipe.schedule("gpipe", 2, 4, recompute=mode)), expected)
            self.assertEqual(again(cgpipe.Schedule.from_csv(table, recompute=mode)), expected)

    def test_a_table_with_transfers_is_not_recomputed_in_silence(self):
        table = cgpipe.schedule("gpipe", 2, 4).to_csv(transfers=True)
        self.assertEqual(again(cgpipe.Schedule.from_csv(table, recompute="never")), 0)
        for mode in RECOMPUTE:
            if mode != "never":
                with self.assertRaisesRegex(errors.ArgumentError, "a table without transfers"):
                    cgpipe.Schedule.from_csv(table, recompute=mode)

    def test_another_mode_has_the_nearest(self):
        for call in (lambda mode: planned(recompute=mode),
                     lambda mode: cgpipe.schedule("gpipe", 2, 4, recompute=mode),
                     lambda mode: cgpipe.Schedule.from_csv("0F0,0B0\n", recompute=mode)):
            with self.assertRaisesRegex(errors.ArgumentError, "did you mean except_last"):
                call("except-last")


class Words(unittest.TestCase):
    def test_precisions_and_convolutions_reach_the_plan(self):
        self.assertEqual(len({planned(precision=precision, convolution=convolution).hash
                              for precision in ("f32", "bf16")
                              for convolution in ("direct", "winograd")}), 4)
        self.assertEqual(planned().hash, planned(precision="f32", convolution="direct").hash)

    def test_gradient_groups_reach_the_plan_and_the_bits(self):
        x, labels = support.batch(16)
        self.assertEqual(planned().hash, planned(gradient_groups=1).hash)
        plan = planned(gradient_groups=4)
        self.assertEqual([device.partial_gradient_bytes for device in plan.devices],
                         [2 * device.gradient_bytes for device in plan.devices])
        self.assertIn("4 gradient groups", str(plan))
        self.assertNotIn("gradient groups", str(planned()))
        found = []
        for options in ({"gradient_groups": 1}, {"gradient_groups": 4, "stages": 1},
                        {"gradient_groups": 4, "schedule": "zb-h1"}):
            with cgpipe.Pipeline(planned(**options)) as pipeline:
                pipeline.step(x, labels, update=False)
                found.append(pipeline.gradient("0.weight").tobytes())
        self.assertTrue(found[0] != found[1] == found[2])
        with self.assertRaisesRegex(errors.ArgumentError, "power of two, got 3 .2 and 4 are"):
            planned(gradient_groups=3)
        with self.assertRaisesRegex(TypeError, "gradient_groups: an integer is expected"):
            planned(gradient_groups=2.5)

    def test_devices_reach_the_plan(self):
        self.assertEqual([device.name for device in planned(devices=["cpu", "ref"]).devices],
                         ["cpu:0", "ref:1"])
        with self.assertRaisesRegex(errors.LimitError, r"limited to 1\.00 KiB"):
            planned(devices=["cpu@1KiB", "cpu"])
        with self.assertRaisesRegex(errors.ArgumentError, "gpu"):
            planned(devices=["gpu", "cpu"])

    def test_every_loss_trains(self):
        x, labels = support.batch(16)
        targets = numpy.eye(3, dtype=numpy.float32)[labels]
        for loss, wanted in (("cross_entropy", labels), ("bce_with_logits", targets),
                             ("mse", targets), ("l1", targets)):
            with cgpipe.Pipeline(support.model(loss=False), stages=2, batch=16,
                                 loss=loss) as pipeline:
                self.assertGreater(pipeline.step(x, wanted), pipeline.step(x, wanted))
        with self.assertRaisesRegex(errors.ArgumentError, "ignore_index: .*cross_entropy"):
            support.model(loss=False).with_loss("bce_with_logits", ignore_index=3)


class Balances(unittest.TestCase):
    """Balancing by time or size uses the plan's options."""

    def asked(self, **options):
        """Create a plan with a balance by time. Return the options that it passes to
        cgp_profile_steps(), as a dictionary."""
        found = {}

        def profile(model, given, costs, in_steps):
            found.update((name, getattr(given._obj, name))
                         for name, _ in _c.cgp_profile_options._fields_)
            found["samples"] = given._obj.samples[0]
            found["device"] = given._obj.devices[0] if given._obj.devices else None
            for i in range(8):
                costs[i].forward_seconds, costs[i].input_seconds, costs[i].recompute_seconds = (
                    1.0, 1.0, 40.0 if i == 0 else 0.0)
            return 0

        with mock.patch.object(_c.lib, "cgp_profile_steps", profile):
            plan = planned(balance="time", **options)
        return {**found, "balance": plan.balance}

    def test_a_balance_by_time_measures_what_is_planned(self):
        plain = self.asked()
        self.assertEqual([plain[name] for name in ("samples", "threads", "precision")],
                         [4, 1, _c.CGP_PRECISION_F32])
        self.assertEqual(plain["convolution"], 0)
        self.assertEqual(self.asked(precision="bf16")["precision"],
                         _c.CGP_PRECISION_BF16)
        self.assertEqual(self.asked(convolution="winograd")["convolution"],
                         _c.CGP_CONVOLUTION_WINOGRAD)
        self.assertEqual(self.asked(threads=2)["threads"], 2)
        self.assertEqual(self.asked(devices=["ref", "cpu"])["device"], b"ref")

    def test_a_balance_by_time_counts_what_is_recomputed(self):
        for mode in RECOMPUTE:
            plain = mode in ("never", "selective", "never+selective")
            self.assertEqual(self.asked(recompute=mode)["balance"], [4, 4] if plain else [1, 7],
                             mode)

    def test_a_balance_by_size_is_of_the_plans_options(self):
        for options in ({}, {"schedule": "gpipe"}, {"chunks": 1}, {"recompute": "always"},
                        {"optimizer": cgpipe.AdamW(lr=1)}, {"virtual_stages": 2,
                                                            "schedule": "interleaved"}):
            found = {}

            def balance_for_plan(model, given, goal, costs, layers):
                o = given._obj
                found.update(goal=goal, costs=costs, chunks=o.chunks, schedule=o.schedule,
                             recompute=o.recompute, kind=o.optim.kind, virtual=o.virtual_stages)
                layers[:len(layers)] = [8 // len(layers)] * len(layers)
                return 0

            with mock.patch.object(_c.lib, "cgp_balance_for_plan", balance_for_plan):
                planned(balance="size", **options)
            adamw = "optimizer" in options
            self.assertEqual(found, {
                "goal": _c.CGP_BALANCE_MEMORY, "costs": None, "chunks": options.get("chunks", 4),
                "schedule": options["schedule"].encode() if "schedule" in options else None,
                "recompute": int("recompute" in options),
                "kind": _c.CGP_OPTIM_ADAMW if adamw else _c.CGP_OPTIM_SGD,
                "virtual": options.get("virtual_stages", 0)})

    def test_a_balance_by_size_keeps_the_fullest_device_small(self):
        def fullest(balance):
            devices = planned(balance=balance, schedule="gpipe").devices
            return max(device.planned_bytes for device in devices)
        self.assertLessEqual(fullest("size"), fullest([1, 7]))
        self.assertLessEqual(fullest("size"), fullest([7, 1]))

    def test_words_of_a_balance_are_checked_whatever_it_is_by(self):
        model = support.model(layers=8)
        for by in ("flops", "time", "size"):
            self.assertEqual(sum(planned(balance=by).balance), 8)
            for wrong, text in (({"convolution": "fft"}, "direct or winograd"),
                                ({"precision": "f16"}, "f32, tf32 or bf16")):
                with self.assertRaisesRegex(errors.ArgumentError, text):
                    model.balance(2, by, **wrong)
            if by != "time":
                with self.assertRaisesRegex(errors.ArgumentError, "device: .*time"):
                    model.balance(2, by, device="cpu")
        with self.assertRaisesRegex(errors.ArgumentError, "flops, time or size"):
            planned(balance="speed")


class Types(unittest.TestCase):
    def test_numbers_beyond_their_type_are_refused(self):
        table = cgpipe.schedule("1f1b", 2, 4)
        model = support.model(layers=8)
        for call in (lambda big: planned(stages=big), lambda big: planned(chunks=big),
                     lambda big: planned(batch=big), lambda big: planned(balance=[big, 7]),
                     lambda big: planned(threads=big), lambda big: model.balance(big),
                     lambda big: cgpipe.schedule("1f1b", big, 4),
                     lambda big: cgpipe.schedule("1f1b", 2, big), lambda big: table.actions(big),
                     lambda big: table.device_of(big),
                     lambda big: table.simulate(capacity=[big, 1]),
                     lambda big: table.simulate().draw(big),
                     lambda big: cgpipe.SGD(lr=1.0).lr_at(big),
                     lambda big: cgpipe.Pipeline(planned(), seed=big)):
            for big in (2**64 + 1, -2**64 + 1):
                with self.assertRaisesRegex(errors.ArgumentError, str(big)):
                    call(big)
        with self.assertRaisesRegex(errors.ArgumentError, "seed: .*-1"):
            cgpipe.Pipeline(planned(), seed=-1)

    def test_other_types_are_named(self):
        for options, text in (({"stages": 2.0}, "stages: an integer"),
                              ({"chunks": "4"}, "chunks: an integer"),
                              ({"inference": "no"}, "inference: True or False"),
                              ({"external_loss": None}, "external_loss: True or False"),
                              ({"schedule": 3}, "schedule: a text"),
                              ({"recompute": True}, "recompute: a text"),
                              ({"precision": b"f32"}, "precision: a text"),
                              ({"devices": [0, 1]}, "devices: a text"), ({"balance": 4}, "balance"),
                              ({"model": None}, "model: a cgpipe.Model"),
                              ({"optimizer": "adam"}, "optimizer: .*SGD"),
                              ({"optimizer": cgpipe.SGD(lr="0.1")}, "lr: a number"),
                              ({"memory_limit": 1e9}, "memory_limit: an integer")):
            with self.assertRaisesRegex(TypeError, text):
                planned(**options)
        self.assertEqual(planned(stages=numpy.int64(2), inference=numpy.bool_(False)).hash,
                         planned().hash)

    def test_a_text_is_not_cut_at_a_zero(self):
        with self.assertRaisesRegex(errors.ArgumentError,
                                    "schedule: .*0f1b|schedule: a text without"):
            planned(schedule="1f1b\0f1b")
        with cgpipe.Pipeline(planned()) as pipeline, tempfile.TemporaryDirectory() as directory:
            for call in (lambda: pipeline.save(os.path.join(directory, "run"), note="one\0two"),
                         lambda: pipeline.save(os.path.join(directory, "run\0s")),
                         lambda: pipeline.load(directory + "\0s")):
                with self.assertRaisesRegex(errors.ArgumentError, "a text without"):
                    call()
            self.assertEqual(os.listdir(directory), [])

    def test_a_plan_has_all_options(self):
        plan = planned()
        for beside in ({"stages": 1}, {"schedule": "1f1b"}, {"chunks": 1}, {"batch": 16},
                       {"loss": "cross_entropy"}, {"threads": 1}):
            with self.assertRaisesRegex(errors.ArgumentError, "a plan has all options"):
                cgpipe.Pipeline(plan, **beside)


if __name__ == "__main__":
    unittest.main()
