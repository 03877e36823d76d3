# SPDX-License-Identifier: Apache-2.0
"""A pipeline: a plan's devices, workers and memory, and steps that run on them
(cgpipe/pipeline.h)."""

from __future__ import annotations

import ctypes
import os
import struct
import weakref
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from cgpipe import _c, _ranks, _views, tensors
from cgpipe._plan import Plan
from cgpipe._schedule import Schedule, Timeline
from cgpipe._weights import Weights
from cgpipe.errors import ArgumentError, StateError
from cgpipe.model import Model, Value
from cgpipe.worker import Worker

__all__ = ["Digest", "Pipeline", "Times"]

Path = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class Times:
    """Measured times of the last run, in seconds."""

    #: Seconds from the start of the first action to the end of the last action.
    seconds: float
    #: ``forward_seconds`` ends with the last F, and ``backward_seconds`` is the rest of the run.
    #: Both are NaN if the schedule mixes forward and backward.
    forward_seconds: float
    backward_seconds: float
    #: 1 - compute time / (devices x seconds).
    bubble: float
    #: ``gap_seconds`` is the median time between consecutive actions of a device.
    #: ``wakeup_seconds`` is the median time from the end of a send until the receiver continues.
    #: NaN: there was nothing to measure.
    gap_seconds: float
    wakeup_seconds: float
    #: Fraction of ``seconds`` in which each device computes.
    busy: List[float]


@dataclass(frozen=True)
class Digest:
    """Hashes of a step, the same for every layout (docs/reference/digests.md)."""

    #: Number of updates.
    step: int
    #: Sum of each loss over the mini-batch.
    losses: List[float]
    #: Hash of each tensor, by name and part: "gradient", "parameter", "state" or the name of an
    #: optimizer state.
    tensors: Dict[Tuple[str, str], bytes]
    #: The digests as one record, in the format of a run's digests.bin. The last 32 bytes are the
    #: root.
    record: bytes


class _Memory:
    """Keeps a pipeline's memory alive. The pipeline, and each tensor that is a view of its memory,
    hold a reference to this object."""


