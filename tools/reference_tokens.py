#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make tests/data/tokenizer and tests/data/tokenizer_json: small byte-level BPEs, and difficult
strings with their tokens from Hugging Face's tokenizers.

    pip install tokenizers                            # written with 0.23
    python3 tools/reference_tokens.py [files | json]  # default: both, from this project's text

tokenizer (files)

    vocab.json, merges.txt     256 bytes, 2000 merges and <|endoftext|>, trained with GPT-2's word
                               pattern on this project's text and on 30,000 strings like those
                               below. A test detects a wrong end of a word only if the characters
                               around it merge. So rare characters, and all kinds of spaces, have
                               merges with their neighbours.
    strings.json               {"about": .., "strings": [[text, [id, ..]], ..]}: 1,000 strings and
                               their tokens, without special tokens

tokenizer_json (json)

    gpt2, llama3, qwen2.json   trained in the same way with these models' pattern, normalizer,
                               ignore_merges, template and special tokens; merges in both spellings
    added.json                 the bytes and some merges, and added tokens with every option
    strings.json               {"about": .., "files": [..], "strings": [[text, ids, ..], ..],
                               "decoded": [[k, i, text], ..], "tokens": [[k, ids, text], ..]}:
                               2,000 strings and their ids by each file (two base-64 digits per
                               id), without the template. `decoded`: the text that file k decodes
                               string i to, if it differs from the string. `tokens`: random ids,
                               which end inside characters, and their text.

