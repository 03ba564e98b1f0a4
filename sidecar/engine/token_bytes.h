// SPDX-License-Identifier: Apache-2.0
// Bytes of every token of a GGUF vocabulary, for matching stop strings.
#pragma once

#include <string>
#include <vector>

namespace kairos {

class GgufFile;

// Indexed by token; undoes the byte-level alphabet of `gpt2` vocabularies and the space mark and
// byte tokens of `llama` ones. Empty when the file has no vocabulary.
std::vector<std::string> ReadTokenBytes(const GgufFile& file);

}  // namespace kairos
