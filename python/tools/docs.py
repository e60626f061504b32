"""Writes docs/python/api.md from the docstrings, and puts examples into the pages beside it.

    python python/tools/docs.py           writes
    python python/tools/docs.py --check   ends with 1 if that would change a file

The source is read, not imported: the page is the same on every machine. A page has an example by

    <!-- include examples/python/NAME.py: FUNCTION, FUNCTION -->

and what follows up to `<!-- end -->` is replaced; without functions it is the whole program. After
`<!-- index -->` the other pages of docs/python are listed, each with its first sentence.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["outdated", "pages", "public_items"]

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "towline"
API = ROOT / "docs" / "python" / "api.md"
_INCLUDE = re.compile(r"(<!-- include (\S+?)(?:: (.*?))? -->\n).*?(<!-- end -->)", re.DOTALL)

_INDEX = re.compile(r"(<!-- index -->\n).*?(<!-- end -->)", re.DOTALL)

Function = ast.FunctionDef | ast.AsyncFunctionDef
_HIDDEN = ("__init__", "__slots__", "__all__", "__repr__")


class _Module:
    """A module's names, and where those that it imports come from."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.tree = ast.parse(path.read_text("utf-8"))
        self.defined: dict[str, tuple[ast.stmt, str | None]] = {}
        self.imported: dict[str, tuple[str, str]] = {}
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for statement, text in _documented(self.tree.body):
            match statement:
                case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                    self.defined[statement.name] = statement, text
                case ast.Assign(targets=[ast.Name(id=target)]):
                    self.defined[target] = statement, text
                case ast.AnnAssign(target=ast.Name(id=target)):
                    self.defined[target] = statement, text
                case ast.ImportFrom(level=level, module=module) if level:
                    base = package.split(".")[: len(package.split(".")) - level + 1]
                    source = ".".join([*base, *([module] if module else [])])
                    for alias in statement.names:
                        self.imported[alias.asname or alias.name] = source, alias.name

    def public(self) -> list[str]:
        """The names in `__all__`."""
        statement, _ = self.defined.get("__all__", (None, None))
        match statement:
            case ast.Assign(value=value) | ast.AnnAssign(value=value) if value is not None:
                names = ast.literal_eval(value)
                return sorted(names, key=str.casefold)
        return []


def _documented(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, str | None]]:
    """Statements, each with the docstring that belongs to it."""
    for statement, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield statement, ast.get_docstring(statement)
            continue
        match after:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield statement, inspect.cleandoc(text)
            case _:
                yield statement, None


