#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make data/unicode_tables.c: the letters, numbers, white space and word characters of Hugging
Face's tokenizers, and the tables of its NFC.

    pip install tokenizers                     # written with 0.23.3
    python3 tools/unicode_tables.py [FILE]     # default: data/unicode_tables.c

The engines inside tokenizers have different Unicode versions. \\p{L}, \\p{N} and \\s come from
Oniguruma (Unicode 16), and \\w from Rust's regex (single_word of an added token). NFC comes from
unicode-normalization-alignments (Unicode 9: later marks are not reordered). So the tables are read
from the library, code point by code point, not from the Unicode Character Database. The script
checks the tables against the algorithm of UAX #15, for every mark next to a mark of each other
class."""
import os
import sys
import textwrap
import unicodedata

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
LETTER, NUMBER, SPACE, WORD, UNSTABLE = 1, 2, 4, 8, 16
nfc, nfd = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str


def matched(pattern):
    """Return the code points that a pattern of one character matches."""
    found, text = set(), "".join(map(chr, POINTS))
    for run, _ in pre_tokenizers.Split(Regex(pattern + "+"), "removed",
                                       invert=True).pre_tokenize_str(text):
        found.update(map(ord, run))
    return found


def word_characters():
    """Return the word characters. They are found with a single_word token, which does not match
    before a word character."""
    made = Tokenizer(models.BPE(vocab={"x": 0}, merges=[]))
    made.add_tokens([AddedToken("<w>", single_word=True, normalized=False)])
    encoded = made.encode_batch_fast(["<w>" + chr(c) for c in POINTS])
    return {c for c, one in zip(POINTS, encoded) if 1 not in one.ids}


def combining_classes():
    """Return Python's combining classes, but leave out characters that are newer than the Unicode
    version of tokenizers. The NFD of tokenizers does not reorder these characters."""
    classes = {}
    for c in POINTS:
        ccc = unicodedata.combining(chr(c))
        other = "\u0334" if ccc > 1 else "\u0300"  # classes 1, 230
        swapped = "a" + chr(c) + other if ccc > 1 else "a" + other + chr(c)
        if ccc and nfd(swapped) != swapped:
            classes[c] = ccc
    return classes


def decompositions():
    """Return {c: (first, second or 0)}: one step of decomposition. The first character may have
    further steps."""
    steps, whole = {}, {c: nfd(chr(c)) for c in POINTS if not 0xAC00 <= c < 0xD7A4}
    of_text = {text: c for c, text in whole.items() if len(text) > 1}
    of_text.update({text: c for c, text in whole.items() if len(text) > 1 and nfc(text) == chr(c)})
    for c, text in whole.items():
        if text == chr(c):
            continue
        if len(text) == 1:
            steps[c] = (ord(text), 0)
        elif len(text) == 2:
            steps[c] = (ord(text[0]), ord(text[1]))
        else:
            steps[c] = (of_text[text[:-1]], ord(text[-1]))
    return steps, whole


def check(steps, whole, classes, composed):
    """Check that NFD by these tables equals the NFD of tokenizers, for each character and for each
    pair of marks after a letter."""
    def expand(c):
        if c not in steps:
            return [c]
        first, second = steps[c]
        assert second not in steps
        return expand(first) + ([second] if second else [])

    for c, text in whole.items():
        assert expand(c) == list(map(ord, text)) and len(text) <= 4, hex(c)
        assert (c in composed.values()) == (nfc(text) == chr(c) and c in steps
                                            and steps[c][1] != 0), hex(c)
    samples = sorted({v: c for c, v in sorted(classes.items(), reverse=True)}.values()) + [0x1F600]
    for a in sorted(classes) + [c for c in POINTS if unicodedata.combining(chr(c))
                                and c not in classes]:
        for b in samples:
            for pair in ((a, b), (b, a)):
                points = [p for c in pair for p in expand(c)]
                if all(classes.get(p) for p in points):
                    points.sort(key=lambda p: classes[p])
                assert (nfd("a" + "".join(map(chr, pair)))
                        == "a" + "".join(map(chr, points))), (hex(a), hex(b))


def runs(values):
    """Return [start << 8 | value] for each run of equal values, beginning with code point 0."""
    made, last = [], None
    for c in range(0x110000):
        if values.get(c, 0) != last:
            last = values.get(c, 0)
            made.append(c << 8 | last)
    return made


def table(name, kind, about, texts):
    about = "\n * ".join(textwrap.wrap(about, 94))
    lines, line = [], "   "
    for text in texts:
        if len(line) + len(text) + 2 > 100:
            lines.append(line)
            line = "   "
        line += f" {text},"
    return (f"/* {about} */\n/* clang-format off */\nconst {kind} {name}[] = {{\n"
            + "\n".join(lines + [line])
            + f"\n}};\n/* clang-format on */\nconst int32_t {name}_count = {len(texts)};\n")


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "data", "unicode_tables.c")
    classes = combining_classes()
    steps, whole = decompositions()
    composed = {pair: c for c, pair in steps.items() if pair[1] and nfc(whole[c]) == chr(c)}
    check(steps, whole, classes, composed)
    values = {}
    for bit, members in ((LETTER, matched(r"\p{L}")), (NUMBER, matched(r"\p{N}")),
                         (SPACE, matched(r"\s")), (WORD, word_characters()),
                         (UNSTABLE, set(classes) | {c for c in POINTS if nfc(chr(c)) != chr(c)}
                          | {b for _, b in composed} |
                          set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3)))):
        for c in members:
            values[c] = values.get(c, 0) | bit
    with open(path, "w", encoding="ascii") as file:
        file.write("/* SPDX-License-Identifier: Apache-2.0 */\n/* unicode_tables.c -- made by "
                   "tools/unicode_tables.py with tokenizers "
                   f"{tokenizers.__version__}. */\n#include \"data/unicode.h\"\n\n")
        file.write(table("cgp__unicode_runs", "uint32_t",
                         "Runs of equal classes: first code point << 8 | cgp__character_class.",
                         [f"0x{v:x}" for v in runs(values)]))
        file.write("\n" + table("cgp__unicode_marks", "uint32_t",
                                "Runs of equal combining classes: first code point << 8 | class.",
                                [f"0x{v:x}" for v in runs(classes)]))
        file.write("\n" + table("cgp__unicode_steps", "cgp__decomposition",
                                "Canonical decompositions, one step each, ascending; second 0: "
                                "none. Hangul syllables are computed.",
                                [f"{{0x{c:x}, 0x{a:x}, 0x{b:x}}}"
                                 for c, (a, b) in sorted(steps.items())]))
        places = {c: i for i, c in enumerate(sorted(steps))}
        file.write("\n" + table("cgp__unicode_pairs", "uint16_t",
                                "Decompositions that compose again, by their places above: "
                                "ascending by first and second.",
                                [str(places[c]) for _, c in sorted(composed.items())]))
    print(f"{path}: {len(runs(values))} runs of characters, {len(classes)} marks, {len(steps)} "
          f"decompositions, {len(composed)} pairs")


if __name__ == "__main__":
    main()
