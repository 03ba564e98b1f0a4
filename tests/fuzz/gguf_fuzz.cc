// SPDX-License-Identifier: Apache-2.0
// GGUF images: the parser, then every reader over what it accepted.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "sidecar/model/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kairos;
  std::string error;
  auto file = GgufFile::Parse({data, size}, &error);
  if (!file.ok()) {
    if (error.empty()) std::abort();
    return 0;
  }
  uint64_t sum = 0;
  for (const GgufTensor& tensor : (*file)->tensors()) {
    if (tensor.data < data || tensor.data + tensor.bytes > data + size) std::abort();
    sum += tensor.data[0] + tensor.data[tensor.bytes - 1];
    if ((*file)->FindTensor(tensor.name) != &tensor) std::abort();
  }
  for (const char* key :
       {"a", "general.architecture", "general.alignment", "tokenizer.ggml.tokens"}) {
    sum += (*file)->Unsigned(key).value_or(0);
    sum += (*file)->Float(key).has_value() + (*file)->Bool(key).has_value();
    if (const auto text = (*file)->String(key)) sum += text->size();
    if (const auto strings = (*file)->StringArray(key)) {
      for (const std::string_view text : *strings) sum += text.empty() ? 0 : text.back();
    }
    if (const auto numbers = (*file)->IntegerArray(key)) sum += numbers->size();
    if (const auto numbers = (*file)->FloatArray(key)) sum += numbers->size();
  }
  volatile uint64_t keep = sum;
  static_cast<void>(keep);
  return 0;
}
