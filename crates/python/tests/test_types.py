"""The types that come with the package are those of what is there."""

import ast
import importlib.resources
import inspect

from vazao import _vazao


def declared(text):
    """Classes of a stub, with the names in them."""
    names = {}
    for one in ast.parse(text).body:
        if isinstance(one, ast.ClassDef):
            functions = {member.name for member in one.body if isinstance(member, ast.FunctionDef)}
            fields = {member.target.id for member in one.body if isinstance(member, ast.AnnAssign)}
            names[one.name] = functions | fields
    return names


def test_the_stub_has_what_the_extension_module_has():
    stub = declared(importlib.resources.files("vazao").joinpath("_vazao.pyi").read_text())
    classes = {name: one for name, one in vars(_vazao).items() if inspect.isclass(one)}
    assert classes.keys() == stub.keys()
    for name, one in classes.items():
        there = {member for member in vars(one) if not member.startswith("__")}
        assert there == {member for member in stub[name] if not member.startswith("__")}, name


def test_the_package_is_marked_as_typed():
    assert importlib.resources.files("vazao").joinpath("py.typed").is_file()
