# SPDX-License-Identifier: Apache-2.0
"""Values of the caller on their way into C, checked once.

ctypes cuts off the high bits of a number that is too wide for its field and says so to nobody, so
every number passes here. A wrong type is a TypeError, a wrong value a ValueError; both name the
field. Limits that are narrower than the field in C are the library's and the sidecar's to check.
"""

from __future__ import annotations

import ctypes
import json
import math
import operator
import os
from typing import Any

_FLOAT_MAX = 3.4028234663852886e38  # of c_float


def wrong_type(field: str, wanted: str, value: Any) -> TypeError:
    return TypeError(f"{field}: {wanted}, not {type(value).__name__}")


def whole(field: str, value: Any, kind: Any, least: int | None = None) -> int:
    """An integer that the ctypes integer type `kind` holds, from `least` where that is given."""
    try:
        number = operator.index(value)
    except TypeError:
        raise wrong_type(field, "an integer", value) from None
    bits = 8 * ctypes.sizeof(kind)
    signed = kind(-1).value < 0
    low = least if least is not None else -(1 << (bits - 1)) if signed else 0
    high = (1 << (bits - signed)) - 1
    if not low <= number <= high:
        raise ValueError(f"{field}: {number} is not from {low} to {high}")
    return number


def real(field: str, value: Any) -> float:
    """A number for a float of C. Infinities and NaN pass: -inf as a bias bans a token."""
    if isinstance(value, (str, bytes)):
        raise wrong_type(field, "a number", value)
    try:
        number = float(value)
    except TypeError:
        raise wrong_type(field, "a number", value) from None
    except OverflowError:
        number = _FLOAT_MAX * 2  # an integer wider than a double is refused below, as one
    if math.isfinite(number) and abs(number) > _FLOAT_MAX:
        raise ValueError(f"{field}: {value} is not from {-_FLOAT_MAX} to {_FLOAT_MAX}")
    return number


def put(struct: ctypes.Structure, field: str, value: Any, least: int | None = None) -> None:
    """Sets the number `field` of a struct, as its type in C allows."""
    kind = dict(struct._fields_)[field]  # type: ignore[misc]
    setattr(struct, field, real(field, value) if kind is ctypes.c_float
            else whole(field, value, kind, least))


def text(field: str, value: str | None) -> bytes | None:
    """The bytes of a text; None stays None, which is "not given"."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise wrong_type(field, "text", value)
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{field}: half of a surrogate pair at {error.start}") from None


def path(field: str, value: str | os.PathLike[str] | None) -> bytes | None:
    if value is None:
        return None
    try:
        return os.fsencode(value)
    except TypeError:
        raise wrong_type(field, "a path", value) from None


def json_text(field: str, value: Any) -> bytes | None:
    """JSON, which the caller gives as text or as Python values; None is "not given"."""
    if value is None or isinstance(value, str):
        return text(field, value)
    try:
        return json.dumps(value).encode()
    except TypeError as error:
        raise TypeError(f"{field}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{field}: {error}") from None


def timeout_ms(seconds: Any, field: str = "timeout") -> int:
    """Milliseconds of kairos.h: None waits without limit; rounded up so that it is never early."""
    if seconds is None:
        return -1
    number = real(field, seconds)
    if math.isnan(number):
        raise ValueError(f"{field}: seconds or None, not NaN")
    most = 2**31 - 1
    return most if number * 1000 > most else max(0, math.ceil(number * 1000))
