#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make tests/data/tokenizer: a small byte-level BPE and hard strings with their tokens, by Hugging Face's tokenizers.

    pip install tokenizers                                 # written with 0.23
    python3 tools/reference_tokens.py [DIR [FILES...]]     # default: tests/data/tokenizer, from this project's text

    vocab.json, merges.txt   256 bytes, 2000 merges and <|endoftext|>, trained with GPT-2's pattern for words on FILES and on
                             30,000 strings like those below: where a word ends shows only in what merges, so rare
                             characters, spaces of all kinds too, have merges with their neighbours
    strings.json             {"about": .., "strings": [[text, [id, ..]], ..]}, 1,000 of them: what tokenizers makes of each,
                             without special tokens

What is a letter depends on the version of Unicode: tokenizers 0.23 has 16, PCRE2 10.42 has 14, and so has Python 3.11, which
draws. Later characters are left out here.

Strings are drawn from two seeds, training has nothing random in it: the same text gives the same files. Other text gives another
tokenizer, so all three files change together.
"""
import json
import os
import random
import sys
import unicodedata

import tokenizers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MERGES, STRINGS, SEED = 2000, 1000, 20190214
TRAINED = 30000  # strings that the merges are trained on, from the seed before
SPECIAL = "<|endoftext|>"

SPACES = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2003\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
NOT_SPACES = "\u180e\u200b\u200c\u200d\u2060\ufeff\x1c\x1f\x00\x7f\u0300"
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'RE", "'LL", "'T", "'", "''", "\u2019s", "'l",
                "'r", "'v", "'sx", "' s"]
NUMBERS = "0123456789\u0663\u06f4\u096b\u09ec\u0e57\u4e03\u2167\u00bd\u00b2\u2460\u3007\U0001d7d8\U00010107\uff17"
LETTERS = "aZ\u00e9\u00df\u0130\u0131\u0416\u05d0\u0627\u0e01\u0915\u4e2d\u3042\u30ab\ud55c\u01c5\u02b0\u00aa\u00ba\U00010400\U00020000\U0001d400"
MARKS = "\u0301\u0308\u093f\u094d\u0e31\u20dd\ufe0f\U0001d165"
SIGNS = "!?.,;:-_+*/=<>()[]{}#@$%^&|~`\"\\\u20ac\u00a7\u00b0\u2026\u2014\u00ab\u2248\u221e\u2190\u2588\U0001f100"
EMOJI = ["\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\U0001f44d\U0001f3fd",
         "\u2764\ufe0f", "1\ufe0f\u20e3"]
WORDS = ["the", "pipeline", "Stage", "micro", "batch", "I", "we", "don", "GPU", "cgp_fail", "na\u00efve",
         "\u0395\u03bb\u03bb\u03ac\u03b4\u03b1",
         "\u043c\u0438\u0440", "\u4e16\u754c", "\u3053\u3093\u306b\u3061\u306f", "\ud55c\uad6d\uc5b4",
         "\u0939\u093f\u0928\u094d\u0926\u0940", "\u0e44\u0e17\u0e22", "e\u0301t\u00e9", "x1y2", "<|endoftext|>",
         "\u0120", "\u010a"]


def project_text():
    files = []
    for directory, directories, names in os.walk(ROOT):
        directories[:] = sorted(f for f in directories if not f.startswith((".", "build")) and f not in ("shared", "data", "corpus"))
        files += [os.path.join(directory, name) for name in sorted(names) if name.endswith((".c", ".h", ".md", ".py"))]
    return files


def train(files):
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    draw = random.Random(SEED - 1)
    texts = [open(name, encoding="utf-8").read() for name in files]
    texts += ["".join(piece(draw) for _ in range(draw.randrange(1, 14))) for _ in range(TRAINED)]
    made.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=256 + MERGES, show_progress=False, special_tokens=[],
                                                        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    return made


def piece(draw):
    kind = draw.randrange(12)
    run = draw.choice((1, 1, 1, 2, 3, 7))
    if kind == 0:
        return draw.choice(CONTRACTIONS)
    if kind == 1:
        return "".join(draw.choice(SPACES) for _ in range(run))
    if kind == 2:
        return draw.choice(" \n\t") * run
    if kind == 3:
        return "".join(draw.choice(NUMBERS) for _ in range(run))
    if kind == 4:
        return "".join(draw.choice(LETTERS) for _ in range(run))
    if kind == 5:
        return draw.choice(LETTERS) + "".join(draw.choice(MARKS) for _ in range(draw.choice((0, 1, 2))))
    if kind == 6:
        return "".join(draw.choice(SIGNS) for _ in range(run))
    if kind == 7:
        return draw.choice(EMOJI)
    if kind == 8:
        return draw.choice(NOT_SPACES)
    return (" " if draw.random() < 0.5 else "") + draw.choice(WORDS)


def code_point(draw):
    """Any character that Unicode 14 has; half of them below U+3100."""
    while True:
        character = chr(draw.randrange(0x3100 if draw.random() < 0.5 else 0x110000))
        if unicodedata.category(character) not in ("Cn", "Cs"):
            return character


def strings(files):
    draw = random.Random(SEED)
    with open(files[0], encoding="utf-8") as file:
        text = file.read()
    found = ["", " ", "\n", "  ", " \n ", "'", "''s", "a'", "I'm you'll they'd we've it's can't you're SHE'S",
             "don'TEST 'SPLIT'REsult 'ST 'DATA 'MORE 'VECTOR 'LLIBRARY", "\x00", "\x00\x00a",
             "a" * 3000, " " * 3000, " " * 2999 + "a", "\n" * 1000 + " x", "ab" * 1500, "the" * 1000, "=" * 2000, "-" * 501 + " ",
             "7" * 1000, "\u4e2d" * 300, "\U0001f600" * 200, "e" + "\u0301" * 300, "\u3000" * 100 + "\u4e2d", "'s" * 300,
             "".join(chr(c) for c in range(128)), "".join(chr(c) for c in range(128, 768)), SPACES + "x" + NOT_SPACES, NUMBERS, LETTERS]
    for _ in range(100):
        at = draw.randrange(len(text))
        found.append(text[at:at + draw.randrange(200)])
    for _ in range(200):
        found.append("".join(code_point(draw) for _ in range(draw.randrange(1, 12))))
    while len(found) < STRINGS:
        found.append("".join(piece(draw) for _ in range(draw.randrange(1, 14))))
    return found


def main():
    directory = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "tests", "data", "tokenizer")
    files = sys.argv[2:] or project_text()
    os.makedirs(directory, exist_ok=True)
    made = train(files)
    made.model.save(directory)
    with open(os.path.join(directory, "vocab.json"), encoding="utf-8") as file:
        vocabulary = json.load(file)
    vocabulary[SPECIAL] = len(vocabulary)
    with open(os.path.join(directory, "vocab.json"), "w", encoding="utf-8") as file:
        json.dump(vocabulary, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")
    read = Tokenizer(models.BPE.from_file(*(os.path.join(directory, name) for name in ("vocab.json", "merges.txt"))))
    read.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    read.decoder = decoders.ByteLevel()
    pairs = [[text, read.encode(text).ids] for text in strings([os.path.join(ROOT, "docs", "how-to", "train-text.md")])]
    assert all(read.decode(ids) == text for text, ids in pairs if text)
    with open(os.path.join(directory, "strings.json"), "w", encoding="ascii") as file:
        file.write(json.dumps({"about": f"made by tools/reference_tokens.py with tokenizers {tokenizers.__version__}",
                               "strings": pairs}, separators=(",", ":")).replace("]],[", "]],\n["))
        file.write("\n")
    print(f"{directory}: {len(vocabulary)} tokens, {len(pairs)} strings, {sum(len(ids) for _, ids in pairs)} tokens in them")


if __name__ == "__main__":
    main()
