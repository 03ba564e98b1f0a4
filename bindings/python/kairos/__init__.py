# SPDX-License-Identifier: Apache-2.0
"""Python client of KAIROS. A thin layer over libkairos; no logic, retries or threads of its own.

    with kairos.Client() as client:
        session = client.create_session(label="demo")
        for event in session.turn("Hello"):
            if isinstance(event, kairos.TextEvent):
                print(event.text, end="")

Open clients after fork(): a child cannot use its parent's and gets ForkedError.
"""

from kairos.aio import AsyncClient, AsyncTurn, AsyncWatch
from kairos.client import Client, Session, Turn, Watch
from kairos.errors import (
    Aborted,
    AlreadyExists,
    Cancelled,
    ContextFull,
    DataLoss,
    DeadlineExceeded,
    FailedPrecondition,
    ForkedError,
    InternalError,
    InvalidArgument,
    KairosError,
    NotFound,
    ResourceExhausted,
    RingFull,
    SidecarLost,
    StaleVersion,
    Unavailable,
    Unimplemented,
)
from kairos.events import (
    AcceptedEvent,
    ErrorEvent,
    Event,
    FinalEvent,
    LogprobsEvent,
    ReasoningEvent,
    SessionEvent,
    TextEvent,
    TokenLogprob,
    ToolCallEvent,
)
from kairos.options import Generation, Message
from kairos.records import Finish, Phase, Plan, Reason, SessionInfo, TurnLabel, TurnResult, Usage
from kairos.version import abi_version, layout_hash, library_version

__version__ = "0.1.0"

__all__ = [
    "Aborted", "AcceptedEvent", "AlreadyExists", "AsyncClient", "AsyncTurn", "AsyncWatch",
    "Cancelled", "Client", "ContextFull", "DataLoss", "DeadlineExceeded", "ErrorEvent", "Event",
    "FailedPrecondition", "FinalEvent", "Finish", "ForkedError", "Generation", "InternalError",
    "InvalidArgument", "KairosError", "LogprobsEvent", "Message", "NotFound", "Phase", "Plan",
    "Reason", "ReasoningEvent", "ResourceExhausted", "RingFull", "Session", "SessionEvent",
    "SessionInfo", "SidecarLost", "StaleVersion", "TextEvent", "TokenLogprob", "ToolCallEvent",
    "Turn", "TurnLabel", "TurnResult", "Unavailable", "Unimplemented", "Usage", "Watch",
    "abi_version", "layout_hash", "library_version",
]
