"""What the WebTransport drivers in Python have in common; src/lib.rs is the same for Rust.

It knows no stack and opens no socket. ../README.md states the contract in words.
"""

import asyncio
import os
import socket
import struct
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

PATIENCE = 15
"""Seconds after which a client gives a case up."""
PARTING = 0.3
"""Seconds for what was closed to leave."""
TRANSFER = 1 << 20
"""Bytes that a stream carries there and back."""
DATAGRAMS = 1000
WINDOW = 16
DATAGRAM = 100

SERVER_CLOSE = (4712, "goodbye")
CLIENT_CLOSE = (4711, "see you")


class Skipped(Exception):
    """This stack cannot do its part in the case; the text says why."""


def pattern() -> bytes:
    """Bytes in which blocks differ from each other."""
    return bytes((i ^ (i >> 8) * 7 ^ (i >> 16) * 31) & 0xFF for i in range(TRANSFER))


def compare(data: bytes) -> str:
    """Whether what came back on a stream is what was sent; says how much it was."""
    if data != pattern():
        raise RuntimeError(f"other bytes came back, {len(data)} of them")
    return f"{len(data)} bytes"


def server_closed(closed: object) -> str:
    """Whether the server's close has its code and its reason."""
    if closed != SERVER_CLOSE:
        raise RuntimeError(f"the server's close was: {closed}")
    return ""


class Datagrams:
    """The datagrams of one session: which have been sent, and which came back."""

    def __init__(self) -> None:
        self.sent = 0
        self.back: set[int] = set()

    def next_to_send(self) -> bytes | None:
        """None while enough are on their way."""
        if self.sent == DATAGRAMS or self.sent - len(self.back) >= WINDOW:
            return None
        self.sent += 1
        return struct.pack("!I", self.sent - 1).ljust(DATAGRAM, b".")

    def came_back(self, datagram: bytes) -> None:
        number = struct.unpack("!I", datagram[:4])[0]
        whole = datagram[4:] == b"." * (DATAGRAM - 4)
        if not whole or number >= self.sent:
            raise RuntimeError("another datagram came back")
        self.back.add(number)

    def all_back(self) -> str | None:
        return f"{DATAGRAMS} of {DATAGRAMS}" if len(self.back) == DATAGRAMS else None


def skip(case: str, why: str) -> None:
    """Says, before a server listens, that this stack cannot do its part in a case."""
    print(case, "skipped", why, flush=True)


def free_port() -> int:
    """For stacks that want to be told their port; nobody else takes it in the time they need."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listening(address: tuple) -> None:
    print(f"listening {address[0]}:{address[1]}", flush=True)


def session_closed(code: int, reason: str) -> None:
    """A server says how its client closed a session."""
    print("closed", code, reason, flush=True)


async def run_cases(*cases: Callable[[], Awaitable[str]]) -> None:
    """Runs a client's cases, named as the functions are, and prints what came of each."""
    for case in cases:
        name = case.__name__.replace("_", "-")
        try:
            detail = await asyncio.wait_for(case(), PATIENCE)
            print(name, "ok", detail, flush=True)
        except Skipped as why:
            print(name, "skipped", why, flush=True)
        except TimeoutError:
            print(name, f"failed no end within {PATIENCE} s", flush=True)
        except Exception as error:
            print(name, "failed", " ".join(repr(error).split()), flush=True)


def exit_with_input() -> None:
    """Ends the process when the standard input closes: so the runner asks a server for its end."""

    def wait() -> None:
        sys.stdin.read()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def main(
    serve: Callable[[Path], Awaitable[None]],
    run_client: Callable[[Path, str, int], Awaitable[None]],
) -> int:
    match sys.argv[1:]:
        case ["server", folder]:
            asyncio.run(serve(Path(folder)))
        case ["client", folder, address]:
            host, port = address.rsplit(":", 1)
            asyncio.run(run_client(Path(folder), host, int(port)))
        case _:
            print("usage: driver.py server FOLDER | client FOLDER ADDR", file=sys.stderr)
            return 2
    return 0
