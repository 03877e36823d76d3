#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast do ResNet-101, AmoebaNet-D and U-Net train on one core and on two, compared with the
fastest settings of PyTorch?

Mini-batches have 8 images. PYTHON's PyTorch runs in both memory layouts. It runs eager and, if it
is PyTorch 2, also compiled. On two cores cgpipe has two threads, or two stages. cgpipe runs with
direct and with Winograd convolutions. AmoebaNet-D has no 3 x 3 convolutions of stride 1, so it runs
only with direct convolutions."""
import os

from cases import PROGRAM, PYTHON, ROOT, SPEED, machine, measure, newest, options_of, report

TINY = bool(os.environ.get("TINY"))
STEPS = os.environ.get("STEPS") or 4
MODELS = {  # {name: (MODEL of cgpipe, PyTorch script and its options)}
    "ResNet-101": ("resnet101", ["resnet_torch.py"]),
    "AmoebaNet-D(18,64)": ("amoebanetd:L=18,D=64", ["images_torch.py", "--model", "amoebanetd",
                                                    "--layers", "18", "--filters", "64"]),
    "U-Net(2,32)": ("unet:B=2,C=32", ["images_torch.py", "--model", "unet", "--convs", "2",
                                      "--channels", "32", "--image", "192"]),
}
if TINY:
    MODELS = {"ResNet-50": ("resnet:depth=50,image=64,width=8",
                            ["resnet_torch.py", "--depth", "50", "--image", "64"]),
              "U-Net(1,2)": ("unet:B=1,C=2,depth=2,image=32",
                             ["images_torch.py", "--model", "unet", "--convs", "1", "--channels",
                              "2", "--depth", "2", "--image", "32"])}
LAYOUTS = {"T=1": {"stages": 1, "chunks": 1},
           "T=2": {"stages": 1, "chunks": 1, "threads_per_device": 2},
           "K=2": {"stages": 2, "chunks": 8, "schedule": "zb-v", "balance": "time"},
           "b=1": {"stages": 1, "chunks": 8}}


def ours(model, **options):
    return [PROGRAM, "bench", model, "--json", "-",
            *options_of({"batch": 8, "steps": STEPS, "schedule": "gpipe", **options})]


def torch(script, *flags, **options):
    return [PYTHON, ROOT / "bench" / script[0], *script[1:],
            *options_of({"batch": 8, "steps": STEPS, **options}), *flags]


def convolutions_of(name):
    """Return the kinds of convolution to measure for a model, and the suffix that each gives to the
    names of its cases."""
    return {"direct": ""} if name.startswith("AmoebaNet") else {"direct": "",
                                                                "winograd": " winograd"}


def cases_of(name, model, script):
    cases = {}
    for convolution, suffix in convolutions_of(name).items():
        for case, options in LAYOUTS.items():
            cases[case + suffix] = ours(model, **options, convolution=convolution)
    for cores in (1, 2):
        for layout in (0, 1):
            for flags in [[], ["--compile"]] if newest() else [[]]:
                words = ["PyTorch", *(["channels-last"] if layout else []),
                         *(["compiled"] if flags else []), f"T={cores}"]
                cases[" ".join(words)] = torch(script, *flags, threads=cores, channels_last=layout)
    return {f"{name} {case}": command for case, command in cases.items()}


def main():
    cases = {key: command for name, (model, script) in MODELS.items()
             for key, command in cases_of(name, model, script).items()}
    medians = measure("images", cases)
    speed = {name: result[SPEED] for name, result in medians.items()}
    width = max(map(len, cases))
    lines = [*machine(medians),
             f"PyTorch {next(result['torch'] for result in medians.values() if 'torch' in result)}",
             "", f"{'samples/s':>{width + 11}}"]
    lines += [f"{name:{width}} {speed[name]:10.3f}" for name in cases] + ["", "ratios of samples/s"]
    for name in MODELS:
        peers = {cores: max((case for case in cases if case.startswith(f"{name} PyTorch")
                             and case.endswith(f"T={cores}")), key=speed.get)
                 for cores in (1, 2)}
        for suffix in convolutions_of(name).values():
            one, two, stages, single = (f"{name} {case}{suffix}" for case in LAYOUTS)
            fastest = max(two, stages, key=speed.get)
            for above, below in ((one, peers[1]), (fastest, peers[2]), (two, one), (stages, single),
                                 (single, one)):
                lines.append(f"{speed[above] / speed[below]:10.3f}  {above} / {below}")
            if suffix:
                lines.append(f"{speed[one] / speed[f'{name} T=1']:10.3f}  {one} / {name} T=1")
    report("images", lines)


if __name__ == "__main__":
    main()
