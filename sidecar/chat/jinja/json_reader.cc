// SPDX-License-Identifier: Apache-2.0
#include "sidecar/chat/jinja/json_reader.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "base/json_depth.h"
#include "sidecar/chat/jinja/operators.h"

namespace kairos {

namespace {

class ValueBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  ValueBuilder(JinjaHeap& heap, TextSource source) : heap_(heap), source_(source) {}

  bool null() override { return Add(JinjaValue::None()); }
  bool boolean(bool value) override { return Add(JinjaValue::Bool(value)); }
  bool number_integer(number_integer_t value) override { return Add(JinjaValue::Int(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Add(JinjaValue::Int(static_cast<int64_t>(value)));
    }
    return Add(JinjaValue::Float(static_cast<double>(value)));
  }
  bool number_float(number_float_t value, const string_t&) override {
    return Add(JinjaValue::Float(value));
  }
  bool string(string_t& value) override { return Add(MakeText(heap_, value, source_)); }
  bool binary(binary_t&) override { return false; }
  bool key(string_t& value) override {
    open_.back().key = MakeText(heap_, value, source_);
    return !heap_.failed();
  }
  bool start_object(size_t) override { return Open(JinjaValue::Of(heap_.New<JinjaDict>())); }
  bool start_array(size_t) override { return Open(JinjaValue::Of(heap_.New<JinjaList>())); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    error_ = "not valid JSON at byte " + std::to_string(position);
    return false;
  }

  JinjaValue result;
  const std::string& error() const { return error_; }

 private:
  struct Level {
    JinjaValue container;
    JinjaValue key;
  };

  bool Add(const JinjaValue& value) {
    if (heap_.failed() || !heap_.Allocate(sizeof(JinjaValue))) return false;
    if (open_.empty()) {
      result = value;
    } else if (open_.back().container.Is(JinjaKind::kDict)) {
      SetEntry(heap_, open_.back().container.dict, open_.back().key, value);
    } else {
      open_.back().container.list->items.push_back(value);
    }
    return !heap_.failed();
  }

  bool Open(const JinjaValue& container) {
    if (!Add(container)) return false;
    open_.push_back({container, {}});
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  JinjaHeap& heap_;
  const TextSource source_;
  std::vector<Level> open_;
  std::string error_;
};

}  // namespace

bool ReadJson(JinjaHeap& heap, std::string_view text, TextSource source, JinjaValue* value,
              std::string* error) {
  if (!heap.Work(text.size())) {
    *error = heap.error();
    return false;
  }
  if (!JsonNestsWithin(text, kJsonDepthMax)) {
    *error = "nested deeper than " + std::to_string(kJsonDepthMax) + " levels";
    return false;
  }
  ValueBuilder builder(heap, source);
  bool parsed = false;
  try {
    parsed = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  } catch (const nlohmann::json::exception&) {
    parsed = false;
  }
  *value = builder.result;
  if (parsed) return true;
  *error = heap.failed()             ? heap.error()
           : builder.error().empty() ? "not valid JSON"
                                     : builder.error();
  return false;
}

}  // namespace kairos
