"""`python -m towline`: `serve`, `echo`, `bench` and `cert`."""

from __future__ import annotations

import sys

from ._cli import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
