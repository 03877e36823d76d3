# SPDX-License-Identifier: Apache-2.0
"""Structs, enums and prototypes of cgpipe._c equal those of the headers, and the library exports
all functions.

The environment variable CC names the compiler. Without a compiler, the tests are skipped.
"""

import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import support  # noqa: F401: skips without NumPy
from cgpipe import _c, _op

CC = os.environ.get("CC") or shutil.which("cc")
INCLUDE = support.ROOT / "include"
HEADERS = ("#include <stdio.h>\n#include <cgpipe/cgpipe.h>\n#include <cgpipe/partition.h>\n"
           "#include <cgpipe/graph.h>\n")

if not CC:
    print("skipped: there is no C compiler", file=sys.stderr)
    sys.exit(77)


def run_c(lines):
    """Compile and run a program whose main() has these lines. Return a list of words for each line
    that the program prints."""
    with tempfile.TemporaryDirectory() as directory:
        source, program = os.path.join(directory, "abi.c"), os.path.join(directory, "abi")
        with open(source, "w") as file:
            file.write(HEADERS + "int main(void) {\n" + "\n".join(lines) + "\nreturn 0;\n}\n")
        subprocess.run([CC, "-std=c11", "-I", str(INCLUDE), source, "-o", program], check=True)
        return [line.split() for line in subprocess.run(
            [program], check=True, capture_output=True, text=True).stdout.splitlines()]


def prototypes_of_headers():
    """Return the headers' prototypes by function name, without parameter names."""
    text = subprocess.run([CC, "-E", "-P", "-DCGP_API=TAKEN", "-I", str(INCLUDE), "-"],
                          input=HEADERS, check=True, capture_output=True, text=True).stdout
    found = {}
    for returned, name, arguments in re.findall(
            r"TAKEN\s+([^;(]*?)(cgp_\w+)\(([^;]*?)\)[^;)]*;",
            re.sub(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)", " ", text)):
        found[name] = (plain(returned), [without_name(a) for a in arguments.split(",")])
    return found


def plain(text):
    return re.sub(r"\s*\*\s*", "*", " ".join(text.split())).strip().replace("_Bool", "bool")


def without_name(argument):
    argument = plain(re.sub(r"(\w+)\s*\[\d*\]$", r"*\1", argument.strip()))
    return (argument if argument in ("void", "int")
            else re.sub(r"(?<=[ *])\w+$", "", argument).strip())


def declared():
    """Yield the prototypes that cgpipe._c declares."""
    for line in filter(None, _c.PROTOTYPES.splitlines()):
        returned, name, arguments = re.fullmatch(r"(.*?)(cgp_\w+)\((.*)\)", line).groups()
        yield name, plain(returned), [plain(a) for a in arguments.split(",")]


class Abi(unittest.TestCase):
    def test_structs_have_the_sizes_and_offsets_of_the_headers(self):
        lines, expected = [], []
        for struct in [*_c.STRUCTS, *_op.STRUCTS]:
            name = struct.__name__
            lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
            expected.append([name, str(ctypes.sizeof(struct))])
            for field, *_ in struct._fields_:
                lines.append(f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), '
                             f'sizeof((({name} *)0)->{field}));')
                entry = getattr(struct, field)
                expected.append([f"{name}.{field}", str(entry.offset), str(entry.size)])
        self.assertEqual(run_c(lines), expected)

    def test_structs_have_all_fields_of_the_headers(self):
        text = subprocess.run([CC, "-E", "-P", "-I", str(INCLUDE), "-"], input=HEADERS, check=True,
                              capture_output=True, text=True).stdout
        for struct in [*_c.STRUCTS, *_op.STRUCTS]:
            body = re.search(r"(?:typedef )?struct " + struct.__name__ + r" \{(.*?)\}[\s\w]*;",
                             text, re.S).group(1)
            body = re.sub(r"\(\*(\w+)\)(\[[^]]*\]|\([^;]*\))", r"*\1", body)
            fields = [re.sub(r"\[.*?\]|\*", "", part).split()[-1] for line in body.split(";")
                      if line.strip() for part in line.split(",")]
            self.assertEqual([field for field, *_ in struct._fields_], fields, struct.__name__)

    def test_enums_have_the_values_of_the_headers(self):
        names = [(name, value) for values in _c.ENUMS.values() for value, name in enumerate(values)]
        names += [("CGP_MAX_RANK", _c.MAX_RANK), ("CGP_MAX_MILESTONES", _c.MAX_MILESTONES)]
        self.assertEqual(run_c(f'printf("{name} %d\\n", (int){name});' for name, _ in names),
                         [[name, str(value)] for name, value in names])

    def test_prototypes_are_those_of_the_headers(self):
        headers = prototypes_of_headers()
        self.assertGreater(len(headers), 200)
        for name, returned, arguments in declared():
            self.assertEqual((returned, arguments), headers.get(name), name)

    def test_every_declared_function_is_exported(self):
        exports = (support.ROOT / "tests" / "repo" / "exports.txt").read_text().split()
        names = [name for name, *_ in declared()]
        self.assertGreater(len(names), 100)
        self.assertEqual([name for name in names if name not in exports], [])
        self.assertEqual(len(names), len(set(names)))

    def test_types_are_read_from_prototypes(self):
        self.assertIs(_c._type("int64_t"), ctypes.c_int64)
        self.assertIs(_c._type("const char *"), ctypes.c_char_p)
        self.assertIs(_c._type("const cgp_model *"), ctypes.c_void_p)
        self.assertEqual(_c._type("cgp_plan **"), ctypes.POINTER(ctypes.c_void_p))
        self.assertEqual(_c._type("const cgp_tensor *const *"),
                         ctypes.POINTER(ctypes.POINTER(_c.cgp_tensor)))


if __name__ == "__main__":
    unittest.main()
