# SPDX-License-Identifier: Apache-2.0
"""Values that do not fit the C interface are refused by name, and none is changed on its way."""

import ctypes
import pathlib
import struct
import unittest

import kairos
from kairos.arguments import timeout_ms
from kairos.native import text_of
from kairos.options import NativeTurn
from tests.sidecar import FakeSidecarTest

U32, U64 = 2**32 - 1, 2**64 - 1


KEPT = []  # what the structs point to lives as long as its turn


def native(*arguments, **options):
    KEPT.append(NativeTurn(1, *arguments, **options))
    return KEPT[-1].options


def turn(**options):
    return native("x", **options)


def generation(**options):
    return turn(generation=kairos.Generation(**options)).generation.contents


class Numbers(unittest.TestCase):
    # field, how it is set, least and largest
    FIELDS = [
        ("max_tokens", lambda n: generation(max_tokens=n).max_tokens, 0, U32),
        ("top_k", lambda n: generation(top_k=n).top_k, -2**31, 2**31 - 1),
        ("penalty_window", lambda n: generation(penalty_window=n).penalty_window,
         -2**31, 2**31 - 1),
        ("seed", lambda n: generation(seed=n).seed, 0, U64),
        ("logprobs", lambda n: generation(logprobs=n).logprobs, 0, U32),
        ("logit_bias: token", lambda n: generation(logit_bias={n: 1.0}).biases[0].token,
         -2**31, 2**31 - 1),
        ("session_id", lambda n: NativeTurn(n, "x").options.session_id, 0, U64),
        ("if_version", lambda n: turn(if_version=n).if_version, 0, 2**63 - 1),
        ("tokens[1]", lambda n: native((), tokens=[7, n]).tokens[1],
         -2**31, 2**31 - 1),
        ("deadline_ms", lambda n: turn(deadline_ms=n).deadline_ms, 0, U32),
        ("priority", lambda n: turn(priority=n).priority, -2**31, 2**31 - 1),
    ]

    def test_integers_reach_the_struct_or_are_refused_by_name(self):
        for field, put, least, largest in self.FIELDS:
            with self.subTest(field):
                self.assertEqual((put(least), put(largest)), (least, largest))
                for number in (least - 1, largest + 1, 2**70):
                    with self.assertRaises(ValueError) as caught:
                        put(number)
                    self.assertEqual(str(caught.exception),
                                     f"{field}: {number} is not from {least} to {largest}")

    def test_what_is_no_integer_is_refused_by_name(self):
        for field, put, _, _ in self.FIELDS:
            for value in ([], 3.0, b"3"):
                with self.subTest(field, value=value):
                    if field.startswith("logit_bias") and value == []:
                        continue  # no key of a mapping
                    with self.assertRaises(TypeError) as caught:
                        put(value)
                    self.assertEqual(str(caught.exception),
                                     f"{field}: an integer, not {type(value).__name__}")

    def test_floats_reach_the_struct_or_are_refused_by_name(self):
        def narrow(number):
            return struct.unpack("f", struct.pack("f", number))[0]

        for field in ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty"):
            with self.subTest(field):
                self.assertEqual(getattr(generation(**{field: 0.3}), field), narrow(0.3))
                for number in (1e39, 10**400):
                    with self.assertRaisesRegex(ValueError, rf"^{field}: 1[0e+]+(39)? is not"):
                        generation(**{field: number})
                with self.assertRaisesRegex(TypeError, f"^{field}: a number, not list"):
                    generation(**{field: []})
        banned = generation(logit_bias={5: float("-inf")})
        self.assertEqual(banned.biases[0].bias, float("-inf"))
        with self.assertRaisesRegex(TypeError, r"^logit_bias\[5\]: a number, not str"):
            generation(logit_bias={5: "1"})

    def test_times_are_rounded_up_and_none_is_without_limit(self):
        for seconds, milliseconds in ((None, -1), (0, 0), (-3, 0), (0.0001, 1), (1.5, 1500),
                                      (1e12, 2**31 - 1), (float("inf"), 2**31 - 1)):
            with self.subTest(seconds=seconds):
                self.assertEqual(timeout_ms(seconds), milliseconds)
        with self.assertRaisesRegex(ValueError, "^timeout: .*NaN"):
            timeout_ms(float("nan"))