def _modules() -> dict[str, _Module]:
    modules: dict[str, _Module] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = list(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        if parts[-1] == "__init__":
            parts.pop()
        name = ".".join(parts)
        modules[name] = _Module(name, path)
    return modules


def _find(modules: dict[str, _Module], module: str, name: str) -> tuple[_Module, ast.stmt | None]:
    """Where a name is defined, whoever passes it on."""
    here = modules[module]
    while name in here.imported and name not in here.defined:
        source, name = here.imported[name]
        if source not in modules or f"{source}.{name}" in modules:
            # Somebody else's, or a module, which has a page of its own.
            return here, None
        here = modules[source]
    return here, here.defined.get(name, (None, None))[0]


def public_items() -> Iterator[tuple[str, str | None]]:
    """Every public name, with its docstring."""
    modules = _modules()
    for module in modules.values():
        if _is_public(module.name):
            yield module.name, ast.get_docstring(module.tree)
            for name in module.public():
                yield from _items(modules, module.name, name)


def _items(
    modules: dict[str, _Module], module: str, name: str
) -> Iterator[tuple[str, str | None]]:
    here, statement = _find(modules, module, name)
    full = f"{module}.{name}"
    if statement is None:
        return
    yield full, here.defined[_name_of(statement)][1]
    if isinstance(statement, ast.ClassDef):
        for member, node, text in _members(modules, here, statement):
            if not member.startswith("__") and isinstance(node, Function):
                yield f"{full}.{member}", text


def _is_overload(function: Function) -> bool:
    """Whether it says a type, and another with its name is what runs."""
    names = (one.id for one in function.decorator_list if isinstance(one, ast.Name))
    return "overload" in names


def _name_of(statement: ast.stmt) -> str:
    match statement:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return statement.name
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
    raise ValueError(ast.dump(statement))


def _is_public(module: str) -> bool:
    return not any(part.startswith("_") for part in module.split("."))


def _members(
    modules: dict[str, _Module], module: _Module, node: ast.ClassDef
) -> Iterator[tuple[str, ast.stmt, str | None]]:
    """A class's members, then those of its private bases; and what `__init__` documents."""
    seen: set[str] = set()
    queue = [(module, node)]
    while queue:
        here, one = queue.pop(0)
        for statement, text in _documented(one.body):
            if isinstance(statement, Function) and statement.name == "__init__":
                yield from _of_init(statement, seen)
                continue
            if isinstance(statement, Function) and _is_overload(statement):
                continue
            try:
                name = _name_of(statement)
            except ValueError:
                continue
            if name not in seen and not (name.startswith("_") and not name.startswith("__")):
                seen.add(name)
                yield name, statement, text
        for base in one.bases:
            if isinstance(base, ast.Name) and base.id.startswith("_"):
                found, statement_ = _find(modules, here.name, base.id)
                if isinstance(statement_, ast.ClassDef):
                    queue.append((found, statement_))


def _of_init(
    init: Function, seen: set[str]
) -> Iterator[tuple[str, ast.stmt, str | None]]:
    for statement, text in _documented(init.body):
        match statement:
            case (
                ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)])
                | ast.AnnAssign(target=ast.Attribute(value=ast.Name(id="self"), attr=name))
            ) if text and not name.startswith("_"):
                seen.add(name)
                yield name, statement, text


def _signature(here: _Module, node: Function, *, method: bool) -> str:
    """As a person writes it, with the values of private constants."""
    decorators = [ast.unparse(one) for one in node.decorator_list]
    given = node.args
    positional = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(given.defaults))
    shown = [
        _argument(here, argument, default)
        for argument, default in zip(positional, [*defaults, *given.defaults], strict=True)
    ]
    if method and "staticmethod" not in decorators:
        shown.pop(0)
    if given.vararg is not None:
        shown.append("*" + _argument(here, given.vararg, None))
    elif given.kwonlyargs:
        shown.append("*")
    for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        shown.append(_argument(here, argument, default))
    if given.kwarg is not None:
        shown.append("**" + _argument(here, given.kwarg, None))
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    prefix = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    if "classmethod" in decorators:
        prefix = "classmethod " + prefix
    return f"{prefix}{node.name}({', '.join(shown)}){returns}"


def _argument(here: _Module, argument: ast.arg, default: ast.expr | None) -> str:
    shown = argument.arg
    if argument.annotation is not None:
        shown += f": {ast.unparse(argument.annotation)}"
    if default is None:
        return shown
    if isinstance(default, ast.Name):
        match here.defined.get(default.id, (None, None))[0]:
            case ast.Assign(value=value):
                default = value
    between = " = " if argument.annotation is not None else "="
    return f"{shown}{between}{ast.unparse(default)}"


def _class_of(modules: dict[str, _Module], here: _Module, node: ast.ClassDef) -> Iterator[str]:
    for name, statement, text in _members(modules, here, node):
        if name in _HIDDEN:
            continue
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                decorators = [ast.unparse(one) for one in statement.decorator_list]
                if name.startswith("__") and text is None:
                    continue
                if "property" in decorators:
                    returns = ast.unparse(statement.returns) if statement.returns else ""
                    yield f"#### `{name}: {returns}`"
                else:
                    yield f"#### `{_signature(here, statement, method=True)}`"
            case ast.AnnAssign(annotation=annotation):
                yield f"#### `{name}: {ast.unparse(annotation)}`"
            case _:
                yield f"#### `{name}`"
        yield from _text(text)


def _text(text: str | None) -> Iterator[str]:
    yield ""
    if text:
        yield text
        yield ""


