// SPDX-License-Identifier: Apache-2.0
#include "sidecar/daemon/config.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace kairos {
namespace {

TEST(Config, PrintedDefaultsReadBackAsDefaults) {
  Config config = DefaultConfig();
  config.kv_memory = 1;
  std::string error;

  const Status status = ApplyConfigText(&config, DefaultConfigText(), "default", &error);

  ASSERT_TRUE(status.ok()) << error;
  EXPECT_EQ(ConfigText(config), ConfigText(DefaultConfig()));
  EXPECT_EQ(config.kv_memory, 1ull << 30);
  EXPECT_EQ(config.engine_step_budget_ms, 50u);
  EXPECT_EQ(config.limits_max_tokens_default, 512u);
}

TEST(Config, PrintsSizesAndTimesInTheLargestUnitThatDividesThem) {
  Config config = DefaultConfig();
  config.kv_memory = 3ull << 20;
  config.catalog_bytes_max = (1u << 20) + 1;
  config.engine_step_budget_ms = 0;
  config.drain_timeout_ms = 90'000;

  const std::string text = ConfigText(config);

  for (const char* line : {"memory = \"3MiB\"", "bytes_max = \"1048577\"",
                           "step_budget = \"0\"", "timeout = \"90s\""}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  }
  Config again = DefaultConfig();
  std::string error;
  ASSERT_TRUE(ApplyConfigText(&again, text, "text", &error).ok()) << error;
  EXPECT_EQ(ConfigText(again), text);
}

TEST(Config, FlagsOverrideEnvironmentWhichOverridesFile) {
  const std::string path = testing::TempDir() + "kairosd.toml";
  std::ofstream(path) << "model = \"file\"\n[engine]\nthreads = 1\nsequences_max = 5\n"
                         "[kv]\nmemory = \"64MiB\"\n[[grant]]\nuid = 7\nnamespace = \"a.b\"\n";
  const char* environment[] = {"KAIROS_ENGINE_THREADS=2", "KAIROS_KV_MEMORY=2GiB",
                               "KAIROS_SOCKET=/run/x.sock", "OTHER=1", "KAIROS_UNRELATED", nullptr};
  ConfigFlags flags;
  flags.file = path;
  flags.keys = {{"engine.threads", "3"}, {"catalog.path", "/var/c.db"}};
  Config config;
  std::string error;

  const Status status = LoadConfig(flags, environment, &config, &error);

  ASSERT_TRUE(status.ok()) << error;
  EXPECT_EQ(config.model, "file");
  EXPECT_EQ(config.engine_threads, 3u);
  EXPECT_EQ(config.engine_sequences_max, 5u);
  EXPECT_EQ(config.kv_memory, 2ull << 30);
  EXPECT_EQ(config.control_socket, "/run/control.sock");
  ASSERT_EQ(config.grants.size(), 1u);
  EXPECT_EQ(config.grants[0].uid, 7u);
  EXPECT_EQ(config.grants[0].name_space, "a.b");
}

TEST(Config, ReloadListsWhatChangesAndRefusesWhatNeedsARestart) {
  const Config now = DefaultConfig();
  Config next = now;
  std::string error;
  ASSERT_TRUE(SetConfigKey(&next, "limits.max_tokens_default", "7", &error).ok());
  ASSERT_TRUE(SetConfigKey(&next, "log.level", "debug", &error).ok());
  next.grants.push_back({7, "team"});
  std::vector<ConfigChange> changes;

  ASSERT_TRUE(CompareForReload(now, next, &changes, &error).ok()) << error;

  ASSERT_EQ(changes.size(), 3u);
  EXPECT_EQ(changes[0].key, "limits.max_tokens_default");
  EXPECT_EQ(changes[0].before + changes[0].after, "5127");
  EXPECT_EQ(changes[1].before + changes[1].after, "\"info\"\"debug\"");
  EXPECT_EQ(changes[2].key + changes[2].after, "grant\"7 team\"");

  ASSERT_TRUE(SetConfigKey(&next, "kv.memory", "2MiB", &error).ok());
  ASSERT_TRUE(SetConfigKey(&next, "catalog.durability", "fsync", &error).ok());
  changes.clear();
  EXPECT_EQ(CompareForReload(now, next, &changes, &error).code(), Code::kFailedPrecondition);
  EXPECT_TRUE(changes.empty());
  EXPECT_EQ(error.find("catalog.durability, kv.memory: "), 0u) << error;
  EXPECT_EQ(error.find("log.level"), std::string::npos) << error;
}

TEST(Config, NamesMisspeltVariableAndLeavesOthersAlone) {
  for (const char* wrong : {"KAIROS_ENGINE_THREDS=2", "KAIROS_KV_SIZE=1GiB", "KAIROS_SOKCET=/x"}) {
    const char* environment[] = {wrong, nullptr};
    Config config = DefaultConfig();
    std::string error;
    EXPECT_FALSE(ApplyConfigEnvironment(&config, environment, &error).ok()) << wrong;
    EXPECT_NE(error.find("did you mean KAIROS_"), std::string::npos) << error;
  }
  const char* others[] = {"KAIROS_LIBRARY=/x", "KAIROS_TEST_MODEL=/y", "KAIROS_KERNELS=avx2",
                          "KAIROS_CONTROL_STATS=/z", "KAIROSD=/d", nullptr};
  Config config = DefaultConfig();
  std::string error;
  EXPECT_TRUE(ApplyConfigEnvironment(&config, others, &error).ok()) << error;
}

TEST(Config, NamesKeyLineAndLimitOfWrongValues) {
  const struct {
    const char* toml;
    const char* words;
  } table[] = {
      {"modle = \"x\"", "did you mean \"model\""},
      {"\n[engine]\nthread = 1",
       "t:3: unknown key \"engine.thread\", did you mean \"engine.threads\""},
      {"zzzzzzzzzzzzzzzzzz = 1", "unknown key \"zzzzzzzzzzzzzzzzzz\""},
      {"engine = 1", "unknown key \"engine\""},
      {"[engine]\nthreads = -1", "engine.threads"},
      {"[engine]\nthreads = 5000", "0 to 1024"},
      {"[engine]\nthreads = true", "must be a string or a number"},
      {"[kv]\nmemory = \"1GB\"", "is not a size"},
      {"[kv]\nmemory = \"99999999999999999999\"", "is not a size"},
      {"[kv]\nmemory = \"16777216TiB\"", "is not a size"},
      {"[drain]\ntimeout = \"5\"", "is not a duration"},
      {"[drain]\ntimeout = \"5us\"", "whole number of milliseconds"},
      {"[drain]\ntimeout = \"2h\"", "0 to 1h"},
      {"[catalog]\ndurability = \"both\"", "process fsync"},
      {"[catalog]\ndurability = \"process fsync\"", "is not one of"},
      {"[ingress]\nspin = \"1s\"", "up to 10ms"},
      {"[generation]\ntemperature = 3", "0 to 2"},
      {"[generation]\ntemperature = nan", "0 to 2"},
      {"[generation]\ntemperature = inf", "0 to 2"},
      {"[generation]\ntop_p = 0", "above 0, at most 1"},
      {"[generation]\ntop_p = \"1e-60\"", "above 0, at most 1"},  // 0 as turns read it
      {"[generation]\ntop_p = 1.01", "above 0, at most 1"},
      {"[generation]\ntop_p = nan", "above 0, at most 1"},
      {"[generation]\ntop_k = -1", "is not a whole number"},
      {"[generation]\ntop_k = 2147483648", "0 to 2147483647"},
      {"\"a\\nb\\u202e\" = 1", "unknown key \"a\\nb\\u202e\""},
      {"[[grant]]\nuid = -1\nnamespace = \"a\"", "not a user id"},
      {"[[grant]]\nuid = 1\nnamespace = \"a b\"", "1 to 64"},
      {"[[grant]]\nnamespace = \"a\"", "needs uid"},
      {"grant = 1", "[[grant]]"},
      {"extra_model = 1", "extra_model must be [[extra_model]]"},
      {"[[model]]\npath = \"a\"", "others are [[extra_model]]"},
      {"[[extra_model]]\nname = \"a\"", "extra_model needs path"},
      {"[[extra_model]]\npath = 1", "extra_model.path must be a string"},
      {"[[extra_model]]\npath = \"a\"\nname = \"a b\"", "extra_model.name: 1 to 63"},
      {"[[extra_model]]\npath = \"a\"\nkv_memory = \"1KiB\"",
       "extra_model.kv_memory: \"1KiB\" is out of range"},
      {"[[extra_model]]\npath = \"a\"\nthreads = 2", "extra_model.threads is unknown"},
      {"model = ", "t:1"},
      {"\n[!x]", "t:2"},
      {"[=]", "t:1"},
      {"a \xef\xbb\x9fma = 0", "t:1: a character outside ASCII needs quotes"},
      {"model = \"\"\"x\ny\"\"\"\ng\xc3\xb6 = 1", "t:3: a character outside ASCII"},
      {"[engine.threads]\nx = 1", "must be a string or a number"},
  };

  for (const auto& row : table) {
    Config config = DefaultConfig();
    std::string error;
    EXPECT_EQ(ApplyConfigText(&config, row.toml, "t", &error).code(), Code::kInvalidArgument)
        << row.toml;
    EXPECT_NE(error.find(row.words), std::string::npos) << error << " / " << row.toml;
    EXPECT_EQ(ConfigText(config), ConfigText(DefaultConfig()));
  }
}

TEST(Config, TakesAnyCharacterInQuotesAndComments) {
  Config config = DefaultConfig();
  std::string error;

  const Status status = ApplyConfigText(
      &config,
      "\xef\xbb\xbf# \xe6\xa8\xa1 'x\nmodel = \"\\\"\xc3\xb6\" # \xc3\xb6\n"
      "socket = '/run/\xe6\xa8\xa1'\n",
      "t", &error);

  ASSERT_TRUE(status.ok()) << error;
  EXPECT_EQ(config.model, "\"\xc3\xb6");
  EXPECT_EQ(config.socket, "/run/\xe6\xa8\xa1");
}

TEST(Config, ReadsUnitsExactly) {
  uint64_t value = 0;
  EXPECT_TRUE(ParseByteSize("3KiB", &value));
  EXPECT_EQ(value, 3072u);
  EXPECT_TRUE(ParseDurationUs("2m", &value));
  EXPECT_EQ(value, 120'000'000u);
  for (const char* text : {"", "MiB", "-1", "1 MiB", "1mib", "1.5GiB", "0x10", "1MiBx"}) {
    EXPECT_FALSE(ParseByteSize(text, &value)) << text;
  }
}

TEST(Config, SpeaksOfFileThatCannotBeRead) {
  Config config = DefaultConfig();
  std::string error;

  EXPECT_EQ(ApplyConfigFile(&config, "/nonexistent/kairosd.toml", &error).code(),
            Code::kUnavailable);
  EXPECT_NE(error.find("/nonexistent/kairosd.toml"), std::string::npos);
  EXPECT_EQ(ApplyConfigFile(&config, "/", &error).code(), Code::kUnavailable);
}

TEST(Config, TakesEveryKeyAsAFlag) {
  const char* argv[] = {"kairosd", "--catalog-bytes-max", "2MiB", "--check-config",
                        "--limits-in-flight-per-client=9"};
  ConfigFlags flags;
  int exit_code = -1;

  ASSERT_TRUE(ParseConfigFlags(5, argv, &flags, &exit_code));

  EXPECT_TRUE(flags.check_config);
  ASSERT_EQ(flags.keys.size(), 2u);
  EXPECT_EQ(flags.keys[0].first, "catalog.bytes_max");
  EXPECT_EQ(flags.keys[1].second, "9");
}

TEST(Config, ExitsWithUsageOnUnknownFlag) {
  const char* argv[] = {"kairosd", "--no-such-flag"};
  ConfigFlags flags;
  int exit_code = -1;

  EXPECT_FALSE(ParseConfigFlags(2, argv, &flags, &exit_code));

  EXPECT_EQ(exit_code, 2);
}

TEST(Config, ExtraModelsHaveNamesAndMemoryOfTheirOwn) {
  Config config = DefaultConfig();
  std::string error;
  ASSERT_TRUE(ApplyConfigText(&config,
                              "model = \"/m/first one.gguf\"\n"
                              "[[extra_model]]\npath = \"/m/second.gguf\"\n"
                              "[[extra_model]]\nname = \"c\"\npath = \"third\"\n"
                              "kv_memory = \"64MiB\"\n",
                              "t", &error)
                  .ok())
      << error;

  const std::vector<ConfigModel> models = config.Models();

  ASSERT_EQ(models.size(), 3u);
  EXPECT_EQ(models[0].name, "first-one");
  EXPECT_EQ(models[0].kv_memory, 1u << 30);
  EXPECT_EQ(models[1].name, "second");
  EXPECT_EQ(models[1].kv_memory, 1u << 30);
  EXPECT_EQ(models[2].name, "c");
  EXPECT_EQ(models[2].path, "third");
  EXPECT_EQ(models[2].kv_memory, 64u << 20);
  // What --check-config prints says the same.
  Config again = DefaultConfig();
  ASSERT_TRUE(ApplyConfigText(&again, ConfigText(config), "t", &error).ok()) << error;
  EXPECT_EQ(again.Models()[2].kv_memory, 64u << 20);
}

TEST(Config, EachModelHasADraftModelOfItsOwnUnlessNothingIsGuessed) {
  Config config = DefaultConfig();
  std::string error;
  ASSERT_TRUE(ApplyConfigText(&config,
                              "model = \"/m/a.gguf\"\n"
                              "[engine]\ndraft_model = \"small\"\ndraft_kv_memory = \"2MiB\"\n"
                              "[[extra_model]]\npath = \"/m/b.gguf\"\ndraft_model = \"tiny\"\n"
                              "[[extra_model]]\npath = \"/m/c.gguf\"\n",
                              "t", &error)
                  .ok())
      << error;
  Config again = DefaultConfig();
  ASSERT_TRUE(ApplyConfigText(&again, ConfigText(config), "t", &error).ok()) << error;

  for (const std::vector<ConfigModel>& models : {config.Models(), again.Models()}) {
    ASSERT_EQ(models.size(), 3u);
    EXPECT_EQ(models[0].draft_model, "small");
    EXPECT_EQ(models[1].draft_model, "tiny");
    EXPECT_EQ(models[2].draft_model, "");
    EXPECT_EQ(models[1].draft_kv_memory, 2u << 20);
    EXPECT_EQ(models[2].draft_kv_memory, 0u);
  }
  config.engine_draft_tokens_max = 0;
  EXPECT_EQ(config.Models()[0].draft_model, "");
  EXPECT_EQ(config.Models()[0].draft_kv_memory, 0u);
}

TEST(Config, NoTwoModelsHaveOneName) {
  Config config = DefaultConfig();
  config.model = "/m/a.gguf";
  config.catalog_path = "/c";
  config.extra_models = {{"a", "/n/a.gguf", 1 << 20}};
  std::string error;

  EXPECT_FALSE(ResolveConfig(&config, &error).ok());
  EXPECT_EQ(error, "extra_model.name: \"a\" is the name of two models");
}

TEST(Config, AnExtraModelNeedsARestart) {
  const Config now = DefaultConfig();
  Config next = now;
  next.extra_models = {{"a", "/a.gguf", 1 << 20}};
  std::vector<ConfigChange> changes;
  std::string error;

  EXPECT_FALSE(CompareForReload(now, next, &changes, &error).ok());
  EXPECT_TRUE(error.starts_with("extra_model: changed")) << error;
}

}  // namespace
}  // namespace kairos