class Texts(unittest.TestCase):
    def test_a_bare_stop_is_one_stop(self):
        one = generation(stop="abc")
        self.assertEqual([text_of(one.stops[i]) for i in range(one.stop_count)], ["abc"])
        two = generation(stop=("a", "bc"))
        self.assertEqual([text_of(two.stops[i]) for i in range(two.stop_count)], ["a", "bc"])

    def test_wrong_types_are_refused_by_name(self):
        def message(**fields):
            return lambda: native(["x", {"role": "user", **fields}])

        table = [
            ("messages: text, a Message", lambda: native(5)),
            ("messages: text, a Message", lambda: native(b"x")),
            (r"messages\[1\]: text, a Message or a mapping, not int",
             lambda: native(["x", 5])),
            (r"messages\[1\].role: text, not int", message(role=5)),
            (r"messages\[1\].content: text, not int", message(content=5)),
            (r"messages\[1\].content: text, not list", message(content=[])),
            (r"messages\[1\].content: text, not bytes", message(content=b"x")),
            (r"messages\[0\].content: text, not int",
             lambda: native(kairos.Message("user", 5))),
            (r"messages\[1\].name: text, not int", message(name=5)),
            (r"messages\[1\].tool_call_id: text, not int", message(tool_call_id=5)),
            (r"messages\[1\].tool_calls: .*set is not JSON", message(tool_calls={5})),
            ("tokens: a sequence of integers, not str", lambda: turn(tokens="abc")),
            ("tokens: a sequence of integers, not int", lambda: turn(tokens=5)),
            ("tools: .*object is not JSON", lambda: turn(tools=[object()])),
            ("tool_choice: text or a mapping, not NoneType", lambda: turn(tool_choice=None)),
            ("tool_choice: text or a mapping, not int", lambda: turn(tool_choice=5)),
            ("idempotency_key: text, not int", lambda: turn(idempotency_key=5)),
            ("model: text, not bytes", lambda: turn(model=b"x")),
            ("generation: a Generation, not dict", lambda: turn(generation={"seed": 1})),
            ("stop: text or a sequence of texts, not int", lambda: generation(stop=5)),
            (r"stop\[1\]: text, not NoneType", lambda: generation(stop=["a", None])),
            ("logit_bias: a mapping", lambda: generation(logit_bias=[])),
            ("json_schema: .*set is not JSON", lambda: generation(json_schema={5})),
            ("regex: text, not int", lambda: generation(regex=5)),
            ("grammar: text, not list", lambda: generation(grammar=[])),
        ]
        for words, act in table:
            with self.subTest(words):
                self.assertRaisesRegex(TypeError, "^" + words, act)

    def test_wrong_values_are_refused_by_name(self):
        ring = []
        ring.append(ring)
        table = [
            (r"messages\[0\]: unknown field 'text'", lambda: native({"text": "x"})),
            (r"messages\[0\].role: must be given", lambda: native({"content": "x"})),
            (r"messages\[0\].content: half of a surrogate pair at 1",
             lambda: native("x\ud800")),
            ("tools: Circular", lambda: turn(tools=ring)),
            ("tool_choice: one of auto", lambda: turn(tool_choice="Auto")),
            ("tool_choice: the mapping has no name", lambda: turn(tool_choice={"function": 5})),
            ("tool_choice: the mapping has no name", lambda: turn(tool_choice={"name": ""})),
            ("tool_choice: the name has more than 128 bytes",
             lambda: turn(tool_choice={"name": "ü" * 65})),
        ]
        for words, act in table:
            with self.subTest(words):
                self.assertRaisesRegex(ValueError, "^" + words, act)


class Calls(FakeSidecarTest):
    """Arguments of the client's own calls."""

    def test_wrong_arguments_of_opening_are_refused_by_name(self):
        for error, words, options in [
            (TypeError, "name_space: text, not int", {"name_space": 5}),
            (ValueError, "request_ring_bytes: -1 is not from 0 to", {"request_ring_bytes": -1}),
            (ValueError, f"reply_ring_bytes: {2**32} is not", {"reply_ring_bytes": 2**32}),
            (ValueError, f"spin_us: {2**31} is not", {"spin_us": 2**31}),
            (TypeError, "connect_timeout: a number, not str", {"connect_timeout": "5"}),
            (TypeError, "timeout: a number, not str", {"timeout": "5"}),
        ]:
            with self.subTest(words), self.assertRaisesRegex(error, "^" + words):
                kairos.Client(self.path, **options)
        with self.assertRaisesRegex(TypeError, "^socket_path: a path, not int"):
            kairos.Client(5)

    def test_a_path_object_and_no_limit_of_connecting_will_do(self):
        with kairos.Client(pathlib.Path(self.path), connect_timeout=None) as client:
            self.assertGreater(client.ping(), 0)

    def test_wrong_arguments_of_calls_are_refused_by_name(self):
        with kairos.Client(self.path) as client:
            session = client.create_session()
            version = "version: -1 is not from 0 to 18446744073709551615"
            for error, words, act in [
                (ValueError, "priority: 4294967296 is not",
                 lambda: client.create_session(priority=2**32)),
                (ValueError, "ttl_seconds: -1 is not",
                 lambda: client.create_session(ttl_seconds=-1)),
                (TypeError, "label: text, not int", lambda: client.create_session(label=5)),
                (TypeError, "model: text, not int", lambda: client.create_session(model=5)),
                (TypeError, "session_id: an integer, not str", lambda: client.open_session("x")),
                (ValueError, "session_id: -1 is not", lambda: client.open_session(-1)),
                (ValueError, "session_id: -1 is not", lambda: client.submit("x", session_id=-1)),
                (ValueError, "page: 0 is not from 1 to", lambda: next(client.sessions(page=0))),
                (ValueError, "size: -1 is not", lambda: client.ping(-1)),
                (ValueError, version, lambda: session.fork(-1)),
                (ValueError, version, lambda: session.rewind(-1)),
                (ValueError, version, lambda: session.messages(-1)),
                (ValueError, version, lambda: session.context(-1)),
                (ValueError, "if_version: -1 is not from 0 to",
                 lambda: session.set_context({}, if_version=-1)),
                (TypeError, "context: .*set is not JSON", lambda: session.set_context({5})),
            ]:
                with self.subTest(words), self.assertRaisesRegex(error, "^" + words):
                    act()


if __name__ == "__main__":
    unittest.main()
