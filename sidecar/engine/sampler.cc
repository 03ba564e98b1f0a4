// SPDX-License-Identifier: Apache-2.0
#include "sidecar/engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/hash.h"

namespace kairos {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();
// Gumbel noise from 53-bit uniforms lies in (-3.7, 37.5): a candidate further below the best than
// this cannot win.
constexpr float kNoiseSpread = 42.0f;
constexpr size_t kSortedFirst = 256;

// A bijective mixer of 64 bits with full avalanche (multiply and xor-shift rounds).
uint64_t Mix(uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ull;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ull;
  x ^= x >> 32;
  return x;
}

double GumbelNoise(uint64_t key, TokenId token) {
  const uint64_t bits = Mix(Mix(key + static_cast<uint32_t>(token)) + 0x9e3779b97f4a7c15ull);
  const double uniform = (static_cast<double>(bits >> 11) + 0.5) * 0x1.0p-53;
  return -std::log(-std::log(uniform));
}

float GreatestValue(std::span<const float> values) {
  constexpr size_t kLanes = 16;
  float lanes[kLanes];
  std::fill(lanes, lanes + kLanes, kLowest);
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) {
      const float value = values[i + j];
      lanes[j] = value > lanes[j] ? value : lanes[j];
    }
  }
  float best = kLowest;
  for (; i < values.size(); ++i) best = values[i] > best ? values[i] : best;
  for (const float lane : lanes) best = lane > best ? lane : best;
  return best;
}

}  // namespace

uint32_t GreatestIndex(std::span<const float> values) {
  const float best = GreatestValue(values);
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] == best) return static_cast<uint32_t>(i);
  }
  return 0;
}

void Sampler::ReportLogprobs(const SamplingParams& params, std::span<const float> logits,
                             Sample* sample) {
  const float best = GreatestValue(logits);
  double sum = 0.0;
  for (const float logit : logits) {
    if (logit == logit) sum += std::exp(static_cast<double>(logit - best));
  }
  const double log_sum = best + std::log(sum);
  const auto logprob = [&](TokenId token) {
    return static_cast<float>(logits[static_cast<size_t>(token)] - log_sum);
  };
  sample->logprob = logprob(sample->token);
  const size_t wanted = std::min<size_t>(params.logprobs, logits.size());
  if (wanted == 0) return;
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] == logits[i]) candidates_.push_back({logits[i], static_cast<TokenId>(i)});
  }
  const size_t count = std::min(wanted, candidates_.size());
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<ptrdiff_t>(count),
                    candidates_.end(), IsBefore);
  for (size_t i = 0; i < count; ++i) {
    sample->alternatives.push_back({candidates_[i].token, logprob(candidates_[i].token)});
  }
}

void Sampler::ApplyPenalties(const SamplingParams& params, std::span<const TokenId> tokens,
                             std::span<float> logits) {
  for (const auto& [token, bias] : params.biases) {
    if (token >= 0 && static_cast<size_t>(token) < logits.size()) {
      logits[static_cast<size_t>(token)] += bias;
    }
  }
  const bool repetition = params.repetition_penalty != 1.0f && params.repetition_penalty > 0.0f;
  if ((!repetition && params.presence_penalty == 0.0f) || params.penalty_window == 0) return;
  size_t count = tokens.size();
  if (params.penalty_window > 0)
    count = std::min(count, static_cast<size_t>(params.penalty_window));
  window_.assign(tokens.end() - static_cast<ptrdiff_t>(count), tokens.end());
  std::sort(window_.begin(), window_.end());
  window_.erase(std::unique(window_.begin(), window_.end()), window_.end());
  for (const TokenId token : window_) {
    float& logit = logits[static_cast<size_t>(token)];
    if (repetition) {
      logit = logit > 0.0f ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    }
    logit -= params.presence_penalty;
  }
}

// The probability to be reached, in units of the greatest candidate's, and a logit below which no
// candidate is needed for it: all below together have less than what top_p leaves out.
float Sampler::FloorOfTopP(float top_p, std::span<const float> logits, float scale, float top,
                           double* target) const {
  constexpr size_t kSummedAtOnce = 1024;  // in floats; the rest in doubles
  double total = 0.0;
  for (size_t i = 0; i < logits.size(); i += kSummedAtOnce) {
    const size_t count = std::min(kSummedAtOnce, logits.size() - i);
    total += kernels_->sum_exponentials(&logits[i], static_cast<uint32_t>(count), scale, top);
  }
  *target = total * top_p;
  // A little less, for what the sums are rounded by.
  const double left_out = (1.0 - double{top_p}) * total * 0.999;
  return static_cast<float>(top + std::log(left_out / static_cast<double>(logits.size())));
}

