"""What is said of a program in virtual time that does not come to its end."""

from __future__ import annotations

import asyncio
import linecache
import os
import types

from .._errors import TowlineError

__all__ = ["Deadlock", "SimulationError", "TimeLimit", "waiting_tasks"]

# Tasks that are told of, and calls of each.
_MOST_TASKS = 20
_MOST_CALLS = 12


class SimulationError(TowlineError, RuntimeError):
    """A program in virtual time does not come to its end. The words say which tasks wait where."""


class Deadlock(SimulationError):
    """Nothing can happen any more: no timer is set, nothing is on its way, the program waits."""


class TimeLimit(SimulationError):
    """The program was not done within its limit of virtual time."""


def waiting_tasks(loop: asyncio.AbstractEventLoop) -> str:
    """Which tasks wait, and where: a task a line, and the calls it is in below."""
    tasks = sorted(asyncio.all_tasks(loop), key=_order)
    if not tasks:
        return "no task waits"
    lines: list[str] = []
    for task in tasks[:_MOST_TASKS]:
        lines.append(f"  task '{task.get_name()}' waits in")
        lines.extend(f"    {call}" for call in _calls(task.get_coro()))
    if len(tasks) > _MOST_TASKS:
        lines.append(f"  and {len(tasks) - _MOST_TASKS} tasks more")
    return "\n".join(lines)


def _order(task: asyncio.Task[object]) -> int:
    # In a virtual loop the order in which they were made.
    return hash(task)


def _calls(coroutine: object) -> list[str]:
    """The calls that a coroutine is in, the outermost first."""
    calls: list[str] = []
    while coroutine is not None:
        frame, coroutine = _step(coroutine)
        if frame is not None:
            calls.append(_described(frame))
    if len(calls) > _MOST_CALLS:
        half = _MOST_CALLS // 2
        calls[half:-half] = [f"… {len(calls) - _MOST_CALLS} calls between"]
    return calls or ["a call without a frame"]


def _step(awaited: object) -> tuple[types.FrameType | None, object]:
    if isinstance(awaited, types.CoroutineType):
        return awaited.cr_frame, awaited.cr_await
    if isinstance(awaited, types.GeneratorType):
        return awaited.gi_frame, awaited.gi_yieldfrom
    if isinstance(awaited, types.AsyncGeneratorType):
        return awaited.ag_frame, awaited.ag_await
    return None, None


def _described(frame: types.FrameType) -> str:
    path, line = frame.f_code.co_filename, frame.f_lineno
    code = linecache.getline(path, line).strip()
    place = f"{_short(path)}:{line} in {frame.f_code.co_qualname}"
    return f"{place}: {code}" if code else place


def _short(path: str) -> str:
    here = os.getcwd() + os.sep
    if path.startswith(here):
        return path[len(here) :]
    return os.sep.join(path.split(os.sep)[-2:])
