#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A writer and a critic talk to each other; both have the same brief in front.

Each agent is a session and gets only what the other said last. The brief's blocks are computed
once: the critic's first turn takes them from the writer's session.
"""

import sys

from show import SHORT, connect, run_turn

import kairos

BRIEF = """\
You work on the label of a new tea. These are the facts that both of you keep to.
The tea is called Harbour Fog. It is a black tea from two gardens, smoked over beech wood for six
hours and blended with a little bergamot. It is sold in tins of 100 grams. It is made for cold
mornings and drunk with milk or without. The water should be 95 degrees and the tea should stand for
four minutes. The label has room for two short sentences. It must name the beech wood, and it must
not promise anything about health. The tone is plain and warm; there are no exclamation marks. The
buyers are people who work early: fishermen, bakers, drivers. The colour of the tin is grey and so
is the paper.
"""


def main() -> None:
    with connect(__doc__) as client:
        writer = client.create_session(label="writer")
        critic = client.create_session(label="critic")
        system = {"role": "system", "content": BRIEF}

        task = "Write the label."
        print("> writer:", task)
        label, _, _ = run_turn(writer, [system, {"role": "user", "content": task}],
                               generation=SHORT)
        print("> critic:", "what would you change?")
        advice, _, first = run_turn(critic, [system, {
            "role": "user", "content": f"This is the label: {label}\nWhat would you change?"}],
            generation=SHORT)
        print("> writer:", "the critic's advice")
        run_turn(writer, [{"role": "user", "content": f"A critic says: {advice}\nWrite it again."}],
                 generation=SHORT)

        shared = first.usage.shared_tokens
        print(f"  [the critic took {shared} tokens of the brief from the writer]")
        writer.delete()
        critic.delete()
        if shared == 0:
            sys.exit("nothing was shared")


if __name__ == "__main__":
    try:
        main()
    except kairos.KairosError as error:
        sys.exit(f"error: {error}")
