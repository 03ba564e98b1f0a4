// SPDX-License-Identifier: Apache-2.0
// toml++ runs without exceptions: its parser then returns a result.
#include "sidecar/daemon/config.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>
#include <span>
#include <variant>

#include "base/edit_distance.h"
#include "base/printable_text.h"
#include "shm/records.h"

// The parser asserts what foreign bytes decide, such as the first character of a table's name, and
// then reports the same as an error; with NDEBUG it would promise it to the compiler instead.
#undef NDEBUG
#define TOML_ASSERT(expr) static_cast<void>(0)
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

namespace kairos {

namespace {

enum class Kind {
  kText,
  kPath,
  kCount,
  kBytes,
  kDurationMs,
  kChoice,
  kSpin,
  kNumber,
  kShare,  // above 0, at most 1
  kListen,
};

// Whether a running daemon takes a change of the key. What decides where things are, how much
// memory is taken or what was promised about stored turns needs a restart.
enum class Reload { kNo, kYes };

struct Key {
  const char* name;
  Kind kind;
  std::variant<std::string Config::*, uint64_t Config::*> member;
  const char* default_value;
  uint64_t min;
  uint64_t max;
  const char* choices;  // separated by blanks; for kChoice
  Reload reload;
  const char* help;
};

constexpr size_t kFileBytesMax = 1u << 20;
constexpr uint64_t kMany = 1u << 20;
constexpr uint64_t kDayMs = 86'400'000;
constexpr size_t kModelsMax = 16;  // the default one included

const Key kKeys[] = {
    {"model", Kind::kPath, &Config::model, "", 0, 0, "", Reload::kNo,
     "GGUF file, or the name of a fetched model"},
    {"socket", Kind::kPath, &Config::socket, "", 0, 0, "", Reload::kNo,
     "where clients attach; empty: the per-user default"},
    {"socket_mode", Kind::kChoice, &Config::socket_mode, "0600", 0, 0, "0600 0660", Reload::kNo,
     "file mode of the socket; 0660 lets the group of its folder attach"},
    {"control_socket", Kind::kPath, &Config::control_socket, "", 0, 0, "", Reload::kNo,
     "where operators attach; empty: control.sock beside the socket"},
    {"catalog.path", Kind::kPath, &Config::catalog_path, "", 0, 0, "", Reload::kNo,
     "session catalog; empty: sessions.db in the state directory"},
    {"catalog.durability", Kind::kChoice, &Config::catalog_durability, "process", 0, 0,
     "process fsync", Reload::kNo,
     "what a committed turn survives: kill -9, or also power loss"},
    {"catalog.bytes_max", Kind::kBytes, &Config::catalog_bytes_max, "1GiB", 1u << 20, 1ull << 42,
     "", Reload::kYes,
     "size limit of the catalog; turns are refused beyond"},
    {"catalog.versions_max", Kind::kCount, &Config::catalog_versions_max, "64", 1, 100'000, "",
     Reload::kYes,
     "versions kept of each session"},
    {"engine.threads", Kind::kCount, &Config::engine_threads, "0", 0, 1024, "", Reload::kNo,
     "compute threads; 0: as many as decode fastest, measured at the start"},
    {"engine.step_budget", Kind::kDurationMs, &Config::engine_step_budget_ms, "50ms", 0, 10'000,
     "", Reload::kNo,
     "target time of one step; bounds cancel and time between tokens; 0: none"},
    {"engine.chunk_tokens_max", Kind::kCount, &Config::engine_chunk_tokens_max, "512", 32, 65'536,
     "", Reload::kNo,
     "prefill tokens of one step, all sequences together"},
    {"engine.draft_tokens_max", Kind::kCount, &Config::engine_draft_tokens_max, "16", 0, 31, "",
     Reload::kNo,
     "most tokens of a turn that are guessed and checked in one step; 0: none"},
    {"engine.draft_model", Kind::kPath, &Config::engine_draft_model, "", 0, 0, "", Reload::kNo,
     "smaller GGUF model of the same vocabulary that guesses as well; as model; empty: none"},
    {"engine.draft_kv_memory", Kind::kBytes, &Config::engine_draft_kv_memory, "256MiB", 1u << 20,
     1ull << 44, "", Reload::kNo,
     "memory for a draft model's KV blocks"},
    {"engine.sequences_max", Kind::kCount, &Config::engine_sequences_max, "64", 1, 4096, "",
     Reload::kNo,
     "turns computed at the same time"},
    {"kv.memory", Kind::kBytes, &Config::kv_memory, "1GiB", 1u << 20, 1ull << 44, "", Reload::kNo,
     "memory for KV blocks"},
    {"limits.attachments", Kind::kCount, &Config::limits_attachments, "256", 1, 65'536, "",
     Reload::kYes,
     "attached clients at the same time"},
    {"limits.attachments_per_process", Kind::kCount, &Config::limits_attachments_per_process, "0",
     0, 65'536, "", Reload::kYes,
     "attached clients of one process; 0: half of limits.attachments"},
    {"limits.ring_memory", Kind::kBytes, &Config::limits_ring_memory, "1GiB", 2u << 20, 1ull << 40,
     "", Reload::kYes,
     "memory of all attached clients' rings together"},
    {"limits.sessions_per_uid", Kind::kCount, &Config::limits_sessions_per_uid, "4096", 1, kMany,
     "", Reload::kYes,
     "sessions of one user"},
    {"limits.in_flight_per_client", Kind::kCount, &Config::limits_in_flight_per_client, "64", 1,
     4096, "", Reload::kYes,
     "requests of one client that await their end"},
    {"limits.unread_replies", Kind::kDurationMs, &Config::limits_unread_replies_ms, "30s", 100,
     3'600'000, "", Reload::kNo,
     "how long a client may leave replies unread before its turns are cancelled"},
    {"limits.max_tokens_default", Kind::kCount, &Config::limits_max_tokens_default, "512", 1,
     kMany, "", Reload::kYes,
     "tokens generated when a turn names no limit"},
    {"sessions.tool_timeout", Kind::kDurationMs, &Config::sessions_tool_timeout_ms, "0", 0,
     kDayMs * 30, "", Reload::kYes,
     "how long a session waits for a tool's result before it is the user's turn; 0: for ever"},
    {"sessions.user_timeout", Kind::kDurationMs, &Config::sessions_user_timeout_ms, "0", 0,
     kDayMs * 30, "", Reload::kYes,
     "how long a session waits for its user before it is idle; 0: for ever"},
    {"ingress.spin", Kind::kSpin, &Config::ingress_spin, "auto", 0, 10'000, "", Reload::kYes,
     "how long to poll before sleeping: auto, or a duration up to 10ms"},
    {"generation.temperature", Kind::kNumber, &Config::generation_temperature, "0", 0,
     static_cast<uint64_t>(kTemperatureMax), "", Reload::kYes,
     "when a turn names none; 0 to 2"},
    {"generation.top_p", Kind::kShare, &Config::generation_top_p, "1", 0, 1, "", Reload::kYes,
     "when a turn names none; above 0, at most 1"},
    {"generation.top_k", Kind::kCount, &Config::generation_top_k, "0", 0,
     std::numeric_limits<int32_t>::max(), "", Reload::kYes,
     "when a turn names none; 0: off"},
    {"log.level", Kind::kChoice, &Config::log_level, "info", 0, 0, "debug info warn error",
     Reload::kYes,
     "least level that is written"},
    {"metrics.listen", Kind::kListen, &Config::metrics_listen, "", 0, 0, "", Reload::kNo,
     "loopback address and port for Prometheus, as 127.0.0.1:9464; empty: off"},
    {"drain.timeout", Kind::kDurationMs, &Config::drain_timeout_ms, "10s", 0, 3'600'000, "",
     Reload::kYes,
     "how long open turns may go on after a request to end"},
};

constexpr size_t kPathBytesMax = 4095;

Status Refuse(std::string* error, std::string words) {
  *error = std::move(words);
  return {Code::kInvalidArgument, "configuration is not valid"};
}

const Key* FindKey(std::string_view name) {
  for (const Key& key : kKeys) {
    if (name == key.name) return &key;
  }
  return nullptr;
}

std::string UnknownKey(std::string_view name) {
  std::string words = "unknown key " + QuotedText(name.substr(0, 100));
  const Key* nearest = nullptr;
  size_t nearest_distance = std::numeric_limits<size_t>::max();
  for (const Key& key : kKeys) {
    const size_t distance = EditDistance(name.substr(0, 100), key.name);
    if (IsSlip(name, distance) && distance < nearest_distance) {
      nearest = &key;
      nearest_distance = distance;
    }
  }
  if (nearest != nullptr) words += std::string(", did you mean \"") + nearest->name + "\"?";
  return words;
}

bool ParseDecimal(std::string_view text, double* value) {
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return fault == std::errc() && end == text.data() + text.size() && *value == *value;
}

bool HasWord(std::string_view words, std::string_view word) {
  if (word.empty() || word.find(' ') != std::string_view::npos) return false;
  return (" " + std::string(words) + " ").find(" " + std::string(word) + " ") != std::string::npos;
}

struct Unit {
  std::string_view suffix;
  uint64_t factor;
};

// `number` in the largest unit that divides it, as it is written in the file.
std::string NumberText(Kind kind, uint64_t number) {
  constexpr Unit kBytes[] = {{"TiB", 1ull << 40}, {"GiB", 1ull << 30}, {"MiB", 1ull << 20},
                             {"KiB", 1ull << 10}};
  constexpr Unit kMs[] = {{"h", 3'600'000}, {"m", 60'000}, {"s", 1000}, {"ms", 1}};
  std::span<const Unit> units;
  if (kind == Kind::kBytes) units = kBytes;
  if (kind == Kind::kDurationMs) units = kMs;
  for (const Unit& unit : units) {
    if (number == 0 || number % unit.factor != 0) continue;
    return std::to_string(number / unit.factor) + std::string(unit.suffix);
  }
  return std::to_string(number);
}

std::string Range(const Key& key) {
  return NumberText(key.kind, key.min) + " to " + NumberText(key.kind, key.max);
}

// What a value of the key looks like.
std::string ValueWord(const Key& key) {
  switch (key.kind) {
    case Kind::kText: return "TEXT";
    case Kind::kPath: return "PATH";
    case Kind::kCount: return "N";
    case Kind::kBytes: return "SIZE";
    case Kind::kDurationMs: return "TIME";
    case Kind::kSpin: return "auto|TIME";
    case Kind::kListen: return "ADDRESS:PORT";
    case Kind::kNumber:
    case Kind::kShare: return "NUMBER";
    case Kind::kChoice: break;
  }
  std::string words = key.choices;
  std::replace(words.begin(), words.end(), ' ', '|');
  return words;
}

bool ParseWithUnit(std::string_view text, std::initializer_list<Unit> units, uint64_t* value) {
  uint64_t number = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (fault != std::errc()) return false;
  const std::string_view suffix = text.substr(static_cast<size_t>(end - text.data()));
  for (const Unit& unit : units) {
    if (suffix != unit.suffix) continue;
    if (number > (1ull << 63) / unit.factor) return false;
    *value = number * unit.factor;
    return true;
  }
  return false;
}

// What a number key holds, or the words for why the text does not give one.
const char* ParseNumberKey(const Key& key, std::string_view text, uint64_t* number) {
  switch (key.kind) {
    case Kind::kBytes:
      return ParseByteSize(text, number) ? nullptr : "is not a size (such as 64MiB)";
    case Kind::kDurationMs:
      if (text == "0") return *number = 0, nullptr;
      if (!ParseDurationUs(text, number)) return "is not a duration (such as 5s or 50ms)";
      if (*number % 1000 != 0) return "is not a whole number of milliseconds";
      *number /= 1000;
      return nullptr;
    default:
      return ParseWithUnit(text, {{"", 1}}, number) ? nullptr : "is not a whole number";
  }
}

// "127.0.0.1:9464" or "[::1]:9464": figures leave the host only by what the operator puts before.
bool IsLoopbackAddress(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return false;
  const std::string host(text.substr(0, colon));
  uint64_t port = 0;
  in_addr address{};
  const bool loopback = host == "[::1]" || (inet_pton(AF_INET, host.c_str(), &address) == 1 &&
                                            ntohl(address.s_addr) >> 24 == 127);
  return loopback && ParseWithUnit(text.substr(colon + 1), {{"", 1}}, &port) && port >= 1 &&
         port <= 65535;
}

const char* CheckText(const Key& key, std::string_view text) {
  double decimal = 0;
  uint64_t microseconds = 0;
  if (text.find('\0') != std::string_view::npos) return "holds a zero byte";
  switch (key.kind) {
    case Kind::kChoice:
      return HasWord(key.choices, text) ? nullptr : "is not one of: ";
    case Kind::kSpin:
      if (text == "auto" || text == "0") return nullptr;
      return ParseDurationUs(text, &microseconds) && microseconds <= key.max
                 ? nullptr
                 : "is neither auto nor a duration up to 10ms";
    case Kind::kListen:
      return text.empty() || IsLoopbackAddress(text)
                 ? nullptr
                 : "is not a loopback address and port (such as 127.0.0.1:9464)";
    case Kind::kNumber:
      return ParseDecimal(text, &decimal) && decimal >= static_cast<double>(key.min) &&
                     decimal <= static_cast<double>(key.max)
                 ? nullptr
                 : "is not a number in the range ";
    case Kind::kShare:
      // As turns read it, in single precision: what is less than that is 0, too.
      return ParseDecimal(text, &decimal) && static_cast<float>(decimal) > 0 && decimal <= 1
                 ? nullptr
                 : "is not a number above 0, at most 1";
    default:
      return text.size() <= kPathBytesMax ? nullptr : "is longer than 4095 bytes";
  }
}

Status SetKey(Config* config, const Key& key, std::string_view text, std::string* error) {
  const std::string name = std::string(key.name) + ": " + QuotedText(text.substr(0, 100)) + " ";
  if (const auto* member = std::get_if<uint64_t Config::*>(&key.member)) {
    uint64_t number = 0;
    const char* fault = ParseNumberKey(key, text, &number);
    if (fault != nullptr) return Refuse(error, name + fault);
    if (number < key.min || number > key.max) {
      return Refuse(error, name + "is out of range, allowed are " + Range(key));
    }
    config->*(*member) = number;
    return {};
  }
  const char* fault = CheckText(key, text);
  if (fault != nullptr) {
    std::string words = name + fault;
    if (key.kind == Kind::kChoice) words += key.choices;
    if (key.kind == Kind::kNumber) words += Range(key);
    return Refuse(error, std::move(words));
  }
  config->*(std::get<std::string Config::*>(key.member)) = text;
  return {};
}

std::string Place(std::string_view source, const toml::node& node) {
  return std::string(source) + ":" + std::to_string(node.source().begin.line) + ": ";
}

Status ApplyGrant(const toml::node& node, std::string_view source, Config* config,
                  std::string* error) {
  const std::string place = Place(source, node) + "grant";
  const toml::table* table = node.as_table();
  if (table == nullptr) return Refuse(error, place + " must be a table");
  ConfigGrant grant;
  bool has_uid = false;
  for (const auto& [name, value] : *table) {
    if (name.str() == "uid" && value.is_integer()) {
      const int64_t uid = value.as_integer()->get();
      if (uid < 0 || uid > 0xfffffffe) return Refuse(error, place + ".uid is not a user id");
      grant.uid = static_cast<uint32_t>(uid);
      has_uid = true;
    } else if (name.str() == "namespace" && value.is_string()) {
      grant.name_space = value.as_string()->get();
    } else {
      return Refuse(error, place + ": uid is a number, namespace a string, other keys are unknown");
    }
  }
  const bool named = !grant.name_space.empty() && grant.name_space.size() <= 64 &&
                     std::all_of(grant.name_space.begin(), grant.name_space.end(),
                                 IsNameCharacter);
  if (!has_uid || !named) {
    return Refuse(error, place + " needs uid and namespace (1 to 64 of A-Z a-z 0-9 . _ -)");
  }
  config->grants.push_back(std::move(grant));
  return {};
}

Status ApplyExtraModel(const toml::node& node, std::string_view source, Config* config,
                       std::string* error) {
  const std::string place = Place(source, node) + "extra_model";
  const toml::table* table = node.as_table();
  if (table == nullptr) return Refuse(error, place + " must be a table");
  ConfigModel model;
  model.kv_memory = DefaultConfig().kv_memory;
  for (const auto& [key, value] : *table) {
    const std::string name(key.str());
    const std::string where = Place(source, value) + "extra_model." + name;
    std::string* text = name == "name"          ? &model.name
                        : name == "path"        ? &model.path
                        : name == "draft_model" ? &model.draft_model
                                                : nullptr;
    if (text == nullptr && name != "kv_memory") {
      return Refuse(error,
                    where + " is unknown; there are path, name, kv_memory and draft_model");
    }
    if (name == "kv_memory") {
      // As the key of the default model, with its limits.
      Config read;
      const std::string written = value.is_integer()
                                      ? std::to_string(value.as_integer()->get())
                                      : value.value_or(std::string());
      std::string fault;
      if (!SetConfigKey(&read, "kv.memory", written, &fault).ok()) {
        return Refuse(error, where + fault.substr(std::strlen("kv.memory")));
      }
      model.kv_memory = read.kv_memory;
      continue;
    }
    if (!value.is_string()) return Refuse(error, where + " must be a string");
    *text = value.as_string()->get();
    if (const char* fault = CheckText(*FindKey("model"), *text); fault != nullptr) {
      return Refuse(error, where + " " + fault);
    }
  }
  if (model.path.empty()) return Refuse(error, place + " needs path");
  if (model.name.empty()) model.name = ModelName(model.path);
  if (model.name.size() > kModelNameBytesMax ||
      !std::all_of(model.name.begin(), model.name.end(), IsNameCharacter)) {
    return Refuse(error, place + ".name: 1 to 63 of A-Z a-z 0-9 . _ -");
  }
  if (config->extra_models.size() + 1 == kModelsMax) {
    return Refuse(error, place + ": more than 16 models");
  }
  config->extra_models.push_back(std::move(model));
  return {};
}

Status ApplyTable(const toml::table& table, const std::string& prefix, std::string_view source,
                  Config* config, std::string* error) {
  for (const auto& [key_name, value] : table) {
    const std::string name = prefix + std::string(key_name.str());
    if (name == "grant" || name == "extra_model") {
      const toml::array* tables = value.as_array();
      if (tables == nullptr) {
        return Refuse(error, Place(source, value) + name + " must be [[" + name + "]]");
      }
      for (const toml::node& node : *tables) {
        KAIROS_RETURN_IF_ERROR((name == "grant" ? ApplyGrant : ApplyExtraModel)(
            node, source, config, error));
      }
      continue;
    }
    if (name == "model" && value.is_array()) {
      return Refuse(error, Place(source, value) +
                               "model: names the default model; others are [[extra_model]]");
    }
    if (const toml::table* nested = value.as_table(); nested != nullptr && prefix.empty()) {
      KAIROS_RETURN_IF_ERROR(ApplyTable(*nested, name + ".", source, config, error));
      continue;
    }
    const Key* key = FindKey(name);
    if (key == nullptr) return Refuse(error, Place(source, value) + UnknownKey(name));
    std::string text;
    if (value.is_string()) {
      text = value.as_string()->get();
    } else if (value.is_integer()) {
      text = std::to_string(value.as_integer()->get());
    } else if (value.is_floating_point()) {
      char digits[32];
      const double number = value.as_floating_point()->get();
      text.assign(digits, std::to_chars(digits, digits + sizeof(digits), number).ptr);
    } else {
      return Refuse(error, Place(source, value) + name + " must be a string or a number");
    }
    const Status status = SetKey(config, *key, text, error);
    if (!status.ok()) {
      *error = Place(source, value) + *error;
      return status;
    }
  }
  return {};
}

std::string ToEnvironmentName(const char* key) {
  std::string name = "KAIROS_";
  for (; *key != '\0'; ++key) {
    const bool lower = *key >= 'a' && *key <= 'z';
    name.push_back(*key == '.' ? '_' : static_cast<char>(lower ? *key - 32 : *key));
  }
  return name;
}

// The setting that a variable was meant to be: it begins like those of a section, or is a slip of
// the finger away from one. Empty where it seems to be somebody else's.
std::string MisspeltSetting(std::string_view variable) {
  if (!variable.starts_with("KAIROS_")) return "";
  constexpr size_t kSlip = 2;
  std::string nearest;
  size_t nearest_distance = std::numeric_limits<size_t>::max();
  bool in_section = false;
  for (const Key& key : kKeys) {
    const std::string name = ToEnvironmentName(key.name);
    const size_t distance = EditDistance(variable.substr(0, 100), name);
    if (distance < nearest_distance) {
      nearest = name;
      nearest_distance = distance;
    }
    const std::string_view dotted = key.name;
    const size_t dot = dotted.find('.');
    in_section |= dot != std::string_view::npos &&
                  variable.starts_with(name.substr(0, std::strlen("KAIROS_") + dot + 1));
  }
  return in_section || nearest_distance <= kSlip ? nearest : "";
}

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  constexpr char kHex[] = "0123456789abcdef";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += std::string("\\u00") + kHex[byte >> 4] + kHex[byte & 15];
      continue;
    }
    if (c == '"' || c == '\\') out.push_back('\\');
    out.push_back(c);
  }
  return out + "\"";
}

std::string ValueText(const Config& config, const Key& key) {
  if (const auto* text = std::get_if<std::string Config::*>(&key.member)) {
    return Quoted(config.**text);
  }
  const std::string number =
      NumberText(key.kind, config.*(std::get<uint64_t Config::*>(key.member)));
  return key.kind == Kind::kCount ? number : Quoted(number);
}

std::string FileText(const Config& config, bool with_help) {
  std::string out;
  std::string section;
  for (const Key& key : kKeys) {
    const std::string_view name = key.name;
    const size_t dot = name.find('.');
    if (dot != std::string_view::npos && name.substr(0, dot) != section) {
      section = name.substr(0, dot);
      out += "\n[" + section + "]\n";
    }
    if (with_help) {
      out += std::string("# ") + key.help + (key.reload == Reload::kYes ? " (reload)" : "") + "\n";
    }
    out += std::string(dot == std::string_view::npos ? name : name.substr(dot + 1)) + " = " +
           ValueText(config, key) + "\n";
  }
  for (const ConfigGrant& grant : config.grants) {
    out += "\n[[grant]]\nuid = " + std::to_string(grant.uid) +
           "\nnamespace = " + Quoted(grant.name_space) + "\n";
  }
  for (const ConfigModel& model : config.extra_models) {
    out += "\n[[extra_model]]\nname = " + Quoted(model.name) + "\npath = " + Quoted(model.path) +
           "\nkv_memory = " + Quoted(NumberText(Kind::kBytes, model.kv_memory)) + "\n";
    if (!model.draft_model.empty()) out += "draft_model = " + Quoted(model.draft_model) + "\n";
  }
  return out;
}

std::string ExtraModelsText(const std::vector<ConfigModel>& models) {
  std::string out;
  for (const ConfigModel& model : models) {
    out += model.name + " " + model.path + " " + std::to_string(model.kv_memory) + " " +
           model.draft_model + "\n";
  }
  return out;
}

std::string GrantsText(const std::vector<ConfigGrant>& grants) {
  std::string out;
  for (const ConfigGrant& grant : grants) {
    out += (out.empty() ? "" : ", ") + std::to_string(grant.uid) + " " + grant.name_space;
  }
  return out;
}

// 0, or the line of the first non-ASCII byte outside strings and comments. TOML allows none there,
// and the parser has undefined behaviour for some of them.
int NonAsciiLine(std::string_view toml) {
  int line = 1;
  char before = '\n';  // the last character that was not a blank
  for (size_t i = 0; i < toml.size(); ++i) {
    const char c = toml[i];
    if (static_cast<unsigned char>(c) >= 0x80) return line;
    if (c == '\n') ++line;
    if (c == ' ' || c == '\t' || c == '\r') continue;
    const bool may_begin_string =
        std::string_view("\n=,.[{").find(before) != std::string_view::npos;
    before = c;
    if (c == '#') {
      i = std::min(toml.find('\n', i), toml.size()) - 1;
    } else if ((c == '"' || c == '\'') && may_begin_string) {
      const std::string quotes(3, c);
      const bool is_long = toml.substr(i, 3) == quotes;
      const std::string_view end = std::string_view(quotes).substr(0, is_long ? 3 : 1);
      // A closing quote that is missing is the parser's to report, and ends its work.
      for (i += end.size(); i < toml.size() && toml.substr(i, end.size()) != end; ++i) {
        if (toml[i] == '\n' && !is_long) return 0;
        if (toml[i] == '\\' && c == '"') ++i;
        if (i < toml.size() && toml[i] == '\n') ++line;
      }
      i += end.size() - 1;
    }
  }
  return 0;
}

}  // namespace

