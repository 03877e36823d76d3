# SPDX-License-Identifier: Apache-2.0
"""python_ranks.py WHAT -- train in Python, either as a rank that mpirun started or alone.
test_mpi_python.sh compares the output of the ranks.

    train      train three steps, clip and accumulate; leave the last pipeline open
    replicas   the same with up to two replicas, and with gradient groups
    fail       let rank 1 end with an exception in its second step
    torch      train a captured module and print its weights; skip (77) without PyTorch
    copies     the same with a replica in each process
    alone      train one step with ranks=1, although mpirun started several processes"""

import hashlib
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python" / "tests"))

import support  # noqa: E402: skips without NumPy
import cgpipe  # noqa: E402
from cgpipe._ranks import launched  # noqa: E402


def pipeline(**options):
    return cgpipe.Pipeline(support.model(), **{"stages": 4, "chunks": 4, "batch": 16, **options})


def train(**options):
    x, y = support.batch(16)
    with pipeline(optimizer=cgpipe.AdamW(lr=0.01, clip_norm=0.1), **options) as first:
        losses = [first.step(*support.batch(16, seed=i)) for i in range(3)]
        first.step(x[:8], y[:8], update=False, targets=16)
        losses.append(first.step(x[8:], y[8:], update=False, targets=16))
        losses.append(first.clip_grad_norm_(0.01))
        first.update()
        out = first.predict(x)
        last = first.rank % first.plan.ranks == first.plan.ranks - 1
        assert (out is None) == (not last), out
        print(losses, first.evaluate(x, y), first.weights_sha256,
              first.gradient("1.weight").sum(), sorted(first.state_dict())[0], flush=True)
    open_still = pipeline(schedule="gpipe", **options)
    print(open_still.step(x, y), open_still.times.seconds > 0, flush=True)
    return open_still


def replicas():
    options = {"replicas": min(2, launched()), "gradient_groups": 4}
    assert cgpipe.plan(support.model(), stages=4, chunks=4, batch=16,
                       replicas=options["replicas"]).gradient_groups in (1, 4)
    return train(**options)


def fail():
    x, y = support.batch(16)
    with pipeline() as training:
        training.step(x, y)
        if training.rank == 1:
            raise RuntimeError("no more data")
        training.step(x, y)


def captured(**options):
    import torch_support  # noqa: F401: skips without PyTorch
    import torch
    from torch import nn

    torch.manual_seed(1)
    module = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(),
                           nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.Flatten(),
                           nn.Linear(4 * 64, 5))
    x, y = torch.randn(8, 3, 8, 8), torch.randint(0, 5, (8,))
    model = cgpipe.from_torch(module, (x,), loss=nn.CrossEntropyLoss(), example_target=y)
    with cgpipe.Pipeline(model, stages=2, chunks=2, batch=8, **options) as training:
        losses = [training.step(x, y) for _ in range(3)]
        if training.plan.ranks > 1:
            try:
                module.state_dict()
            except cgpipe.errors.StateError:
                pass
            else:
                raise AssertionError("the module's state_dict() is stale")
    digest = hashlib.sha256()
    for value in module.state_dict().values():
        digest.update(value.detach().contiguous().numpy().tobytes())
    print(losses, int(module[1].num_batches_tracked), digest.hexdigest(), flush=True)


def copies():
    captured(replicas=launched(), gradient_groups=2)


def alone():
    with pipeline(stages=1, ranks=1) as training:
        print(training.rank, training.plan.ranks, training.step(*support.batch(16)), flush=True)


kept = {"train": train, "replicas": replicas, "fail": fail, "torch": captured, "copies": copies,
        "alone": alone}[sys.argv[1]]()
