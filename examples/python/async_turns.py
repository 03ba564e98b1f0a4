#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several sessions answer at once; one event loop and no threads."""

import asyncio
import sys

from show import SHORT, numbers, socket_argument

import kairos

QUESTIONS = ("Name a metal.", "Name a bird.", "Name a tree.", "Name a city.")


async def ask(client: kairos.AsyncClient, question: str) -> int:
    turn = await client.submit(question, generation=SHORT)
    text = await turn.read()
    assert turn.result is not None
    # Printed in one piece: the turns end in any order.
    print(f"> {question}\n{text}\n{numbers(turn.result)}")
    return turn.session_id


async def main(socket: "str | None") -> None:
    async with kairos.AsyncClient(socket) as client:
        sessions = await asyncio.gather(*(ask(client, question) for question in QUESTIONS))
        for session_id in sessions:
            client.client.open_session(session_id).delete()


if __name__ == "__main__":
    try:
        asyncio.run(main(socket_argument(__doc__)))
    except kairos.KairosError as error:
        sys.exit(f"error: {error}")
