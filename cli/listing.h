// SPDX-License-Identifier: Apache-2.0
// What an operator sees of sessions, messages and figures. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kairos/kairos.h"

namespace kairos {

std::string SessionJson(const kairos_session_t& session);
// One line of `session ls`, under SessionHeading().
std::string SessionLine(const kairos_session_t& session, uint64_t now_unix_ms);
std::string SessionHeading();
// All its figures, one a line, with units.
std::string SessionFigures(const kairos_session_t& session, uint64_t now_unix_ms);
// One paragraph for each message of the JSON array; other text comes back printable and as it is.
std::string MessageParagraphs(std::string_view json);
// What a reload changed, one key a line, from the JSON array of its reply.
std::string ReloadLines(std::string_view json);
// What of a task context (JSON) is filled in, a line or an item each; empty where nothing is.
std::string ContextParagraph(std::string_view json);
// What is shown, where that is not the head but another version, from its summary (JSON); goes
// below the figures, which are the head's. Else empty.
std::string ShownVersion(const kairos_session_t& session, std::string_view version_json);
// A whole session as a Markdown document. `shown` as above, `versions` are summaries as JSON.
std::string SessionMarkdown(const kairos_session_t& session, const std::string& shown,
                            std::string_view context, const std::vector<std::string>& versions,
                            std::string_view messages);
// What to know of a chat with the model of that name, or with the default one where it is empty, of
// the models (JSON): that it has no chat template of its own. Empty where nothing.
std::string TemplateNote(std::string_view json, std::string_view name);
// Figures of the model (JSON), one a line, with units.
std::string ModelFigures(std::string_view json);
// One figure with the unit that its name tells.
std::string StatLine(std::string_view name, double value);

}  // namespace kairos
