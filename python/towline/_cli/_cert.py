"""`cert`: makes certificates for servers, and says what is in one."""

from __future__ import annotations

import argparse
import datetime
import os
from pathlib import Path

from .._certificates import generate_certificate
from .._native import Certificate as NativeCertificate
from ._failures import Exit, Failure
from ._printer import Printer

__all__ = ["add_commands"]

_NAMES = ("localhost", "127.0.0.1", "::1")
_CERTIFICATE, _KEY = "certificate.pem", "key.pem"


def add_commands(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    """What `cert` takes."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    generate = commands.add_parser(
        "generate",
        parents=[common],
        help="a new one, as browsers take it by its hash: valid for less than 14 days",
    )
    generate.add_argument(
        "names", nargs="*", metavar="NAME", help=f"host names and addresses ({' '.join(_NAMES)})"
    )
    generate.add_argument(
        "--out",
        type=Path,
        default=Path("."),
        metavar="FOLDER",
        help=f"where {_CERTIFICATE} and {_KEY} go (the folder you are in)",
    )
    generate.add_argument("--force", action="store_true", help="replace files that are there")
    generate.set_defaults(run=_generate)
    show = commands.add_parser("show", parents=[common], help="subject, dates and hashes")
    show.add_argument("file", type=Path, metavar="FILE", help="a certificate in PEM")
    show.set_defaults(run=_show)
    hash = commands.add_parser(
        "hash", parents=[common], help="only its SHA-256, for --pin and serverCertificateHashes"
    )
    hash.add_argument("file", type=Path, metavar="FILE", help="a certificate in PEM")
    hash.add_argument(
        "--key", action="store_true", help="of its public key, which a new one may share"
    )
    hash.set_defaults(run=_hash)


def _generate(given: argparse.Namespace, printer: Printer) -> Exit:
    names: list[str] = given.names or list(_NAMES)
    certificate = generate_certificate(*names)
    chain, key = given.out / _CERTIFICATE, given.out / _KEY
    given.out.mkdir(parents=True, exist_ok=True)
    if not given.force:
        for file in (chain, key):
            if file.exists():
                words = f"{file} is there already"
                raise Failure(Exit.OTHER, words, "--force replaces it, --out is another folder")
    _write(key, certificate.private_key_pem, 0o600)
    _write(chain, certificate.certificate_pem, 0o644)
    printer.line(f"certificate  {chain}, for {', '.join(names)}")
    printer.line(f"key          {key}")
    printer.line(f"valid until  {_date(certificate.not_after)}")
    printer.line(f"pin          {certificate.sha256}")
    printer.record(
        "towline.python.cert.generate/1",
        certificate_file=str(chain),
        key_file=str(key),
        names=names,
        expires=int(certificate.not_after.timestamp()),
        certificate_pin=f"sha256/{certificate.sha256}",
    )
    return Exit.OK


def _show(given: argparse.Namespace, printer: Printer) -> Exit:
    subject, own, key, dates = _inspect(given.file)
    printer.line(f"subject      {subject}")
    if dates is not None:
        begin, end = [datetime.datetime.fromtimestamp(at, datetime.UTC) for at in dates]
        printer.line(f"valid        from {_date(begin)} to {_date(end)}")
    printer.line(f"certificate  {own}")
    printer.line(f"key          {key}")
    printer.record(
        "towline.cert/2",
        begins=None if dates is None else dates[0],
        expires=None if dates is None else dates[1],
        pin=f"sha256/{key}",
        certificate_pin=f"sha256/{own}",
        subject=subject,
        next=None,
    )
    return Exit.OK


def _hash(given: argparse.Namespace, printer: Printer) -> Exit:
    _, own, key, _ = _inspect(given.file)
    shown = key if given.key else own
    printer.line(shown)
    printer.record("towline.cert.pin/1", pin=f"sha256/{shown}")
    return Exit.OK


def _inspect(file: Path) -> tuple[str, str, str, tuple[int, int] | None]:
    pem = file.read_bytes()
    try:
        return NativeCertificate.inspect(pem)
    except ValueError as error:
        words = str(error).removeprefix("argument 'chain': ")
        raise Failure(Exit.TLS, f"{file}: {words}") from error


def _write(file: Path, text: str, mode: int) -> None:
    file.unlink(missing_ok=True)
    # Nobody else can read a key, not even while it is written.
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(descriptor, "w", encoding="ascii") as opened:
        opened.write(text)


def _date(at: datetime.datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")
