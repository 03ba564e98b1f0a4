#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How far logits are from float32 arithmetic on the dequantised weights, ours beside llama.cpp.

Needs the environment of `tools/peers --reference` (torch, transformers, gguf, llama-cpp-python) and
built kairos-logits and kairos-tokenize. Every sequence goes through the reference, llama.cpp with
16-bit and with 8-bit KV, and ours with 16-bit (exact) and 8-bit (default) KV, one after another.
Per position: the Kullback-Leibler divergence from the reference and whether the most likely token
is the same. Ratios carry a 95 % interval from a paired bootstrap over whole sequences.

Prints one JSON object a line, then a table on stderr. After an interrupt (SIGINT) it finishes the
sequence at hand and reports what it has. Exit status 1: a bound of --bound-exact or
--bound-default is missed. Usage: see docs/FIDELITY.md.
"""
import argparse
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

from fidelity_texts import dialogue_sequences

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TQDM_DISABLE", "1")

try:
    import numpy  # noqa: E402
    import torch  # noqa: E402
except ImportError as missing:
    # --help works everywhere; main() ends for anything else.
    numpy = torch = None
    MISSING = missing.name

ROWS_AT_ONCE = 64
NAMES = ("llama_f16", "llama_q8", "ours_exact", "ours_default")
TITLES = {"llama_f16": "llama.cpp, 16-bit KV", "llama_q8": "llama.cpp, q8_0 KV",
          "ours_exact": "KAIROS exact, 16-bit KV", "ours_default": "KAIROS default, INT8 KV"}


class Reference:
    """float32 logits of the dequantised weights, by transformers."""

    def __init__(self, model):
        from transformers import AutoModelForCausalLM
        folder, name = os.path.split(os.path.abspath(model))
        self.model = AutoModelForCausalLM.from_pretrained(
            folder, gguf_file=name, dtype=torch.float32, attn_implementation="eager")
        self.model.eval()

    def logits(self, tokens):
        with torch.inference_mode():
            return self.model(torch.tensor([tokens]), use_cache=False).logits[0]


class LlamaCpp:
    """llama.cpp with the given KV type; 8-bit values need its flash attention."""

    def __init__(self, model, context, threads, kv_type, flash):
        import llama_cpp
        self.library = llama_cpp
        self.model = llama_cpp.Llama(
            model_path=model, n_ctx=context, n_batch=512, n_ubatch=512, n_threads=threads,
            n_threads_batch=threads, logits_all=True, type_k=kv_type, type_v=kv_type,
            flash_attn=flash, verbose=False)

    def logits(self, tokens):
        self.model.reset()
        self.model.eval(tokens)
        return torch.from_numpy(self.model.scores[:len(tokens)])


class Ours:
    """kairos-logits over all sequences; its rows are read from a pipe, so it waits for its turn."""

    def __init__(self, binary, model, tokens_path, fidelity, threads, vocabulary):
        self.vocabulary = vocabulary
        self.process = subprocess.Popen(
            [binary, "--model", model, "--tokens", tokens_path, "--fidelity", fidelity,
             "--threads", str(threads), "--out", "/dev/stdout"], stdout=subprocess.PIPE,
            start_new_session=True)

    def logits(self, tokens):
        size = len(tokens) * self.vocabulary * 4
        data = bytearray(size)
        view = memoryview(data)
        got = 0
        while got < size:
            count = self.process.stdout.readinto(view[got:])
            if not count:
                sys.exit("kairos-logits ended early with status %s" % self.process.wait())
            got += count
        return torch.frombuffer(data, dtype=torch.float32).view(len(tokens), self.vocabulary)

    def stop(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        extra = self.process.stdout.read(1)
        if self.process.wait() != 0 or extra:
            sys.exit("kairos-logits failed, or wrote more rows than there are tokens")


def weights_of(rows):
    """exp(rows - greatest) and the logarithm of the sum of exp(rows), the latter in float64."""
    greatest = rows.max(-1, keepdim=True).values
    weights = torch.exp(rows - greatest)
    total = weights.sum(-1, dtype=torch.float64)
    return weights, total, greatest[:, 0].double() + total.log()


def compare(reference, others):
    """For each of `others`: divergence (float64) and agreement of the most likely token, per
    position. Differences of logits are weighted in float32 and summed in float64."""
    divergence = [[] for _ in others]
    agreement = [[] for _ in others]
    for at in range(0, reference.shape[0], ROWS_AT_ONCE):
        want = reference[at:at + ROWS_AT_ONCE]
        weights, total, log_want = weights_of(want)
        best = want.argmax(-1)
        for i, other in enumerate(others):
            got = other[at:at + ROWS_AT_ONCE]
            drift = (weights * (want - got)).sum(-1, dtype=torch.float64) / total
            divergence[i].append(drift - log_want + weights_of(got)[2])
            agreement[i].append(best == got.argmax(-1))
    return [(torch.cat(d).numpy(), torch.cat(a).numpy()) for d, a in zip(divergence, agreement)]


def bootstrap(ours, theirs, rounds, seed):
    """95 % interval of sum(ours) / sum(theirs), whole sequences drawn with replacement."""
    generator = numpy.random.default_rng(seed)
    picks = generator.integers(0, len(ours), (rounds, len(ours)))
    ratios = ours[picks].sum(1) / theirs[picks].sum(1)
    return numpy.percentile(ratios, [2.5, 97.5])


def emit(metric, value, unit, params, peer=None, peer_value=None, better=None, extra=None):
    line = {"metric": metric, "value": float("%.6g" % value), "unit": unit, "params": params}
    if peer:
        line.update(peer=peer, peer_value=float("%.6g" % peer_value), ratio=float("%.4g" % better))
    line.update(extra or {})
    print(json.dumps(line), flush=True)


def write_tokens(path, sequences):
    with open(path, "wb") as out:
        for _, tokens in sequences:
            out.write(numpy.array([len(tokens)] + tokens, dtype="<u4").tobytes())


def measure(arguments, sequences):
    """{name: [(divergence, agreement) per sequence]}; fewer sequences after an interrupt."""
    interrupted = []
    signal.signal(signal.SIGINT, lambda *_: interrupted.append(True))
    began = time.monotonic()
    reference = Reference(arguments.model)
    vocabulary = reference.model.config.vocab_size
    context = max(len(tokens) for _, tokens in sequences)
    results = {name: [] for name in NAMES}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tokens")
        write_tokens(path, sequences)
        engines = {
            "llama_f16": LlamaCpp(arguments.model, context, arguments.threads, 1, False),
            "llama_q8": LlamaCpp(arguments.model, context, arguments.threads, 8, True)}
        for name in ("exact", "default"):
            engines["ours_" + name] = Ours(arguments.logits, arguments.model, path, name,
                                           arguments.threads, vocabulary)
        done = 0
        for _, tokens in sequences:
            want = reference.logits(tokens)
            others = [engines[name].logits(tokens) for name in NAMES]
            for name, compared in zip(NAMES, compare(want, others)):
                results[name].append(compared)
            done += len(tokens)
            print("fidelity: %6d positions, %4d s, mean KL so far %s" % (
                done, time.monotonic() - began,
                "  ".join("%s %.3g" % (name, sum(kl.sum() for kl, _ in results[name]) / done)
                          for name in NAMES)), file=sys.stderr, flush=True)
            if interrupted:
                break
        for name in ("ours_exact", "ours_default"):
            if interrupted:
                engines[name].stop()
            else:
                engines[name].close()
    return results


def mean_of(results, chosen, index):
    return float(numpy.concatenate([results[i][index] for i in chosen]).mean())


def print_table(results, sequences):
    sources = sorted({source for source, _ in sequences})
    groups = [("all", range(len(sequences)))] + [
        (source, [i for i, s in enumerate(sequences) if s[0] == source]) for source in sources]
    print("%-26s %-17s %9s %10s %10s %9s" %
          ("engine", "texts", "positions", "mean KL", "p99 KL", "top-1 %"), file=sys.stderr)
    for name in NAMES:
        for group, chosen in groups:
            rows = numpy.concatenate([results[name][i][0] for i in chosen])
            print("%-26s %-17s %9d %10.3g %10.3g %9.3f" % (
                TITLES[name], group, len(rows), rows.mean(), numpy.percentile(rows, 99),
                100 * mean_of(results[name], chosen, 1)), file=sys.stderr)


def report(arguments, sequences, results):
    """Prints the figures; true when the bounds hold."""
    everything = range(len(sequences))
    kl = {name: numpy.array([r[0].sum() for r in results[name]]) for name in NAMES}
    positions = sum(len(tokens) for _, tokens in sequences)
    params = {"model": os.path.basename(arguments.model), "positions": positions,
              "sequences": len(sequences), "seed": arguments.seed, "threads": arguments.threads}
    held = True
    pairs = (("ours_exact", "llama_f16", arguments.bound_exact),
             ("ours_default", "llama_f16", arguments.bound_default),
             ("ours_default", "llama_q8", None))
    for name, peer, bound in pairs:
        ours, theirs = kl[name].sum() / positions, kl[peer].sum() / positions
        low, high = bootstrap(kl[name], kl[peer], arguments.rounds, arguments.seed)
        extra = {"ours_over_peer": round(ours / theirs, 4),
                 "interval_95": [round(float(low), 4), round(float(high), 4)]}
        if bound is not None:
            extra.update(bound=bound, held=bool(high <= bound))
            held = held and high <= bound
        emit("fidelity.kl_mean", ours, "nats", {**params, "ours": name}, peer, theirs,
             theirs / ours, extra)
    for name in NAMES:
        emit("fidelity.top1_agreement", 100 * mean_of(results[name], everything, 1), "percent",
             {**params, "engine": name})
    print_table(results, sequences)
    return held


def ratio(text: str) -> float:
    """A bound; with nan, nothing would be over it."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True, help="GGUF file")
    parser.add_argument("--data", required=True, help="folder with agents/ and turns/ dialogues")
    parser.add_argument("--logits", default="build/kairos-logits")
    parser.add_argument("--tokenize", default="build/kairos-tokenize")
    parser.add_argument("--positions", type=int, default=20480, help="at least this many")
    parser.add_argument("--shortest", type=int, default=512, help="tokens of a sequence")
    parser.add_argument("--longest", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=10000, help="of the bootstrap")
    parser.add_argument("--bound-exact", type=ratio, default=1.05,
                        help="upper end of ours/llama.cpp, both with 16-bit KV")
    parser.add_argument("--bound-default", type=ratio, default=1.2,
                        help="upper end of ours with INT8 KV / llama.cpp with 16-bit KV")
    parser.add_argument("--save", help="file (.npz) for the divergence of every position")
    arguments = parser.parse_args()
    if torch is None:
        parser.error(f"no module {MISSING}: make the environment by `tools/peers --reference`, and "
                     "use its Python (docs/FIDELITY.md)")
    arguments.model = os.path.realpath(arguments.model)
    torch.set_num_threads(arguments.threads)
    sequences = dialogue_sequences(arguments.data, arguments.tokenize, arguments.model,
                                   arguments.positions, arguments.shortest, arguments.longest,
                                   random.Random(arguments.seed))
    print("fidelity: seed %d, %d sequences, %d positions" % (
        arguments.seed, len(sequences), sum(len(t) for _, t in sequences)), file=sys.stderr)
    results = measure(arguments, sequences)
    sequences = sequences[:len(results[NAMES[0]])]
    if arguments.save:
        numpy.savez(arguments.save, lengths=[len(t) for _, t in sequences], **{
            name: numpy.concatenate([r[0] for r in results[name]]) for name in NAMES})
    return 0 if report(arguments, sequences, results) else 1


if __name__ == "__main__":
    sys.exit(main())
