"""Installs the package from this checkout into a clean environment of each interpreter, and tries it.

    python python/tools/installs.py [--wheel FILE] [INTERPRETER…]

In each: one `pip install`, the server and the client of python/README.md as they are printed, and round trips
by `python -m towline`. With `--wheel` that file is installed instead of the checkout.
"""

from __future__ import annotations

import argparse
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

__all__: list[str] = []

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PORT = 4433


def _programs() -> tuple[str, str]:
    """The server and the client that README prints."""
    blocks = _BLOCK.findall((ROOT / "python" / "README.md").read_text("utf-8"))
    server = next(block for block in blocks if "serve_forever" in block)
    client = next(block for block in blocks if "towline.connect" in block)
    return server, client


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _output(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=1800)
    if done.returncode != 0:
        raise SystemExit(f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def _try(interpreter: str, install: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder) / "bin" / "python"
        _output(interpreter, "-m", "venv", folder)
        begun = time.monotonic()
        _output(python, "-m", "pip", "install", "--quiet", install)
        took = time.monotonic() - begun
        version = _output(python, "-c", "import sys; print(sys.version.split()[0])")
        module = _output(python, "-c", "import towline._native as n; print(n.__file__)")
        print(f"{version}: pip install took {took:.1f} s; {Path(module).name}", flush=True)
        # The programs as printed, but for the port, which may be taken here.
        port = str(_free_port())
        server, client = [text.replace(str(_PORT), port) for text in _programs()]
        files = [Path(folder) / "server.py", Path(folder) / "client.py"]
        files[0].write_text(server)
        files[1].write_text(client)
        command = [str(python), "-u", "-W", "error", str(files[0])]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as serving:
            try:
                assert serving.stdout is not None
                url, pin = serving.stdout.readline().split()
                said = _output(python, "-W", "error", files[1], pin)
                print(f"{version}: README's client at {url} printed {said}", flush=True)
                if said != "b'ahoy'":
                    raise SystemExit("that is not what was sent")
            finally:
                serving.terminate()
        print(f"{version}: README's server ended with {serving.returncode} at SIGTERM", flush=True)
        arguments = ["-m", "towline", "serve", "--port", "0", "--json"]
        with subprocess.Popen([python, *arguments], stdout=subprocess.PIPE, text=True) as serving:
            try:
                assert serving.stdout is not None
                record = serving.stdout.readline()
                found = re.findall(r'"(https[^"]*)"|"sha256/([^"]*)"', record)
                url, pin = found[0][0], found[1][1]
                echo = [python, "-m", "towline", "echo", url, "--pin", pin]
                print(f"{version}: {_output(*echo).splitlines()[-1]}", flush=True)
            finally:
                serving.terminate()


def main() -> None:
    """One interpreter after the other; the first failure ends it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--wheel", type=Path, help="install this file instead of the checkout")
    parser.add_argument("interpreters", nargs="*", default=[sys.executable])
    given = parser.parse_args()
    install = str(ROOT if given.wheel is None else given.wheel.resolve())
    for interpreter in given.interpreters:
        _try(interpreter, install)


if __name__ == "__main__":
    main()
