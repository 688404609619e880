"""What needs no connection: interface files, values on a line, options."""

from __future__ import annotations

import math
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any

import luarpc
from luarpc import lines

FOO = r"""
-- What the course's example looks like.
interface { name = minhaInt, --[[ an undefined
  global ]] methods = {
  ["foo"] = { resulttype = "double"; args = { { direction = "in", type = 'double' }, { type = "string", direction = "inout", }, } },
  boo = { args = {} },
} };
"""

EVERY_BYTE = bytes(range(256))


def method(text: str) -> str:
    """An interface with one method, on its second line."""
    return "interface { methods = {\n a = " + text + " } }"


class Interfaces(unittest.TestCase):
    def refused(self, text: str, *words: str) -> None:
        """The error has each of the words."""
        with self.assertRaises(luarpc.InterfaceError) as caught:
            luarpc.read_interface(text)
        for word in words:
            self.assertIn(word, str(caught.exception))

    def test_an_interface_is_read_with_comments_and_both_separators(self) -> None:
        read = luarpc.read_interface(FOO)
        self.assertIsNone(read.name)
        self.assertEqual(list(read.methods), ["foo", "boo"])
        self.assertEqual(
            read.methods["foo"], luarpc.Method("foo", "double", ("double", "string"), ("string",))
        )
        self.assertEqual(read.methods["boo"].result, "void", "a missing resulttype")

    def test_strings_of_an_interface_have_the_escapes_and_brackets_of_lua(self) -> None:
        self.assertEqual(luarpc.read_interface(r'interface({ name = "a\65\n\"", methods = {} })').name, 'aA\n"')
        text = "interface { name = [==[\na]]b]==], methods = {} }"
        self.assertEqual(luarpc.read_interface(text).name, "a]]b")

    def test_an_interface_is_read_from_a_file_of_any_bytes(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "foo.lua")
            path.write_bytes(b"-- caf\xe9, \0\n" + FOO.encode())
            for name in (path, str(path)):
                self.assertEqual(len(luarpc.read_interface(name).methods), 2)
            path.write_bytes(b"\n\ninterface")
            self.refused(str(path), "foo.lua:3: ")
        with self.assertRaisesRegex(FileNotFoundError, "foo.lua"):
            luarpc.read_interface(path)

    def test_programs_are_refused_with_their_line(self) -> None:
        for text, line in {
            "ran = true interface { methods = {} }": 1,
            "interface { name = x,\n methods = (function() ran = true end)() }": 2,
            "interface { name = os.execute('touch ran'), methods = {} }": 1,
            "interface { methods = {} }\nwhile true do end": 2,
            "interface { name = ('x'):rep(1e9), methods = {} }": 1,
            "interface { name = 'x' .. 'y', methods = {} }": 1,
            "interface { [1 + 1] = 3, methods = {} }": 1,
            "local t = {} interface { methods = t }": 1,
            "interface { methods = {} } interface { methods = {} }": 1,
            "__import__('os').system('touch ran') {": 1,
            "\x1bLua{": 1,
        }.items():
            self.refused(text, f"interface:{line}:")

    def test_what_is_wrong_in_an_interface_is_named_with_its_line(self) -> None:
        self.refused(method('{ resultype = "double" }'), ":2:", "resultype")
        self.refused(method('{ resulttype = "int" }'), ":2:", "int", "char, double, string, void")
        self.refused(method('{ args = { { type = "char" } } }'), "argument 1", "direction", "in, inout, out")
        self.refused(method('{ args = { { direction = "in", type = { } } } }'), "argument 1", "type is a table")
        self.refused(method('{ args = { "double" } }'), "argument 1", "table")
        self.refused(method("{ args = 3 }"), "args")
        self.refused(method("{ }, a = { }"), "given twice")
        self.refused(method('"x'), ":2:", "not closed")
        self.refused('interface { methods = { ["a b"] = {} } }', "a b", "letters")
        self.refused("interface { methods = { {} } }", "named methods")
        self.refused("interface { name = 'x' }", "named methods")
        self.refused("interface { methods = {}", "end of the file")
        self.refused("interface { --[[", "not closed")
        self.refused(r'interface { name = "\300" , methods = {} }', "255")
        self.refused(r'interface { name = "\q" , methods = {} }', r"\q")

    def test_size_depth_and_counts_of_an_interface_have_limits(self) -> None:
        self.refused("interface { methods = {} }" + " " * 64 * 1024, "65536")
        self.refused("interface { name = " + "{" * 60000, "more than 8 deep")
        many = ",".join(f"m{number}={{}}" for number in range(257))
        self.refused("interface { methods = {" + many + "} }", "256")
        argument = '{direction="in",type="void"},'
        self.refused("interface { methods = { a = { args = {" + argument * 33 + "} } } }", "32")
        self.refused("interface { methods = { " + "a" * 65 + " = {} } }", "64")

    def test_reading_takes_time_in_proportion_to_the_text(self) -> None:
        # Of this process: the machine may have other things to do.
        started = time.process_time()
        for filler in ("-- x\n", "--[[x]]", "{}, ", '"\\\n",', "[[\n]],", "a=1,"):
            try:
                luarpc.read_interface("interface { " + filler * (65000 // len(filler)) + "}")
            except luarpc.InterfaceError:
                pass
        self.assertLess(time.process_time() - started, 10)


class Values(unittest.TestCase):
    def refused(self, kind: str, line: bytes, word: str = "") -> None:
        """A line that has no such value."""
        with self.assertRaises(ValueError) as caught:
            lines.decode(kind, line, False, True)
        self.assertIn(word, str(caught.exception))

    def test_strings_of_all_bytes_survive_in_one_line(self) -> None:
        text = EVERY_BYTE + b'\\n\\"\\\\' + EVERY_BYTE
        line = lines.encode("string", text, "quoted")
        self.assertNotIn(b"\n", line)
        for end in (b"", b"\r"):
            self.assertEqual(lines.decode("string", line + end, False, True)[0], text)
        as_text = lines.decode("string", line, False, False)[0]
        self.assertIsInstance(as_text, str)
        self.assertEqual(lines.encode("string", as_text, "quoted"), line)

    def test_each_byte_survives_as_a_char_quoted_and_bare(self) -> None:
        for chars in ("quoted", "bare"):
            for byte in EVERY_BYTE:
                line = lines.encode("char", bytes([byte]), chars)
                self.assertNotIn(b"\n", line)
                for end in (b"", b"\r"):
                    self.assertEqual(lines.decode("char", line + end, False, True)[0], bytes([byte]))

    def test_lines_that_are_no_strings_and_chars_are_refused(self) -> None:
        for line in (b"", b"x", b'"', b'"x', b'x"', b'"a"b"', b'"a\\"', b'"\\t"', b"nil"):
            self.refused("string", line)
        for line in (b"", b"xy", b'""', b'"xy"', "é".encode(), b"nil"):
            self.refused("char", line)

    def test_doubles_survive(self) -> None:
        for number in (0.0, 1.0, -7.0, 0.5, 1e20, 3.1415, 0.1, 1 / 3, 5e-324, 1.7976931348623157e308, 2.0**53):
            line = lines.encode("double", number, "quoted")
            self.assertEqual(lines.decode("double", line + b"\r", False, False)[0], number)
        self.assertEqual(lines.encode("double", 3, "quoted"), b"3")
        self.assertEqual(lines.encode("double", 3.0, "quoted"), b"3")
        self.assertEqual(math.copysign(1, lines.decode("double", b"-0.0", False, False)[0]), -1)
        self.assertEqual(lines.encode("double", -0.0, "quoted"), b"-0.0")
        self.assertEqual(lines.decode("double", b"1e-400", False, False)[0], 0)

    def test_numbers_that_are_none_or_out_of_range_are_refused(self) -> None:
        for line in (b"", b".", b"-", b"1e", b"e5", b"inf", b"nan", b"0x10", b"1_0", b" 1", b"1,5", "١".encode()):
            self.refused("double", line, "decimal")
        self.refused("double", b"-1e400", "-1e400 is out of the range of a double")
        self.refused("double", b"1" * 2**20, "400 bytes")
        values: Any = (math.inf, -math.inf, math.nan, 2**53 + 1, 10**400)
        for value in values:
            with self.assertRaises(ValueError):
                lines.encode("double", value, "quoted")
        for value in ("1", True, None, 1j):
            with self.assertRaises(TypeError):
                lines.encode("double", value, "quoted")

    def test_texts_that_utf8_does_not_have_are_refused(self) -> None:
        with self.assertRaisesRegex(ValueError, "UTF-8"):
            lines.encode("string", "a\ud800", "quoted")

    def test_lines_come_in_any_pieces_and_the_long_one_is_refused(self) -> None:
        text = b"ab\n\nlonger one\nx\n"
        for size in range(1, 13):
            reader = lines.Reader(10)
            found = []
            for at in range(0, len(text), size):
                reader.feed(text[at : at + size])
                line = reader.line()
                while line is not None:
                    found.append(line)
                    line = reader.line()
            self.assertEqual(found, [b"ab", b"", b"longer one", b"x"])
        for end in (b"", b"\n"):
            reader = lines.Reader(10)
            reader.feed(b"12345678901" + end)
            with self.assertRaisesRegex(lines.LineTooLong, "10 bytes"):
                reader.line()


class Options(unittest.TestCase):
    def test_wrong_options_and_ports_are_named(self) -> None:
        wrong: Any = {
            "profile": "open", "timeout": 0, "line_bytes": "x", "chars": "odd",
        }
        for key, value in wrong.items():
            with self.assertRaisesRegex(ValueError, key):
                luarpc.proxy("127.0.0.1", 8080, FOO, **{key: value})
        for pool in (0, 513, 1.5, True):
            with self.assertRaisesRegex(ValueError, "pool"):
                luarpc.Server({}, "interface { methods = {} }", pool=pool)  # type: ignore[arg-type]
        ports: Any = (0, 65536, 1.5, "x", -1, None)
        for port in ports:
            with self.assertRaisesRegex(ValueError, "port"):
                luarpc.proxy("127.0.0.1", port, FOO)
        with self.assertRaisesRegex(ValueError, "connected"):
            luarpc.proxy("127.0.0.1", 1, FOO, profile="close", connected=print)

    def test_an_object_without_a_function_is_refused(self) -> None:
        with self.assertRaisesRegex(luarpc.InterfaceError, "foo"):
            luarpc.Server({"boo": print}, FOO)


if __name__ == "__main__":
    unittest.main()
