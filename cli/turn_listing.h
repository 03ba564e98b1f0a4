// SPDX-License-Identifier: Apache-2.0
// What a turn reused, recomputed and took, in words and as JSON. Pure; any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "kairos/kairos.h"

namespace kairos {

// "3 block_boundary, 40 evicted"
std::string ReasonsText(const kairos_final_t& final);
// Names and values of a final record, with units in the names.
nlohmann::ordered_json FinalJson(const kairos_final_t& final);
// Of the control socket's recent turns (sidecar/session/turn_history.h): a paragraph for each, the
// newest first, or words that there is none.
std::string TurnParagraphs(std::string_view turns_json, uint64_t now_unix_ms);
// The same as a JSON array, oldest first, with words in place of numbers of codes.
std::string TurnsJson(std::string_view turns_json);

}  // namespace kairos
