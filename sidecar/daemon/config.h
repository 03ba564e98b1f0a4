// SPDX-License-Identifier: Apache-2.0
// The daemon's settings: one table of keys with their meaning, limits and defaults. Flags override
// environment variables, which override the file, which overrides the defaults. An unknown key, a
// value out of range or a wrong unit is an error that names the key; nothing is applied then. Pure
// but for reading the file and the environment. Fences toml++ (config.cc) and CLI11
// (config_flags.cc).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace kairos {

// `uid` may use sessions of `name_space` that other uids made.
struct ConfigGrant {
  uint32_t uid = 0;
  std::string name_space;
};

// A model that is in memory beside others, with KV memory of its own.
struct ConfigModel {
  std::string name;                  // unique
  std::string path;                  // or the name of a fetched model
  uint64_t kv_memory = 0;            // bytes
  std::string draft_model = "";      // as `path`; empty: none
  uint64_t draft_kv_memory = 0;      // bytes, for the draft model's
};

struct Config {
  std::string model;
  std::string socket;
  std::string socket_mode;           // "0600" or "0660"
  std::string control_socket;
  std::string catalog_path;
  std::string catalog_durability;
  uint64_t catalog_bytes_max = 0;
  uint64_t catalog_versions_max = 0;
  uint64_t engine_threads = 0;       // 0: as measured
  uint64_t engine_step_budget_ms = 0;
  uint64_t engine_draft_tokens_max = 0;
  std::string engine_draft_model;    // of the default model; empty: none
  uint64_t engine_draft_kv_memory = 0;  // bytes, of each draft model
  uint64_t engine_chunk_tokens_max = 0;
  uint64_t engine_sequences_max = 0;
  uint64_t kv_memory = 0;            // bytes
  uint64_t limits_attachments = 0;
  uint64_t limits_attachments_per_process = 0;  // 0: by limits_attachments
  uint64_t limits_ring_memory = 0;   // bytes
  uint64_t limits_sessions_per_uid = 0;
  uint64_t limits_in_flight_per_client = 0;
  uint64_t limits_unread_replies_ms = 0;
  uint64_t limits_max_tokens_default = 0;
  uint64_t sessions_tool_timeout_ms = 0;  // 0: for ever, as the next
  uint64_t sessions_user_timeout_ms = 0;
  std::string metrics_listen;        // address and port on loopback; empty: off
  std::string ingress_spin;          // "auto", or a duration
  std::string generation_temperature;
  std::string generation_top_p;
  uint64_t generation_top_k = 0;
  std::string log_level;
  uint64_t drain_timeout_ms = 0;
  std::vector<ConfigGrant> grants;
  std::vector<ConfigModel> extra_models;

  // All models, that of `model` and kv.memory first. None has a draft model where no token is to be
  // guessed.
  std::vector<ConfigModel> Models() const;
  // What limits_attachments_per_process comes to.
  uint32_t AttachmentsPerProcess() const;
  // -1 for "auto", else microseconds. The values were checked when they were set.
  int32_t SpinUs() const;
  uint32_t SocketMode() const;  // permission bits
  float Temperature() const;
  float TopP() const;
};

// Of names of namespaces and models: A-Z a-z 0-9 . _ -
bool IsNameCharacter(char c);
// By which clients ask for a model where it has no other: the name of the file without its ending,
// or of the fetched model, in characters of names. Empty where `path` is.
std::string ModelName(std::string_view path);

// Every key at its default; paths are still empty.
Config DefaultConfig();
// Sets one key from text. INVALID_ARGUMENT; *error names the key, the value's fault and the limit.
Status SetConfigKey(Config* config, std::string_view key, std::string_view value,
                    std::string* error);
// Applies TOML text. `source` is named in errors, with the line. On failure *config is unchanged.
Status ApplyConfigText(Config* config, std::string_view toml, std::string_view source,
                       std::string* error);
// Applies a file; at most 1 MiB. UNAVAILABLE when it cannot be read.
Status ApplyConfigFile(Config* config, const std::string& path, std::string* error);
// Applies KAIROS_<KEY> variables, dots as underscores (KAIROS_CATALOG_PATH).
Status ApplyConfigEnvironment(Config* config, const char* const* environment, std::string* error);
// Fills in the paths that are still empty and checks what depends on several keys.
Status ResolveConfig(Config* config, std::string* error);

// A commented file with every key and its default; ApplyConfigText accepts it.
std::string DefaultConfigText();
// The keys as they are, in the form of the file.
std::string ConfigText(const Config& config);

// Command line of kairosd.
struct ConfigFlags {
  std::string file;                 // --config
  bool check_config = false;        // --check-config
  bool print_default = false;       // --print-default-config
  std::vector<std::pair<std::string, std::string>> keys;  // --engine-threads 4
};

// True to go on; false with the exit code in *exit_code, after help or a usage error was printed.
bool ParseConfigFlags(int argc, const char* const* argv, ConfigFlags* flags, int* exit_code);
// The whole of the precedence: defaults, file, environment, flags, resolved.
Status LoadConfig(const ConfigFlags& flags, const char* const* environment, Config* config,
                  std::string* error);

// One key that a reload changes; values as in the file, text with its quotes.
struct ConfigChange {
  std::string key;
  std::string before;
  std::string after;
};
// What goes from `now` to `next` in a running daemon. FAILED_PRECONDITION where a key that needs a
// restart differs; *error names every such key, and *changes is left alone.
Status CompareForReload(const Config& now, const Config& next, std::vector<ConfigChange>* changes,
                        std::string* error);

// Keys in order with their help, for flags and documents.
struct ConfigKeyText {
  const char* name;
  const char* default_value;
  const char* help;
  std::string value;    // what is written: "SIZE", "PATH", "0600|0660"
  std::string allowed;  // "1MiB to 4TiB"; empty where the help says it, or nothing limits it
};
const std::vector<ConfigKeyText>& ConfigKeys();

// "64MiB", "1GiB", "4096"; "5s", "250ms", "2m", "1h". False when malformed or over 2^63.
bool ParseByteSize(std::string_view text, uint64_t* bytes);
bool ParseDurationUs(std::string_view text, uint64_t* microseconds);

}  // namespace kairos