uint32_t Config::SocketMode() const { return socket_mode == "0660" ? 0660 : 0600; }

int32_t Config::SpinUs() const {
  uint64_t microseconds = 0;
  if (ingress_spin == "auto") return -1;
  return ParseDurationUs(ingress_spin, &microseconds) ? static_cast<int32_t>(microseconds) : 0;
}

float Config::Temperature() const {
  double value = 0;
  return ParseDecimal(generation_temperature, &value) ? static_cast<float>(value) : 0.0f;
}

float Config::TopP() const {
  double value = 1;
  return ParseDecimal(generation_top_p, &value) ? static_cast<float>(value) : 1.0f;
}

bool ParseByteSize(std::string_view text, uint64_t* bytes) {
  return ParseWithUnit(text, {{"", 1}, {"B", 1}, {"KiB", 1ull << 10}, {"MiB", 1ull << 20},
                              {"GiB", 1ull << 30}, {"TiB", 1ull << 40}},
                       bytes);
}

bool ParseDurationUs(std::string_view text, uint64_t* microseconds) {
  return ParseWithUnit(text, {{"us", 1}, {"ms", 1000}, {"s", 1'000'000}, {"m", 60'000'000},
                              {"h", 3'600'000'000}},
                       microseconds);
}

Config DefaultConfig() {
  Config config;
  for (const Key& key : kKeys) {
    std::string error;
    const Status status = SetKey(&config, key, key.default_value, &error);
    KAIROS_CHECK(status.ok());
  }
  return config;
}

Status SetConfigKey(Config* config, std::string_view name, std::string_view value,
                    std::string* error) {
  const Key* key = FindKey(name);
  if (key == nullptr) return Refuse(error, UnknownKey(name));
  return SetKey(config, *key, value, error);
}

Status ApplyConfigText(Config* config, std::string_view toml, std::string_view source,
                       std::string* error) {
  const std::string_view byte_order_mark = "\xef\xbb\xbf";
  if (toml.starts_with(byte_order_mark)) toml.remove_prefix(byte_order_mark.size());
  if (const int line = NonAsciiLine(toml); line != 0) {
    return Refuse(error, std::string(source) + ":" + std::to_string(line) +
                             ": a character outside ASCII needs quotes around it");
  }
  const toml::parse_result parsed = toml::parse(toml, source);
  if (!parsed) {
    const toml::parse_error& fault = parsed.error();
    const std::string line = std::to_string(fault.source().begin.line);
    return Refuse(error, std::string(source) + ":" + line + ": " +
                             std::string(fault.description()));
  }
  Config changed = *config;
  KAIROS_RETURN_IF_ERROR(ApplyTable(parsed.table(), "", source, &changed, error));
  *config = std::move(changed);
  return {};
}

Status ApplyConfigFile(Config* config, const std::string& path, std::string* error) {
  const Status unreadable(Code::kUnavailable, "configuration cannot be read");
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat kind {};
  if (fd < 0 || fstat(fd, &kind) != 0) {
    *error = path + ": " + std::strerror(errno);
    if (fd >= 0) close(fd);
    return unreadable;
  }
  // A FIFO or a terminal that has nothing to give now would read as a file without settings.
  if (!S_ISREG(kind.st_mode)) {
    close(fd);
    *error = path + ": is not a regular file";
    return unreadable;
  }
  std::string text(kFileBytesMax + 1, '\0');
  size_t size = 0;
  ssize_t count = 0;
  while (size < text.size() && (count = read(fd, text.data() + size, text.size() - size)) > 0) {
    size += static_cast<size_t>(count);
  }
  const int read_error = count < 0 ? errno : 0;
  close(fd);
  if (read_error != 0) {
    *error = path + ": " + std::strerror(read_error);
    return unreadable;
  }
  if (size > kFileBytesMax) return Refuse(error, path + ": larger than 1 MiB");
  text.resize(size);
  return ApplyConfigText(config, text, path, error);
}

Status ApplyConfigEnvironment(Config* config, const char* const* environment, std::string* error) {
  Config changed = *config;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const size_t equals = entry.find('=');
    if (equals == std::string_view::npos) continue;
    bool is_setting = false;
    for (const Key& key : kKeys) {
      const std::string name = ToEnvironmentName(key.name);
      if (entry.substr(0, equals) != name) continue;
      is_setting = true;
      const Status status = SetKey(&changed, key, entry.substr(equals + 1), error);
      if (!status.ok()) {
        *error = name + ": " + *error;
        return status;
      }
    }
    if (is_setting) continue;
    if (const std::string meant = MisspeltSetting(entry.substr(0, equals)); !meant.empty()) {
      return Refuse(error, "environment: unknown setting " + std::string(entry.substr(0, equals)) +
                               ", did you mean " + meant + "?");
    }
  }
  *config = std::move(changed);
  return {};
}

std::string DefaultConfigText() { return FileText(DefaultConfig(), true); }

std::string ConfigText(const Config& config) { return FileText(config, false); }

Status LoadConfig(const ConfigFlags& flags, const char* const* environment, Config* config,
                  std::string* error) {
  *config = DefaultConfig();
  if (!flags.file.empty()) KAIROS_RETURN_IF_ERROR(ApplyConfigFile(config, flags.file, error));
  KAIROS_RETURN_IF_ERROR(ApplyConfigEnvironment(config, environment, error));
  for (const auto& [name, value] : flags.keys) {
    KAIROS_RETURN_IF_ERROR(SetConfigKey(config, name, value, error));
  }
  return ResolveConfig(config, error);
}

Status CompareForReload(const Config& now, const Config& next, std::vector<ConfigChange>* changes,
                        std::string* error) {
  std::vector<ConfigChange> found;
  std::string fixed;
  for (const Key& key : kKeys) {
    std::string before = ValueText(now, key);
    std::string after = ValueText(next, key);
    if (before == after) continue;
    if (key.reload == Reload::kNo) fixed += (fixed.empty() ? "" : ", ") + std::string(key.name);
    found.push_back({key.name, std::move(before), std::move(after)});
  }
  if (ExtraModelsText(now.extra_models) != ExtraModelsText(next.extra_models)) {
    fixed += (fixed.empty() ? "" : ", ") + std::string("extra_model");
  }
  if (!fixed.empty()) {
    *error = fixed + ": changed, which needs a restart; nothing was applied";
    return {Code::kFailedPrecondition, "configuration needs a restart"};
  }
  std::string before = GrantsText(now.grants);
  std::string after = GrantsText(next.grants);
  if (before != after) found.push_back({"grant", Quoted(before), Quoted(after)});
  *changes = std::move(found);
  return {};
}

const std::vector<ConfigKeyText>& ConfigKeys() {
  static const std::vector<ConfigKeyText> keys = [] {
    std::vector<ConfigKeyText> out;
    for (const Key& key : kKeys) {
      const bool limited = std::holds_alternative<uint64_t Config::*>(key.member);
      out.push_back({key.name, key.default_value, key.help, ValueWord(key),
                     limited ? Range(key) : ""});
    }
    return out;
  }();
  return keys;
}

}  // namespace kairos
