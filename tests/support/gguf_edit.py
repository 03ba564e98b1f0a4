# SPDX-License-Identifier: Apache-2.0
"""Rewrites GGUF files for tests: other metadata, fewer layers, damaged tensors. Reads only files
that it can trust."""
from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, BinaryIO

UINT32, FLOAT32, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9
_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
            12: "d"}
_DEFAULT_ALIGNMENT = 32


@dataclass
class Tensor:
    name: str
    extents: list[int]
    type: int
    data: memoryview


class Gguf:
    """A whole file in memory: `values` maps keys to (type, value, raw bytes)."""

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            self._bytes = memoryview(file.read())
        self._at = 0
        magic, self.version, tensors, values = self._take("IIQQ")
        assert magic == 0x46554747, "not GGUF"
        self.values: dict[str, tuple[int, Any, bytes]] = {}
        for _ in range(values):
            key = self._text()
            (kind,) = self._take("I")
            start = self._at
            value = self._value(kind)
            self.values[key] = (kind, value, bytes(self._bytes[start:self._at]))
        entries = []
        for _ in range(tensors):
            name = self._text()
            (dimensions,) = self._take("I")
            extents = list(self._take("Q" * dimensions))
            kind, offset = self._take("IQ")
            entries.append((name, extents, kind, offset))
        self.alignment = self.number("general.alignment", _DEFAULT_ALIGNMENT)
        begin = -(-self._at // self.alignment) * self.alignment
        ends = sorted(entry[3] for entry in entries) + [len(self._bytes) - begin]
        self.tensors = [Tensor(name, extents, kind, self._bytes[
            begin + offset:begin + ends[ends.index(offset) + 1]])
            for name, extents, kind, offset in entries]

    def number(self, key: str, default: int = 0) -> int:
        return self.values[key][1] if key in self.values else default

    def tensor(self, name: str) -> Tensor:
        return next(tensor for tensor in self.tensors if tensor.name == name)

    def set_string(self, key: str, text: str) -> None:
        raw = text.encode()
        self.values[key] = (STRING, text, struct.pack("<Q", len(raw)) + raw)

    def set_number(self, key: str, value: int) -> None:
        self.values[key] = (UINT32, value, struct.pack("<I", value))

    def array_size(self, key: str) -> int:
        return struct.unpack_from("<IQ", self.values[key][2])[1]

    def extend_array(self, key: str, items: list[Any]) -> None:
        """Appends items of the array's own type."""
        kind, value, raw = self.values[key]
        item, count = struct.unpack_from("<IQ", raw)
        added = (b"".join(map(_text, items)) if item == STRING
                 else struct.pack(f"<{len(items)}{_FORMATS[item]}", *items))
        self.values[key] = (kind, value, struct.pack("<IQ", item, count + len(items)) + raw[12:]
                            + added)

    def keep_layers(self, count: int) -> None:
        """Drops all layers but the first ones: the same tokenizer and shapes, less arithmetic."""
        architecture = self.values["general.architecture"][1]
        self.set_number(f"{architecture}.block_count", count)
        self.tensors = [tensor for tensor in self.tensors if not tensor.name.startswith("blk.")
                        or int(tensor.name.split(".")[1]) < count]

    def silence_layers(self, first: int) -> None:
        """Layers from `first` on add nothing to what passes through them: the model says what it
        would without them, and takes as long as it did with them."""
        for tensor in self.tensors:
            words = tensor.name.split(".")
            if words[0] == "blk" and int(words[1]) >= first and words[2] in ("attn_output",
                                                                             "ffn_down"):
                tensor.data = memoryview(bytes(len(tensor.data)))

    def replace_text(self, key: str, index: int, text: str) -> None:
        """Another text at one place of an array of texts."""
        kind, value, raw = self.values[key]
        at = 12
        for _ in range(index):
            at += 8 + struct.unpack_from("<Q", raw, at)[0]
        end = at + 8 + struct.unpack_from("<Q", raw, at)[0]
        self.values[key] = (kind, value, raw[:at] + _text(text) + raw[end:])

    def write(self, path: str) -> str:
        with open(path, "wb") as file:
            file.write(struct.pack("<IIQQ", 0x46554747, self.version, len(self.tensors),
                                   len(self.values)))
            for key, (kind, _, raw) in self.values.items():
                file.write(_text(key) + struct.pack("<I", kind) + raw)
            offset = 0
            for tensor in self.tensors:
                file.write(_text(tensor.name) + struct.pack("<I", len(tensor.extents)))
                file.write(struct.pack(f"<{len(tensor.extents)}Q", *tensor.extents))
                file.write(struct.pack("<IQ", tensor.type, offset))
                offset += -(-len(tensor.data) // self.alignment) * self.alignment
            for tensor in self.tensors:
                self._pad(file)
                file.write(tensor.data)
            self._pad(file)
        return path

    def _pad(self, file: BinaryIO) -> None:
        file.write(b"\0" * (-file.tell() % self.alignment))

    def _take(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from("<" + form, self._bytes, self._at)
        self._at += struct.calcsize("<" + form)
        return values

    def _text(self) -> str:
        (size,) = self._take("Q")
        self._at += size
        return bytes(self._bytes[self._at - size:self._at]).decode("utf-8", "replace")

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._text()
        if kind == ARRAY:
            item, count = self._take("IQ")
            if item == STRING:
                for _ in range(count):
                    self._text()
                return None
            self._at += struct.calcsize("<" + _FORMATS[item]) * count
            return None
        return self._take(_FORMATS[kind])[0]


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw
