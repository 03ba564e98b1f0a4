#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""llama.cpp as a peer of kairos-bench: answers one JSON object a line on stdin with one on stdout.

Runs inside the environment that tools/peers makes. Decoding goes through llama.cpp's C functions
with batches that are made beforehand, so that Python costs some ten microseconds a step. Sampling
is not part of any time; logits are computed for the last token of a prompt and for each decoded
token.
"""

import argparse
import ctypes
import json
import os
import random
import sys
import time

import llama_cpp

BATCH = 512
SEQUENCES = 32


class Context:
    """A llama.cpp context with `sequences` sequences and a batch of its own."""

    def __init__(self, model, threads, tokens, sequences):
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = tokens
        params.n_batch = BATCH
        params.n_ubatch = BATCH
        params.n_seq_max = sequences
        params.n_threads = threads
        params.n_threads_batch = threads
        params.no_perf = True
        self.handle = llama_cpp.llama_init_from_model(model, params)
        if not self.handle:
            raise RuntimeError("llama.cpp made no context of %d tokens" % tokens)
        self.memory = llama_cpp.llama_get_memory(self.handle)
        self.batch = llama_cpp.llama_batch_init(BATCH, 0, 1)

    def clear(self):
        llama_cpp.llama_memory_clear(self.memory, True)

    def decode(self):
        if llama_cpp.llama_decode(self.handle, self.batch) != 0:
            raise RuntimeError("llama_decode failed")

    def feed(self, tokens, position, sequence=0, want_logits=True):
        """Computes tokens of one sequence in pieces of BATCH; logits of the last one only."""
        batch = self.batch
        for begin in range(0, len(tokens), BATCH):
            piece = tokens[begin:begin + BATCH]
            for i, token in enumerate(piece):
                batch.token[i] = token
                batch.pos[i] = position + begin + i
                batch.n_seq_id[i] = 1
                batch.seq_id[i][0] = sequence
                batch.logits[i] = 0
            batch.n_tokens = len(piece)
            if want_logits and begin + len(piece) == len(tokens):
                batch.logits[len(piece) - 1] = 1
            self.decode()


class Peer:
    def __init__(self, path, threads, context):
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), params)
        if not self.model:
            raise RuntimeError("llama.cpp cannot load " + path)
        self.vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        self.size = llama_cpp.llama_vocab_n_tokens(self.vocabulary)
        self.threads = threads
        self.single = Context(self.model, threads, context, 1)
        self.many = None
        self.random = random.Random(1)
        self.open = None
        self.cached = []
        self.template = None

    def some_tokens(self, count):
        return [self.random.randrange(100, self.size) for _ in range(count)]

    # ---- Speed of the engine
    # ----------------------------------------------------------------------

    def prefill(self, tokens):
        ids = self.some_tokens(tokens)
        self.single.clear()
        begin = time.perf_counter()
        self.single.feed(ids, 0)
        llama_cpp.llama_synchronize(self.single.handle)
        return {"seconds": time.perf_counter() - begin}

    def decode_open(self, context, batch):
        """`batch` sequences of `context` tokens each, and a batch of their next tokens."""
        if batch > 1 and self.many is None:
            self.many = Context(self.model, self.threads, SEQUENCES * 512, SEQUENCES)
        where = self.single if batch == 1 else self.many
        where.clear()
        for sequence in range(batch):
            where.feed(self.some_tokens(context), 0, sequence)
        rows = where.batch
        for i in range(batch):
            rows.token[i] = 1000 + i
            rows.pos[i] = context
            rows.n_seq_id[i] = 1
            rows.seq_id[i][0] = i
            rows.logits[i] = 1
        rows.n_tokens = batch
        self.open = where
        return {"opened": batch}

    def decode_run(self, steps):
        where = self.open
        rows = where.batch
        begin = time.perf_counter()
        for _ in range(steps):
            where.decode()
            for i in range(rows.n_tokens):
                rows.pos[i] += 1
        llama_cpp.llama_synchronize(where.handle)
        return {"seconds": time.perf_counter() - begin}

    # ---- Turns of a conversation
    # ------------------------------------------------------------------

    def tokenize(self, text):
        data = text.encode()
        room = len(data) + 16
        ids = (ctypes.c_int32 * room)()
        count = llama_cpp.llama_tokenize(self.vocabulary, data, len(data), ids, room, False, True)
        if count < 0:
            raise RuntimeError("llama_tokenize failed")
        return list(ids[:count])

    def render(self, messages, tools):
        if self.template is None:
            from llama_cpp.llama_chat_format import Jinja2ChatFormatter

            source = llama_cpp.llama_model_chat_template(self.model, None)
            end = llama_cpp.llama_vocab_get_text(
                self.vocabulary, llama_cpp.llama_vocab_eos(self.vocabulary)).decode()
            start = llama_cpp.llama_vocab_get_text(
                self.vocabulary, llama_cpp.llama_vocab_bos(self.vocabulary)).decode()
            self.template = Jinja2ChatFormatter(source.decode(), end, start)
        return self.template(messages=messages, tools=tools).prompt

    def first_token(self, prompt, kept):
        """Milliseconds from text to the first token, with `kept` tokens already in the context."""
        begin = time.perf_counter()
        ids = self.tokenize(prompt)
        llama_cpp.llama_memory_seq_rm(self.single.memory, 0, kept, -1)
        self.single.feed(ids[kept:], kept)
        llama_cpp.llama_synchronize(self.single.handle)
        return (time.perf_counter() - begin) * 1e3

    def turn(self, messages, tools, answer):
        """The last message's turn without and with the cache; `answer` is then taken as spoken."""
        prompt = self.render(messages, tools)
        ids = self.tokenize(prompt)
        kept = len(os.path.commonprefix([ids, self.cached]))
        # The last token is computed in any case: its logits are wanted.
        kept = min(kept, len(ids) - 1)
        uncached = self.first_token(prompt, 0)
        cached = self.first_token(prompt, kept)
        said = self.tokenize(answer)
        self.single.feed(said, len(ids), want_logits=False)
        self.cached = ids + said
        return {"uncached_ms": uncached, "cached_ms": cached, "prompt_tokens": len(ids),
                "kept_tokens": kept}

    def answer(self, question):
        what = question.pop("do")
        if what == "hello":
            return {"version": llama_cpp.__version__,
                    "system": llama_cpp.llama_print_system_info().decode()}
        if what not in ("prefill", "decode_open", "decode_run", "turn"):
            return {"error": "unknown request " + what}
        return getattr(self, what)(**question)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=4608)
    arguments = parser.parse_args()
    # llama.cpp's own lines go nowhere, and nothing but answers goes to stdout.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(silent, None)
    llama_cpp.llama_backend_init()
    peer = None
    for line in sys.stdin:
        try:
            if peer is None:
                peer = Peer(arguments.model, arguments.threads, arguments.context)
            reply = peer.answer(json.loads(line))
        except Exception as error:  # the bench prints it and goes on without this figure
            reply = {"error": str(error)}
        answers.write(json.dumps(reply) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
