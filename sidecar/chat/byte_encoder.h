// SPDX-License-Identifier: Apache-2.0
// Byte-level BPE, `gpt2` in GGUF files. What a piece of text becomes depends on that piece alone,
// so the pieces that become one token are found out when the vocabulary is read and looked up
// whole; merging is left for the others.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "sidecar/chat/text_encoder.h"

namespace kairos {

// A TokenReader. Never false: added tokens that a converter left marked as normal may be written in
// raw text.
bool ReadByteLevelToken(std::string_view text, TokenKind kind, std::string* bytes);

// A MakeTextEncoder.
Result<std::unique_ptr<TextEncoder>> MakeByteEncoder(const Vocabulary& vocabulary,
                                                     const TokenTable& tokens,
                                                     const TokenTable::TokensByText& by_text,
                                                     std::string* error);

}  // namespace kairos
