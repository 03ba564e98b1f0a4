// SPDX-License-Identifier: Apache-2.0
#include "sidecar/grammar/schema_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/printable_text.h"
#include "sidecar/grammar/endless.h"
#include "sidecar/grammar/lark_text.h"
#include "sidecar/grammar/text_extent.h"

namespace kairos {
namespace {

constexpr size_t kRegexBytesMax = 4096;
constexpr size_t kLarkBytesMax = 8 * 1024;     // a chain of rules is a level of recursion each
constexpr uint64_t kWrittenOutMax = 100'000;   // a tenth of a second to compile
constexpr uint64_t kShortestMax = 8192;        // some 20 ms of a step, where it is forced
constexpr size_t kPropertiesMax = 2000;        // half a second; it grows with the square
constexpr size_t kPropertiesAllMax = 4000;     // in one schema, which may join them
constexpr size_t kPatternPropertiesMax = 32;   // each is compared with each
constexpr size_t kReferencesMax = 256;         // each is a level of recursion at worst
constexpr double kMultipleMax = 1000;
constexpr int64_t kExactMax = (int64_t{1} << 53) - 1;
constexpr int64_t kDecimalMax = 1'000'000'000'000'000'000;
constexpr int kDecimalDigits = 15;  // that every double keeps

constexpr const char* kNumberKeys[] = {"minimum", "maximum", "exclusiveMinimum",
                                       "exclusiveMaximum", "multipleOf"};

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
  if (value.is_string() && value.get_ref<const std::string&>().size() > kShortestMax) {
    return fmt::format("a text of {} bytes; at most {}", value.get_ref<const std::string&>().size(),
                       kShortestMax);
  }
  if (!value.is_structured()) return "";
  for (const SchemaJson& part : value) {
    if (std::string fault = ConstantFault(part); !fault.empty()) return fault;
  }
  return "";
}

std::string ExtentFault(const Extent& extent) {
  if (extent.most > kWrittenOutMax) {
    return fmt::format("its repetitions make more than {} characters", kWrittenOutMax);
  }
  return extent.least > kShortestMax
             ? fmt::format("matches no text under {} characters", kShortestMax)
             : "";
}

// Of one schema with all that is in it.
struct Counts {
  size_t references = 0;
  size_t properties = 0;
};

std::string CountFault(const std::string& key, const SchemaJson& value, Counts* counts) {
  if (key == "$ref" && ++counts->references > kReferencesMax) {
    return fmt::format("more than {} references", kReferencesMax);
  }
  if (key == "properties") {
    counts->properties += value.size();
    if (value.size() > kPropertiesMax || counts->properties > kPropertiesAllMax) {
      return fmt::format("properties: more than {} in one object, or {} in all", kPropertiesMax,
                         kPropertiesAllMax);
    }
  }
  if (key == "patternProperties" && value.size() > kPatternPropertiesMax) {
    return fmt::format("patternProperties: {}; at most {}", value.size(), kPatternPropertiesMax);
  }
  return "";
}

std::string KeywordFault(const std::string& key, const SchemaJson& value) {
  if ((key == "const" || key == "enum")) {
    const std::string fault = ConstantFault(value);
    return fault.empty() ? "" : key + ": " + fault;
  }
  if (key == "pattern" && value.is_string()) {
    const std::string fault = RegexFault(value.get_ref<const std::string&>());
    return fault.empty() ? "" : "pattern: " + fault;
  }
  if (!value.is_number()) return "";
  if (key == "minLength" && value.get<double>() > static_cast<double>(kShortestMax)) {
    return fmt::format("minLength: {} is above {}", value.dump(), kShortestMax);
  }
  for (const char* name : kNumberKeys) {
    if (key != name) continue;
    if (std::string fault = NumberFault(value); !fault.empty()) return key + ": " + fault;
  }
  if (key == "multipleOf" && value.get<double>() > kMultipleMax) {
    return fmt::format("multipleOf: {} is above {}", value.dump(), kMultipleMax);
  }
  return "";
}

std::string SchemaFault(const SchemaJson& schema, Counts* counts) {
  for (const auto& [key, value] : schema.items()) {
    std::string named = CountFault(key, value, counts);
    if (named.empty()) named = KeywordFault(key, value);
    if (!named.empty()) return named;
    if (key != "patternProperties" || !value.is_object()) continue;
    for (const auto& [pattern, part] : value.items()) {
      if (std::string fault = RegexFault(pattern); !fault.empty()) {
        return "patternProperties: " + fault;
      }
    }
  }
  std::string fault;
  EachSubschema(schema, [&](const SchemaJson& part) {
    fault = SchemaFault(part, counts);
    return fault.empty();
  });
  return fault;
}

bool HasType(const SchemaJson& schema, const char* type) {
  const auto found = schema.find("type");
  if (found == schema.end()) return false;
  if (found->is_array()) return std::find(found->begin(), found->end(), type) != found->end();
  return *found == type;
}

void BoundNumbers(SchemaJson* schema, bool is_root) {
  EachSubschema(*schema, [](SchemaJson& part) {
    BoundNumbers(&part, false);
    return true;
  });
  // A schema that does not say the type may be a number's too. Inside of others, those that say
  // nothing at all stay as they are: they are many, and a grammar for each type costs.
  bool any = is_root;
  for (const auto& item : schema->items()) any |= Asserts(item.key());
  any = any && !schema->contains("type");
  const bool number = any || HasType(*schema, "number");
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

std::string WordFault(const LarkWord& word) {
  if (word.kind == LarkKind::kDirective && word.text != "%ignore" && word.text != "%import") {
    return fmt::format("{}: is not supported inside a grammar", Printable(word.text));
  }
  // A reply is text, and one that names an end token would end there.
  if (word.kind != LarkKind::kSpecial) return "";
  return fmt::format("{}: stands for a token, which is no text; put text between quotes, and leave "
                     "out what ends a reply: it ends where the grammar does", Printable(word.text));
}

// Of attributes some change nothing here, and others more than what matches.
std::string HeadFault(const LarkDefinition& definition) {
  for (const LarkWord& word : definition.head) {
    if (word.Is(':')) {
      return fmt::format("{}: parameters of rules are not supported", Printable(definition.name));
    }
    if (word.kind != LarkKind::kName) continue;
    return fmt::format("{}[{}]: attributes of rules are not supported", Printable(definition.name),
                       Printable(word.text));
  }
  return "";
}

}  // namespace

std::string SchemaFault(const SchemaJson& schema) {
  Counts counts;
  return SchemaFault(schema, &counts);
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
  return ExtentFault(RegexExtent(regex));
}

std::string LarkFault(std::string_view grammar) {
  if (grammar.size() > kLarkBytesMax) {
    return fmt::format("{} bytes of grammar; at most {}", grammar.size(), kLarkBytesMax);
  }
  const std::vector<LarkWord> words = LarkWords(grammar);
  for (const LarkWord& word : words) {
    if (std::string fault = WordFault(word); !fault.empty()) return fault;
  }
  const std::vector<LarkDefinition> definitions = LarkDefinitions(words);
  for (const LarkDefinition& one : definitions) {
    if (std::string fault = HeadFault(one); !fault.empty()) return fault;
  }
  std::string fault = EndlessFault(definitions);
  return fault.empty() ? ExtentFault(LarkExtent(definitions)) : fault;
}

void BoundNumbers(SchemaJson* schema) { BoundNumbers(schema, true); }

}  // namespace kairos