Strings are drawn from fixed seeds, and training is deterministic: the same text gives the same
files. Other text gives other tokenizers, so all files of a directory change together.
"""
import collections
import json
import os
import random
import sys
import unicodedata

import tokenizers
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MERGES, STRINGS, SEED = 2000, 1000, 20190214
# Number of strings on which the merges are trained. The strings come from the previous seed.
TRAINED = 30000
SPECIAL = "<|endoftext|>"

SPACES = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2003\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
NOT_SPACES = "\u180e\u200b\u200c\u200d\u2060\ufeff\x1c\x1f\x00\x7f\u0300"
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'RE", "'LL", "'T", "'", "''",
                "\u2019s", "'l", "'r", "'v", "'sx", "' s"]
NUMBERS = ("0123456789\u0663\u06f4\u096b\u09ec\u0e57\u4e03\u2167\u00bd\u00b2\u2460\u3007"
           "\U0001d7d8\U00010107\uff17")
LETTERS = ("aZ\u00e9\u00df\u0130\u0131\u0416\u05d0\u0627\u0e01\u0915\u4e2d\u3042\u30ab\ud55c"
           "\u01c5\u02b0\u00aa\u00ba\U00010400\U00020000\U0001d400")
MARKS = "\u0301\u0308\u093f\u094d\u0e31\u20dd\ufe0f\U0001d165"
SIGNS = ("!?.,;:-_+*/=<>()[]{}#@$%^&|~`\"\\\u20ac\u00a7\u00b0\u2026\u2014\u00ab\u2248\u221e\u2190"
         "\u2588\U0001f100")
EMOJI = ["\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea",
         "\U0001f44d\U0001f3fd", "\u2764\ufe0f", "1\ufe0f\u20e3"]
WORDS = ["the", "pipeline", "Stage", "micro", "batch", "I", "we", "don", "GPU", "cgp_fail",
         "na\u00efve", "\u0395\u03bb\u03bb\u03ac\u03b4\u03b1",
         "\u043c\u0438\u0440", "\u4e16\u754c", "\u3053\u3093\u306b\u3061\u306f",
         "\ud55c\uad6d\uc5b4", "\u0939\u093f\u0928\u094d\u0926\u0940", "\u0e44\u0e17\u0e22",
         "e\u0301t\u00e9", "x1y2", "<|endoftext|>", "\u0120", "\u010a"]


# Word patterns of the files in tokenizer_json.
CONTRACTED = "'s|'t|'re|'ve|'m|'ll|'d"
NEWER = (r"(?i:" + CONTRACTED
         + r")|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
PATTERNS = {"llama3": NEWER % r"\p{N}{1,3}", "qwen2": NEWER % r"\p{N}"}
JSON_MERGES = {"gpt2": 600, "llama3": 880, "qwen2": 900, "added": 120}
JSON_STRINGS, DECODED = 2000, 60
LLAMA3 = ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>",
          "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
QWEN2 = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
ADDED = [("<s>", "special"), ("</s>", "special rstrip"), ("<mask>", "special lstrip"),
         ("<w>", "single_word"), ("<both>", "lstrip rstrip"), ("word", "single_word normalized"),
         ("wo", "normalized"), ("e\u0301t", "normalized"), ("\u00e9", ""), (" gap ", ""),
         ("  ", "rstrip"), ("<|a|>", ""), ("<|a|><|b|>", ""), ("\n", "single_word"),
         ("\u1e69", "normalized lstrip single_word"), ("\u2126", "normalized"), ("pipe", "")]
WHOLE = 20  # number of tokens without a merge, which only ignore_merges finds
DIGITS = "0123456789+/ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
NORMALIZED = ["\u212b", "\u1e9b\u0323", "e\u0301", "e\u0323\u0301", "e\u0301\u0323",
              "\u1100\u1161\u11a8", "\uac00\u11a8", "\u0344", "\u0958", "\uf900", "\U0002f800",
              "\u2126m", "s\u0307\u0323", "a\u0327\u0300\u0316", "\U0001d15e", "\u0f73",
              "\u0cc6\u0cc2\u0cd5", "\U00011131\U00011127", "\u1e69", "\u03b1\u0345\u0301"]
MIXED = ["\r\n", "\r\n\r\n", "\r", " \r\n", "\t\r\n ", "\n \n", "!\n\n", "?\r\n", " .\n ",
         "\u05d0\u05d1 ", "\u0627\u0644\u0639", "1234567", "12 345", "3.14159", "'S", "'\u017f",
         "'Ll", "'rE", "I'M", "\u2028", "\u0663\u0664\u0665\u0666"]


def project_text():
    files = []
    for directory, directories, names in os.walk(ROOT):
        directories[:] = sorted(f for f in directories if not f.startswith((".", "build"))
                                and f not in ("shared", "data", "corpus"))
        files += [os.path.join(directory, name) for name in sorted(names)
                  if name.endswith((".c", ".h", ".md", ".py"))]
    return files


def texts(files):
    draw = random.Random(SEED - 1)
    found = [open(name, encoding="utf-8").read() for name in files]
    return found + ["".join(piece(draw) for _ in range(draw.randrange(1, 14)))
                    for _ in range(TRAINED)]


def train(made, merges, found):
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(found, trainers.BpeTrainer(
        vocab_size=256 + merges, show_progress=False, special_tokens=[],
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
        return draw.choice(LETTERS) + "".join(draw.choice(MARKS)
                                              for _ in range(draw.choice((0, 1, 2))))
    if kind == 6:
        return "".join(draw.choice(SIGNS) for _ in range(run))
    if kind == 7:
        return draw.choice(EMOJI)
    if kind == 8:
        return draw.choice(NOT_SPACES)
    return (" " if draw.random() < 0.5 else "") + draw.choice(WORDS)


def code_point(draw):
    """Return a random character of Unicode 14. Half of these characters are below U+3100."""
    while True:
        character = chr(draw.randrange(0x3100 if draw.random() < 0.5 else 0x110000))
        if unicodedata.category(character) not in ("Cn", "Cs"):
            return character


def strings(files):
    draw = random.Random(SEED)
    with open(files[0], encoding="utf-8") as file:
        text = file.read()
    found = ["", " ", "\n", "  ", " \n ", "'", "''s", "a'",
             "I'm you'll they'd we've it's can't you're SHE'S",
             "don'TEST 'SPLIT'REsult 'ST 'DATA 'MORE 'VECTOR 'LLIBRARY", "\x00", "\x00\x00a",
             "a" * 3000, " " * 3000, " " * 2999 + "a", "\n" * 1000 + " x", "ab" * 1500,
             "the" * 1000, "=" * 2000, "-" * 501 + " ", "7" * 1000, "\u4e2d" * 300,
             "\U0001f600" * 200, "e" + "\u0301" * 300, "\u3000" * 100 + "\u4e2d", "'s" * 300,
             "".join(chr(c) for c in range(128)), "".join(chr(c) for c in range(128, 768)),
             SPACES + "x" + NOT_SPACES, NUMBERS, LETTERS]
    for _ in range(100):
        at = draw.randrange(len(text))
        found.append(text[at:at + draw.randrange(200)])
    for _ in range(200):
        found.append("".join(code_point(draw) for _ in range(draw.randrange(1, 12))))
    while len(found) < STRINGS:
        found.append("".join(piece(draw) for _ in range(draw.randrange(1, 14))))
    return found


# --- tokenizer_json ---

def hard_piece(draw):
    kind = draw.randrange(8)
    if kind == 0:
        return draw.choice(NORMALIZED)
    if kind == 1:
        return draw.choice(MIXED)
    if kind == 2:
        return (draw.choice((" ", "", "\n"))
                + draw.choice(LLAMA3 + QWEN2 + [text for text, _ in ADDED])
                + draw.choice((" ", "", "  ", "a", "\t")))
    if kind == 3:
        return chr(draw.choice((draw.randrange(0xd800), draw.randrange(0xe000, 0x110000),
                                draw.randrange(0x300, 0x370))))
    return piece(draw)


def hard_strings():
    draw = random.Random(SEED + 1)
    found = ["", " ", "'\u017fa", "<|endoftext|>", "<s>", "word", " word ", "sword", "wo rd", "\n",
             "x\n", "\n\n", "</s>     <mask>", "<mask>  <mask>", "<both>  <both>",
             "  <both>   </s>  x", "<w>", "a<w>", "<w>\u0301", "_<w>", "-<w>-", "\u200d<w>",
             "<|a|><|b|>", "<|a|><|b", "<|a|>|b|>", "a" * 700, " " * 700, " " * 699 + "a",
             "\r\n" * 100 + " x", "\n " * 200, "7" * 100, "e" + "\u0301\u0323" * 60,
             "\u1100\u1161\u11a8" * 30, "!" * 300 + "\n" * 20, "'s" * 90, "<|eot_id|>" * 20,
             "</s>" + " " * 100 + "<mask>", "\u00e9" * 30, "".join(map(chr, range(128))),
             "".join(map(chr, range(128, 0x250))), SPACES + "x" + NOT_SPACES,
             NUMBERS + LETTERS + MARKS, "".join(NORMALIZED), "".join(MIXED)]
    while len(found) < JSON_STRINGS:
        found.append("".join(hard_piece(draw) for _ in range(draw.randrange(1, 9))))
    return found


def trained(name, found):
    made = Tokenizer(models.BPE(ignore_merges=name == "llama3"))
    made.normalizer = normalizers.NFC() if name in ("qwen2", "added") else None
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=name == "added")
    if name in PATTERNS:
        made.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(PATTERNS[name]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    train(made, JSON_MERGES[name], found)
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    if name == "gpt2":
        made.add_special_tokens([AddedToken("<|endoftext|>", normalized=True, special=True)])
    if name == "llama3":
        made.add_special_tokens([AddedToken(text, normalized=False, special=True)
                                 for text in LLAMA3])
        begin = ("<|begin_of_text|>", made.token_to_id("<|begin_of_text|>"))
        made.post_processor = processors.Sequence([made.post_processor,
                                                   processors.TemplateProcessing(
            single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
            special_tokens=[begin])])
    if name == "qwen2":
        made.add_special_tokens([AddedToken(text, normalized=False, special=True)
                                 for text in QWEN2])
        made.add_tokens([AddedToken("<tool_call>", normalized=False, special=False)])
    if name == "added":
        made.add_tokens([AddedToken(text, special="special" in options,
                                    **{option: option in options for option in (
            "single_word", "lstrip", "rstrip", "normalized")}) for text, options in ADDED])
        ends = [(text, made.token_to_id(text)) for text in ("<s>", "</s>")]
        made.post_processor = processors.TemplateProcessing(single="<s> $A </s> </s>", pair="$A $B",
                                                            special_tokens=ends)
    return made


def digits(ids):
    return "".join(DIGITS[i // 64] + DIGITS[i % 64] for i in ids)


def make_json():
    directory = os.path.join(ROOT, "tests", "data", "tokenizer_json")
    os.makedirs(directory, exist_ok=True)
    draw, names = random.Random(SEED + 3), list(JSON_MERGES)
    found = texts([name for name in project_text() if name.endswith(".md")])
    found += ["".join(hard_piece(draw) for _ in range(draw.randrange(1, 9)))
              for _ in range(2 * TRAINED)]
    read = []
    for name in names:
        made = trained(name, found)
        content = json.loads(made.to_str())
        if name == "llama3":
            vocab = content["model"]["vocab"]
            words = collections.Counter(word for text in hard_strings()
                                        for word, _ in made.pre_tokenizer.pre_tokenize_str(text))
            # This is not one word: (?i) folds U+017F to s, so the contraction 's ends there.
            words["'\u00c5\u00bfa"] = len(words) ** 2
            for word in [word for word, _ in words.most_common() if word not in vocab][:WHOLE]:
                vocab[word] = len(vocab)
            for token in content["added_tokens"]:
                token["id"] += WHOLE
            for token in content["post_processor"]["processors"][1]["special_tokens"].values():
                token["ids"] = [i + WHOLE for i in token["ids"]]
        if name == "gpt2":  # write merges as text, as in older files
            content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        with open(os.path.join(directory, name + ".json"), "w", encoding="utf-8") as file:
            file.write(text.replace('"merges":', '\n"merges":').replace('"vocab":', '\n"vocab":')
                       + "\n")
        read.append(Tokenizer.from_file(os.path.join(directory, name + ".json")))
    strings, decoded, draw = hard_strings(), [], random.Random(SEED + 2)
    rows = []
    for i, text in enumerate(strings):
        row = [text]
        for k, one in enumerate(read):
            ids = one.encode(text, add_special_tokens=False).ids
            row.append(digits(ids))
            back = one.decode(ids, skip_special_tokens=False)
            if back != text:
                decoded.append([k, i, back])
        rows.append(row)
    drawn = []
    for k, one in enumerate(read):
        for _ in range(DECODED):
            ids = [draw.randrange(one.get_vocab_size()) for _ in range(draw.randrange(1, 12))]
            drawn.append([k, digits(ids), one.decode(ids, skip_special_tokens=False)])
    content = {"about": "made by tools/reference_tokens.py with tokenizers "
                        f"{tokenizers.__version__}", "files": names, "strings": rows,
               "decoded": decoded, "tokens": drawn}
    with open(os.path.join(directory, "strings.json"), "w", encoding="utf-8") as file:
        file.write(json.dumps(content, ensure_ascii=False,
                              separators=(",", ":")).replace("],[", "],\n[") + "\n")
    print(f"{directory}: {', '.join(names)}, {len(rows)} strings, "
          f"{sum(len(x) for row in rows for x in row[1:]) // 2} tokens in them, "
          f"{len(decoded)} decoded to others")


# --- tokenizer ---

def make_files():
    directory = os.path.join(ROOT, "tests", "data", "tokenizer")
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    train(made, MERGES, texts(project_text())).model.save(directory)
    with open(os.path.join(directory, "vocab.json"), encoding="utf-8") as file:
        vocabulary = json.load(file)
    vocabulary[SPECIAL] = len(vocabulary)
    with open(os.path.join(directory, "vocab.json"), "w", encoding="utf-8") as file:
        json.dump(vocabulary, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")
    read = Tokenizer(models.BPE.from_file(*(os.path.join(directory, name)
                                            for name in ("vocab.json", "merges.txt"))))
    read.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    read.decoder = decoders.ByteLevel()
    pairs = [[text, read.encode(text).ids]
             for text in strings([os.path.join(ROOT, "docs", "how-to", "train-text.md")])]
    assert all(read.decode(ids) == text for text, ids in pairs if text)
    with open(os.path.join(directory, "strings.json"), "w", encoding="ascii") as file:
        file.write(json.dumps({"about": "made by tools/reference_tokens.py with tokenizers "
                                        f"{tokenizers.__version__}",
                               "strings": pairs}, separators=(",", ":")).replace("]],[", "]],\n["))
        file.write("\n")
    print(f"{directory}: {len(vocabulary)} tokens, {len(pairs)} strings, "
          f"{sum(len(ids) for _, ids in pairs)} tokens in them")


def main():
    which = sys.argv[1:] or ["files", "json"]
    if "files" in which:
        make_files()
    if "json" in which:
        make_json()


if __name__ == "__main__":
    main()
