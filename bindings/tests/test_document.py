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
from typing import Dict

from implementations import ANSWER_SECONDS, COMMANDS, ROOT

DOCUMENT = ROOT / "docs" / "remote-calls.md"

#: The port of the document may be taken on this machine.
PORT = "8080"


def programs() -> Dict[str, str]:
    """Blocks of the document that the text before them gives a file's name."""
    found = re.findall(r"`([a-z]+\.(?:lua|py))`:\n\n```(?:lua|python)\n(.*?)```", DOCUMENT.read_text(), re.S)
    return dict(found)


class Document(unittest.TestCase):
    """Each server with each client."""

    def first_line(self, process: "subprocess.Popen[bytes]") -> str:
        """What a server says when it is ready."""
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], ANSWER_SECONDS)
        self.assertTrue(ready, "the server says nothing")
        return process.stdout.readline().decode()

    def test_the_first_programs_work_with_one_another(self) -> None:
        files = programs()
        runs = {
            "server.lua": ["lua5.4"],
            "client.lua": ["lua5.4"],
            "server.py": [sys.executable],
            "client.py": [sys.executable],
        }
        self.assertEqual(sorted(files), sorted([*runs, "calculator.lua"]))
        environment = {
            **os.environ,
            "LUA_PATH": f"{ROOT}/bindings/lua/?.lua;;",
            "PYTHONPATH": str(ROOT / "bindings" / "python"),
            "PYTHONUNBUFFERED": "1",
        }
        with tempfile.TemporaryDirectory() as directory:
            for name in [name for name in runs if name.startswith("server")]:
                text = files[name]
                self.assertEqual(text.count(PORT), 1)
                # Lua keeps what it prints into a pipe.
                text = 'io.stdout:setvbuf("no") ' * name.endswith(".lua") + text.replace(PORT, "0")
                Path(directory, name).write_text(text)
                Path(directory, "calculator.lua").write_text(files["calculator.lua"])
                server = subprocess.Popen(
                    runs[name] + [name], cwd=directory, env=environment, stdout=subprocess.PIPE
                )
                try:
                    port = self.first_line(server).strip().rsplit(":", 1)[1]
                    for client in [name for name in runs if name.startswith("client")]:
                        self.assertEqual(files[client].count(PORT), 1)
                        Path(directory, client).write_text(files[client].replace(PORT, port))
                        result = subprocess.run(
                            runs[client] + [client], cwd=directory, env=environment, capture_output=True,
                            timeout=ANSWER_SECONDS, text=True, check=True,
                        )
                        self.assertRegex(result.stdout, r"^3(\.0)?\n\W*w\W+ord\W*\n$")
                finally:
                    server.kill()
                    server.wait(ANSWER_SECONDS)
                    assert server.stdout is not None
                    server.stdout.close()


if __name__ == "__main__":
    unittest.main()
