// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gguf_writer.h"

namespace kairos {

std::string GgufString(std::string_view text) {
  return BytesOf<uint64_t>(text.size()) + std::string(text);
}

void GgufWriter::Raw(std::string_view key, uint32_t type, std::string_view bytes) {
  values_ += GgufString(key) + BytesOf(type) + std::string(bytes);
  ++value_count_;
}

void GgufWriter::Unsigned(std::string_view key, uint32_t value) { Raw(key, 4, BytesOf(value)); }
void GgufWriter::Float(std::string_view key, float value) { Raw(key, 6, BytesOf(value)); }
void GgufWriter::Bool(std::string_view key, uint8_t value) { Raw(key, 7, BytesOf(value)); }
void GgufWriter::String(std::string_view key, std::string_view value) {
  Raw(key, 8, GgufString(value));
}

void GgufWriter::StringArray(std::string_view key, const std::vector<std::string>& values) {
  std::string bytes = BytesOf<uint32_t>(8) + BytesOf<uint64_t>(values.size());
  for (const std::string& value : values) bytes += GgufString(value);
  Raw(key, 9, bytes);
}

void GgufWriter::IntegerArray(std::string_view key, const std::vector<int32_t>& values) {
  std::string bytes = BytesOf<uint32_t>(5) + BytesOf<uint64_t>(values.size());
  for (const int32_t value : values) bytes += BytesOf(value);
  Raw(key, 9, bytes);
}

void GgufWriter::TensorEntry(std::string_view name, uint32_t type,
                             const std::vector<uint64_t>& extents, uint64_t offset) {
  directory_ += GgufString(name) + BytesOf<uint32_t>(static_cast<uint32_t>(extents.size()));
  for (const uint64_t extent : extents) directory_ += BytesOf(extent);
  directory_ += BytesOf(type) + BytesOf(offset);
  ++tensor_count_;
}

void GgufWriter::Tensor(std::string_view name, uint32_t type, const std::vector<uint64_t>& extents,
                        const std::vector<uint8_t>& data) {
  data_.resize((data_.size() + alignment - 1) / alignment * alignment);
  TensorEntry(name, type, extents, data_.size());
  data_.append(reinterpret_cast<const char*>(data.data()), data.size());
}

std::vector<uint8_t> GgufWriter::Finish() const {
  std::string out =
      "GGUF" + BytesOf(version) + BytesOf(tensor_count_ + static_cast<uint64_t>(extra_tensors)) +
      BytesOf(value_count_ + static_cast<uint64_t>(extra_values)) + values_ + directory_;
  out.resize((out.size() + alignment - 1) / alignment * alignment);
  out += data_;
  return std::vector<uint8_t>(out.begin(), out.end());
}

}  // namespace kairos
