// SPDX-License-Identifier: Apache-2.0
// Builds GGUF files in memory for tests, well-formed or broken on purpose.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kairos {

class GgufWriter {
 public:
  void Unsigned(std::string_view key, uint32_t value);
  void Float(std::string_view key, float value);
  void Bool(std::string_view key, uint8_t value);
  void String(std::string_view key, std::string_view value);
  void StringArray(std::string_view key, const std::vector<std::string>& values);
  void IntegerArray(std::string_view key, const std::vector<int32_t>& values);
  // A key, a value type and bytes as they are.
  void Raw(std::string_view key, uint32_t type, std::string_view bytes);
  // Places the tensor after those before it, aligned.
  void Tensor(std::string_view name, uint32_t type, const std::vector<uint64_t>& extents,
              const std::vector<uint8_t>& data);
  // A directory entry without data of its own.
  void TensorEntry(std::string_view name, uint32_t type, const std::vector<uint64_t>& extents,
                   uint64_t offset);

  std::vector<uint8_t> Finish() const;

  uint32_t version = 3;
  uint64_t alignment = 32;    // of the data written; a key is only written by hand
  int64_t extra_tensors = 0;  // added to the counts of the header
  int64_t extra_values = 0;

 private:
  std::string values_;
  std::string directory_;
  std::string data_;
  uint64_t value_count_ = 0;
  uint64_t tensor_count_ = 0;
};

// Little-endian bytes of a number, and a length-prefixed string.
template <typename T>
std::string BytesOf(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}
std::string GgufString(std::string_view text);

}  // namespace kairos
