#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of the fuzz targets into tests/fuzz/corpus/NAME. Run by hand when a format
changes; what it writes is in the tree, so that `tools/test --fuzz` needs no generator.
"""
import pathlib
import struct

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus"


def text(value):
    """A length-prefixed string of GGUF, or of cereal's portable binary."""
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def gguf_seeds():
    def value(key, kind, data):
        return text(key) + struct.pack("<I", kind) + data

    def image(values, tensors, data, version=3):
        head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values))
        body = head + b"".join(values) + b"".join(tensors)
        return body + bytes(-len(body) % 32) + data

    def tensor(name, kind, extents, offset):
        return (text(name) + struct.pack("<I", len(extents)) +
                struct.pack(f"<{len(extents)}Q", *extents) + struct.pack("<IQ", kind, offset))

    words = struct.pack("<IQ", 8, 3) + text("a") + text("") + text("ccc")
    numbers = struct.pack("<IQ3i", 5, 3, 1, -2, 3)
    every_kind = [value("general.architecture", 8, text("llama")),
                  value("a", 10, struct.pack("<Q", 2**64 - 1)),
                  value("general.alignment", 4, struct.pack("<I", 32)),
                  value("tokenizer.ggml.tokens", 9, words), value("n", 9, numbers),
                  value("f", 6, struct.pack("<f", 0.5)), value("b", 7, b"\1"),
                  value("i8", 1, b"\xff"), value("d", 12, struct.pack("<d", 2.5))]
    return {
        "empty": image([], [], b""),
        "every_kind": image(every_kind, [], b""),
        "version_2": image([value("a", 9, numbers)], [], b"", version=2),
        "tensors": image([value("a", 0, b"\7")],
                         [tensor("norm", 0, [5], 0), tensor("q8", 8, [64, 3], 32),
                          tensor("q4", 3, [32, 2], 256)], bytes(256) + bytes(40)),
    }


def ring_seeds():
    def frame(payload, kind=1, flags=3, request=7):
        return (struct.pack("<IHHQ", len(payload), kind, flags, request) + payload +
                bytes(-len(payload) % 8))

    def seed(start, moves, frames):
        return struct.pack("<Q", start) + bytes(moves) + b"".join(frames)

    whole = [255] + [0] * 7
    end = 2**16  # of the ring
    return {
        "one_frame": seed(0, whole, [frame(b"hello")]),
        "fragments": seed(0, whole, [frame(b"first...", flags=1), frame(b"middle..", flags=0),
                                     frame(b"end", flags=2), frame(b"next", kind=2)]),
        "abort": seed(0, whole, [frame(b"begun", flags=1), frame(b"", flags=4), frame(b"new")]),
        "padding_at_end": seed(end - 32, whole, [frame(b"", kind=0, flags=0) + bytes(16),
                                                 frame(b"wrapped")]),
        "skip_of_8": seed(end - 32, whole, [frame(b"12345678"), bytes(8), frame(b"at zero")]),
        "before_2_64": seed(2**64 - 24, whole, [frame(b"12345678"), frame(b"past the end")]),
        "step_by_step": seed(0, [24, 0, 24, 48, 255, 0, 0, 0], [frame(b"12345678")] * 4),
    }


