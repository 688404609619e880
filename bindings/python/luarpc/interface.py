"""Interface files: what a server offers and a proxy has.

They look like Lua and are read as data: the word ``interface``, one table, comments. Nothing of them is ever run, so that
a file from elsewhere can do no harm.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Set, Tuple, Union

from .errors import InterfaceError

FILE_BYTES_MAX = 64 * 1024
DEPTH_MAX = 8
METHODS_MAX = 256
ARGUMENTS_MAX = 32
NAME_BYTES_MAX = 64

TYPES = {"char", "string", "double", "void"}
DIRECTIONS = {"in", "out", "inout"}

#: Ends the errors of what is a program.
DATA = "; an interface file is data and is never run"

ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
ESCAPES.update({same: same for same in "\\\"'\n"})

BLANKS = re.compile(r"[ \t\r\n\f\v]*")
LONG_BRACKET = re.compile(r"\[(=*)\[")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NUMBER = re.compile(r"-?[0-9][0-9A-Za-z_.]*")
DIGITS = re.compile(r"[0-9]{1,3}")
REST_OF_LINE = re.compile(r"[^\n]*")


@dataclass(frozen=True)
class Method:
    """A method of an interface; each type is ``char``, ``string``, ``double`` or ``void``."""

    name: str
    #: The type of its result.
    result: str
    #: Types of what is sent: its ``in`` and ``inout`` arguments.
    inputs: Tuple[str, ...]
    #: Types of what comes back after the result: its ``out`` and ``inout`` arguments.
    outputs: Tuple[str, ...]


@dataclass(frozen=True)
class Interface:
    """What :func:`read_interface` makes of a file."""

    name: Optional[str]
    #: In the order of the file.
    methods: Dict[str, Method]
    #: The file, for messages.
    place: str


#: An interface, the name of a file, or a text: a str that has a ``{`` is a text.
InterfaceSource = Union[Interface, str, "os.PathLike[str]"]


class Fields:
    """The fields of a table."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.named: Dict[str, Any] = {}
        self.lines: Dict[str, int] = {}
        self.listed: List[Any] = []


