"""`python -m towline`: what its commands print, and how they end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import towline
from conftest import CERTIFICATE, Handler, echo, idle, uvloop
from towline._cli import main

COMMAND = [sys.executable, "-W", "error", "-m", "towline"]


@contextlib.contextmanager
def served(handler: Handler) -> Iterator[str]:
    """A server in a thread, and its URL with the pin."""
    started: list[str] = []
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serving() -> None:
        async with towline.serve(handler, "127.0.0.1", certificate=CERTIFICATE) as server:
            started.append(f"{server.url}/#sha256/{CERTIFICATE.sha256}")
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=[serving()])
    thread.start()
    assert ready.wait(10)
    try:
        yield started[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


@contextlib.contextmanager
def program(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """`serve` in a process, and what it said first."""
    command = [*COMMAND, "serve", "--json", "--port", "0", *arguments]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())
        finally:
            process.kill()


def records(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def failed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """How a command fails: the same in words and as JSON, and never a traceback."""
    code = main([*arguments, "--json"])
    out, err = capsys.readouterr()
    record = records(out)[-1]
    assert record["schema"] == "towline.error/1" and record["exit_code"] == code
    assert err.startswith(f"towline: {record['message']}")
    assert record["next"] is None or record["next"] in err
    assert "Traceback" not in err
    return code, err


def test_serve_echoes_measures_and_drains(capsys):
    with program() as (process, started):
        assert started["schema"] == "towline.python.listening/1"
        url = f"{started['url']}/#{started['certificate_pin']}"
        pin = started["certificate_pin"].removeprefix("sha256/")

        assert main(["echo", started["url"], "--pin", pin, "--interval", "0.01"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith("seq=0 bytes=64 rtt=") and len(lines) == 6
        assert "4 sent, 4 received, 0.0 % loss" in lines[4]

        message = ["--size", "300000", "--count", "1"]
        assert main(["echo", url, "--json", *message]) == 0
        reply, summary = records(capsys.readouterr().out)
        assert reply["bytes"] == 300000 and summary["received"] == 1

        assert main(["echo", url, "--datagram", "--json", "--count", "2"]) == 0
        assert records(capsys.readouterr().out)[-1]["over"] == "datagram"

        assert main(["bench", url, "--json", "--seconds", "0.2"]) == 0
        (bench,) = records(capsys.readouterr().out)
        assert bench["loop"] == "asyncio"
        assert bench["round_trips"]["count"] > 0
        assert 0 < bench["round_trips"]["rtt_min"] <= bench["round_trips"]["rtt_p99"]
        for way in ("upload", "download"):
            assert bench[way]["bytes"] > 0 and bench[way]["bits_per_second"] > 0
        assert 0 < bench["datagrams"]["received"] <= bench["datagrams"]["sent"]

        assert main(["bench", url, "--only", "datagrams", "--seconds", "0.1"]) == 0
        (line,) = capsys.readouterr().out.splitlines()
        assert line.startswith("datagrams") and "lost" in line

        async def last_client() -> None:
            async with towline.connect(started["url"], pins=[pin]) as session:
                process.send_signal(signal.SIGTERM)
                await asyncio.wait_for(session.draining, 20)
                stream = await session.create_bidirectional_stream()
                async with stream:
                    await stream.write(b"the last words")
                    stream.finish()
                    assert await stream.read() == b"the last words"
                one_way = await session.create_unidirectional_stream()
                async with one_way:
                    await one_way.write(b"one way")
                back = await anext(session.incoming_unidirectional_streams)
                assert await back.read() == b"one way"

        asyncio.run(last_client())
        out, err = process.communicate(timeout=20)
        assert (process.returncode, out, err) == (130, "", "")


@pytest.mark.skipif(uvloop is None, reason="uvloop is not installed")
def test_uvloop_and_ctrl_c(capsys):
    with program("--uvloop", "--host", "", "--protocol", "echo") as (process, started):
        url = f"{started['url']}/#{started['certificate_pin']}"
        only = ["--only", "round-trips", "--seconds", "0.1"]
        assert main(["bench", url, "--uvloop", "--json", *only]) == 0
        (bench,) = records(capsys.readouterr().out)
        assert bench["loop"] == "uvloop" and bench["upload"] is None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
        assert process.returncode == 130
        assert err == "towline: waits for the clients to end; once more stops at once\n"


def test_uvloop_that_is_missing(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvloop", None)
    code, err = failed(capsys, "echo", "https://localhost", "--uvloop")
    assert code == 2 and "pip install uvloop" in err


def test_a_certificate_is_made_shown_hashed_and_served(capsys, tmp_path):
    folder = str(tmp_path / "new")
    assert main(["cert", "generate", "localhost", "127.0.0.1", "--out", folder, "--json"]) == 0
    (made,) = records(capsys.readouterr().out)
    chain, key = made["certificate_file"], made["key_file"]
    assert stat.S_IMODE(os.stat(key).st_mode) == 0o600
    pin = made["certificate_pin"].removeprefix("sha256/")
    assert towline.Certificate.load(chain, key).sha256 == pin

    assert main(["cert", "hash", chain]) == 0
    assert capsys.readouterr().out == pin + "\n"
    assert main(["cert", "hash", chain, "--key"]) == 0
    key_pin = capsys.readouterr().out.strip()
    assert len(key_pin) == 64 and key_pin != pin
    assert main(["cert", "show", chain]) == 0
    shown = capsys.readouterr().out
    assert pin in shown and key_pin in shown and "UTC" in shown
    assert main(["cert", "show", chain, "--json"]) == 0
    (shown,) = records(capsys.readouterr().out)
    assert shown["expires"] == made["expires"] and shown["begins"] < shown["expires"]

    code, err = failed(capsys, "cert", "generate", "--out", folder)
    assert code == 1 and "--force" in err and chain in err
    assert main(["cert", "generate", "--out", folder, "--force"]) == 0
    anew = towline.Certificate.load(chain, key).sha256
    assert anew != pin and anew in capsys.readouterr().out

    with program("--cert", chain, "--key", key, "--host", "127.0.0.1") as (process, started):
        assert started["certificate_pin"] == f"sha256/{anew}"
        roots = ["--roots", chain, "--count", "1"]
        # The certificate is for localhost as well as for its address.
        assert main(["echo", started["url"], *roots]) == 0
        assert main(["cert", "hash", chain, "--key"]) == 0
        key_pin = capsys.readouterr().out.splitlines()[-1]
        assert main(["echo", started["url"], "--pin", key_pin, "--count", "1"]) == 0


def test_certificates_that_are_none(capsys, tmp_path):
    no_pem = tmp_path / "no.pem"
    no_pem.write_text("no PEM")
    assert failed(capsys, "cert", "show", str(no_pem))[0] == 4
    code, err = failed(capsys, "cert", "hash", str(tmp_path / "missing"))
    assert code == 1 and "missing" in err
    assert failed(capsys, "cert", "generate", "two words")[0] == 2
    code, err = failed(capsys, "cert", "generate", "--out", str(no_pem))
    assert code == 1 and str(no_pem) in err
    assert failed(capsys, "serve", "--cert", str(no_pem))[0] == 2
    assert failed(capsys, "serve", "--cert", str(no_pem), "--key", str(no_pem))[0] == 2
    assert failed(capsys, "serve", "--name", "x", "--cert", "a", "--key", "b")[0] == 2
    missing = str(tmp_path / "missing")
    assert failed(capsys, "serve", "--cert", missing, "--key", missing)[0] == 1


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nothing"],
        ["echo"],
        ["echo", "https://localhost", "--size", "7"],
        ["echo", "https://localhost", "--timeout", "never"],
        ["echo", "http://localhost"],
        ["echo", "https://localhost:99999"],
        ["echo", "https://localhost", "--pin", "too short"],
        ["bench", "https://localhost", "--only", "everything"],
        ["bench", "https://localhost", "--seconds", "61"],
        ["serve", "--port", "65536"],
        ["cert"],
    ],
)
def test_wrong_usage(capsys, arguments):
    code, err = failed(capsys, *arguments)
    assert code == 2, err


def test_help_names_the_exit_codes(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "130 interrupted" in capsys.readouterr().out


def test_servers_that_are_not_there(capsys):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        url = f"https://127.0.0.1:{silent.getsockname()[1]}/"
        code, err = failed(capsys, "echo", url, "--pin", "0" * 64, "--timeout", "0.3")
        assert code == 3 and "no answer" in err and "firewall" in err
        code, err = failed(capsys, "serve", "--host", "127.0.0.1", "--port", url[18:-1])
        assert code == 1 and "cannot listen at port" in err
    code, err = failed(capsys, "echo", "https://no-such-host.invalid/", "--pin", "0" * 64)
    assert code == 3 and "was not found" in err


def test_servers_that_are_not_believed(capsys):
    with served(echo) as url:
        bare = url.partition("#")[0]
        code, err = failed(capsys, "echo", bare, "--pin", "0" * 64)
        assert code == 4 and CERTIFICATE.sha256 in err
        code, err = failed(capsys, "bench", bare)
        assert code == 4 and "without a pin" in err


def test_servers_that_misbehave(capsys):
    async def shout(session: towline.Session) -> None:
        async for stream in session.incoming_bidirectional_streams:
            async with stream:
                await stream.write((await stream.read(64)).upper().swapcase() + b"!")

    async def leave(session: towline.Session) -> None:
        await anext(session.incoming_bidirectional_streams)
        session.close(7, "enough")

    async def cut(session: towline.Session) -> None:
        async for stream in session.incoming_bidirectional_streams:
            stream.finish()

    with served(shout) as url:
        code, err = failed(capsys, "echo", url, "--size", "64")
        assert code == 7 and "came back changed" in err
    with served(leave) as url:
        code, err = failed(capsys, "echo", url)
        assert code == 7 and "enough" in err
    with served(cut) as url:
        assert failed(capsys, "echo", url)[0] == 7
        assert failed(capsys, "bench", url, "--only", "download")[0] == 7
        assert failed(capsys, "bench", url, "--only", "upload", "--seconds", "0.1")[0] == 7
    with served(idle) as url:
        code, err = failed(capsys, "echo", url, "--timeout", "0.3")
        assert code == 6 and "did not come back" in err
        code, err = failed(capsys, "echo", url, "--timeout", "0.1", "--datagram")
        assert code == 6 and "no datagram came back" in err
        only = ["--only", "datagrams", "--seconds", "0.1"]
        assert failed(capsys, "bench", url, *only)[0] == 6
        only = ["--only", "round-trips", "--seconds", "0.1", "--timeout", "0.3"]
        assert failed(capsys, "bench", url, *only)[0] == 6


def test_an_error_that_nobody_foresaw_is_not_hidden(monkeypatch):
    def broken(*names: str) -> towline.Certificate:
        raise KeyError("a mistake of ours")

    monkeypatch.setattr("towline._cli._cert.generate_certificate", broken)
    with pytest.raises(KeyError):
        main(["cert", "generate"])


def test_sigterm_ends_a_client_in_peace():
    with served(echo) as url:
        command = [*COMMAND, "echo", url, "--count", "1000"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("seq=0")
            process.terminate()
            out, _ = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "rtt min/avg/max" in out


def test_a_reader_that_had_enough_is_no_error():
    with served(echo) as url:
        reading, writing = os.pipe()
        os.close(reading)
        command = [*COMMAND, "echo", url, "--interval", "0.01"]
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=20)
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_progress_is_drawn_on_a_terminal_and_cleared():
    with served(echo) as url:
        ours, theirs = pty.openpty()
        only = ["--only", "round-trips", "--seconds", "0.4"]
        command = [*COMMAND, "bench", url, *only]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, timeout=20)
        os.close(theirs)
        drawn = os.read(ours, 65536).decode()
        os.close(ours)
    assert done.returncode == 0
    assert "round-trips  [" in drawn and "/s" in drawn
    assert drawn.endswith("\x1b[K")


def test_serve_writes_what_a_person_types_next(tmp_path: Path):
    command = [*COMMAND, "serve", "--port", "0", "--grace", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(5)]
        process.terminate()
    assert lines[0].startswith("serving at https://localhost:")
    assert "python -m towline echo 'https://localhost:" in lines[3]
    assert process.returncode == 130
