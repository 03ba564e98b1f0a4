// SPDX-License-Identifier: Apache-2.0
#include "sidecar/engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "sidecar/engine/stop_matcher.h"

namespace kairos {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TokenId Draw(const SamplingParams& params, std::vector<float> logits,
             const std::vector<TokenId>& tokens = {}) {
  Sampler sampler(*ChooseKernels());
  return sampler.Draw(params, tokens, logits).token;
}

SamplingParams Warm(float temperature = 1.0f) {
  SamplingParams params;
  params.temperature = temperature;
  return params;
}

// How often each token is drawn over `rounds` positions.
std::map<TokenId, int> Count(SamplingParams params, const std::vector<float>& logits, int rounds) {
  std::map<TokenId, int> counts;
  Sampler sampler(*ChooseKernels());
  std::vector<TokenId> tokens;
  for (int i = 0; i < rounds; ++i) {
    std::vector<float> copy = logits;
    ++counts[sampler.Draw(params, tokens, copy).token];
    tokens.push_back(0);
  }
  return counts;
}

TEST(Sampler, TakesTheFirstOfTheGreatestWhenGreedy) {
  std::vector<float> logits(100, -1.0f);
  logits[37] = logits[71] = 2.0f;
  EXPECT_EQ(Draw({}, logits), 37);
  logits.push_back(3.0f);
  EXPECT_EQ(Draw({}, logits), 100);
}

TEST(Sampler, NeverTakesWhatIsNotANumber) {
  for (const float temperature : {0.0f, 0.8f}) {
    SamplingParams params = Warm(temperature);
    params.want_logprobs = true;
    params.logprobs = 3;
    EXPECT_EQ(Draw(params, {kNan, -5.0f, kNan, -6000.0f}), 1);
    EXPECT_EQ(Draw(params, {kNan, kNan}), 0);
    EXPECT_EQ(Draw(params, {1.0f, kInf, 2.0f}), 1);
    EXPECT_EQ(Draw(params, {-kInf, -kInf, -1.0f}), 2);
  }
}

TEST(Sampler, DrawsWithTheProbabilitiesOfTheLogits) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.15f),
                                     std::log(0.05f)};
  SamplingParams params = Warm();
  params.seed = 5;
  const auto counts = Count(params, logits, 20000);
  const double expected[] = {10000, 6000, 3000, 1000};
  double chi_square = 0.0;
  for (int i = 0; i < 4; ++i) {
    chi_square += std::pow(counts.at(i) - expected[i], 2) / expected[i];
  }
  EXPECT_LT(chi_square, 16.3);  // 3 degrees of freedom, 0.1 %
}

TEST(Sampler, RepeatsItselfForEqualSeedAndPositionOnly) {
  const std::vector<float> logits(50, 0.0f);
  SamplingParams params = Warm();
  params.seed = 1;
  const std::vector<TokenId> tokens(10, 3);
  EXPECT_EQ(Draw(params, logits, tokens), Draw(params, logits, tokens));
  EXPECT_GT(Count(params, logits, 400).size(), 40u);
  int different = 0;
  for (uint64_t seed = 2; seed < 22; ++seed) {
    SamplingParams other = params;
    other.seed = seed;
    different += Draw(other, logits, tokens) != Draw(params, logits, tokens);
  }
  EXPECT_GE(different, 15);
}

TEST(Sampler, KeepsToTopKTopPAndMinP) {
  const std::vector<float> logits = {std::log(0.05f), std::log(0.4f), std::log(0.3f),
                                     std::log(0.2f), std::log(0.05f)};
  SamplingParams top_k = Warm();
  top_k.top_k = 2;
  SamplingParams top_p = Warm();
  top_p.top_p = 0.65f;
  SamplingParams min_p = Warm();
  min_p.min_p = 0.6f;
  for (const SamplingParams& params : {top_k, top_p, min_p}) {
    const auto counts = Count(params, logits, 500);
    EXPECT_EQ(counts.size(), 2u);
    EXPECT_TRUE(counts.contains(1) && counts.contains(2));
  }
  SamplingParams narrow = Warm();
  narrow.top_p = 1e-6f;
  EXPECT_EQ(Count(narrow, logits, 100).size(), 1u);
}

TEST(Sampler, KeepsToTopPOverManyEqualCandidates) {
  const std::vector<float> logits(5000, 0.0f);
  SamplingParams params = Warm();
  params.top_p = 0.1f;
  for (const auto& [token, count] : Count(params, logits, 500)) EXPECT_LE(token, 500);
}

