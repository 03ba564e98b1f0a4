# SPDX-License-Identifier: Apache-2.0
"""Versions of the library that was loaded."""

from __future__ import annotations

from kairos.native import lib


def abi_version() -> int:
    return int(lib.kairos_abi_version())


def layout_hash() -> int:
    return int(lib.kairos_layout_hash())


def library_version() -> str:
    return bytes(lib.kairos_version()).decode()