// Keeps the smallest set of most likely candidates whose probability reaches the target. Sorts only
// as far as it must.
void Sampler::CutTopP(float top, double target) {
  double reached = 0.0;
  size_t sorted = 0;
  size_t kept = 0;
  while (kept < candidates_.size() && (kept == 0 || reached < target)) {
    if (kept == sorted) {
      const size_t next = std::min(candidates_.size(), std::max(kSortedFirst, sorted * 4));
      std::partial_sort(candidates_.begin() + static_cast<ptrdiff_t>(sorted),
                        candidates_.begin() + static_cast<ptrdiff_t>(next), candidates_.end(),
                        IsBefore);
      sorted = next;
    }
    reached += std::exp(static_cast<double>(candidates_[kept].logit - top));
    ++kept;
  }
  candidates_.resize(kept);
}

TokenId Sampler::DrawNoisy(const SamplingParams& params, uint64_t position,
                           std::span<const float> logits) {
  const uint32_t greatest = GreatestIndex(logits);
  const float scale = 1.0f / params.temperature;
  const float top = logits[greatest] * scale;
  if (!std::isfinite(top)) return static_cast<TokenId>(greatest);
  const bool has_top_p = params.top_p < 1.0f;
  const bool has_top_k = params.top_k > 0;
  double target = 0.0;
  float floor = top - kNoiseSpread;
  if (has_top_p && !has_top_k) {
    floor = std::max(floor, FloorOfTopP(params.top_p, logits, scale, top, &target));
  }
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    const float logit = logits[i] * scale;
    if (logit > floor) candidates_.push_back({logit, static_cast<TokenId>(i)});
  }
  if (has_top_k && static_cast<size_t>(params.top_k) < candidates_.size()) {
    std::nth_element(candidates_.begin(), candidates_.begin() + (params.top_k - 1),
                     candidates_.end(), IsBefore);
    candidates_.resize(static_cast<size_t>(params.top_k));
  }
  if (has_top_p && has_top_k) {
    for (const Candidate& c : candidates_) {
      target += std::exp(static_cast<double>(c.logit - top)) * params.top_p;
    }
  }
  if (has_top_p) CutTopP(top, target);
  const float lowest = params.min_p > 0.0f ? top + std::log(params.min_p) : floor;
  const uint64_t key = Mix(params.seed + 0x9e3779b97f4a7c15ull * (position + 1));
  TokenId chosen = static_cast<TokenId>(greatest);
  double best = -std::numeric_limits<double>::infinity();
  for (const Candidate& c : candidates_) {
    if (c.logit < lowest) continue;
    const double noisy = c.logit + GumbelNoise(key, c.token);
    if (noisy > best || (noisy == best && c.token < chosen)) {
      best = noisy;
      chosen = c.token;
    }
  }
  return chosen;
}

namespace {

bool IsAllowed(std::span<const uint32_t> mask, TokenId token) {
  return (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
}

TokenId FirstAllowed(std::span<const uint32_t> mask) {
  for (size_t word = 0; word < mask.size(); ++word) {
    if (mask[word] != 0) return static_cast<TokenId>(word * 32) + std::countr_zero(mask[word]);
  }
  return 0;
}

void ApplyMask(std::span<const uint32_t> mask, std::span<float> logits) {
  for (size_t word = 0; word * 32 < logits.size(); ++word) {
    const uint32_t allowed = mask[word];
    if (allowed == UINT32_MAX) continue;
    const size_t end = std::min(logits.size(), word * 32 + 32);
    for (size_t i = word * 32; i < end; ++i) {
      if ((allowed >> (i % 32) & 1) == 0) logits[i] = kLowest;
    }
  }
}

}  // namespace

Sample Sampler::Draw(const SamplingParams& params, std::span<const TokenId> tokens,
                     std::span<float> logits, std::span<const uint32_t> mask) {
  Sample sample;
  if (params.logits_hash) sample.logits_hash = HashBytes(logits.data(), logits.size_bytes());
  if (params.want_logprobs) raw_.assign(logits.begin(), logits.end());
  if (!mask.empty()) ApplyMask(mask, logits);
  ApplyPenalties(params, tokens, logits);
  sample.token = params.temperature > 0.0f ? DrawNoisy(params, tokens.size(), logits)
                                           : static_cast<TokenId>(GreatestIndex(logits));
  // Where biases ban all that the grammar allows, the grammar prevails.
  if (!mask.empty() && !IsAllowed(mask, sample.token)) sample.token = FirstAllowed(mask);
  if (params.want_logprobs) ReportLogprobs(params, raw_, &sample);
  return sample;
}

}  // namespace kairos
