// SPDX-License-Identifier: Apache-2.0
// Tokenizes texts with the vocabulary of a GGUF file, for comparison with other implementations.
// Input: per text a line "LENGTH SPECIAL" (bytes; 1 to recognise special tokens), then the bytes.
// Output: per text a line "DROPPED id id ...". Usage: kairos-tokenize MODEL.gguf < texts > ids
#include <cstdio>
#include <ctime>
#include <string>

#include "sidecar/chat/tokenizer.h"

namespace kairos {
namespace {

int Run(const char* path) {
  std::string error;
  auto file = GgufFile::Open(path, &error);
  if (!file.ok()) {
    std::fprintf(stderr, "%s: %s\n", path, error.c_str());
    return 1;
  }
  const auto start = std::clock();
  auto tokenizer = Tokenizer::Create(**file, &error);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s: %s\n", path, error.c_str());
    return 1;
  }
  const auto loaded = std::clock();
  size_t length = 0;
  int special = 0;
  uint64_t bytes = 0;
  std::clock_t spent = 0;  // of the processor: other load does not count
  std::string text;
  while (std::scanf("%zu %d", &length, &special) == 2 && std::getchar() == '\n') {
    text.resize(length);
    if (std::fread(text.data(), 1, length, stdin) != length) {
      std::fprintf(stderr, "input ends inside a text\n");
      return 1;
    }
    const auto before = std::clock();
    const EncodeResult result = (*tokenizer)->Encode(text, special != 0, TextPlace::kStart);
    spent += std::clock() - before;
    bytes += length;
    std::printf("%llu", static_cast<unsigned long long>(result.dropped_bytes));
    for (const TokenId token : result.tokens) std::printf(" %d", token);
    std::printf("\n");
  }
  const double load_s = static_cast<double>(loaded - start) / CLOCKS_PER_SEC;
  const double encode_s = static_cast<double>(spent) / CLOCKS_PER_SEC;
  std::fprintf(stderr, "vocabulary %.1f ms; %llu bytes in %.1f ms, %.1f MB/s\n", load_s * 1e3,
               static_cast<unsigned long long>(bytes), encode_s * 1e3,
               encode_s > 0 ? static_cast<double>(bytes) / encode_s / 1e6 : 0.0);
  return 0;
}

}  // namespace
}  // namespace kairos

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: kairos-tokenize MODEL.gguf < texts > ids\n");
    return 2;
  }
  return kairos::Run(argv[1]);
}