def _of_module(modules: dict[str, _Module], module: _Module) -> Iterator[str]:
    yield f"## `{module.name}`"
    yield from _text(ast.get_docstring(module.tree))
    for name in module.public():
        here, statement = _find(modules, module.name, name)
        text = None if statement is None else here.defined[_name_of(statement)][1]
        match statement:
            case ast.ClassDef(bases=bases):
                shown = [ast.unparse(base) for base in bases]
                shown = [base for base in shown if not base.startswith(("_", "Generic["))]
                after = f"({', '.join(shown)})" if shown else ""
                yield f"### `class {name}{after}`"
                yield from _text(text)
                yield from _class_of(modules, here, statement)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield f"### `{_signature(here, statement, method=False)}`"
                yield from _text(text)
            case ast.Assign(value=value) | ast.AnnAssign(value=value) if value is not None:
                yield f"### `{name} = {ast.unparse(value)}`"
                yield from _text(text)
            case _:
                yield f"### `{name}`"
                yield ""


def _api() -> str:
    modules = _modules()
    shown = [module for module in modules.values() if _is_public(module.name) and module.public()]
    lines = [
        "# API",
        "",
        "<!-- Written by python/tools/docs.py from the docstrings; a test compares. -->",
        "",
        "Every public name of the package, by module. How they are used is in the [other pages](README.md).",
        "",
    ]
    for module in shown:
        summary = (ast.get_docstring(module.tree) or "").partition("\n")[0]
        anchor = module.name.replace(".", "")
        lines.append(f"- [`{module.name}`](#{anchor}): {summary}")
    lines.append("")
    for module in shown:
        lines.extend(_of_module(modules, module))
    return "\n".join(lines).rstrip() + "\n"


def _included(path: str, names: str | None) -> str:
    source = (ROOT / path).read_text("utf-8")
    if names:
        wanted = [name.strip() for name in names.split(",")]
        found = {
            node.name: ast.get_source_segment(source, node)
            for node in ast.parse(source).body
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        }
        missing = [name for name in wanted if name not in found]
        if missing:
            raise SystemExit(f"{path} has no {', '.join(missing)}")
        source = "\n\n\n".join(str(found[name]) for name in wanted) + "\n"
    return f"```python\n{source}```\n"


def _index(besides: Path) -> str:
    """A line for each page but this one."""
    lines: list[str] = []
    for page in sorted(API.parent.glob("*.md")):
        if page != besides:
            text = page.read_text("utf-8") if page != API else _api()
            paragraphs = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL).split("\n\n")
            title = paragraphs[0].removeprefix("# ").strip()
            others = ("```", "|", "#", "!", "<", "- ")
            stripped = [one.strip() for one in paragraphs[1:]]
            prose = [one for one in stripped if one and not one.startswith(others)]
            first = re.split(r"(?<=[.:])\s", prose[0], maxsplit=1)[0] if prose else ""
            first = " ".join(first.split()).rstrip(":.")
            lines.append(f"- [{title}]({page.name}): {first}.")
    return "\n".join(lines) + "\n"


def _filled(page: Path, text: str) -> str:
    """The text with its examples, and with the index of the other pages."""
    index = _index(page)

    def with_example(match: re.Match[str]) -> str:
        return match[1] + _included(match[2], match[3]) + match[4]

    def with_index(match: re.Match[str]) -> str:
        return match[1] + index + match[2]

    return _INDEX.sub(with_index, _INCLUDE.sub(with_example, text))


def pages() -> dict[Path, str]:
    """What each page should be."""
    written = {API: _api()}
    for page in [*sorted(API.parent.glob("*.md")), ROOT / "python" / "README.md"]:
        if page != API:
            written[page] = _filled(page, page.read_text("utf-8"))
    return written


def outdated() -> list[Path]:
    """The pages that are not what they should be."""
    return [
        page
        for page, text in pages().items()
        if not page.exists() or page.read_text("utf-8") != text
    ]


def main(arguments: list[str]) -> int:
    """Writes the pages, or says which are out of date."""
    late = outdated()
    for page in late:
        print(f"{page.relative_to(ROOT)}: {'out of date' if arguments else 'written'}")
    if arguments:
        return 1 if late else 0
    for page, text in pages().items():
        if page in late:
            page.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
