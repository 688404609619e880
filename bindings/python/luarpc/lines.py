"""Values as they stand on a line, and the lines of a connection."""

from __future__ import annotations

import re
from typing import Any, Optional, Tuple, Union

RPC_ERROR = b"___ERRORPC: "

#: More than ``%f`` makes of the largest double.
NUMBER_BYTES_MAX = 400

DECIMAL = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
ESCAPED = re.compile(rb'[\\"\n]')
ESCAPE = re.compile(rb'\\([\\"n])')
READ = {b"\\": b"\\", b'"': b'"', b"n": b"\n"}
WRITTEN = {b"\\": b"\\\\", b'"': b'\\"', b"\n": b"\\n"}
NOT_PRINTABLE = re.compile(rb"[^ -~]")


class ValueProblem(ValueError):
    """A value that does not fit its type; the caller adds the place."""


class TypeProblem(TypeError):
    """A value of another type; the caller adds the place."""


def shown(line: bytes) -> str:
    """Bytes of the peer as they may stand in a message."""
    text = NOT_PRINTABLE.sub(b"?", line[:40]).decode("ascii")
    return text + "…" if len(line) > 40 else text


def quote(content: bytes) -> bytes:
    """A string as it travels."""
    return b'"' + ESCAPED.sub(lambda found: WRITTEN[found[0]], content) + b'"'


def unquote(line: bytes) -> bytes:
    """The string that a line has."""
    if len(line) < 2 or line[:1] != b'"' or line[-1:] != b'"':
        raise ValueProblem(f"{shown(line)} is not in double quotes")
    inner = line[1:-1]
    if b"\\" not in inner and b'"' not in inner:
        return inner
    rest = ESCAPE.sub(b"", inner)
    if b"\\" in rest or b'"' in rest:
        raise ValueProblem(f'{shown(line)} has a " or \\ without a \\ before it')
    return ESCAPE.sub(lambda found: READ[found[1]], inner)


def stripped(line: bytes) -> bytes:
    """Without the \\r of peers that end lines with \\r\\n."""
    return line[:-1] if line.endswith(b"\r") else line


def error_of(line: bytes) -> Optional[str]:
    """The text of an error that stands in the place of a result, bare or quoted."""
    if not line.startswith((b"___ERRORPC:", b'"___ERRORPC:')):
        return None
    line = stripped(line)
    if line.startswith(b'"'):
        try:
            line = unquote(line)
        except ValueProblem:
            line = line[1:]
    return re.sub(rb"^___ERRORPC: ?", b"", line).decode("utf-8", "replace")


def bytes_of(value: Any, what: str) -> bytes:
    """A str or bytes as bytes."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if not isinstance(value, str):
        raise TypeProblem(f"{type(value).__name__} where a {what} is expected")
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ValueProblem(f"a character that UTF-8 does not have, at {error.start}") from None


def encode_double(value: Any) -> bytes:
    """A number as it travels: the shortest text that is exact."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeProblem(f"{type(value).__name__} where a double is expected")
    try:
        number = float(value)
    except OverflowError:
        raise ValueProblem("an integer out of the range of a double; send it as a string") from None
    if isinstance(value, int) and int(number) != value:
        raise ValueProblem(f"the integer {value} does not fit a double; send it as a string")
    if number != number or number in (float("inf"), float("-inf")):
        raise ValueProblem("a number that is not finite cannot be sent")
    text = repr(number)
    return (text[:-2] if text.endswith(".0") and text != "-0.0" else text).encode("ascii")


def decode_double(line: bytes) -> float:
    """The number that a line has."""
    if len(line) > NUMBER_BYTES_MAX:
        raise ValueProblem(f"a number of more than {NUMBER_BYTES_MAX} bytes")
    if DECIMAL.fullmatch(line) is None:
        raise ValueProblem(f"{shown(line)} is no decimal number")
    number = float(line)
    if number in (float("inf"), float("-inf")):
        raise ValueProblem(f"{shown(line)} is out of the range of a double")
    return number


def encode(kind: str, value: Any, chars: str) -> bytes:
    """A value as a line without its end; ``chars`` is "quoted" or "bare"."""
    if kind == "double":
        return encode_double(value)
    if kind == "void":
        return b"nil"
    content = bytes_of(value, kind)
    if kind == "string":
        return quote(content)
    if len(content) != 1:
        raise ValueProblem(f"{len(content)} bytes where a char, one byte, is expected")
    # Bare, these three would end the line, be lost with it or look like the beginning of a string.
    return content if chars == "bare" and content not in (b"\n", b"\r", b'"') else quote(content)


def decode(kind: str, line: bytes, optional: bool, binary: bool) -> Tuple[Any, Optional[str]]:
    """The value that a line has, and how a char was written. Where it is ``optional`` a line may be ``nil``."""
    if kind == "void":
        return None, None
    if kind == "char" and len(line) == 1:
        return content_of(line, binary), "bare"
    line = stripped(line)
    if kind == "char" and len(line) == 1:
        return content_of(line, binary), "bare"
    if line == b"nil" and optional:
        return None, None
    if kind == "double":
        return decode_double(line), None
    if kind == "string":
        return content_of(unquote(line), binary), None
    try:
        # Some peers quote a char without escaping it.
        is_short = len(line) == 3 and line[:1] == line[2:] == b'"'
        content = line[1:2] if is_short else unquote(line)
    except ValueProblem:
        content = b""
    if len(content) != 1:
        raise ValueProblem(f"{shown(line)} is no char: one byte, bare or in double quotes")
    return content_of(content, binary), "quoted"


def content_of(content: bytes, binary: bool) -> Union[str, bytes]:
    """A string as the program has it: bytes that are not UTF-8 survive in a str, too."""
    return content if binary else content.decode("utf-8", "surrogateescape")


class LineTooLong(ValueError):
    """A line that is longer than ``line_bytes``."""


class Reader:
    """Bytes that have come and have not been taken as lines."""

    def __init__(self, line_bytes: int) -> None:
        self.line_bytes = line_bytes
        self.data = bytearray()
        self.searched = 0

    def feed(self, data: bytes) -> None:
        """Adds what has come."""
        self.data += data

    def has_rest(self) -> bool:
        """Whether bytes have come that no line has taken."""
        return bool(self.data)

    def line(self) -> Optional[bytes]:
        """The next line without its end; None when it has not come whole."""
        end = self.data.find(b"\n", self.searched)
        if (len(self.data) if end < 0 else end) > self.line_bytes:
            raise LineTooLong(f"a line is longer than {self.line_bytes} bytes (option line_bytes)")
        if end < 0:
            self.searched = len(self.data)
            return None
        line = bytes(self.data[:end])
        del self.data[: end + 1]
        self.searched = 0
        return line
