// SPDX-License-Identifier: Apache-2.0
// SentencePiece's way with BPE vocabularies, `llama` in GGUF files: characters merge, the pair
// whose piece has the highest score first and the leftmost of equal ones, and characters that are
// in no piece are spelled in bytes.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "sidecar/chat/text_encoder.h"

namespace kairos {

// A TokenReader. Such a vocabulary writes U+2581 for the space and <0xNN> for a byte.
bool ReadSpmToken(std::string_view text, TokenKind kind, std::string* bytes);

// A MakeTextEncoder.
Result<std::unique_ptr<TextEncoder>> MakeSpmEncoder(const Vocabulary& vocabulary,
                                                    const TokenTable& tokens,
                                                    const TokenTable::TokensByText& by_text,
                                                    std::string* error);

}  // namespace kairos
