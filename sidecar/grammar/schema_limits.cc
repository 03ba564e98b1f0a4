// SPDX-License-Identifier: Apache-2.0
#include "sidecar/grammar/schema_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace kairos {
namespace {

constexpr size_t kRegexBytesMax = 4096;
constexpr uint64_t kRepetitionsMax = 100'000;  // product of the counts of a pattern
constexpr size_t kReferencesMax = 256;         // each is a level of recursion at worst
constexpr double kMultipleMax = 1000;
constexpr int64_t kExactMax = (int64_t{1} << 53) - 1;
constexpr int64_t kDecimalMax = 1'000'000'000'000'000'000;
constexpr int kDecimalDigits = 15;  // that every double keeps

constexpr const char* kNumberKeys[] = {"minimum", "maximum", "exclusiveMinimum",
                                       "exclusiveMaximum", "multipleOf"};

bool IsData(const std::string& key) {
  return key == "const" || key == "enum" || key == "default" || key == "examples";
}

// Whether the number is kept digit for digit on its way through doubles.
std::string NumberFault(const SchemaJson& number) {
  if (number.is_number_integer()) {
    const bool large = number.is_number_unsigned()
                           ? number.get<uint64_t>() > static_cast<uint64_t>(kExactMax)
                           : std::llabs(std::max(number.get<int64_t>(), -kExactMax - 1)) >
                                 kExactMax;
    return large ? fmt::format("{} is beyond 2^53 - 1", number.dump()) : "";
  }
  const double value = number.get<double>();
  if (!std::isfinite(value) || std::abs(value) > static_cast<double>(kDecimalMax)) {
    return fmt::format("{} is beyond 10^18", number.dump());
  }
  const std::string rounded = fmt::format("{:.{}g}", value, kDecimalDigits);
  return std::strtod(rounded.c_str(), nullptr) == value
             ? ""
             : fmt::format("{} has more than {} digits", number.dump(), kDecimalDigits);
}

std::string ConstantFault(const SchemaJson& value) {
  if (value.is_number()) return NumberFault(value);
  if (!value.is_structured()) return "";
  for (const SchemaJson& part : value) {
    if (std::string fault = ConstantFault(part); !fault.empty()) return fault;
  }
  return "";
}

std::string KeywordFault(const std::string& key, const SchemaJson& value, size_t* references) {
  if (key == "$ref" && ++*references > kReferencesMax) {
    return fmt::format("more than {} references", kReferencesMax);
  }
  if ((key == "const" || key == "enum")) {
    const std::string fault = ConstantFault(value);
    return fault.empty() ? "" : key + ": " + fault;
  }
  if (key == "pattern" && value.is_string()) {
    const std::string fault = RegexFault(value.get_ref<const std::string&>());
    return fault.empty() ? "" : "pattern: " + fault;
  }
  if (!value.is_number()) return "";
  for (const char* name : kNumberKeys) {
    if (key != name) continue;
    if (std::string fault = NumberFault(value); !fault.empty()) return key + ": " + fault;
  }
  if (key == "multipleOf" && value.get<double>() > kMultipleMax) {
    return fmt::format("multipleOf: {} is above {}", value.dump(), kMultipleMax);
  }
  return "";
}

std::string SchemaFault(const SchemaJson& schema, size_t* references) {
  if (schema.is_array()) {
    for (const SchemaJson& part : schema) {
      if (std::string fault = SchemaFault(part, references); !fault.empty()) return fault;
    }
  }
  if (!schema.is_object()) return "";
  for (const auto& [key, value] : schema.items()) {
    if (std::string fault = KeywordFault(key, value, references); !fault.empty()) return fault;
    if (key == "patternProperties" && value.is_object()) {
      for (const auto& [pattern, part] : value.items()) {
        if (std::string fault = RegexFault(pattern); !fault.empty()) {
          return "patternProperties: " + fault;
        }
      }
    }
    if (IsData(key)) continue;
    if (std::string fault = SchemaFault(value, references); !fault.empty()) return fault;
  }
  return "";
}

bool HasType(const SchemaJson& schema, const char* type) {
  const auto found = schema.find("type");
  if (found == schema.end()) return false;
  if (found->is_array()) return std::find(found->begin(), found->end(), type) != found->end();
  return *found == type;
}

}  // namespace

std::string SchemaFault(const SchemaJson& schema) {
  size_t references = 0;
  return SchemaFault(schema, &references);
}

std::string RegexFault(std::string_view regex) {
  if (regex.size() > kRegexBytesMax) {
    return fmt::format("{} bytes; at most {}", regex.size(), kRegexBytesMax);
  }
  for (const char* escape : {"\\x0", "\\x1", "\\x{0", "\\x{1", "\\u00", "\\u{0", "\\c"}) {
    if (regex.find(escape) != std::string_view::npos) {
      return "escapes of control characters cannot be enforced";
    }
  }
  uint64_t repetitions = 1;
  for (size_t at = regex.find('{'); at != std::string_view::npos; at = regex.find('{', at + 1)) {
    uint64_t most = 1;
    uint64_t number = 0;
    for (size_t i = at + 1; i < regex.size() && regex[i] != '}'; ++i) {
      if (regex[i] >= '0' && regex[i] <= '9') {
        number = std::min<uint64_t>(number * 10 + static_cast<uint64_t>(regex[i] - '0'), 1u << 30);
      } else {
        number = 0;
      }
      most = std::max(most, number);
    }
    repetitions = std::min<uint64_t>(repetitions * most, uint64_t{1} << 32);
  }
  if (repetitions > kRepetitionsMax) {
    return fmt::format("its repetitions multiply to more than {}", kRepetitionsMax);
  }
  return "";
}

void BoundNumbers(SchemaJson* schema) {
  if (schema->is_array()) {
    for (SchemaJson& element : *schema) BoundNumbers(&element);
    return;
  }
  if (!schema->is_object()) return;
  for (auto& [key, value] : schema->items()) {
    if (!IsData(key)) BoundNumbers(&value);
  }
  const bool number = HasType(*schema, "number");
  if (!number && !HasType(*schema, "integer")) return;
  // What stands beside may bound it too, in ways that are not seen here.
  for (const char* key : {"const", "enum", "allOf", "anyOf", "oneOf", "$ref"}) {
    if (schema->contains(key)) return;
  }
  const int64_t most = number ? kDecimalMax : kExactMax;
  if (!schema->contains("minimum") && !schema->contains("exclusiveMinimum")) {
    (*schema)["minimum"] = -most;
  }
  if (!schema->contains("maximum") && !schema->contains("exclusiveMaximum")) {
    (*schema)["maximum"] = most;
  }
}

}  // namespace kairos
