# SPDX-License-Identifier: Apache-2.0
"""The results of all parts. A JSON file has the results, and is also the report. A table compares
figures with bars, which are the required bounds."""
import json
import re

FINAL = ("passed", "failed", "measured")
# Facts recorded for each part, about the call that ran it.
OF_A_PART = ("date", "commit", "driver", "toolkit")

# Each bar has: part, text, figure, a figure by which the first is divided, bound, and whether the
# bound is an upper bound.
BARS = [
    ("gpt2", "M=1 over PyTorch eager", "gpt2 M=1", "PyTorch gpt2 M=1", 1.1, False),
    ("gpt2", "M=64 over M=1", "gpt2 M=64", "gpt2 M=1", 0.5, False),
    ("gpt2", "M=64 over PyTorch eager M=64", "gpt2 M=64", "PyTorch gpt2 M=64", 3.0, False),
    ("bf16", "ms of a layer's attention", "attention ms", None, 2.5, True),
    ("bf16", "fraction of the bf16 peak", "bf16 MFU", None, 0.20, False),
    ("bf16", "fraction of the bf16 peak (aim 0.45)", "bf16 MFU", None, 0.35, False),
    *(("tables", f"{name}: activations over the published", f"{name} activations", None, 0.9, True)
      for name in ("pipeline-1", "pipeline-2", "pipeline-4", "pipeline-8")),
    ("images", "ResNet-101 bf16 over f32", "ResNet-101 bf16", "ResNet-101 f32", 2.0, False),
    ("images", "ResNet-101 bf16 over PyTorch autocast, channels-last", "ResNet-101 bf16",
     "PyTorch ResNet-101 bf16", 0.6, False),
    ("grid", "K=4 over K=1, M=16", "grid K=4 M=16", "grid K=1 M=16", 0.95, False),
]


def read(path):
    return json.loads(path.read_text()).get("parts", {}) if path.exists() else {}


class Store:
    """The valid results of one device. A result is valid while its key equals the key of the
    current sources. The file is written after each intermediate result."""

    def __init__(self, at, earlier, facts, keys):
        """Read the results in the file `at`, or else in the file `earlier`."""
        self.at, self.facts, self.keys = at, facts, keys
        kept = [read(at), read(earlier)]
        self.parts = {name: next((parts[name] for parts in kept
                                  if parts.get(name, {}).get("key") == key), {})
                      for name, key in keys.items()}

    def keep(self, name, **changes):
        self.parts[name] = {**self.parts[name], **changes, "key": self.keys[name],
                            **{fact: self.facts[fact] for fact in OF_A_PART}}
        self.write(self.at)

    def write(self, at):
        at.parent.mkdir(parents=True, exist_ok=True)
        parts = {name: {**part, "bars": [line for _, line in self.bars(name)]}
                 for name, part in self.parts.items() if part}
        text = json.dumps({**self.facts, "parts": parts}, indent=1)
        at.with_suffix(".new").write_text(text + "\n")
        at.with_suffix(".new").replace(at)

    def is_done(self, name):
        return self.parts[name].get("verdict") in FINAL

    def bars(self, name):
        """Yield (whether the bar is met, line) for each bar of a part whose figures exist. There
        are no bars for cuda-host, because its speeds mean nothing."""
        figures = {key: value for part in self.parts if self.is_done(part)
                   for key, value in self.parts[part]["figures"].items()}
        for part, text, above, below, bound, at_most in BARS:
            if (part == name and self.facts["backend"] == "cuda" and above in figures
                    and (below or above) in figures):
                value = figures[above] / (figures[below] if below else 1)
                met = value <= bound if at_most else value >= bound
                yield met, (f"{'met' if met else 'MISSED'}: {text}: {value:.3f}, to be "
                            f"{'at most' if at_most else 'at least'} {bound:g}")


def rows(store, names, reasons):
    """Yield (name, verdict, part, lines) of each part."""
    for name in names:
        part, found = store.parts[name], []
        verdict = "not finished" if part.get("cells") else "not run"
        if store.is_done(name):
            found = list(store.bars(name))
            slow = part["verdict"] == "measured" and not all(met for met, _ in found)
            verdict = "slow" if slow else part["verdict"]
        reason = [reasons[name]] if reasons.get(name) else []
        yield name, verdict, part, [*part.get("lines", []), *reason, *(line for _, line in found)]


def print_table(store, found):
    print()
    for key in ("device", "driver", "toolkit", "torch", "commit", "kernels_tree", "date"):
        print(f"{key:13} {store.facts[key] or '-'}")
    if store.facts["backend"] != "cuda":
        print("no GPU: small models, no speeds")
    print(f"\n{'part':11} {'verdict':13} {'s':>6}  date        commit")
    for name, verdict, part, lines in found:
        commit = re.sub(r"^(.{10})\S*", r"\1", part.get("commit", ""))
        print(f"{name:11} {verdict:13} {part.get('seconds', 0):6.1f}  {part.get('date', ''):10}  "
              f"{commit}")
        for line in lines:
            print(f"    {line}")


def write(store, names, reasons, left, directory):
    """Print and write the report. Return the exit code."""
    print_table(store, rows(store, names, reasons))
    for at in [store.at, *([directory / store.at.name] if directory else [])]:
        store.write(at)
        print(f"\n{at}", end="")
    print()
    if any(store.parts[name].get("verdict") == "failed" for name in names):
        return 1
    if left:
        print(f"left: {' '.join(left)} (call again)")
    return 3 if left else 0
