"""Text for people: bytes printed and parsed, aligned tables, dotted paths."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from ..errors import ArgumentError

_UNITS = (
    {"b": 1}
    | {f"{c}b": 1000**i for i, c in enumerate("kmgt", 1)}
    | {f"{c}ib": 1024**i for i, c in enumerate("kmgt", 1)}
)


def format_bytes(nbytes: float) -> str:
    """A number of bytes with the unit that suits it.

    >>> format_bytes(3 << 20), format_bytes(1500), format_bytes(7)
    ('3.0 MiB', '1.5 KiB', '7 B')
    """
    if nbytes < 1024:
        return f"{nbytes:.0f} B"
    unit, scale = next((u, 1024**i) for i, u in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")) if nbytes >= 1024**i)
    return f"{nbytes / scale:.1f} {unit}"


def format_seconds(seconds: float) -> str:
    """A duration with the unit that suits it.

    >>> format_seconds(2.5), format_seconds(0.0123), format_seconds(4e-6)
    ('2.5 s', '12.3 ms', '4 us')
    """
    unit, scale = next((u, s) for u, s in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 0.0)) if seconds >= s)
    return f"{seconds / (scale or 1e-9):.3g} {unit}"


def parse_bytes(size: Any, what: str, least: int = 1) -> int:
    """A number of bytes: a whole number, or a text such as "512 MiB" or "1.5 GB".

    >>> parse_bytes("1.5 kB", "budget"), parse_bytes("2MiB", "budget"), parse_bytes(1e9, "budget")
    (1500, 2097152, 1000000000)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([a-z]+)\s*", size, re.IGNORECASE) if isinstance(size, str) else None
    if match is not None and match[2].lower() in _UNITS:
        found = int(float(match[1]) * _UNITS[match[2].lower()])
    elif isinstance(size, int | float) and not isinstance(size, bool) and size == size // 1:
        found = int(size)
    else:
        raise ArgumentError(
            f"{what} {size!r} is no amount of memory.\n"
            '  Write a number and a unit: "512 MiB", "1.5 GB", "800 kB"; or an integer of bytes.'
        )
    if found < least:
        raise ArgumentError(f"{what} must be at least {least}, got {found} bytes.")
    return found


def text_table(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """Rows of cells, the first of them the heading, as aligned columns; those in `right` are right-aligned.

    >>> print(text_table([("bytes", "count", "op"), ("8 B", "1", "sin")], right=(0, 1)))
    bytes  count  op
      8 B      1  sin
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = zip(row, widths, strict=True)
        lines.append("  ".join(c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(cells)).rstrip())
    return "\n".join(lines)


def join_path(path: str, key: Any) -> str:
    """A key below a path: `path.key`."""
    return f"{path}.{key}" if path else str(key)