class Pipeline(Weights):
    """A model that runs as a pipeline of stages, for training or for forward only.

        pipeline = cgpipe.Pipeline(model, stages=2, schedule="zb-v", chunks=8, batch=64,
                                   optimizer=cgpipe.AdamW(lr=1e-3))
        for x, y in batches:
            loss = pipeline.step(x, y)

    Arrays [N, ...] are NumPy arrays or PyTorch tensors in host memory, of float32 or int32. They
    are not copied. Results are PyTorch tensors if an input is a PyTorch tensor. A pipeline on GPUs
    also takes float32 tensors in GPU memory, from any library with DLPack, and copies them to its
    own GPU memory. Its results are then on a GPU too. Any thread may use a pipeline, one call at a
    time; the GIL is released during a call. After Ctrl-C, KeyboardInterrupt is raised at the end of
    the call in progress, and the pipeline stays usable.

    Under ``mpirun -n K`` the K processes are the ranks of one pipeline. Each process makes the same
    pipeline and the same calls, with the same inputs. All processes get the losses and the
    weights."""

    def __init__(self, model: Union[Model, Plan], stages: Optional[int] = None,
                 schedule: Union[None, str, Schedule] = None, chunks: Optional[int] = None,
                 batch: Optional[int] = None, *, loss: Optional[str] = None, seed: int = 0,
                 **options: Any) -> None:
        """Plan a model, create its devices and initialize the parameters.

        Args:
            model: The model to train, or a plan. With a plan, only ``seed`` may be given too.
            stages, schedule, chunks: See :func:`cgpipe.plan`. None: a stage for each of ``devices``
                (1 stage without ``devices``), the default schedule, 1 chunk.
            batch: Maximum number of samples in a step (a mini-batch); None: ``chunks``.
            loss: Train with this loss of the first output, see :meth:`Model.with_loss`. The targets
                of the loss are the last input of a step.
            seed: Seed of the initial weights and of dropout. A model from :func:`cgpipe.from_torch`
                starts with its module's weights.
            options: As in :func:`cgpipe.plan`: optimizer, balance, recompute, devices, threads,
                precision ...

        Raises:
            ArgumentError: As in :func:`cgpipe.plan`.
            LimitError: The devices need more memory than their limits or the machine permit.
        """
        seed = _c.integer(seed, "seed", ctypes.c_uint64)
        if isinstance(model, Plan):
            if options or any(given is not None
                              for given in (stages, schedule, chunks, batch, loss)):
                raise ArgumentError("pipeline: a plan has all options already, got some beside it")
            self.plan = model
        else:
            made = model.with_loss(loss) if isinstance(model, Model) and loss is not None else model
            chunks = 1 if chunks is None else chunks
            self.plan = Plan(made, stages, schedule, chunks,
                             chunks if batch is None else batch, **options)
        self.model = self.plan.model
        self._inputs, self._outputs = self.model.inputs, self.model.outputs
        self._parameters, self._states = self.model.parameters, self.model.states
        self._worker = self._new_worker()
        self._handle = ctypes.c_void_p()
        self._borrowed: Any = None  # inputs of the last forward, which its backward reads
        self._waits = False  # gradients wait for an update
        self._optimizer: Any = None
        # The finalizer destroys the pipeline on the worker's thread, before the plan is destroyed.
        # It is registered first, so it also runs if an interrupt follows the creation.
        self._memory: Optional[_Memory] = _Memory()
        # The communicator, if there are several ranks.
        ends: List[_ranks.Communicator] = []
        self._ends = ends
        _c.when_gone(self._memory, self._worker.post, _destroy, self._handle, self.plan, ends)
        self._worker.call(self._create, seed, ends)
        #: Number of this process, 0 .. plan.ranks * plan.replicas - 1. The processes of a replica
        #: have consecutive numbers.
        self.rank = ends[0].rank if ends else 0
        self._streams: List[int] = self._call(lambda: _views.streams(self))
        # ``adopted`` has (name, tensor, address) for each tensor of a captured module. ``counts``
        # has the module's counts of batches.
        self.adopted: List[Any] = []
        self.counts: List[Any] = []
        #: Set if .grad tensors of a captured module may view incomplete gradients.
        self._views = False
        self._evaluations: Any = None
        if self.model._captured is not None:
            self.model._captured.adopt(self)
            self._views = self.model._captured.tied or self.plan.shard_optimizer

    def _new_worker(self) -> Worker:
        return Worker()

    def _create(self, seed: int, ends: List[_ranks.Communicator]) -> None:
        """Create the pipeline, on its thread. If there are several ranks, the communicator is
        appended to ``ends``."""
        out, plan = ctypes.byref(self._handle), self.plan._handle
        processes = self.plan.ranks * self.plan.replicas
        if processes == 1 or (self.plan.ranks == 1 and _ranks.launched() == 1):
            _c.check(_c.lib.cgp_pipeline_create(out, plan, seed))
            return
        if self.plan.external_loss:
            raise ArgumentError("external_loss: one rank is expected, got "
                                f"{processes} (use a loss of the model, or ranks=1)")
        end = _ranks.Communicator(processes)
        ends.append(end)
        pipeline = weakref.ref(self)
        end.close = lambda: getattr(pipeline(), "close", lambda: None)()
        _c.check(_c.lib.cgp_pipeline_create_on(out, plan, seed, end.transport, end.handle))

    # --- training ---

    def step(self, *inputs: Any, update: bool = True,
             targets: Union[None, int, Sequence[int]] = None) -> float:
        """Run forward and backward on a mini-batch, and update the parameters.

        Gradients accumulate until an update, as with PyTorch's ``backward()``. After steps with
        ``update=False``, the update uses the sum of the gradients of all these steps. The loss of
        each step is a mean over that step's mini-batch, unless ``targets`` is given.

        Args:
            inputs: An array [N, ...] per input of the model, in order, 1 <= N <= the planned batch.
            update: False: keep the gradients for :meth:`update` or for the next step.
            targets: Divide the loss by this number instead of the mini-batch's number of targets.
                If there are several losses, give one number for each. With the number of targets of
                all accumulated steps, the update is the same as for one large mini-batch. The
                update is bit-identical if the large mini-batch is cut between micro-batches.

        Returns:
            The loss, sum / count over the mini-batch, or sum / ``targets``.

        Raises:
            ArgumentError: An input does not fit; nothing ran.
            StateError: The loss or the gradient norm is not finite (the parameters are
                unchanged), or the plan has an external loss.
            DeviceError: A device failed; after this, the pipeline can only be closed.
        """
        given = self._pointers(self._convert(inputs, training=True), self._inputs)
        divisors = None if targets is None else _divisors(targets)

        def run() -> float:
            loss = ctypes.c_double()
            self._accumulate(not update)
            if divisors is not None:
                _c.check(_c.lib.cgp_pipeline_set_targets(self._handle, divisors, len(divisors)))
            try:
                _c.check(_c.lib.cgp_pipeline_step(self._handle, given.array, given.count,
                                                  ctypes.byref(loss)))
            finally:
                if divisors is not None:
                    _c.lib.cgp_pipeline_set_targets(self._handle, None, 0)
            self._waits = True
            if update:
                self._update()
            else:
                self._complete()
            return loss.value

        found = float(self._run(run))
        self._take_counts()
        return found

    def update(self) -> None:
        """Update the parameters from the sum of the gradients of all calls since the last update:
        :meth:`backward`, and :meth:`step` with ``update=False``.

        Raises:
            StateError: There are no new gradients, or they are not finite.
        """
        self._call(self._update)

    @property
    def optimizer(self) -> Any:
        """The optimizer as a ``torch.optim.Optimizer``, for PyTorch's learning rate schedulers and
        for ``state_dict()`` and ``load_state_dict()`` in PyTorch's layout. Once this property has
        been used, the ``param_groups`` set the learning rate of updates. This property needs
        PyTorch.

        Raises:
            ArgumentError: The plan's optimizer has a schedule of its own.
        """
        if self._optimizer is None:
            from cgpipe.torch.optimizer import PipelineOptimizer

            self._optimizer = PipelineOptimizer(self)
        return self._optimizer

    def zero_grad(self) -> None:
        """Discard the gradients that wait for :meth:`update`."""

        def run() -> None:
            _c.check(_c.lib.cgp_pipeline_zero_grad(self._handle))
            self._waits = False

        self._call(run)

    def clip_grad_norm_(self, max_norm: float) -> float:
        """Clip the norm of the gradients that wait for :meth:`update`. Call :meth:`update` next.

        Returns:
            The norm of all gradients before clipping, as ``torch.nn.utils.clip_grad_norm_`` does.

        Raises:
            StateError: No gradients wait for an update.
        """
        max_norm = _c.number(max_norm, "max_norm")

        def run() -> float:
            norm = ctypes.c_double()
            _c.check(_c.lib.cgp_pipeline_clip_grad_norm(self._handle, max_norm, ctypes.byref(norm)))
            return norm.value

        return float(self._call(run))

    def forward(self, *inputs: Any) -> Any:
        """Run a training forward on a mini-batch, for a loss that the caller computes. The plan
        needs ``external_loss=True``.

        Returns:
            The output [N, ...], or a list if there are several. Call :meth:`backward` next.
        """
        given = self._pointers(self._convert(inputs, training=True), self._inputs)
        outputs = self._new_outputs(given.samples, inputs)
        wanted = self._pointers(outputs, self._outputs, "output")

        def run() -> None:
            _c.check(_c.lib.cgp_pipeline_forward(self._handle, given.array, given.count,
                                                 wanted.array, wanted.count))
            self._borrowed = (given, inputs)

        self._run(run)
        return self._outcome(outputs)

    def backward(self, *gradients: Any) -> List[Any]:
        """Run the backward of the last :meth:`forward`. Then :meth:`update` updates the parameters.
        The new gradients are added to gradients that wait for an update.

        Args:
            gradients: The gradient of the loss with respect to each output, [N, ...], or None for
                an output without a gradient.

        Returns:
            The gradient of the loss with respect to each input, in host memory; None if the model
                does not compute it.
        """
        if self._borrowed is None:
            raise StateError("pipeline: backward() is not legal now: forward() is due")
        samples, captured = self._borrowed[0].samples, self.model._captured
        given = self._pointers(
            gradients if captured is None else captured.gradients_to_engine(gradients, samples),
            [Value(o.name, o.shape, "float32") for o in self._outputs], "gradient")
        found = [tensors.empty_like((samples, *v.shape), "float32", self._borrowed[1])
                 if v.gradient else None for v in self._inputs]

        def run() -> None:
            if any(g is not None for g in found):
                wanted = self._pointers(found, self._inputs)
                _c.check(_c.lib.cgp_pipeline_set_input_gradients(self._handle, wanted.array,
                                                                 wanted.count))
            try:
                self._accumulate(True)
                _c.check(_c.lib.cgp_pipeline_backward(self._handle, given.array, given.count))
                self._waits = True
                self._complete()
            finally:
                if any(g is not None for g in found):
                    _c.lib.cgp_pipeline_set_input_gradients(self._handle, None, 0)
            self._borrowed = None

        self._run(run, begins=False)
        self._take_counts()
        if captured is not None:
            found = captured.input_gradients_to_torch(found) + [None] * self.model._targets
        return found

    # --- without training ---

    def evaluate(self, *inputs: Any) -> float:
        """Return the loss of N samples, for any N, in evaluation mode: without dropout and with
        running statistics. The pipeline's state does not change. If the forward of a captured
        module reads the module's mode, the first evaluation captures the module again, in eval
        mode."""
        other = self._evaluation(inputs, bool(self.model._targets) or not self.plan.external_loss)
        if other is not None:
            return other.evaluate(*inputs)
        given = self._pointers(self._convert(inputs), self._inputs)

        def run() -> float:
            loss = ctypes.c_double()
            _c.check(_c.lib.cgp_pipeline_evaluate(self._handle, given.array, given.count,
                                                  ctypes.byref(loss)))
            return loss.value

        return float(self._run(run))

    def predict(self, *inputs: Any) -> Any:
        """Return the output [N, ...] of N samples, for any N, in evaluation mode, or a list if
        there are several outputs. The pipeline's state does not change. With several ranks, an
        output is None on ranks that do not compute it.

        Args:
            inputs: As in :meth:`step`. Inputs that only the loss reads may be None. At the end of
                the list, they may be left out.
        """
        other = self._evaluation(inputs, False)
        if other is not None:
            return other.predict(*inputs[:len(other.model._captured.inputs)])
        captured = self.model._captured
        read = self._convert(inputs if captured is None else captured.with_absent(inputs),
                             targets=False)
        given = self._pointers([*read, *[None] * (len(self._inputs) - len(read))],
                               self._inputs)
        outputs = self._new_outputs(given.samples, inputs)
        wanted = self._pointers(outputs, self._outputs, "output")

        def run() -> None:
            _c.check(_c.lib.cgp_pipeline_predict(self._handle, given.array, given.count,
                                                 wanted.array, wanted.count))

        self._run(run)
        return self._outcome(outputs)

    # --- checkpoints ---

    def save(self, directory: Path, *, keep: int = 0, note: str = "",
             check_finite: bool = False) -> None:
        """Save a checkpoint. Training after :meth:`load` continues bit for bit. The command line
        ``cgpipe`` can read the checkpoint too.

        Args:
            directory: The run's directory; created if missing.
            keep: Number of checkpoints to keep; 0: all.
            note: A text that :meth:`load` returns.
            check_finite: Refuse weights that are not finite.

        Raises:
            FileError: The checkpoint cannot be written; older checkpoints are unchanged.
        """
        options = _c.cgp_save_options(ctypes.sizeof(_c.cgp_save_options), keep,
                                      _c.encode(note, "note"), check_finite)
        path = _c.path(directory, "directory")
        self._call(lambda: _c.check(_c.lib.cgp_pipeline_save_with(self._handle, path,
                                                                  ctypes.byref(options))))

    def load(self, directory: Path) -> str:
        """Load a checkpoint, and return its note.

        Args:
            directory: The directory of a run, to load its latest checkpoint, or the directory of
                a checkpoint.

        Raises:
            FileError: There is no checkpoint.
            FormatError: The checkpoint is damaged, or from another model or optimizer.
        """
        path = _c.path(directory, "directory")

        def run() -> str:
            note = ctypes.c_void_p()
            _c.check(_c.lib.cgp_pipeline_load(self._handle, path, ctypes.byref(note)))
            self._waits = False
            return _c.take_text(note)

        found = str(self._call(run))
        self._take_counts()
        return found

    # --- what happened ---

    @property
    def updates(self) -> int:
        """Number of updates, including those before a :meth:`load`."""
        return int(self._call(lambda: _c.lib.cgp_pipeline_updates(self._handle)))

    @property
    def gradient_norm(self) -> float:
        """Norm of all gradients at the last update, before clipping; NaN if neither ``clip_norm``
        nor :meth:`clip_grad_norm_` needed it."""
        return float(self._call(lambda: _c.lib.cgp_pipeline_gradient_norm(self._handle)))

    @property
    def weights_sha256(self) -> str:
        """SHA-256 of all parameters."""

        def run() -> str:
            out = ctypes.create_string_buffer(65)
            _c.check(_c.lib.cgp_pipeline_weights_sha256(self._handle, out))
            return out.value.decode()

        return str(self._call(run))

    def digest(self) -> Digest:
        """Hash the last training step: its losses, gradients, parameters, running statistics and
        optimizer state. Call it after the update.

        Raises:
            StateError: There has been no step, or the update of the last step is missing or was
                refused.
        """

        def run() -> Digest:
            plan, lib = self.plan._handle, _c.lib
            record = ctypes.create_string_buffer(int(lib.cgp_plan_digest_bytes(plan)))
            _c.check(lib.cgp_pipeline_digest(self._handle, record))
            n = int(lib.cgp_plan_digest_tensors(plan))
            first = len(record) - 32 - 16 * n
            step, *losses = struct.unpack_from(f"<q{first // 8 - 1}d", record)
            tensors = {}
            for i in range(n):
                tensor = lib.cgp_plan_digest_tensor_at(plan, i)
                at = first + 16 * i
                tensors[tensor.name.decode(), tensor.part.decode()] = record.raw[at:at + 16]
            return Digest(step, losses, tensors, record.raw)

        found = self._call(run)
        assert isinstance(found, Digest)
        return found

    @property
    def times(self) -> Times:
        """Measured times of the last run."""

        def run() -> Times:
            busy = (ctypes.c_double * len(self.plan.devices))()
            times = _c.lib.cgp_pipeline_last_times(self._handle, busy)
            return Times(times.seconds, times.forward_seconds, times.backward_seconds, times.bubble,
                         times.gap_seconds, times.wakeup_seconds, list(busy))

        found = self._call(run)
        assert isinstance(found, Times)
        return found

    @property
    def timeline(self) -> Timeline:
        """The measured start and end of each action of the last step.

        Raises:
            StateError: The last run was not a step of the planned number of samples.
        """

        def run() -> Timeline:
            timeline = _c.cgp_schedule_timeline()
            _c.check(_c.lib.cgp_pipeline_last_timeline(self._handle, ctypes.byref(timeline)))
            return Timeline(self.plan.schedule, timeline)

        found = self._call(run)
        assert isinstance(found, Timeline)
        return found

    def trace(self, path: Optional[Path] = None) -> str:
        """Return the last step as Chrome trace events, which ui.perfetto.dev opens. If ``path`` is
        given, also write the events to this file."""
        text = self.timeline.trace()
        if path is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        return text

    def set_timeout(self, seconds: float) -> None:
        """Make a run fail with DeviceError if no action completes for ``seconds``; 0: no limit."""
        seconds = _c.number(seconds, "seconds")
        self._call(lambda: _c.check(_c.lib.cgp_pipeline_set_timeout(self._handle, seconds)))

    @property
    def report(self) -> str:
        """The report of a run that timed out; "" if no run timed out."""
        return str(self._call(lambda: _c.text(_c.lib.cgp_pipeline_report(self._handle))))

    def close(self) -> None:
        """Stop the workers and free the memory. If tensors are views of the memory, the memory is
        freed once these tensors are gone.

        Any later call raises StateError. In a child process, this call does nothing.
        """
        if self._memory is None or not self._worker.is_own:
            return
        if self._evaluations is not None:
            self._evaluations.close()
        if self.model._captured is not None:
            self.model._captured.release(self)
        self._memory = None
        self._worker.call(lambda: None)  # wait until the worker has destroyed the pipeline

    def __enter__(self) -> "Pipeline":
        return self

    def __exit__(self, *error: Any) -> None:
        for end in self._ends:
            if error[0] is not None:  # other ranks may block in another call: make it fail
                end.fail(f"{error[0].__name__}: {error[1]}")
        self.close()

    def __repr__(self) -> str:
        return f"<cgpipe.Pipeline of {self.plan!r}>"

    # --- helpers ---

    def _call(self, function: Callable[[], Any]) -> Any:
        memory = self._memory  # kept during the call, even if another thread calls close()
        if memory is None:
            raise StateError("pipeline: it is closed (make another one)")
        try:
            return self._worker.call(function)
        finally:
            del memory

    def _accumulate(self, more: bool) -> None:
        """Call this before a backward. The backward then adds to gradients that wait for an update.
        ``more`` says that other backwards may follow. Without ``more``, gradients are complete
        before the step changes running statistics."""
        _c.check(_c.lib.cgp_pipeline_set_accumulation(self._handle, more or self._waits))

    def _complete(self) -> None:
        """Complete the gradients of tied parameters, and gradients that replicas have in parts,
        because the .grad tensors of a captured module are views of these gradients."""
        if self._views:
            _c.check(_c.lib.cgp_pipeline_complete_gradients(self._handle))

    def _update(self) -> None:
        if self._optimizer is not None:
            for group, lr in self._optimizer.learning_rates().items():
                _c.check(_c.lib.cgp_pipeline_set_group_lr(self._handle, group, lr) if group >= 0
                         else _c.lib.cgp_pipeline_set_lr(self._handle, lr))
            # Keeps a learning rate scheduler from warning that no optimizer step came first.
            self._optimizer._opt_called = True
        self._waits = False
        _c.check(_c.lib.cgp_optim_step(self._handle))

    def _run(self, function: Callable[[], Any], begins: bool = True) -> Any:
        """Run the pipeline: a step, only its forward, only its backward, or an evaluation.
        ``begins`` is False for a backward, which continues a step."""
        captured = self.model._captured
        if captured is None:
            return self._call(function)
        if begins:
            captured.regions.forget()
        captured.regions.keep = self.plan.keeps_values
        found = self._call(lambda: captured.regions.call(function, len(self.plan.devices)))
        captured.regions.warn()
        return found

    def _convert(self, inputs: Sequence[Any], targets: bool = True,
                 training: bool = False) -> Sequence[Any]:
        """Return inputs in the model's layout, which may differ from the layout of a captured
        module. Targets of an added loss are unchanged."""
        captured = self.model._captured
        if captured is None:
            return inputs
        own = len(inputs) - (self.model._targets if targets else 0)
        if own > 0 and getattr(inputs[0], "ndim", 0) > 0:
            captured.check(min(len(inputs[0]), self.plan.microbatch), training)
            if training:
                captured.check_adopted(self)
                captured.check_targets(inputs)
                captured.give_counts(self)
        return [*captured.to_engine(list(inputs[:own])), *inputs[own:]]

    def _evaluation(self, inputs: Sequence[Any], losses: bool) -> Optional["Pipeline"]:
        """Return the pipeline that evaluates these inputs, or None if this pipeline does."""
        captured = self.model._captured
        return None if captured is None else captured.evaluation(self, inputs, losses)

    def _new_outputs(self, samples: int, inputs: Sequence[Any]) -> List[Any]:
        """Return a new tensor for each output, or None for an output that another rank computes."""
        if not self._outputs:
            raise ArgumentError(f"{self.model.name}: an output is expected, got none")
        return [None if self.plan.rank_of(i) != self.rank % self.plan.ranks
                else tensors.empty_like((samples, *value.shape), value.dtype, inputs,
                                        _views.gpu_of(self, i) if self._streams else None)
                for i, value in enumerate(self._outputs)]

    def _pointers(self, values: Sequence[Optional[Any]], expected: Sequence[Value],
                  what: str = "input") -> tensors.pointers:
        return tensors.pointers(values, expected, what, self._streams)

    def _outcome(self, outputs: List[Any]) -> Any:
        captured = self.model._captured
        found = outputs if captured is None else list(captured.to_torch(outputs))
        return found[0] if len(found) == 1 else found


def _divisors(targets: Union[int, Sequence[int]]) -> Any:
    """Return a C array of the numbers of targets, one for each loss."""
    numbers = [targets] if hasattr(targets, "__index__") else targets
    return _c.array(ctypes.c_int64, numbers, "targets")


def _destroy(handle: Any, plan: Plan, ends: List[_ranks.Communicator]) -> None:
    _c.lib.cgp_pipeline_destroy(handle)
    for end in ends:
        end.destroy()
    del plan