def request_seeds():
    ping, create, fork, show, messages, write, turn, cancel, watch = 0, 1, 3, 8, 9, 11, 12, 13, 14

    def turn_record(messages=(), tokens=(), stops=(), biases=(), tools="", key=""):
        fixed, parts = 136, b""

        def span(data):
            nonlocal parts
            found = (fixed + len(parts), len(data))
            parts += data
            return found if data else (0, 0)

        rows = b""
        for message in messages:
            rows += struct.pack("<II", 0, 0)
            rows += b"".join(struct.pack("<II", *span(field.encode())) for field in message)
        spans = [span(rows), span(struct.pack(f"<{len(tokens)}i", *tokens)),
                 span(b"".join(struct.pack("<II", *span(stop.encode())) for stop in stops)),
                 span(b"".join(struct.pack("<if", *bias) for bias in biases)),
                 span(tools.encode()), span(key.encode())]
        head = struct.pack("<IIQqQIiiI", fixed, 0, 5, -1, 42, 1000, 0, 0, 3)
        head += struct.pack("<IIfiffffiI", 0, 16, 0.7, 40, 0.9, 0.05, 1.1, 0.0, 64, 2)
        return bytes([turn]) + head + b"".join(struct.pack("<II", *s) for s in spans) + parts

    session = struct.pack("<IIQQQ", 32, 10, 5, 1, 0)
    return {
        "ping": bytes([ping]) + b"ping",
        "create": bytes([create]) + struct.pack("<IIiiQII", 32, 0, 0, 0, 60, 32, 5) + b"label",
        "fork": bytes([fork]) + session,
        "stat": bytes([show]) + session,
        "context": bytes([write]) + struct.pack("<IIQqII", 32, 0, 5, -1, 32, 2) + b"{}",
        "read_again": bytes([messages]) + struct.pack("<IIQQQQ", 40, 0, 5, 0, 0, 3),
        "watch": bytes([watch]) + struct.pack("<II", 8, 1),
        "cancel": bytes([cancel]) + struct.pack("<IIQ", 16, 0, 9),
        "messages": turn_record(messages=[("system", "be brief", "", "", ""),
                                          ("user", "h\u00e9llo", "", "", ""),
                                          ("tool", "22 C", "weather", "call_1", "")],
                                stops=("\n\n", "END"), tools="[]", key="once"),
        "tokens": turn_record(tokens=(1, 2, 3), biases=((2, -1.5), (3, float("-inf")))),
    }


def control_seeds():
    def request(session, version, after, list_max):
        return (b"\1" + struct.pack("<I", 1) + struct.pack("<QQQI", session, version, after,
                                                           list_max) + text(""))

    def reply(sessions, stats):
        data = b"\1" + struct.pack("<Iii", 1, 0, 0) + text("text") + struct.pack("<QQ", 5, 2)
        data += struct.pack("<I", len(sessions))
        for number, label in enumerate(sessions):
            data += struct.pack("<I", 1) if number == 0 else b""
            data += struct.pack("<i10Qi", 1, *range(1, 11), 0) + text(label) + text("") + text("")
        data += struct.pack("<I", len(stats))
        for name, figure in stats:
            data += text(name) + struct.pack("<d", figure)
        return data + text("")

    envelope = struct.pack("<IHHIIQQ", 0x5443524B, 1, 2, 0, 64, 7, 0)
    return {
        "request": request(5, 0, 0, 100),
        "reply": reply(["one", "two"], [("turns_total", 3.0)]),
        "envelope": envelope + request(0, 0, 0, 0),
        "peer": b"localhost:1000:1000:4242",
    }


CONTEXT = """{"goal":"book a table","entities":[{"name":"Rome","kind":"place","source_message":1}],
"done_steps":[{"text":"searched"}],"pending_actions":[{"tool":"book","tool_call_id":"c1"}],
"facts":[{"text":"open at 19:00","tool":"search"}],"extra":{"client":[1,2.5,null,true]}}"""

CALLS = '[{"id":"c1","type":"function","function":{"name":"f","arguments":{"city":"Rome"}}}]'

CHATML = """{%- for m in messages -%}<|im_start|>{{ m['role'] }}
{% if m.tool_calls %}{% for c in m.tool_calls %}{{ c | tojson }}{% endfor %}{% endif -%}
{{ m.content | trim }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"""

LOGIC = """{% macro row(a, b=2) %}{{ a ~ b }}{% endmacro %}{% set ns = namespace(n=0) %}
{% for i in range(3) if i is odd %}{% set ns.n = ns.n + loop.index %}{{ row(i) }}{% else %}-{%
endfor %}{{ ns.n // 2 }}{{ [1, 2][::-1] | join(',') }}{{ {'a': 1}.items() | list | length }}"""

CONFIG = """model = "smollm2-135m"
socket = "/run/kairos.sock"

[catalog]
durability = "fsync"
"""


