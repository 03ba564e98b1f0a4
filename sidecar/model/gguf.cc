// SPDX-License-Identifier: Apache-2.0
// GGUF parser. Every number from the file is checked against what is left of it before it is used
// as a length, a count or an offset; a Cursor cannot step past the end.
#include "sidecar/model/gguf.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <unordered_map>

#include "base/printable_text.h"

namespace kairos {
namespace {

constexpr uint64_t kKeyBytesMax = 65535;
constexpr uint64_t kTensorNameBytesMax = 64;
constexpr uint32_t kDimensionsMax = 4;
constexpr uint64_t kAlignmentDefault = 32;
constexpr uint64_t kAlignmentMax = 1u << 20;
// Shortest entries: an empty key with a one-byte value; a tensor with a one-byte name and one
// extent.
constexpr uint64_t kEntryBytesMin = 8 + 4 + 1;
constexpr uint64_t kTensorBytesMin = 8 + 1 + 4 + 8 + 4 + 8;

enum class ValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};
constexpr uint32_t kValueTypes = 13;
constexpr uint8_t kValueBytes[kValueTypes] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

struct TensorType {
  uint32_t type;
  const char* name;
  uint32_t block_elements;
  uint32_t block_bytes;
};
constexpr TensorType kTensorTypes[] = {
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},
    {3, "Q4_1", 32, 20},      {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},
    {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 36},      {10, "Q2_K", 256, 84},
    {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},  {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},  {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
    {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},   {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17}};

const TensorType* FindTensorType(uint32_t type) {
  for (const TensorType& entry : kTensorTypes) {
    if (entry.type == type) return &entry;
  }
  return nullptr;
}

class Cursor {
 public:
  explicit Cursor(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  uint64_t offset() const { return offset_; }
  uint64_t left() const { return bytes_.size() - offset_; }

  template <typename T>
  [[nodiscard]] bool Read(T* value) {
    if (left() < sizeof(T)) return false;
    std::memcpy(value, bytes_.data() + offset_, sizeof(T));
    offset_ += sizeof(T);
    return true;
  }
  [[nodiscard]] bool Skip(uint64_t count, const uint8_t** data) {
    if (left() < count) return false;
    *data = bytes_.data() + offset_;
    offset_ += count;
    return true;
  }
  [[nodiscard]] bool ReadString(std::string_view* text) {
    uint64_t length = 0;
    const uint8_t* data = nullptr;
    if (!Read(&length) || !Skip(length, &data)) return false;
    *text = std::string_view(reinterpret_cast<const char*>(data), length);
    return true;
  }

 private:
  std::span<const uint8_t> bytes_;
  uint64_t offset_ = 0;
};

struct Value {
  ValueType type = ValueType::kU8;  // of the elements, for an array
  bool array = false;
  uint64_t count = 1;
  const uint8_t* data = nullptr;          // unaligned, little-endian
  std::vector<std::string_view> strings;  // where type is kString
};

template <typename T>
T Load(const uint8_t* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

std::optional<int64_t> LoadInteger(ValueType type, const uint8_t* data) {
  switch (type) {
    case ValueType::kU8:
      return Load<uint8_t>(data);
    case ValueType::kI8:
      return Load<int8_t>(data);
    case ValueType::kU16:
      return Load<uint16_t>(data);
    case ValueType::kI16:
      return Load<int16_t>(data);
    case ValueType::kU32:
      return Load<uint32_t>(data);
    case ValueType::kI32:
      return Load<int32_t>(data);
    case ValueType::kI64:
      return Load<int64_t>(data);
    case ValueType::kU64: {
      const uint64_t value = Load<uint64_t>(data);
      if (value > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

// What a key or name may show in a message: bytes of the file are not trusted on a terminal.
std::string Shown(std::string_view text) { return Printable(text.substr(0, 80)); }

}  // namespace

struct GgufFile::Body {
  std::span<const uint8_t> bytes;
  void* map = nullptr;
  std::unordered_map<std::string_view, Value> values;
  std::vector<GgufTensor> tensors;
  std::unordered_map<std::string_view, size_t> tensor_index;

  bool Parse(std::string* error);
  bool ParseHeader(Cursor& cursor, uint64_t* tensor_count, uint64_t* value_count,
                   std::string* error);
  bool ParseEntry(Cursor& cursor, std::string* error);
  bool ParseArray(Cursor& cursor, std::string_view key, Value* value, std::string* error);
  bool ParseTensor(Cursor& cursor, GgufTensor* tensor, uint64_t* offset, std::string* error);
  bool ReadAlignment(uint64_t* alignment, std::string* error) const;
  bool PlaceTensors(uint64_t directory_end, const std::vector<uint64_t>& offsets,
                    std::string* error);
  const Value* Find(std::string_view key, bool array) const;
};

bool GgufFile::Body::ParseHeader(Cursor& cursor, uint64_t* tensor_count, uint64_t* value_count,
                                 std::string* error) {
  uint32_t magic = 0;
  uint32_t version = 0;
  if (!cursor.Read(&magic)) {
    *error = fmt::format("not a GGUF file: {} bytes are too few for its header", bytes.size());
    return false;
  }
  if (magic != 0x46554747u) {
    *error = fmt::format(
        "not a GGUF file: it begins with bytes {:02x} {:02x} {:02x} {:02x}, not \"GGUF\"", bytes[0],
        bytes[1], bytes[2], bytes[3]);
    return false;
  }
  if (!cursor.Read(&version) || !cursor.Read(tensor_count) || !cursor.Read(value_count)) {
    *error = fmt::format("the GGUF file is truncated: {} bytes are too few for its header",
                         bytes.size());
    return false;
  }
  if ((version & 0xffffu) == 0 && version != 0) {
    *error = "the GGUF file is byte-swapped (written for big-endian machines); convert it again";
    return false;
  }
  if (version != 2 && version != 3) {
    *error = fmt::format("GGUF version {} is not supported; supported: 2, 3", version);
    return false;
  }
  if (*value_count > cursor.left() / kEntryBytesMin) {
    *error =
        fmt::format("the GGUF file claims {} metadata entries, more than its {} bytes can hold",
                    *value_count, bytes.size());
    return false;
  }
  if (*tensor_count > cursor.left() / kTensorBytesMin) {
    *error = fmt::format("the GGUF file claims {} tensors, more than its {} bytes can hold",
                         *tensor_count, bytes.size());
    return false;
  }
  return true;
}

bool GgufFile::Body::ParseArray(Cursor& cursor, std::string_view key, Value* value,
                                std::string* error) {
  uint32_t type = 0;
  if (!cursor.Read(&type) || !cursor.Read(&value->count)) {
    *error = fmt::format("the GGUF file is truncated inside array \"{}\"", Shown(key));
    return false;
  }
  if (type >= kValueTypes || type == static_cast<uint32_t>(ValueType::kArray)) {
    *error = fmt::format("array \"{}\" has element type {}, which is not supported", Shown(key),
                         type);
    return false;
  }
  value->array = true;
  value->type = static_cast<ValueType>(type);
  const uint64_t element_bytes = value->type == ValueType::kString ? 8 : kValueBytes[type];
  if (value->count > cursor.left() / element_bytes) {
    *error = fmt::format("array \"{}\" claims {} elements, more than the {} bytes left in the file",
                         Shown(key), value->count, cursor.left());
    return false;
  }
  if (value->type != ValueType::kString)
    return cursor.Skip(value->count * element_bytes, &value->data);
  value->strings.resize(value->count);
  for (std::string_view& text : value->strings) {
    if (!cursor.ReadString(&text)) {
      *error = fmt::format("a string of array \"{}\" is longer than the rest of the file",
                           Shown(key));
      return false;
    }
  }
  return true;
}

bool GgufFile::Body::ParseEntry(Cursor& cursor, std::string* error) {
  std::string_view key;
  uint32_t type = 0;
  if (!cursor.ReadString(&key) || !cursor.Read(&type)) {
    *error =
        fmt::format("the GGUF file is truncated inside its metadata, at byte {}", cursor.offset());
    return false;
  }
  if (key.empty() || key.size() > kKeyBytesMax) {
    *error = fmt::format("a metadata key has {} bytes; allowed: 1 to {}", key.size(), kKeyBytesMax);
    return false;
  }
  if (type >= kValueTypes) {
    *error =
        fmt::format("metadata \"{}\" has value type {}, which is not known", Shown(key), type);
    return false;
  }
  Value value;
  value.type = static_cast<ValueType>(type);
  if (value.type == ValueType::kArray) {
    if (!ParseArray(cursor, key, &value, error)) return false;
  } else if (value.type == ValueType::kString) {
    value.strings.resize(1);
    if (!cursor.ReadString(&value.strings[0])) {
      *error = fmt::format("string \"{}\" is longer than the rest of the file", Shown(key));
      return false;
    }
  } else if (!cursor.Skip(kValueBytes[type], &value.data)) {
    *error = fmt::format("the GGUF file is truncated inside metadata \"{}\"", Shown(key));
    return false;
  }
  if (value.type == ValueType::kBool) {
    for (uint64_t i = 0; i < value.count; ++i) {
      if (value.data[i] > 1) {
        *error =
            fmt::format("metadata \"{}\" is a bool with value {}", Shown(key), value.data[i]);
        return false;
      }
    }
  }
  if (!values.emplace(key, std::move(value)).second) {
    *error = fmt::format("metadata \"{}\" appears twice", Shown(key));
    return false;
  }
  return true;
}

bool GgufFile::Body::ParseTensor(Cursor& cursor, GgufTensor* tensor, uint64_t* offset,
                                 std::string* error) {
  if (!cursor.ReadString(&tensor->name) || !cursor.Read(&tensor->dimensions)) {
    *error = fmt::format("the GGUF file is truncated inside its tensor list, at byte {}",
                         cursor.offset());
    return false;
  }
  const std::string name = Shown(tensor->name);
  if (tensor->name.empty() || tensor->name.size() > kTensorNameBytesMax) {
    *error = fmt::format("a tensor name has {} bytes; allowed: 1 to {}", tensor->name.size(),
                         kTensorNameBytesMax);
    return false;
  }
  if (tensor->dimensions == 0 || tensor->dimensions > kDimensionsMax) {
    *error = fmt::format("tensor {} has {} dimensions; allowed: 1 to {}", name, tensor->dimensions,
                         kDimensionsMax);
    return false;
  }
  uint64_t elements = 1;
  for (uint32_t i = 0; i < tensor->dimensions; ++i) {
    if (!cursor.Read(&tensor->extents[i])) {
      *error = fmt::format("the GGUF file is truncated inside tensor {}", name);
      return false;
    }
    if (tensor->extents[i] == 0 ||
        __builtin_mul_overflow(elements, tensor->extents[i], &elements)) {
      *error = fmt::format("tensor {} has extent {} in dimension {}: zero or too large", name,
                           tensor->extents[i], i);
      return false;
    }
  }
  if (!cursor.Read(&tensor->type) || !cursor.Read(offset)) {
    *error = fmt::format("the GGUF file is truncated inside tensor {}", name);
    return false;
  }
  const TensorType* type = FindTensorType(tensor->type);
  if (type == nullptr) {
    *error = fmt::format("tensor {} has type number {}, which is not known", name, tensor->type);
    return false;
  }
  if (tensor->extents[0] % type->block_elements != 0) {
    *error = fmt::format("tensor {} has rows of {} values; {} needs a multiple of {}", name,
                         tensor->extents[0], type->name, type->block_elements);
    return false;
  }
  if (__builtin_mul_overflow(elements / type->block_elements, uint64_t{type->block_bytes},
                             &tensor->bytes)) {
    *error = fmt::format("tensor {} is too large: {} values", name, elements);
    return false;
  }
  return true;
}

bool GgufFile::Body::ReadAlignment(uint64_t* alignment, std::string* error) const {
  *alignment = kAlignmentDefault;
  const auto found = values.find("general.alignment");
  if (found == values.end()) return true;
  std::optional<int64_t> value;
  if (!found->second.array) value = LoadInteger(found->second.type, found->second.data);
  if (!value || *value < 8 || static_cast<uint64_t>(*value) > kAlignmentMax ||
      (*value & (*value - 1)) != 0) {
    *error = fmt::format("general.alignment must be a power of two from 8 to {}", kAlignmentMax);
    return false;
  }
  *alignment = static_cast<uint64_t>(*value);
  return true;
}

bool GgufFile::Body::PlaceTensors(uint64_t directory_end, const std::vector<uint64_t>& offsets,
                                  std::string* error) {
  uint64_t alignment = 0;
  if (!ReadAlignment(&alignment, error)) return false;
  const uint64_t data_start = (directory_end + alignment - 1) / alignment * alignment;
  for (size_t i = 0; i < tensors.size(); ++i) {
    GgufTensor& tensor = tensors[i];
    const std::string name = Shown(tensor.name);
    uint64_t begin = 0;
    uint64_t end = 0;
    if (offsets[i] % alignment != 0) {
      *error = fmt::format("tensor {} has offset {}, not a multiple of the alignment {}", name,
                           offsets[i], alignment);
      return false;
    }
    if (__builtin_add_overflow(data_start, offsets[i], &begin) ||
        __builtin_add_overflow(begin, tensor.bytes, &end) || end > bytes.size()) {
      *error = fmt::format(
          "the GGUF file is truncated: tensor {} of {} bytes at offset {} does not fit in its {} "
          "bytes",
          name, tensor.bytes, offsets[i], bytes.size());
      return false;
    }
    tensor.data = bytes.data() + begin;
    if (!tensor_index.emplace(tensor.name, i).second) {
      *error = fmt::format("tensor {} appears twice", name);
      return false;
    }
  }
  return true;
}

bool GgufFile::Body::Parse(std::string* error) {
  Cursor cursor(bytes);
  uint64_t tensor_count = 0;
  uint64_t value_count = 0;
  if (!ParseHeader(cursor, &tensor_count, &value_count, error)) return false;
  for (uint64_t i = 0; i < value_count; ++i) {
    if (!ParseEntry(cursor, error)) return false;
  }
  tensors.resize(tensor_count);
  std::vector<uint64_t> offsets(tensor_count);
  for (uint64_t i = 0; i < tensor_count; ++i) {
    if (!ParseTensor(cursor, &tensors[i], &offsets[i], error)) return false;
  }
  return PlaceTensors(cursor.offset(), offsets, error);
}

const Value* GgufFile::Body::Find(std::string_view key, bool array) const {
  const auto found = values.find(key);
  return found == values.end() || found->second.array != array ? nullptr : &found->second;
}

GgufFile::GgufFile() : body_(std::make_unique<Body>()) {}

GgufFile::~GgufFile() {
  if (body_->map != nullptr) munmap(body_->map, body_->bytes.size());
}

Result<std::unique_ptr<GgufFile>> GgufFile::Open(const std::string& path, std::string* error) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    const int cause = errno;
    *error = fmt::format("{}: {}", path, std::strerror(cause));
    return Status(cause == ENOENT ? Code::kNotFound : Code::kUnavailable, "model file not readable",
                  cause);
  }
  struct stat file {};
  if (fstat(fd, &file) != 0 || !S_ISREG(file.st_mode) || file.st_size == 0) {
    close(fd);
    *error = fmt::format("{}: not a regular file, or empty", path);
    return Status(Code::kInvalidArgument, "model file is not a regular file, or empty");
  }
  const size_t size = static_cast<size_t>(file.st_size);
  void* map = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  const int cause = errno;
  close(fd);
  if (map == MAP_FAILED) {
    *error = fmt::format("{}: cannot be mapped: {}", path, std::strerror(cause));
    return Status(Code::kResourceExhausted, "model file cannot be mapped", cause);
  }
  std::unique_ptr<GgufFile> result(new GgufFile);
  result->body_->map = map;
  result->body_->bytes = {static_cast<const uint8_t*>(map), size};
  std::string problem;
  if (!result->body_->Parse(&problem)) {
    *error = fmt::format("{}: {}", path, problem);
    return Status(Code::kInvalidArgument, "malformed GGUF file");
  }
  return result;
}

Result<std::unique_ptr<GgufFile>> GgufFile::Parse(std::span<const uint8_t> bytes,
                                                  std::string* error) {
  std::unique_ptr<GgufFile> result(new GgufFile);
  result->body_->bytes = bytes;
  if (!result->body_->Parse(error)) return Status(Code::kInvalidArgument, "malformed GGUF file");
  return result;
}

std::optional<uint64_t> GgufFile::Unsigned(std::string_view key) const {
  const Value* value = body_->Find(key, false);
  if (value == nullptr || value->data == nullptr) return std::nullopt;
  if (value->type == ValueType::kU64) return Load<uint64_t>(value->data);
  const std::optional<int64_t> number = LoadInteger(value->type, value->data);
  if (!number || *number < 0) return std::nullopt;
  return static_cast<uint64_t>(*number);
}

std::optional<double> GgufFile::Float(std::string_view key) const {
  const Value* value = body_->Find(key, false);
  if (value == nullptr) return std::nullopt;
  if (value->type == ValueType::kF32) return Load<float>(value->data);
  if (value->type == ValueType::kF64) return Load<double>(value->data);
  return std::nullopt;
}

std::optional<bool> GgufFile::Bool(std::string_view key) const {
  const Value* value = body_->Find(key, false);
  if (value == nullptr || value->type != ValueType::kBool) return std::nullopt;
  return value->data[0] != 0;
}

std::optional<std::string_view> GgufFile::String(std::string_view key) const {
  const Value* value = body_->Find(key, false);
  if (value == nullptr || value->type != ValueType::kString) return std::nullopt;
  return value->strings[0];
}

std::optional<std::vector<std::string_view>> GgufFile::StringArray(std::string_view key) const {
  const Value* value = body_->Find(key, true);
  if (value == nullptr || value->type != ValueType::kString) return std::nullopt;
  return value->strings;
}

std::optional<std::vector<int64_t>> GgufFile::IntegerArray(std::string_view key) const {
  const Value* value = body_->Find(key, true);
  if (value == nullptr || value->data == nullptr) return std::nullopt;
  const uint64_t step = kValueBytes[static_cast<uint32_t>(value->type)];
  std::vector<int64_t> numbers(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    const std::optional<int64_t> number = LoadInteger(value->type, value->data + i * step);
    if (!number) return std::nullopt;
    numbers[i] = *number;
  }
  return numbers;
}

std::optional<std::vector<float>> GgufFile::FloatArray(std::string_view key) const {
  const Value* value = body_->Find(key, true);
  if (value == nullptr || value->type != ValueType::kF32) return std::nullopt;
  std::vector<float> numbers(value->count);
  if (value->count > 0) std::memcpy(numbers.data(), value->data, value->count * sizeof(float));
  return numbers;
}

const std::vector<GgufTensor>& GgufFile::tensors() const { return body_->tensors; }

const GgufTensor* GgufFile::FindTensor(std::string_view name) const {
  const auto found = body_->tensor_index.find(name);
  return found == body_->tensor_index.end() ? nullptr : &body_->tensors[found->second];
}

uint64_t GgufFile::file_bytes() const { return body_->bytes.size(); }

void GgufFile::ReleasePages() const {
  if (body_->map != nullptr) madvise(body_->map, body_->bytes.size(), MADV_DONTNEED);
}

void GgufFile::ReleasePages(std::span<const uint8_t> bytes) const {
  if (body_->map == nullptr) return;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto start = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t begin = (start + page - 1) / page * page;
  const uintptr_t end = (start + bytes.size()) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

const char* GgufTypeName(uint32_t type) {
  const TensorType* entry = FindTensorType(type);
  return entry == nullptr ? nullptr : entry->name;
}

}  // namespace kairos
