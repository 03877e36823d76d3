# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C raises KeyboardInterrupt after the step in progress has completed. The GIL is released
during a step."""

import os
import signal
import subprocess
import sys
import threading
import time
import unittest
from unittest import mock

import support
import cgpipe

CHILD = '''
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
sys.path.insert(0, {tests!r})
import support, cgpipe
pipeline = cgpipe.Pipeline(support.model(width=256), stages=2, chunks=4, batch=64)
x, y = support.batch(64, width=256)
steps = 0
try:
    print("ready", flush=True)
    while True:
        pipeline.step(x, y)
        steps += 1
except KeyboardInterrupt:
    pass
# The interrupt comes inside a step, or between two.
assert pipeline.updates in (steps, steps + 1), (pipeline.updates, steps)
done = pipeline.updates
again = cgpipe.Pipeline(support.model(width=256), stages=2, chunks=4, batch=64)
for _ in range(done):
    again.step(x, y)
assert pipeline.weights_sha256 == again.weights_sha256
assert pipeline.step(x, y) == again.step(x, y)
print("as after", done, "steps", flush=True)
'''


class Interrupts(unittest.TestCase):
    def setUp(self):
        self.addCleanup(signal.signal, signal.SIGINT,
                        signal.signal(signal.SIGINT, signal.default_int_handler))

    def test_ctrl_c_ends_between_steps(self):
        for delay in (0.02, 0.05, 0.11):
            child = subprocess.Popen(
                [sys.executable, "-c",
                 CHILD.format(tests=os.path.dirname(os.path.abspath(__file__)))],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.addCleanup(child.kill)
            self.assertEqual(child.stdout.readline(), "ready\n")
            time.sleep(delay)  # the signal comes at a random moment of a step
            child.send_signal(signal.SIGINT)
            out, err = child.communicate(timeout=120)
            self.assertEqual(child.returncode, 0, err)
            self.assertIn("as after", out)

    def test_a_signal_during_a_call_waits_for_its_end(self):
        from cgpipe.worker import Worker

        worker, begun, ended = Worker(), threading.Event(), []

        def work():
            begun.set()
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)
            ended.append(True)

        with self.assertRaises(KeyboardInterrupt):
            worker.call(work)
        self.assertEqual(ended, [True])
        self.assertEqual(worker.call(lambda: 3), 3)

    def test_an_exception_comes_from_the_worker(self):
        from cgpipe.worker import Worker

        worker = Worker()
        with self.assertRaisesRegex(ZeroDivisionError, "zero"):
            worker.call(lambda: 1 / 0)
        self.assertEqual(worker.call(lambda: 3), 3)

    def test_the_gil_is_released_during_a_step(self):
        # The step is slow, so that the thread has time to count.
        with mock.patch.dict(os.environ, {"CGP_FAULT": "delay:0F0:1"}):
            pipeline = cgpipe.Pipeline(support.model(), batch=16)
        with pipeline:
            x, y = support.batch(16)
            stop, counted = threading.Event(), []

            def count():
                while not stop.is_set():
                    counted.append(time.perf_counter())
                    time.sleep(0.001)

            thread = threading.Thread(target=count)
            thread.start()
            begin = time.perf_counter()
            pipeline.step(x, y)
            end = time.perf_counter()
            stop.set()
            thread.join()
            inside = [t for t in counted if begin + 0.2 * (end - begin) < t < begin + 0.8
                      * (end - begin)]
            self.assertGreater(len(inside), 0, f"a step of {end - begin:.3f} s")


if __name__ == "__main__":
    unittest.main()
