"""Certificates of servers."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

from . import _native
from ._arguments import octets, texts

__all__ = ["Certificate", "generate_certificate", "pin_text"]

# Bytes of a SHA-256 hash, and its hexadecimal digits.
_HASH = 32
_HASH_DIGITS = 64


class Certificate:
    """A certificate and its private key."""

    __slots__ = ("_native",)

    def __init__(self, native: _native.Certificate) -> None:
        if not isinstance(native, _native.Certificate):
            words = "certificates come from `generate_certificate`, `load` and `from_pem`"
            raise TypeError(f"argument 'native': {words}")
        self._native = native

    @classmethod
    def load(
        cls, chain: str | os.PathLike[str], key: str | os.PathLike[str]
    ) -> Certificate:
        """One from two files in PEM: the chain, the server's own first, and its private key."""
        files: list[bytes] = []
        for argument, file in (("chain", chain), ("key", key)):
            if not isinstance(file, (str, os.PathLike)):
                kind = type(file).__name__
                raise TypeError(f"argument '{argument}': a path is required, not '{kind}'")
            files.append(Path(file).read_bytes())
        return cls.from_pem(*files)

    @classmethod
    def from_pem(cls, chain: bytes, key: bytes) -> Certificate:
        """As `load`, from the contents of the files."""
        read = _native.Certificate.from_pem(octets("chain", chain), octets("key", key))
        return cls(read)

    @property
    def sha256(self) -> str:
        """The hash by which clients can pin it and browsers take it (`serverCertificateHashes`): 64
        hexadecimal digits."""
        return self._native.sha256

    @property
    def certificate_pem(self) -> str:
        """The chain in PEM."""
        return self._native.certificate_pem

    @property
    def private_key_pem(self) -> str:
        """The private key in PEM. Write it only where its owner alone can read."""
        return self._native.private_key_pem

    @property
    def not_after(self) -> datetime.datetime:
        """When it ends."""
        validity = self._native.validity
        seconds = 0 if validity is None else validity[1]
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC)

    def __repr__(self) -> str:
        return f"<Certificate {self.sha256}>"


def generate_certificate(*names: str) -> Certificate:
    """A new certificate for these host names and addresses, as browsers take it by its hash: on the
    curve P-256, and valid for less than 14 days.

    ```python
    certificate = towline.generate_certificate("localhost", "127.0.0.1")
    print(len(certificate.sha256))  # 64
    ```
    """
    if not names:
        raise TypeError("argument 'names': at least one name is required")
    return Certificate(_native.Certificate.generate(texts("names", names)))


def pin_text(pin: str | bytes | Certificate) -> str:
    """A pin as the native half reads it."""
    if isinstance(pin, Certificate):
        return f"sha256/{pin.sha256}"
    if isinstance(pin, bytes):
        if len(pin) != _HASH:
            raise ValueError(f"argument 'pins': a hash has {_HASH} bytes, not {len(pin)}")
        return f"sha256/{pin.hex()}"
    if not isinstance(pin, str):
        kind = type(pin).__name__
        raise TypeError(f"argument 'pins': each must be a str or bytes, not '{kind}'")
    if len(pin.replace(":", "")) == _HASH_DIGITS and "/" not in pin:
        return f"sha256/{pin}"
    return pin
