# SPDX-License-Identifier: Apache-2.0
"""The package: its imports, names, version and library."""

import ast
import inspect
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import support
import cgpipe

PACKAGE = pathlib.Path(cgpipe.__file__).parent
NAMES = [name for name in cgpipe.__all__ if name != "from_torch"]


def run(code, **environment):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env={**os.environ, **environment})


class Package(unittest.TestCase):
    def test_an_import_takes_neither_torch_nor_numpy(self):
        done = run("import sys, cgpipe; cgpipe.schedule('1f1b', 2, 2); cgpipe.Pipeline; "
                   "cgpipe.plan;"
                   "print([name for name in ('torch', 'numpy') if name in sys.modules])")
        self.assertEqual((done.stdout, done.stderr), ("[]\n", ""))

    def test_every_name_is_there_and_documented(self):
        for name in NAMES:
            self.assertTrue(inspect.getdoc(getattr(cgpipe, name)), name)
        self.assertLessEqual(set(NAMES), set(dir(cgpipe)))
        with self.assertRaisesRegex(AttributeError, "nothing"):
            cgpipe.nothing

    def test_public_methods_have_docstrings_and_types(self):
        count = 0
        for path in PACKAGE.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if (isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
                        and path.parent == PACKAGE):
                    inner = node.name in ("run",)  # functions nested in methods
                    self.assertTrue(inner or ast.get_docstring(node),
                                    f"{path.name}: {node.name}: a docstring is expected")
                    self.assertIsNotNone(
                        node.returns,
                        f"{path.name}: {node.name}: the type of its result is expected")
                    count += 1
        self.assertGreater(count, 60)
        self.assertTrue((PACKAGE / "py.typed").exists())

    def test_the_version_is_the_librarys(self):
        header = (support.ROOT / "include" / "cgpipe" / "base.h").read_text()
        self.assertEqual(cgpipe.__version__, re.search(r'CGP_VERSION "(.*)"', header).group(1))

    def test_cublaslt_of_python_packages_is_found(self):
        show = "import os, sys, cgpipe; cgpipe.Model; print(os.environ.get('CGP_CUBLASLT_DIRS'))"
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith("CGP_CUBLASLT")}

        def shown(**variables):
            done = subprocess.run([sys.executable, "-c", show + "; print('torch' in sys.modules)"],
                                  capture_output=True, text=True, check=True,
                                  env={**environment, **variables})
            return done.stdout.split()

        with tempfile.TemporaryDirectory() as place:
            root = pathlib.Path(place).resolve()
            for name in ("torch/lib", "nvidia/cublas/lib", "nvidia/cu13/lib", "nvidia/nccl/lib"):
                (root / name).mkdir(parents=True)
                if "nccl" not in name:
                    (root / name / "libcublasLt.so.13").touch()
            (root / "torch" / "__init__.py").touch()
            path = f"{root}:{os.environ.get('PYTHONPATH', '')}"
            names, torch = shown(PYTHONPATH=path)
            expected = [str(root / name)
                        for name in ("torch/lib", "nvidia/cu13/lib", "nvidia/cublas/lib")]
            self.assertEqual((names.split(":")[:3], torch), (expected, "False"))
            self.assertEqual(shown(PYTHONPATH=path, CGP_CUBLASLT="off")[0], "None")
            self.assertEqual(shown(PYTHONPATH=path, CGP_CUBLASLT_DIRS="/own")[0], "/own")

    def test_a_library_that_is_missing_is_said(self):
        done = run("import cgpipe; cgpipe.Model", CGPIPE_LIBRARY="/no/libcgpipe.so")
        self.assertIn("ImportError: /no/libcgpipe.so: cannot be loaded", done.stderr)
        done = run("import cgpipe; cgpipe.Model", CGPIPE_LIBRARY="libc.so.6")
        self.assertRegex(done.stderr, "ImportError: libc.so.6: has no cgp_message: another version "
                         "of cgpipe is expected")

    def test_a_relative_library_finds_its_plug_ins(self):
        library = pathlib.Path(os.environ["CGPIPE_LIBRARY"]).resolve()
        if not (library.parent / "plugins" / "libcgpipe-mpi.so").exists():
            self.skipTest("no MPI")
        program = ("import ctypes; from cgpipe import _c; "
                   "found = ctypes.POINTER(_c.cgp_transport)(); "
                   "print(_c.lib.cgp_transport_find(ctypes.byref(found), b'mpi'), _c.message())")
        done = run(program, CGPIPE_LIBRARY=os.path.relpath(library))
        self.assertTrue(done.stdout.startswith("0 "), done)

    def test_every_file_names_its_licence(self):
        for path in PACKAGE.rglob("*.py"):
            self.assertIn("SPDX-License-Identifier: Apache-2.0", path.read_text().splitlines()[0],
                          path)


if __name__ == "__main__":
    unittest.main()
