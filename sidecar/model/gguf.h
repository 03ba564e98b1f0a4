// SPDX-License-Identifier: Apache-2.0
// Reads GGUF version 3 (and 2) files by mmap: metadata and tensor directory, every count, length
// and offset checked against the file before use. Format: the ggml project's gguf.md. Immutable
// after Open; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace kairos {

struct GgufTensor {
  std::string_view name;
  uint32_t type = 0;  // GGUF's number
  uint32_t dimensions = 0;
  uint64_t extents[4] = {1, 1, 1, 1};  // extent 0 is contiguous
  uint64_t bytes = 0;
  const uint8_t* data = nullptr;
};

class GgufFile {
 public:
  // `error` receives a sentence for people, naming the field or tensor and the limit. May block on
  // disk.
  static Result<std::unique_ptr<GgufFile>> Open(const std::string& path, std::string* error);
  // The same checks over bytes in memory, which outlive the object (fuzzing, tests).
  static Result<std::unique_ptr<GgufFile>> Parse(std::span<const uint8_t> bytes,
                                                 std::string* error);
  ~GgufFile();

  // Metadata; empty when the key is missing or of another kind. Integers are read from any width.
  std::optional<uint64_t> Unsigned(std::string_view key) const;
  std::optional<double> Float(std::string_view key) const;
  std::optional<bool> Bool(std::string_view key) const;
  std::optional<std::string_view> String(std::string_view key) const;
  std::optional<std::vector<std::string_view>> StringArray(std::string_view key) const;
  std::optional<std::vector<int64_t>> IntegerArray(std::string_view key) const;
  std::optional<std::vector<float>> FloatArray(std::string_view key) const;

  const std::vector<GgufTensor>& tensors() const;
  const GgufTensor* FindTensor(std::string_view name) const;
  uint64_t file_bytes() const;
  // Gives the map's pages back to the system; they are read again from the file when touched.
  void ReleasePages() const;
  // Of these bytes of the map, the pages that hold nothing else.
  void ReleasePages(std::span<const uint8_t> bytes) const;

 private:
  GgufFile();
  struct Body;
  std::unique_ptr<Body> body_;
};

// "Q4_1" for 3; "type 99" texts are not known: returns nullptr.
const char* GgufTypeName(uint32_t type);

}  // namespace kairos
