// SPDX-License-Identifier: Apache-2.0
// `kairosctl session ...`: what an operator sees of sessions and does to them. Each returns the
// exit status after it has printed. Blocks on the control socket.
#pragma once

#include "cli/control_call.h"

namespace kairos {

int ListSessions(const Target& target);
// Figures, task context, messages.
int ShowSession(const Target& target);
// What its recent turns reused and recomputed, and for which reasons.
int ExplainSession(const Target& target);
// All that is stored of it but tokens: as JSON, or as Markdown for people.
int ExportSession(const Target& target);
// Deletes all sessions without a turn for so many hours, but those whose turn runs. Below one hour
// it asks first, unless `yes`; without a terminal to ask at it refuses.
int SweepSessions(const Target& target, double unused_hours, bool yes);
// Ping, fork, rewind, delete.
int Act(const Target& target, ControlVerb verb);

}  // namespace kairos
