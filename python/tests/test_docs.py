"""What the docs and the docstrings say is so: examples run, pages are up to date, links lead somewhere."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import importlib.util
import inspect
import io
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import towline
import towline.sync
from conftest import CERTIFICATE, echo

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "python" / "README.md", *sorted((ROOT / "docs" / "python").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PRINTED = re.compile(r"print\(.*\)  # (.*)")


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs", ROOT / "python" / "tools" / "docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def examples() -> Iterator[tuple[str, str]]:
    """The blocks of Python in the docstrings of the package."""
    for path in sorted((ROOT / "python" / "towline").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                for block in BLOCK.findall(ast.get_docstring(node) or ""):
                    yield f"{path.stem}.{getattr(node, 'name', '')}", block


async def everything(session: towline.Session) -> None:
    async def datagrams() -> None:
        async for datagram in session.datagrams:
            session.datagrams.send(datagram)

    async def one_way() -> None:
        async for stream in session.incoming_unidirectional_streams:
            async with stream, await session.create_unidirectional_stream() as back:
                async for chunk in stream.chunks():
                    await back.write(chunk)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(datagrams())
        tasks.create_task(one_way())
        await echo(session)


async def execute(code: str) -> str:
    """What a block prints that finds a server, a session and a stream, on which everything comes back."""
    out = io.StringIO()
    async with towline.serve(
        everything, "127.0.0.1", certificate=CERTIFICATE, protocols=["chat.v2"]
    ) as server:
        async with towline.connect(server.url, pins=[CERTIFICATE]) as session:
            names = {
                "asyncio": asyncio,
                "towline": towline,
                "certificate": CERTIFICATE,
                "url": server.url,
                "pin": CERTIFICATE.sha256,
                "session": session,
            }
            if re.search(r"\bstream\.", code) and "as stream" not in code:
                names["stream"] = await session.create_bidirectional_stream()
            compiled = compile(code, "docstring", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            with contextlib.redirect_stdout(out):
                if "towline.sync" in code:
                    await asyncio.to_thread(eval, compiled, names)
                else:
                    result = eval(compiled, names)
                    if inspect.iscoroutine(result):
                        await result
    return out.getvalue()


@pytest.mark.keeps_thread
@pytest.mark.parametrize("where, code", list(examples()))
def test_an_example_of_a_docstring_prints_what_it_says(where, code):
    printed = asyncio.run(asyncio.wait_for(execute(code), 30)).splitlines()
    for expected in PRINTED.findall(code):
        assert expected in printed, printed


def test_there_are_examples_of_what_matters():
    found = {where.rpartition(".")[2] for where, _ in examples()}
    assert {"connect", "serve", "Session", "Datagrams", "BidirectionalStream"} <= found


def test_the_pages_are_what_their_sources_make_of_them():
    late = [str(page.relative_to(ROOT)) for page in tool().outdated()]
    assert not late, f"python python/tools/docs.py writes {late}"


def test_every_public_item_has_a_docstring():
    without = [name for name, text in tool().public_items() if not text]
    assert not without


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_the_code_of_a_page_is_python(page):
    for block in BLOCK.findall(page.read_text("utf-8")):
        compile(textwrap.dedent(block), page.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_the_links_of_a_page_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if not link.startswith(("http://", "https://")):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"