class Parser:
    """One pass over a text, one token ahead. A token is its kind and its value; the kind of a sign is the sign."""

    def __init__(self, text: str, place: str) -> None:
        self.text = text
        self.place = place
        self.at = 0
        self.line = 1
        self.ahead: Optional[Tuple[str, Any]] = None

    def fail(self, message: str) -> InterfaceError:
        """The error to raise, with the line."""
        return InterfaceError(f"{self.place}:{self.line}: {message}")

    # Tokens

    def advance(self, to: int) -> None:
        """Goes on, counting lines."""
        self.line += self.text.count("\n", self.at, to)
        self.at = to

    def long_bracket(self, at: int) -> Optional[Tuple[int, str]]:
        """The end of ``[[…]]`` or ``[==[…]==]`` that begins at ``at``, and what is in it."""
        opening = LONG_BRACKET.match(self.text, at)
        if opening is None:
            return None
        closing = f"]{opening[1]}]"
        end = self.text.find(closing, opening.end())
        if end < 0:
            raise self.fail(f"a long bracket {opening[0]} is not closed")
        content = self.text[opening.end() : end]
        return end + len(closing), re.sub(r"^\r?\n", "", content)

    def skip_blanks(self) -> None:
        """Blanks and comments."""
        while True:
            self.advance(self.end_of(BLANKS, self.at))
            if not self.text.startswith("--", self.at):
                return
            bracket = self.long_bracket(self.at + 2)
            self.advance(bracket[0] if bracket else self.end_of(REST_OF_LINE, self.at))

    def end_of(self, pattern: "re.Pattern[str]", at: int) -> int:
        """Where a pattern that matches anywhere ends."""
        found = pattern.match(self.text, at)
        return found.end() if found else at

    def quoted(self, quote: str) -> str:
        """A string in quotes."""
        parts: List[str] = []
        stop = re.compile(rf"[\\\n{quote}]")
        at = self.at + 1
        while True:
            found = stop.search(self.text, at)
            if found is None or found[0] == "\n":
                raise self.fail("a string is not closed on its line")
            parts.append(self.text[at : found.start()])
            if found[0] == quote:
                self.advance(found.end())
                return "".join(parts)
            digits = DIGITS.match(self.text, found.end())
            escape = self.text[found.end() : found.end() + 1]
            if digits is not None:
                if int(digits[0]) > 255:
                    raise self.fail(f"the escape \\{digits[0]} is above 255")
                parts.append(chr(int(digits[0])))
                at = digits.end()
            elif escape in ESCAPES:
                parts.append(ESCAPES[escape])
                at = found.end() + 1
            else:
                raise self.fail(f"the escape \\{escape} is not known here")

    def token(self) -> Tuple[str, Any]:
        """The next token."""
        self.skip_blanks()
        sign = self.text[self.at : self.at + 1]
        if not sign:
            return "end", "the end of the file"
        if sign in "\"'":
            return "string", self.quoted(sign)
        bracket = self.long_bracket(self.at)
        if bracket is not None:
            self.advance(bracket[0])
            return "string", bracket[1]
        found = NAME.match(self.text, self.at)
        if found is not None:
            self.advance(found.end())
            return "name", found[0]
        found = NUMBER.match(self.text, self.at)
        if found is not None:
            self.advance(found.end())
            return "number", found[0]
        self.advance(self.at + 1)
        return sign, sign

    def peek(self) -> Tuple[str, Any]:
        """The next token, which stays."""
        if self.ahead is None:
            self.ahead = self.token()
        return self.ahead

    def take(self) -> Tuple[str, Any]:
        """The next token."""
        found = self.peek()
        self.ahead = None
        return found

    def expect(self, kind: str, what: Optional[str] = None) -> Any:
        """The value of the next token, which has to be of this kind."""
        found, value = self.take()
        if found != kind:
            raise self.fail(f"{value} where {what or kind} is expected{DATA}")
        return value

    # Tables

    def value(self, depth: int) -> Any:
        """A value; a name that stands for one is an undefined global, which is nil."""
        kind, value = self.take()
        if kind in ("string", "number"):
            return value
        if kind == "{":
            return self.fields(depth + 1)
        if kind != "name":
            raise self.fail(f"{value} where a value is expected")
        if value in ("function", "not"):
            raise self.fail(f"{value} where a value is expected{DATA}")
        return value == "true" if value in ("true", "false") else None

    def fields(self, depth: int) -> Fields:
        """A table after its brace."""
        if depth > DEPTH_MAX:
            raise self.fail(f"tables are nested more than {DEPTH_MAX} deep")
        fields = Fields(self.line)
        while self.peek()[0] != "}":
            self.field(fields, depth)
            kind, value = self.peek()
            if kind in (",", ";"):
                self.take()
            elif kind != "}":
                raise self.fail(f"{value} where , or }} is expected{DATA}")
        self.take()
        return fields

    def field(self, fields: Fields, depth: int) -> None:
        """One field."""
        kind, key = self.peek()
        if kind == "[":
            self.take()
            key = self.expect("string", "a name in quotes")
            self.expect("]")
            self.expect("=")
        elif kind == "name":
            self.take()
            if self.take()[0] != "=":
                raise self.fail(f"{key} where a field = value or a table is expected{DATA}")
        else:
            fields.listed.append(self.value(depth))
            return
        if key in fields.lines:
            raise self.fail(f"{key} is given twice")
        line = self.line
        fields.named[key] = self.value(depth)
        fields.lines[key] = line

    # What the tables mean

    def only(self, fields: Fields, allowed: Set[str], what: str) -> None:
        """Raises for the first field that is none of ``allowed``."""
        for key, line in fields.lines.items():
            if key not in allowed:
                self.line = line
                raise self.fail(f"{what} has no field {key}")

    def word(self, fields: Fields, key: str, words: Set[str], missing: Optional[str], what: str) -> str:
        """A field that has to be one of ``words``."""
        value = fields.named.get(key)
        if value is None:
            value = missing
        if not isinstance(value, str) or value not in words:
            self.line = fields.lines.get(key, fields.line)
            shown = "a table" if isinstance(value, Fields) else "nil" if value is None else str(value)
            raise self.fail(f"{what}: {key} is {shown}; it has to be one of {', '.join(sorted(words))}")
        return value

    def method(self, name: str, fields: Any, line: int) -> Method:
        """The method that a table describes."""
        what = f"method {name[:NAME_BYTES_MAX]}"
        self.line = line
        if len(name) > NAME_BYTES_MAX or NAME.fullmatch(name) is None:
            raise self.fail(f"{what}: a name has letters, digits and _, at most {NAME_BYTES_MAX} of them")
        if not isinstance(fields, Fields):
            raise self.fail(f"{what} has to be a table")
        self.only(fields, {"resulttype", "args"}, what)
        result = self.word(fields, "resulttype", TYPES, "void", what)
        arguments = fields.named.get("args")
        if arguments is None:
            arguments = Fields(line)
        self.line = fields.lines.get("args", line)
        if not isinstance(arguments, Fields):
            raise self.fail(f"{what}: args has to be a table")
        self.only(arguments, set(), f"{what}: args")
        if len(arguments.listed) > ARGUMENTS_MAX:
            raise self.fail(f"{what} has {len(arguments.listed)} arguments; {ARGUMENTS_MAX} are the limit")
        inputs: List[str] = []
        outputs: List[str] = []
        for position, argument in enumerate(arguments.listed, 1):
            place = f"{what}, argument {position}"
            if not isinstance(argument, Fields):
                raise self.fail(f"{place} has to be a table")
            self.only(argument, {"direction", "type"}, place)
            direction = self.word(argument, "direction", DIRECTIONS, None, place)
            kind = self.word(argument, "type", TYPES, None, place)
            if direction != "out":
                inputs.append(kind)
            if direction != "in":
                outputs.append(kind)
        return Method(name, result, tuple(inputs), tuple(outputs))

    def interface(self) -> Interface:
        """The whole file."""
        if self.expect("name", "interface") != "interface":
            raise self.fail(f"the file has to begin with interface {{ … }}{DATA}")
        is_bracketed = self.peek()[0] == "("
        if is_bracketed:
            self.take()
        self.expect("{")
        fields = self.fields(1)
        if is_bracketed:
            self.expect(")")
        if self.peek()[0] == ";":
            self.take()
        self.expect("end", "the end of the file")
        self.only(fields, {"name", "methods"}, "interface")
        self.line = fields.lines.get("methods", fields.line)
        methods = fields.named.get("methods")
        if not isinstance(methods, Fields) or methods.listed:
            raise self.fail("interface has no table of named methods")
        if len(methods.named) > METHODS_MAX:
            raise self.fail(f"{len(methods.named)} methods; {METHODS_MAX} are the limit")
        read = {name: self.method(name, table, methods.lines[name]) for name, table in methods.named.items()}
        name = fields.named.get("name")
        return Interface(name if isinstance(name, str) else None, read, self.place)


def read_interface(source: InterfaceSource) -> Interface:
    """Reads an interface from a file or a text; raises :class:`InterfaceError` and, for a file, OSError."""
    if isinstance(source, Interface):
        return source
    if isinstance(source, str) and "{" in source:
        place, content = "interface", source.encode("utf-8", "surrogateescape")
    else:
        place = os.fspath(source)
        with open(place, "rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise InterfaceError(f"{place} is longer than {FILE_BYTES_MAX} bytes, the limit of interface files")
    return Parser(content.decode("utf-8", "surrogateescape"), place).interface()
