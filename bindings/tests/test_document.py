"""The first programs of docs/remote-calls.md work as they stand there."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Dict, List

from implementations import ANSWER_SECONDS, PROGRAMS, ROOT

DOCUMENT = ROOT / "docs" / "remote-calls.md"

#: The port of the document may be taken on this machine.
PORT = "8080"


def programs() -> Dict[str, str]:
    """Blocks of the document that the text before them gives a file's name."""
    found = re.findall(r"`([a-z]+\.(?:lua|py|rs))`:\n\n```(?:lua|python|rust)\n(.*?)```", DOCUMENT.read_text(), re.S)
    return dict(found)


class Document(unittest.TestCase):
    """Each server with each client."""

    def first_line(self, process: "subprocess.Popen[bytes]") -> str:
        """What a server says when it is ready."""
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], ANSWER_SECONDS)
        self.assertTrue(ready, "the server says nothing")
        return process.stdout.readline().decode()

    def setUp(self) -> None:
        self.files = programs()
        self.environment = {
            **os.environ,
            "LUA_PATH": f"{ROOT}/bindings/lua/?.lua;;",
            "PYTHONPATH": str(ROOT / "bindings" / "python"),
            "PYTHONUNBUFFERED": "1",
        }

    def test_the_programs_in_rust_are_the_examples_that_were_built(self) -> None:
        for name in ("client", "server"):
            source = ROOT / "crates" / "luarpc" / "examples" / f"calculator-{name}.rs"
            self.assertEqual(self.files[f"{name}.rs"], source.read_text(), f"{source} and {DOCUMENT}")
            built = PROGRAMS / f"calculator-{name}"
            self.assertTrue(built.exists(), f"{built} is missing; ./x test builds it")
            self.assertGreaterEqual(built.stat().st_mtime, source.stat().st_mtime, f"{built} is older than its source")

    def command(self, directory: str, name: str, port: str) -> List[str]:
        """How a program of the document is run, with another port than the document's."""
        text = self.files[name]
        self.assertEqual(text.count(PORT), 1)
        if name.endswith(".rs"):
            return [str(PROGRAMS / f"calculator-{name[:-3]}"), f"127.0.0.1:{port}"]
        # Lua keeps what it prints into a pipe.
        prefix = 'io.stdout:setvbuf("no") ' * name.endswith(".lua")
        Path(directory, name).write_text(prefix + text.replace(PORT, port))
        return ["lua5.4" if name.endswith(".lua") else sys.executable, name]

    def test_the_first_programs_work_with_one_another(self) -> None:
        sides = [f"{side}.{language}" for side in ("client", "server") for language in ("lua", "py", "rs")]
        self.assertEqual(sorted(self.files), sorted([*sides, "calculator.lua"]))
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "calculator.lua").write_text(self.files["calculator.lua"])
            for name in [name for name in sides if name.startswith("server")]:
                server = subprocess.Popen(
                    self.command(directory, name, "0"), cwd=directory, env=self.environment, stdout=subprocess.PIPE
                )
                try:
                    port = self.first_line(server).strip().rsplit(":", 1)[1]
                    for client in [name for name in sides if name.startswith("client")]:
                        result = subprocess.run(
                            self.command(directory, client, port), cwd=directory, env=self.environment,
                            capture_output=True, timeout=ANSWER_SECONDS, text=True, check=True,
                        )
                        self.assertRegex(result.stdout, r"^3(\.0)?\n\W*w\W+ord\W*\n$", f"{client}, {name}")
                finally:
                    server.kill()
                    server.wait(ANSWER_SECONDS)
                    assert server.stdout is not None
                    server.stdout.close()


if __name__ == "__main__":
    unittest.main()
