# SPDX-License-Identifier: Apache-2.0
"""Tensors in device memory: DLPack in both directions, and views of a pipeline's memory.

Most tests need no GPU: the pipelines run on the build's backend `cuda-host`, and views of one
pipeline are the inputs of another pipeline. CGPIPE_GPU=1 also tests PyTorch's tensors on a GPU."""

import ctypes
import gc
import os
import pathlib
import unittest

import support
import numpy

PLUGINS = pathlib.Path(os.environ.get("CGPIPE_LIBRARY", "")).parent / "tests" / "plugins"
HAS_CUDA_HOST = (PLUGINS / "libcgpipe-cuda-host.so").exists()
HAS_GPU = bool(os.environ.get("CGPIPE_GPU"))
if HAS_CUDA_HOST and not os.environ.get("CGP_PLUGIN_PATH"):
    os.environ["CGP_PLUGIN_PATH"] = str(PLUGINS)

import cgpipe  # noqa: E402: the library reads CGP_PLUGIN_PATH once
from cgpipe import dlpack, errors  # noqa: E402

WIDTH = 16
needs_cuda_host = unittest.skipUnless(HAS_CUDA_HOST, f"{PLUGINS} has no cuda-host")


def pipeline(*devices, **options):
    return cgpipe.Pipeline(support.model(), stages=2, chunks=2, batch=WIDTH, devices=list(devices),
                           threads=1, **options)


def on_host(array):
    """Return a DeviceTensor with the memory of a NumPy array, which other libraries can read."""
    return dlpack.DeviceTensor(array, (dlpack.CPU, 0), array.shape, str(array.dtype),
                               array.ctypes.data)


class Producer:
    """A DeviceTensor that records the stream of each __dlpack__() call, and may have strides."""

    def __init__(self, tensor, strides=None):
        self.tensor, self.strides, self.streams = tensor, strides, []

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, *, stream=None):
        self.streams.append(stream)
        capsule = self.tensor.__dlpack__()
        if self.strides is not None:
            managed = dlpack._Managed.from_address(dlpack._pointer(capsule, b"dltensor"))
            managed.tensor.strides = self.strides
        return capsule


class Capsules(unittest.TestCase):
    def test_other_libraries_read_them(self):
        array = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)
        numpy.testing.assert_array_equal(numpy.from_dlpack(on_host(array)), array)
        ids = numpy.arange(5, dtype=numpy.int32)
        numpy.testing.assert_array_equal(numpy.from_dlpack(on_host(ids)), ids)
        try:
            import torch
        except ImportError:
            return
        tensor = torch.from_dlpack(on_host(array))
        self.assertEqual(tensor.data_ptr(), array.ctypes.data)
        tensor[1, 2] = 50
        self.assertEqual(array[1, 2], 50)

    def test_the_memory_lives_as_long_as_its_readers(self):
        gc.collect()
        before = len(dlpack._exported)
        reader = numpy.from_dlpack(on_host(numpy.full((2, 3), 7, dtype=numpy.float32)))
        gc.collect()
        self.assertEqual(len(dlpack._exported), before + 1)
        self.assertEqual(reader.sum(), 42)
        del reader
        capsule = on_host(numpy.zeros(3, dtype=numpy.float32)).__dlpack__()
        self.assertEqual(len(dlpack._exported), before + 1)
        del capsule  # no library has consumed it
        gc.collect()
        self.assertEqual(len(dlpack._exported), before)

    def test_a_copy_or_another_device_is_refused(self):
        view = on_host(numpy.zeros(3, dtype=numpy.float32))
        for options in ({"copy": True}, {"dl_device": (dlpack.CUDA, 0)}):
            with self.assertRaisesRegex(BufferError, "copy the view"):
                view.__dlpack__(**options)


class Views(unittest.TestCase):
    def test_a_view_of_host_memory(self):
        with pipeline("cpu", "cpu") as p:
            x, y = support.batch(WIDTH)
            view = p.parameter("0.weight", copy=False)
            numpy.testing.assert_array_equal(view, p.parameter("0.weight"))
            p.step(x, y, update=False)
            numpy.testing.assert_array_equal(p.gradient("0.bias", copy=False),
                                             p.gradient("0.bias"))
            before = p.evaluate(x, y)
            view *= 2
            p.parameters_changed()
            numpy.testing.assert_array_equal(view, p.parameter("0.weight"))
            self.assertNotEqual(p.evaluate(x, y), before)
        self.assertTrue(numpy.isfinite(view).all())  # the view keeps the memory alive

    @needs_cuda_host
    def test_a_view_of_device_memory(self):
        with pipeline("cuda-host:0", "cuda-host:1") as p:
            for name, ordinal in (("0.weight", 0), ("3.weight", 1)):
                view = p.parameter(name, copy=False)
                expected = p.parameter(name)
                self.assertEqual(view.__dlpack_device__(), (dlpack.CUDA, ordinal))
                self.assertEqual(view.shape, expected.shape)
                memory = (ctypes.c_float * expected.size).from_address(view._address)
                numpy.testing.assert_array_equal(list(memory), expected.ravel())