// The most likely that together reach top_p, found by sorting all of them.
std::set<TokenId> Nucleus(const std::vector<float>& logits, float temperature, double top_p) {
  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  double total = 0;
  for (const float logit : logits) total += std::exp(logit / double{temperature});
  std::set<TokenId> kept;
  double reached = 0;
  for (size_t i = 0; i < order.size() && reached < top_p * total; ++i) {
    reached += std::exp(logits[order[i]] / double{temperature});
    kept.insert(order[i]);
  }
  return kept;
}

TEST(Sampler, DrawsAllOfTheNucleusAndNothingElse) {
  std::mt19937_64 random(5);
  for (const float deviation : {0.5f, 3.0f}) {
    std::vector<float> logits(3001);
    for (float& logit : logits) logit = std::normal_distribution<float>(0, deviation)(random);
    for (const float top_p : {0.02f, 0.3f}) {
      SamplingParams params = Warm(0.7f);
      params.top_p = top_p;
      const std::set<TokenId> nucleus = Nucleus(logits, 0.7f, double{top_p});
      const auto counts = Count(params, logits, 3000);
      for (const auto& [token, count] : counts) EXPECT_TRUE(nucleus.contains(token)) << token;
      EXPECT_TRUE(nucleus.size() >= 40 || counts.size() == nucleus.size()) << nucleus.size();
    }
  }
}

TEST(Sampler, PenalisesTokensOfTheWindowOnly) {
  SamplingParams params;
  params.repetition_penalty = 2.0f;
  params.penalty_window = 2;
  const std::vector<float> logits = {4.0f, 3.0f, -0.1f, -0.15f};
  EXPECT_EQ(Draw(params, logits, {0, 3, 3}), 0);
  EXPECT_EQ(Draw(params, logits, {3, 0, 3}), 1);
  params.penalty_window = -1;
  EXPECT_EQ(Draw(params, logits, {0, 3, 3}), 1);
  params.repetition_penalty = 1.0f;
  params.presence_penalty = 1.5f;
  EXPECT_EQ(Draw(params, logits, {0, 3, 3, 0, 0}), 1);
  params.penalty_window = 0;
  EXPECT_EQ(Draw(params, logits, {0}), 0);
}

TEST(Sampler, AddsBiasesAndIgnoresThoseOfNoToken) {
  SamplingParams params;
  params.biases = {{1, 10.0f}, {-1, 99.0f}, {4000, 99.0f}};
  EXPECT_EQ(Draw(params, {1.0f, 0.0f, 2.0f}), 1);
}

TEST(Sampler, ReportsLogprobsOfTheUntouchedLogits) {
  SamplingParams params;
  params.want_logprobs = true;
  params.logprobs = 2;
  params.biases = {{2, 100.0f}};
  params.logits_hash = true;
  std::vector<float> logits = {std::log(0.7f), std::log(0.2f), std::log(0.1f)};
  std::vector<float> again = logits;
  Sampler sampler(*ChooseKernels());
  const Sample sample = sampler.Draw(params, {}, logits);
  EXPECT_EQ(sample.token, 2);
  EXPECT_NEAR(sample.logprob, std::log(0.1), 1e-5);
  ASSERT_EQ(sample.alternatives.size(), 2u);
  EXPECT_EQ(sample.alternatives[0].token, 0);
  EXPECT_NEAR(sample.alternatives[0].logprob, std::log(0.7), 1e-5);
  params.biases.clear();
  EXPECT_EQ(sampler.Draw(params, {}, again).logits_hash, sample.logits_hash);
  EXPECT_NE(sample.logits_hash, 0u);
}

TEST(StopMatcher, FindsStopsInsideAndAcrossPieces) {
  StopMatcher matcher({"", "END", "\n\n"});
  EXPECT_FALSE(matcher.Append("an E"));
  EXPECT_FALSE(matcher.Append("N"));
  EXPECT_FALSE(matcher.Append("\n"));
  EXPECT_FALSE(matcher.Append("EN"));
  EXPECT_TRUE(matcher.Append("Dx"));
  StopMatcher none({});
  EXPECT_FALSE(none.Append("anything"));
  StopMatcher single({"x"});
  EXPECT_TRUE(single.Append("axb"));
}

}  // namespace
}  // namespace kairos
