# SPDX-License-Identifier: Apache-2.0
"""Token sequences of real dialogues for fidelity.py, rendered as ChatML and tokenized by KAIROS."""
import glob
import json
import os
import subprocess
import sys

# Half English task dialogues with tools, a quarter English chat, a quarter Chinese.
ORDER = ("sgd_agents", "tiage", "sgd_agents", "crosswoz_agents")


def chatml(messages):
    return "".join("<|im_start|>%s\n%s<|im_end|>\n" % message for message in messages)


def agent_dialogues(path):
    for line in open(path, encoding="utf-8"):
        row = json.loads(line)
        messages = []
        if row.get("tools"):
            messages.append(("system", "You may call these functions:\n" +
                             "\n".join(json.dumps(t, ensure_ascii=False) for t in row["tools"])))
        for message in row["messages"]:
            text = message.get("content")
            if "tool_call" in message:
                text = json.dumps(message["tool_call"], ensure_ascii=False)
            if not isinstance(text, str):
                text = json.dumps(text, ensure_ascii=False)
            messages.append((message["role"], text))
        yield chatml(messages)


def turn_dialogues(paths):
    """Each dialogue once, with its longest history."""
    longest = {}
    for path in paths:
        for line in open(path, encoding="utf-8"):
            row = json.loads(line)
            messages = [(m["role"], m["text"]) for m in row["history"] + [row["turn"]]]
            name = row["id"].rsplit("/", 1)[0]
            if len(messages) > len(longest.get(name, ())):
                longest[name] = messages
    return [chatml(longest[name]) for name in sorted(longest)]


def read_dialogues(folder):
    dialogues = {
        "tiage": turn_dialogues(sorted(glob.glob(os.path.join(folder, "turns", "tiage_*.jsonl"))))}
    for source in ("sgd_agents", "crosswoz_agents"):
        dialogues[source] = list(agent_dialogues(os.path.join(folder, "agents",
                                                              source + ".jsonl")))
    for source, texts in dialogues.items():
        if not texts:
            sys.exit("no dialogues of %s under %s" % (source, folder))
    return dialogues


def tokenize(binary, model, texts):
    data = bytearray()
    for text in texts:
        encoded = text.encode("utf-8")
        data += b"%d 1\n" % len(encoded) + encoded
    run = subprocess.run([binary, model], input=bytes(data), stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, check=True)
    return [[int(word) for word in line.split()[1:]] for line in run.stdout.splitlines()]


def dialogue_sequences(folder, binary, model, positions, shortest, longest, random):
    """[(source, tokens)]: dialogues of one source in a row, cut at a length drawn for each."""
    dialogues = read_dialogues(folder)
    queues = {}
    for source in sorted(dialogues):
        texts = dialogues[source]
        random.shuffle(texts)
        queues[source] = tokenize(binary, model, texts)
    sequences, total = [], 0
    while total < positions:
        source = ORDER[len(sequences) % len(ORDER)]
        length = random.randint(shortest, longest)
        tokens = []
        while len(tokens) < length:
            if not queues[source]:
                sys.exit("the dialogues of %s do not suffice for %d positions" %
                         (source, positions))
            tokens += queues[source].pop()
        sequences.append((source, tokens[:length]))
        total += length
    return sequences
