// SPDX-License-Identifier: Apache-2.0
#include "base/repeated_key.h"

#include <cstdint>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/printable_text.h"

namespace kairos {
namespace {

using Json = nlohmann::json;

constexpr size_t kShownBytesMax = 60;  // of a key

std::string Shown(std::string_view key) { return Printable(key.substr(0, kShownBytesMax)); }

// Each call says by its result whether the parser goes on.
class KeyReader final : public nlohmann::json_sax<Json> {
 public:
  explicit KeyReader(std::string_view root) : root_(root) {}

  const std::string& fault() const { return fault_; }

  bool null() override { return Value(); }
  bool boolean(bool) override { return Value(); }
  bool number_integer(number_integer_t) override { return Value(); }
  bool number_unsigned(number_unsigned_t) override { return Value(); }
  bool number_float(number_float_t, const string_t&) override { return Value(); }
  bool string(string_t&) override { return Value(); }
  bool binary(binary_t&) override { return Value(); }

  bool start_object(size_t) override { return Open(false); }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return Open(true); }
  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
    Level& level = levels_.back();
    level.key = name;
    if (level.keys.insert(name).second) return true;
    fault_ = fmt::format("{}: the key \"{}\" is there twice", Path(), Shown(name));
    return false;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  struct Level {
    bool is_array = false;
    uint64_t index = 0;
    std::string key;
    std::unordered_set<std::string> keys;
  };

  bool Value() {
    if (!levels_.empty()) ++levels_.back().index;
    return true;
  }
  bool Open(bool is_array) {
    levels_.push_back({is_array, 0, {}, {}});
    return true;
  }
  bool Close() {
    levels_.pop_back();
    return Value();
  }

  // Of the innermost object.
  std::string Path() const {
    std::string path(root_);
    for (size_t i = 0; i + 1 < levels_.size(); ++i) {
      path += levels_[i].is_array ? fmt::format("[{}]", levels_[i].index)
                                  : "." + Shown(levels_[i].key);
    }
    return path;
  }

  const std::string_view root_;
  std::vector<Level> levels_;
  std::string fault_;
};

}  // namespace

std::string RepeatedKeyFault(std::string_view json, std::string_view root) {
  KeyReader reader(root);
  Json::sax_parse(json.begin(), json.end(), &reader);
  return reader.fault();
}

}  // namespace kairos
