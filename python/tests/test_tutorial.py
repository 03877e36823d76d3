# SPDX-License-Identifier: Apache-2.0
"""The tutorial runs. Its outputs equal the stored outputs, except for numbers, some of which are
measured times. The Python blocks of the documentation run too."""

import contextlib
import io
import json
import os
import re
import tempfile
import unittest

import notebook
import support

PAGES = ["docs/how-to/python.md"]


def plain(output):
    """Return an output's text without its numbers."""
    shown = output["text"] if "text" in output else output["data"]["text/plain"]
    return (output["output_type"], sorted(output.get("data", [])),
            re.sub(r"\d[\d.,e-]*", "0", "".join(shown)))


class Tutorial(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.directory.name)

    def test_the_notebook_shows_what_it_shows(self):
        path = support.ROOT / "python" / "tutorial.ipynb"
        ran = notebook.run(json.loads(path.read_text()))
        self.assertGreaterEqual(len(ran), 15)
        for cell, outputs in ran:
            if outputs is not None and cell["outputs"]:
                self.assertEqual([plain(o) for o in outputs], [plain(o) for o in cell["outputs"]],
                                 "".join(cell["source"]))

    def test_the_pages_code_runs(self):
        for page in PAGES:
            blocks = re.findall(r"^```python\n(.*?)^```$", (support.ROOT / page).read_text(),
                                re.S | re.M)
            self.assertTrue(blocks, page)
            names = {"graph": support.graph(), "numpy": support.numpy}
            with open("model.json", "w") as file:
                json.dump(support.graph(), file)
            for number, block in enumerate(blocks):
                if "torch" in block and not notebook._has_torch():
                    continue
                with contextlib.redirect_stdout(io.StringIO()):
                    exec(compile(block, f"{page}, block {number}", "exec"), names)


if __name__ == "__main__":
    unittest.main()
