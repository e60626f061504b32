"""Runs files of web-platform-tests in Chromium, against their handlers on `towline`.

README.md says how.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import re
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import towline
from host import Host

sys.path.insert(0, str(Path(__file__).parents[2] / "python/tests"))
from browsers import browsing, installed, site

FILES = ["connect", "close", "datagrams", "streams-echo", "streams-close", "sendorder"]
SCOPES = ["window", "worker"]
# The share of subtests that has to pass.
ENOUGH = 0.6
# For a file, on a machine with other work.
PATIENCE = 120.0

STATUS = ["pass", "fail", "timeout", "not run", "precondition failed"]
HARNESS = ["ok", "error", "timeout", "precondition failed"]

# Stand-ins for two of their helpers, of which these files use as much.
HELPERS = {
    "/common/get-host-info.sub.js": """
        function get_host_info() {
          return { ORIGINAL_HOST: location.hostname, ORIGIN: location.origin };
        }""",
    "/common/utils.js": "function token() { return crypto.randomUUID(); }",
}
REPORT = """
    add_completion_callback((tests, harness) => {
      const found = tests.map(({ name, status, message }) => ({ name, status, message }));
      const body = { status: harness.status, message: harness.message, tests: found };
      fetch("/result", { method: "POST", body: JSON.stringify(body) });
    });"""
# The key of a certificate on P-256 (RFC 5480): what stands before the point, and the length of all.
SPKI = bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d030107034200")
SPKI_LENGTH = 91


class Pages:
    """One of the files as a page, for one scope."""

    def __init__(self, root: Path, file: str, scope: str, port: int, pin: str) -> None:
        self._root = root
        self._file = f"/webtransport/{file}.https.any.js"
        self._scope = scope
        colons = ":".join(re.findall("..", pin))
        self._values = {
            "ports[webtransport-h3][0]": str(port),
            "ports[webtransport-h3-cert-hash][0]": str(port),
            "server_certificate_hash": colons,
        }

    def __call__(self, path: str) -> tuple[str, bytes] | None:
        if path == "/webtransport/page.html":
            return "text/html", self._page().encode()
        if path == "/webtransport/worker.js":
            return "text/javascript", self._worker().encode()
        if path in HELPERS:
            return "text/javascript", HELPERS[path].encode()
        file = self._root / path[1:]
        if file.suffix != ".js" or not file.is_file():
            return None
        text = file.read_text()
        for name, value in self._values.items():
            text = text.replace("{{" + name + "}}", value)
        return "text/javascript; charset=utf-8", text.encode()

    def _scripts(self) -> list[str]:
        text = (self._root / self._file[1:]).read_text()
        named = re.findall(r"^// META: script=(.*)$", text, re.MULTILINE)
        # Some files leave a helper of their helper's out.
        return list(dict.fromkeys(["/common/get-host-info.sub.js", *named, self._file]))

    def _page(self) -> str:
        head = '<!doctype html><meta charset="utf-8"><meta name="timeout" content="long">'
        head += '<script src="/resources/testharness.js"></script>'
        head += f"<script>{REPORT}</script>"
        if self._scope == "worker":
            return head + '<script>fetch_tests_from_worker(new Worker("worker.js"));</script>'
        return head + "".join(f'<script src="{script}"></script>' for script in self._scripts())

    def _worker(self) -> str:
        scripts = ["/resources/testharness.js", *self._scripts()]
        return "".join(f"importScripts({script!r});\n" for script in scripts) + "done();\n"


async def run(
    root: Path, program: str, file: str, scope: str, flags: list[str]
) -> dict[str, Any]:
    """What a file found in one scope."""
    certificate = towline.generate_certificate("127.0.0.1")
    der = ssl.PEM_cert_to_DER_cert(certificate.certificate_pem)
    at = der.index(SPKI)
    key = base64.b64encode(hashlib.sha256(der[at : at + SPKI_LENGTH]).digest()).decode()
    serving = towline.serve_requests(Host(root).run, "127.0.0.1", certificate=certificate)
    async with serving as server:
        trust = [
            *flags,
            f"--origin-to-force-quic-on=127.0.0.1:{server.port}",
            f"--ignore-certificate-errors-spki-list={key}",
        ]
        pages = Pages(root, file, scope, server.port, certificate.sha256)
        async with site(pages) as running:
            with browsing(program, f"{running.origin}/webtransport/page.html", *trust):
                try:
                    async with asyncio.timeout(PATIENCE):
                        result: dict[str, Any] = await running.result
                        return result
                except TimeoutError:
                    return {"status": 2, "message": "the page never answered", "tests": []}


def tell(file: str, scope: str, result: dict[str, Any]) -> None:
    harness = HARNESS[result["status"]]
    print(f"{file} ({scope}): harness {harness} {result['message'] or ''}", flush=True)
    for test in result["tests"]:
        print(f"  {STATUS[test['status']]:8} {test['name']}  {test['message'] or ''}")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("root", type=Path, help="a checkout of web-platform-tests")
    arguments.add_argument("files", nargs="*", default=FILES, help=f"of {', '.join(FILES)}")
    arguments.add_argument(
        "--experimental", action="store_true", help="with what Chromium keeps behind its flag"
    )
    options = arguments.parse_args()
    missing = [
        file
        for file in options.files
        if not (options.root / f"webtransport/{file}.https.any.js").is_file()
    ]
    if missing:
        arguments.error(f"{options.root} has no webtransport/{missing[0]}.https.any.js")
    flags = ["--enable-experimental-web-platform-features"] if options.experimental else []
    program = installed("chromium")
    if program is None:
        print("SKIPPED web-platform-tests: chromium is not installed (make setup-system)")
        return 0
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    found = []
    for file in options.files:
        for scope in SCOPES:
            result = asyncio.run(run(options.root, program, file, scope, flags))
            tell(file, scope, result)
            found.append((file, scope, result))
    print(f"\n{version.stdout.strip()}\n\n| file | scope | passed | of |\n|---|---|---|---|")
    passed = total = 0
    for file, scope, result in found:
        tests = result["tests"]
        right = sum(test["status"] == 0 for test in tests)
        print(f"| {file} | {scope} | {right} | {len(tests)} |")
        passed, total = passed + right, total + len(tests)
    print(f"\n{passed} of {total} subtests passed")
    return 0 if total and passed / total >= ENOUGH else 1


if __name__ == "__main__":
    sys.exit(main())