@needs_cuda_host
class Inputs(unittest.TestCase):
    def setUp(self):
        self.owner = pipeline("cuda-host:0", "cuda-host:0")
        self.addCleanup(self.owner.close)
        self.x = self.owner.parameter("0.weight", copy=False)
        self.host, self.y = self.owner.parameter("0.weight"), support.batch(WIDTH)[1]

    def test_device_memory_trains_to_the_bits_of_host_memory(self):
        found = []
        for x in (self.host, self.x, Producer(self.x)):
            with pipeline("cuda-host:0", "cuda-host:1") as p:
                losses = [p.step(x, self.y) for _ in range(3)]
                found.append((losses, p.predict(x).tobytes(), p.weights_sha256))
        self.assertEqual(found[0], found[1])
        self.assertEqual(found[0], found[2])

    def test_every_stream_waits(self):
        producer = Producer(self.x)
        with pipeline("cuda-host:0", "cuda-host:1") as p:
            p.step(producer, self.y)
            self.assertEqual(producer.streams, p._streams)
            self.assertEqual(len(set(producer.streams)), 2)

    def test_what_does_not_fit_is_refused(self):
        odd = (ctypes.c_int64 * 2)(1, WIDTH)
        ids = Producer(dlpack.DeviceTensor(None, (dlpack.CUDA, 0), (WIDTH, 1), "int32",
                                           self.x._address))
        with pipeline("cuda-host:0", "cuda-host:0") as p:
            for x, y, error, text in (
                    (Producer(self.x, odd), self.y, errors.ArgumentError, "row-major"),
                    (self.x, ids, errors.ArgumentError, "integers in host memory"),
                    (ids, self.y, TypeError, "float32 is expected, got int32"),
                    (self.owner.parameter("0.bias", copy=False), self.y, errors.ArgumentError,
                     "shape")):
                with self.assertRaisesRegex(error, text):
                    p.step(x, y)
            p.step(self.x, self.y)
        with pipeline("cpu", "cpu") as p:
            with self.assertRaisesRegex(errors.ArgumentError, "host memory is expected, got one"):
                p.step(self.x, self.y)
        with pipeline("cuda-host:0", "cpu") as p:
            p.step(self.x, self.y)  # the second stage does not read x


@unittest.skipUnless(HAS_GPU, "CGPIPE_GPU=1 is not in the environment")
class Gpu(unittest.TestCase):
    def test_tensors_on_the_gpu_train_to_the_same_bits(self):
        import torch

        x, y = (torch.from_numpy(array) for array in support.batch(WIDTH))
        found = []
        for device in ("cpu", "cuda"):
            with pipeline("cuda:0", "cuda:0") as p:
                losses = [p.step(x.to(device), y.to(device)) for _ in range(3)]
                output = p.predict(x.to(device))
                self.assertEqual(output.device.type, device)
                weight = torch.from_dlpack(p.parameter("0.weight", copy=False))
                self.assertEqual(weight.device.type, "cuda")
                numpy.testing.assert_array_equal(weight.cpu(), p.parameter("0.weight"))
                found.append((losses, output.cpu().numpy().tobytes(), p.weights_sha256))
        self.assertEqual(*found)

    def test_a_module_trains_on_the_gpu(self):
        import copy

        import torch

        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Linear(WIDTH, 8), torch.nn.GELU(),
                                     torch.nn.Linear(8, 3))
        expected = copy.deepcopy(module)
        x, y = torch.randn(WIDTH, WIDTH), torch.randint(0, 3, (WIDTH,))
        model = cgpipe.from_torch(module, (x,), loss=torch.nn.CrossEntropyLoss(), example_target=y)
        optimizer = torch.optim.SGD(expected.parameters(), lr=0.1)
        with cgpipe.Pipeline(model, stages=1, chunks=2, batch=WIDTH, devices=["cuda:0"],
                             optimizer=cgpipe.SGD(lr=0.1)) as p:
            for _ in range(5):
                p.step(x.cuda(), y.cuda())
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(expected(x), y).backward()
                optimizer.step()
            for own, parameter in zip(expected.parameters(), module.parameters()):
                self.assertEqual(parameter.device.type, "cuda")
                torch.testing.assert_close(parameter.cpu(), own, rtol=1e-4, atol=1e-5)
        self.assertTrue(all(p.isfinite().all() for p in module.parameters()))


if __name__ == "__main__":
    unittest.main()