def text_seeds():
    return {
        "task_context": {"context": CONTEXT, "calls": CALLS, "empty": "{}",
                         "words": "Find \"Blue Door\" in Rome, see https://example.org/a?b=1 now."},
        "template": {"chatml": CHATML + "\0" + CALLS, "logic": LOGIC + "\0[]",
                     "text": "plain {{ bos_token }}{# note #}{% raw %}{{ }}{% endraw %}\0hello"},
        "config": {"system": CONFIG, "dotted": "kv.memory = \"1GiB\"\nlog.level = 'warn' # note\n",
                   "kinds": "a = [1, 2.5, true]\nb = {c = \"\\u00e9\"}\n[[d]]\ne = 1979-05-27\n"},
        "tokenizer": {"text": "0Tthe <|a|> end..\n<|a|> not trusted\nT<|b\u00e9\u4e2d\U0001f600",
                      "spm_text": "2Tthe <|a|> end..   a\n<|a|> \u2581\u2581not\nT<|b\u00e9\u4e2d",
                      "spm_vocabulary": "3\0t\n\0h\n\0e\n\0the\n\6he\n\5<0x41>\n\2x\n",
                      "vocabulary": "1\0t\n\0h\n\0e\n\0th\n\0the\n\2<|x|>\n\nt h\nth e\n"},
    }


def tool_stream_seeds():
    """A family, a start of the cuts, and a reply."""
    hermes, llama3, chatml, gemma3, function_gemma = range(5)
    replies = {
        "tagged": (hermes, '<think>\nhm\n</think>\n\nOne <tool_call>\n{"name": "f", "arguments": '
                           '{"a": [1, "\u00e9", null]}}\n</tool_call>\n done'),
        "tagged_broken": (hermes, '<tool_call>{"name":"g","arguments":5}</tool_call><tool_call>'),
        "bare_lines": (llama3, 'See:\n{"name":"f","parameters":{}}; {"name":"g","parameters":{}}'),
        "built_in": (llama3, '<|python_tag|>f.call(q="x\\n")'),
        "program": (llama3, '<|python_tag|>print("hi")'),
        "bare_reply": (chatml, '{"name": "f", "arguments": {"a": true}}\n'),
        "list": (chatml, '<tool_call>[{"name":"f","arguments":{}},{"name":"f","arguments":{}}]'
                         '</tool_call>'),
        "fenced": (gemma3, '```tool_code\nf(a=1, b=[True, {\'k\': -2.5e3}])\n```\n'),
        "calls": (gemma3, '[f(a="x"), g()]'),
        "keyed": (function_gemma, '<start_function_call>call:f{a:<escape>x<escape>,b:{c:[1]}}'
                                  '<end_function_call><start_function_response>'),
    }
    return {name: bytes([family, 7]) + reply.encode() for name, (family, reply) in replies.items()}


def grammar_seeds():
    """A kind, and what a client says of a reply."""
    tools, schema, regex, lark = range(4)
    seventh = '"$schema": "http://json-schema.org/draft-07/schema#"'
    texts = {
        "tools": (tools, '[{"name": "f", "parameters": {"type": "object", "properties": {"a": '
                         '{"type": "integer", "minimum": 1}}, "required": ["a"]}}]'),
        "object": (schema, '{"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}, '
                           '"$defs": {"b": {"enum": [1, "x", null]}}, "required": ["a"]}'),
        "draft_07": (schema, '{' + seventh + ', "items": [{"const": 1}, {"type": "string", '
                             '"pattern": "^[a-z]{2,5}$"}], "additionalItems": false}'),
        "draft_04": (schema, '{"$schema": "http://json-schema.org/draft-04/schema", "type": '
                             '"number", "minimum": 0.5, "exclusiveMinimum": true}'),
        "any_of": (schema, '{"anyOf": [{"type": "array", "minItems": 2, "items": {"format": '
                           '"date"}}, {"patternProperties": {"^k": {"type": "boolean"}}}]}'),
        "regex": (regex, "(yes|no)[0-9]{2,4}\\d*(?i:end)?"),
        "lark": (lark, 'start: a+ B // text\na: "x"{2} | /[a-c]+/\nB: "d" C?\nC: "e" & /./\n'),
    }
    return {name: bytes([kind]) + text.encode() for name, (kind, text) in texts.items()}


def main():
    groups = {"gguf": gguf_seeds(), "ring": ring_seeds(), "request": request_seeds(),
              "control": control_seeds(), "tool_stream": tool_stream_seeds(),
              "grammar": grammar_seeds(), **text_seeds()}
    for group, seeds in groups.items():
        folder = CORPUS / f"{group}_fuzz"
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in seeds.items():
            (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())


if __name__ == "__main__":
    main()
