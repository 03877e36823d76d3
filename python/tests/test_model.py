# SPDX-License-Identifier: Apache-2.0
"""Models and tensors: values that they read, return and refuse."""

import gc
import json
import os
import tempfile
import unittest

import numpy
import support
import cgpipe
from cgpipe import _c, errors, tensors
from cgpipe.model import Value


class Models(unittest.TestCase):
    def test_a_model_names_its_parts(self):
        model = support.model(width=5, layers=2)
        self.assertEqual(model.name, "mlp")
        self.assertEqual(model.layers, ["layer0", "layer1"])
        self.assertEqual(model.inputs,
                         [Value("x", (5,), "float32"), Value("labels", (1,), "int32")])
        self.assertEqual(model.outputs, [Value("output0", (3,), "float32")])
        self.assertEqual([(p.name, p.shape) for p in model.parameters],
                         [("0.weight", (5, 5)), ("0.bias", (5,)), ("1.weight", (3, 5)),
                          ("1.bias", (3,))])
        self.assertEqual((model.states, model.parameter_count), ([], 48))

    def test_json_goes_round(self):
        model = support.model()
        again = cgpipe.Model.from_json(model.to_json())
        self.assertEqual(model.to_json(), again.to_json())
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "mlp.json")
            with open(path, "w") as file:
                file.write(model.to_json())
            self.assertEqual(cgpipe.Model.from_file(path).to_json(), model.to_json())

    def test_what_is_wrong_has_its_place(self):
        graph = support.graph()
        graph["nodes"][2]["op"] = "liner"
        with self.assertRaisesRegex(errors.FormatError, r"nodes\[2\]"):
            cgpipe.Model.from_json(graph)
        with self.assertRaisesRegex(errors.FormatError, "losses"):
            cgpipe.Model.from_json(support.without(support.graph(), "losses"))
        for wrong in (None, 3, ["graph"]):
            with self.assertRaisesRegex(TypeError, "JSON is expected"):
                cgpipe.Model.from_json(wrong)
        with self.assertRaisesRegex(errors.FileError, "/no/such.json"):
            cgpipe.Model.from_file("/no/such.json")

    def test_a_loss_is_added(self):
        graph = json.loads(
            support.model(loss=False).with_loss("cross_entropy", ignore_index=7).to_json())
        self.assertEqual(graph["losses"][0]["attributes"]["ignore"], 7)
        model = support.model(loss=False).with_loss("bce_with_logits")
        self.assertEqual(model.inputs[-1], Value("targets", (3,), "float32"))
        with self.assertRaisesRegex(errors.ArgumentError, "mse or l1 is expected, got 'l2'"):
            support.model(loss=False).with_loss("l2")

    def test_balances_add_up(self):
        model = support.model(layers=6)
        for by in ("flops", "time", "size"):
            self.assertEqual(sum(model.balance(3, by, samples=4)), 6)
        with self.assertRaisesRegex(errors.ArgumentError, "1 to 6"):
            model.balance(7)
        with self.assertRaisesRegex(errors.ArgumentError, "flop'"):
            model.balance(2, "flop")

    def test_a_model_lives_as_long_as_its_plan(self):
        plan = cgpipe.plan(support.model(), stages=2)
        gc.collect()
        self.assertEqual(plan.model.layers, ["layer0", "layer1", "layer2", "layer3"])


class Errors(unittest.TestCase):
    def test_every_status_has_its_class(self):
        classes = [errors.ArgumentError, errors.OutOfMemoryError, errors.LimitError,
                   errors.FileError, errors.FormatError, errors.StateError, errors.DeviceError,
                   errors.PeerError, errors.DiffersError]
        for status, expected in enumerate(classes, 1):
            error = errors.by_status(status, "text")
            self.assertIs(type(error), expected)
            self.assertEqual((str(error), error.status), ("text", _c.ENUMS["cgp_status"][status]))
        self.assertIsInstance(errors.by_status(1, ""), ValueError)
        self.assertIsInstance(errors.by_status(4, ""), OSError)


class Tensors(unittest.TestCase):
    x = Value("x", (3, 4), "float32")
    ids = Value("ids", (1,), "int32")

    def test_an_array_is_not_copied(self):
        array = numpy.zeros((2, 3, 4), numpy.float32)
        struct, keep = tensors.tensor(array, self.x)
        self.assertEqual((struct.data, list(struct.shape.dims[:3])), (array.ctypes.data, [2, 3, 4]))
        part = array[1:]
        self.assertEqual(tensors.tensor(part, self.x)[0].data, part.ctypes.data)

    def test_what_is_not_in_order_is_laid_out(self):
        array = numpy.arange(24, dtype=numpy.float32).reshape(2, 4, 3).transpose(0, 2, 1)
        struct, keep = tensors.tensor(array, self.x)
        self.assertNotEqual(struct.data, array.ctypes.data)
        numpy.testing.assert_array_equal(keep, array)

    def test_integers_of_64_bits_become_32(self):
        struct, keep = tensors.tensor(numpy.array([1, 2**31 - 1]), self.ids)
        self.assertEqual((keep.dtype, keep.tolist(), list(struct.shape.dims[:2])),
                         (numpy.int32, [1, 2**31 - 1], [2, 1]))
        with self.assertRaisesRegex(errors.ArgumentError, "2147483648"):
            tensors.tensor(numpy.array([2**31]), self.ids)

    def test_other_types_and_shapes_are_refused(self):
        with self.assertRaisesRegex(TypeError, "x: float32 is expected, got float64"):
            tensors.tensor(numpy.zeros((2, 3, 4)), self.x)
        with self.assertRaisesRegex(TypeError, "x: an array without a mask"):
            tensors.tensor(numpy.ma.masked_array(numpy.zeros((2, 3, 4), numpy.float32), True),
                           self.x)
        with self.assertRaisesRegex(errors.ArgumentError,
                                    r"\[N, 3, 4\] is expected, got \[2, 4, 3\]"):
            tensors.tensor(numpy.zeros((2, 4, 3), numpy.float32), self.x)
        with self.assertRaisesRegex(errors.ArgumentError, r"2 are expected \(x ids\), got 1"):
            tensors.pointers([numpy.zeros((2, 3, 4), numpy.float32)], [self.x, self.ids])


if __name__ == "__main__":
    unittest.main()
