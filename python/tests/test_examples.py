"""Every program of `examples/python` runs to its end, and prints what it found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "python"
EXAMPLES = sorted(FOLDER.glob("*.py"))
# Modules that an example may lack here; pip installs them with the extra `test`.
OPTIONAL = ("starlette", "uvicorn", "msgpack", "anyio", "trio", "uvloop")


def test_there_are_examples():
    assert len(EXAMPLES) >= 5


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_to_its_end(example):
    done = subprocess.run(
        [sys.executable, "-W", "error", example],
        capture_output=True,
        text=True,
        timeout=60,
    )
    missing = [name for name in OPTIONAL if f"No module named '{name}'" in done.stderr]
    if done.returncode != 0 and missing:
        pytest.skip(f"{missing[0]} is not installed")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.strip(), "it says nothing"
