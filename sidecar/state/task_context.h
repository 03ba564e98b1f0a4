// SPDX-License-Identifier: Apache-2.0
// The task context: goal, entities, done steps, pending actions, facts, as JSON that clients may
// read and write. This checks and normalises it; docs/STATE_FORMAT.md has the schema. The functions
// that continue a context take what these functions returned before; other text counts as the empty
// context. Pure; any thread; never throws. Fences nlohmann-json for this folder.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "sidecar/chat/chat_renderer.h"

namespace kairos {

inline constexpr size_t kTaskContextBytesMax = 256 * 1024;
inline constexpr size_t kTaskContextDepthMax = 32;
inline constexpr size_t kTaskContextItemsMax = 1024;  // of each list, from a client
// Lists that the sidecar appends to keep the newest; "dropped" counts the others.
inline constexpr size_t kTaskContextFactsKept = 64;
inline constexpr size_t kTaskContextStepsKept = 256;

// The context of a session before its first turn.
std::string EmptyTaskContext();
// Checks bytes from a client: size, UTF-8, depth, fields and their types; *normalised gets the
// compact form. INVALID_ARGUMENT; *error names the field and the limit.
Status CheckTaskContext(std::string_view json, std::string* normalised, std::string* error);
// First turn: a goal that is empty becomes the first user message's first sentence (at most 512
// bytes); entities, where there are none, the addresses, paths and quoted words in it (at most 16).
// All else stays, and so does the whole of a context that has no room for them.
std::string TaskContextFromFirstTurn(const std::string& json, std::string_view first_user_message);
// The model called tools: each call of the JSON array (objects with "id" and "name", or with
// "function"."name") becomes a pending action. Other JSON changes nothing.
std::string TaskContextAfterToolCalls(const std::string& json, const std::string& tool_calls_json,
                                      uint64_t message_index);
// Where a tool's result stands, which says how sure it is to answer a pending action.
enum class ResultSource {
  kTurn,    // a message that the turn adds: it must answer one, where any is pending
  kResent,  // after the known part of a resent history, where ids of calls may be the client's own
  kTold,    // behind an assistant's message of the same turn, whose calls nobody here waits for
};

// A tool's result came in. It answers the pending action that has its tool_call_id, else the first
// of its name, else, where it has neither, the only one that is waited for. That one moves to done
// steps and fills in what *result lacks of id and name. The result is noted as a fact with its
// message index. INVALID_ARGUMENT, and nothing changed, where a result of kTurn answers none of
// those that are pending; *error begins with the message's field and names what is pending.
Status TaskContextAfterToolResult(ResultSource source, uint64_t message_index,
                                  ChatMessage* result, std::string* json, std::string* error);
// Of the dialogue only the first messages are kept: nobody waits for calls of the others any more.
std::string TaskContextAfterCut(const std::string& json, uint64_t kept_messages);
// The wait for tools was given up after this long: every pending action that does not say so yet
// gets "timed_out_after_ms". Its result may still come and is then taken like any other.
std::string TaskContextAfterToolTimeout(const std::string& json, uint64_t timeout_ms);

}  // namespace kairos
