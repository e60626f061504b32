"""The commands of `python -m towline`: what they take, and how they end.

Exit codes and the JSON of failures are those of the program `towline` (docs/exit-codes.md). Results go to
standard output, everything else to standard error.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NoReturn, cast

from .. import __version__
from . import _bench, _cert, _echo, _serve
from ._failures import Exit, Failure, failure_of
from ._printer import Printer

__all__ = ["main"]

_CODES = """\
exit codes:
  0 done                           4 certificate or TLS failure   7 data not whole
  1 another failure                5 the peer broke the protocol  130 interrupted
  2 wrong usage or configuration   6 the other side went silent
  3 cannot resolve or connect
"""

Command = Callable[[argparse.Namespace, Printer], Exit]
AsyncCommand = Callable[[argparse.Namespace, Printer], Coroutine[Any, Any, Exit]]


class _Parser(argparse.ArgumentParser):
    """Wrong usage is a failure like others, so that `--json` has it too."""

    def error(self, message: str) -> NoReturn:
        raise Failure(Exit.USAGE, message, f"{self.prog} --help")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command, by default that of the command line, and returns its exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    # Asked here, since a mistake is found before all arguments are read.
    printer = Printer(json="--json" in words)
    try:
        given = _parser().parse_args(words)
        return cast(Command, given.run)(given, printer)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except Exception as error:
        failure = failure_of(error)
        if failure is None:
            # Ours: nothing but where it happened helps whoever mends it.
            raise
        printer.failure(failure)
        return failure.exit
    finally:
        printer.end()


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m towline",
        description="WebTransport from the command line.",
        epilog=_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"towline {__version__} (Python)")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    common = _Parser(add_help=False)
    common.add_argument("--json", action="store_true", help="results as JSON, an object a line")
    loops = _Parser(add_help=False)
    loops.add_argument("--uvloop", action="store_true", help="run on uvloop's event loop")

    serve = commands.add_parser(
        "serve",
        parents=[common, loops],
        help="sends everything back; its paths /upload, /download and /datagrams are for bench",
    )
    _serve.add_arguments(serve)
    serve.set_defaults(run=_in_loop(_serve.run))
    echo = commands.add_parser(
        "echo", parents=[common, loops], help="round trips with a server that echoes"
    )
    _echo.add_arguments(echo)
    echo.set_defaults(run=_in_loop(_echo.run))
    bench = commands.add_parser(
        "bench",
        parents=[common, loops],
        help="round trips, throughput both ways and datagrams with `serve`",
    )
    _bench.add_arguments(bench)
    bench.set_defaults(run=_in_loop(_bench.run))
    _cert.add_commands(
        commands.add_parser("cert", help="makes, shows and hashes certificates"), common
    )
    return parser


def _in_loop(command: AsyncCommand) -> Command:
    """The command in an event loop that SIGTERM ends as Ctrl-C does."""

    def run(given: argparse.Namespace, printer: Printer) -> Exit:
        terminated = False

        async def main() -> Exit:
            task = asyncio.current_task()
            assert task is not None

            def terminate() -> None:
                nonlocal terminated
                terminated = True
                task.cancel()

            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGTERM, terminate)
            try:
                return await command(given, printer)
            finally:
                loop.remove_signal_handler(signal.SIGTERM)

        with asyncio.Runner(loop_factory=_loop_factory(given.uvloop)) as runner:
            try:
                return runner.run(main())
            except asyncio.CancelledError:
                if terminated:
                    return Exit.INTERRUPTED
                raise

    return run


def _loop_factory(fast: bool) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if not fast:
        return None
    try:
        import uvloop
    except ImportError:
        words = "--uvloop: uvloop is not installed"
        raise Failure(Exit.USAGE, words, "pip install uvloop, or leave --uvloop out") from None
    return cast(Callable[[], asyncio.AbstractEventLoop], uvloop.new_event_loop)
