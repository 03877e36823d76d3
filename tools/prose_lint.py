#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/prose_lint.py [FILE...]: find sentences that break the rules of CONTRIBUTING.md.

The script reads comments and docstrings of C, CUDA, Python, shell and CMake, and the prose of
Markdown pages. Without FILE, it reads every tracked file. It prints FILE:LINE: RULE: TEXT for each
finding. tools/prose_lint.txt lists the exceptions. The exit code is 1 if there is a finding or,
without FILE, an exception that matches nothing.
"""
import ast
import io
import os
import re
import subprocess
import sys
import tokenize

WIDTH, WORDS = 100, 30
ABBREVIATION = r"\(?(?:e\.g\.|i\.e\.|cf\.|vs\.|etc\.|al\.)"
ACTORS = r"(?:threads?|workers?|ranks?|process(?:es)?|programs?|devices?|kernels?|librar(?:y|ies))"
RULES = {  # patterns that no sentence may match; code below checks lengths
    "of": r"^Of\b",
    "behind": r"\bbehind\b(?<!left behind)(?<!leaves behind)(?<!leave behind)",
    "now": r"\b(?:of|by) now\b|\bas (?:it|they) (?:is|are) now\b",
    "anew": r"\banew\b",
    "turn": r"\bin turns?\b|\b(?:its|their|whose) turns?\b",
    "those": r"\b(?:those|that) of\b.*\b(?:those|that) of\b",
    "who": rf"\bnobody\b|\b{ACTORS} who\b",
    "speak": rf"\b{ACTORS} (?:knows?|hears?|speaks?|tells?)\b",
    "history": r"\b(?:not yet run|as before|no longer|used to be)\b|\bany more\b",
}


def c_comments(text):
    """Yield (line, text) of each comment; consecutive // lines are one comment."""
    token = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*(?:\n[ \t]*//[^\n]*)*'
    for match in re.finditer(token, text, re.S):
        if match.group().startswith("/"):
            body = re.sub(r"^/\*+<?|\*/$", "", match.group())
            body = re.sub(r"(?m)^[ \t]*(?:\*|//+)[ \t]?", "", body)
            yield text.count("\n", 0, match.start()) + 1, body


def hash_comments(text):
    """Yield (line, text) of each block of # lines."""
    lines = text.split("\n")
    block = []
    for number, line in enumerate(lines + [""], 1):
        match = re.match(r"\s*#(?!!)\s?(.*)|.*?\s#\s(?=[A-Za-z])(.*)", line)
        whole = match and match.group(1) is not None
        if block and not whole:
            yield number - len(block), "\n".join(block)
            block = []
        if whole:
            block.append(match.group(1))
        elif match:
            yield number, match.group(2)


def python_comments(text):
    """Yield (line, text) of each docstring and block of # lines."""
    blank = text.split("\n")
    documented = (ast.Module, ast.FunctionDef, ast.ClassDef)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, documented) and ast.get_docstring(node):
            yield node.body[0].lineno, ast.get_docstring(node, clean=False)
    kept = [""] * len(blank)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            whole = not blank[row - 1][:column].strip()
            kept[row - 1] = token.string if whole else "x " + token.string
    yield from hash_comments("\n".join(kept))


def markdown_prose(text):
    """Yield the page, with blanks in place of code, tables, headings and targets of links."""
    text = re.sub(r"(?ms)^```.*?^```|<!--.*?-->", lambda m: "\n" * m.group().count("\n"), text)
    text = re.sub(r"(?m)^(?:    .*|\|.*|#.*)$", "", text)
    yield 1, re.sub(r"\]\([^)]*\)", "]", text)


def sentences(line, text):
    """Yield (line, sentence). A full stop, blank line, list item, drawing or tag ends a
    sentence."""
    words, begin = [], line
    for number, row in enumerate(text.split("\n"), line):
        drawing = re.search(r"\S {3,}\S|[|─│┌└▶►]|--+>", row) or re.match(r" {4,}\S", row)
        ends = not row.strip() or row.startswith("SPDX-") or re.match(r"\s*(?:[-*@]|\d+\.)\s?", row)
        if ends or drawing:
            yield begin, " ".join(words)
            words = []
        if drawing or row.startswith("SPDX-"):
            continue
        row = re.sub(r"`[^`]*`", "CODE", re.sub(r"^\s*(?:[-*]|\d+\.)\s", "", row))
        for word in row.split():
            if not words:
                begin = number
            words.append(word)
            if re.search(r"[.!?][)\"*_]*$", word) and not re.match(ABBREVIATION, word):
                yield begin, " ".join(words)
                words = []
    yield begin, " ".join(words)


READERS = {".md": markdown_prose, ".py": python_comments,
           **dict.fromkeys((".c", ".h", ".cu", ".cuh"), c_comments)}


def findings(path):
    """Yield (line, rule, text) of each finding in a file."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    end = os.path.splitext(path)[1]
    for start, comment in READERS.get(end, hash_comments)(text):
        for line, sentence in sentences(start, comment):
            for rule, pattern in RULES.items():
                if re.search(pattern, sentence):
                    yield line, rule, sentence
            if len(re.findall(r"\S*[A-Za-z]\S*", sentence)) > WORDS:
                yield line, "long", sentence
    if end not in (".sh", ".txt", ".cmake", ""):
        fence = False
        for line, row in enumerate(text.split("\n"), 1):
            fence ^= end == ".md" and row.startswith("```")
            whole = r"\||    |.*\]\([^)]*\)[.,;:)]*$|\[\S+\]: "  # tables, code, links
            if len(row) > WIDTH and not (fence or end == ".md" and re.match(whole, row)):
                yield line, "width", row.strip()


def tracked_files():
    """Return the tracked files with prose that this project wrote."""
    command = ["git", "ls-files", "-z"]
    tracked = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split("\0")
    kinds = r"\.(?:c|h|cu|cuh|py|md|sh|cmake)$|CMakeLists\.txt$|^\.ci/|Makefile$"
    return [path for path in tracked if re.search(kinds, path) and "tests/data/" not in path]


def main(paths):
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    with open("tools/prose_lint.txt", encoding="utf-8") as file:
        rows = [row for row in file.read().split("\n") if row and row[0] != "#"]
    excepted = {tuple(row.split(" # ")[0].split(": ", 2)): False for row in rows}
    count = 0
    for path in paths or tracked_files():
        for line, rule, text in sorted(findings(path)):
            known = [key for key in excepted if key[:2] == (path, rule) and key[2] in text]
            for key in known:
                excepted[key] = True
            if not known:
                count += 1
                print(f"{path}:{line}: {rule}: {text[:160]}")
    unused = [] if paths else [key for key, used in excepted.items() if not used]
    for key in unused:
        print(f"tools/prose_lint.txt: matches nothing: {': '.join(key)}")
    print(f"prose_lint: {count} findings", file=sys.stderr)
    return bool(count or unused)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
