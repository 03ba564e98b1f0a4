# SPDX-License-Identifier: Apache-2.0
"""Errors: one class per code of kairos.h, subclasses for the causes that programs act on."""

from __future__ import annotations

import ctypes

from kairos.native import lib


class KairosError(Exception):
    """`code` is a positive KAIROS_* code, `detail` a KAIROS_DETAIL_* or 0."""

    code = 13

    def __init__(self, message: str, code: int | None = None, detail: int = 0) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        self.detail = detail


class Cancelled(KairosError):
    code = 1


class InvalidArgument(KairosError, ValueError):
    code = 3


class DeadlineExceeded(KairosError, TimeoutError):
    code = 4


class NotFound(KairosError, LookupError):
    code = 5


class AlreadyExists(KairosError):
    code = 6


class ResourceExhausted(KairosError):
    code = 8


class FailedPrecondition(KairosError):
    code = 9


class Aborted(KairosError):
    code = 10


class Unimplemented(KairosError):
    code = 12


class InternalError(KairosError):
    code = 13


class Unavailable(KairosError, ConnectionError):
    code = 14


class DataLoss(KairosError):
    code = 15


class ForkedError(FailedPrecondition):
    """The client was opened in a parent process; open one in this process."""


class RingFull(ResourceExhausted):
    """Read events, then submit again."""


class SidecarLost(Unavailable):
    """The sidecar died or closed the attachment; open a new client. Sessions survive."""


class StaleVersion(FailedPrecondition):
    """if_version does not name the head."""


class ContextFull(KairosError):
    """The prompt is longer than the model's context. Keeps the code that the sidecar gave."""


_BY_CODE: dict[int, type[KairosError]] = {
    cls.code: cls
    for cls in (
        Cancelled, InvalidArgument, DeadlineExceeded, NotFound, AlreadyExists, ResourceExhausted,
        FailedPrecondition, Aborted, Unimplemented, InternalError, Unavailable, DataLoss,
    )
}
_BY_DETAIL: dict[int, type[KairosError]] = {
    1: ForkedError, 2: RingFull, 3: SidecarLost, 5: StaleVersion, 6: ContextFull,
}


def make_error(code: int, detail: int, message: str) -> KairosError:
    """The error for a positive code. A detail's class is used only where it fits the code."""
    cls = _BY_CODE.get(code, KairosError)
    finer = _BY_DETAIL.get(detail)
    if finer is ContextFull or (finer is not None and issubclass(finer, cls)):
        cls = finer
    text = message or bytes(lib.kairos_strerror(code)).decode()
    return cls(text, code, detail)


def last_error(result: int) -> KairosError:
    """The error of a call of this thread that returned `result`, a negative code."""
    buffer = ctypes.create_string_buffer(512)
    lib.kairos_last_error(buffer, len(buffer))
    return make_error(-result, lib.kairos_last_detail(), buffer.value.decode("utf-8", "replace"))


def check(result: int) -> int:
    if result < 0:
        raise last_error(result)
    return result
