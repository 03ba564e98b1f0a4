// SPDX-License-Identifier: Apache-2.0
// Logits of given token sequences, to a file or compared with those of a reference (float32
// weights): mean Kullback-Leibler divergence and agreement of the most likely token. Not installed.
//
//   kairos-logits --model M.gguf --tokens T [--fidelity exact|default] [--threads N] [--chunk N]
//                 [--out L] [--compare R]
// T: sequences, each a 32-bit count and that many 32-bit token ids. L and R: float32 rows of the
// vocabulary, one per token in order.
#include <getopt.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "bench/sequence_slots.h"
#include "sidecar/engine/forward.h"
#include "sidecar/model/gguf.h"

namespace kairos {
namespace {

struct Arguments {
  std::string model;
  std::string tokens;
  std::string out;
  std::string compare;
  Fidelity fidelity = Fidelity::kDefault;
  uint32_t threads = 2;
  uint32_t chunk = 64;
};

struct Divergence {
  double kl_sum = 0.0;
  uint64_t agreements = 0;
  uint64_t positions = 0;
};

bool ParseArguments(int argc, char** argv, Arguments* out) {
  const option options[] = {
      {"model", required_argument, nullptr, 'm'},    {"tokens", required_argument, nullptr, 't'},
      {"fidelity", required_argument, nullptr, 'f'}, {"threads", required_argument, nullptr, 'n'},
      {"chunk", required_argument, nullptr, 'k'},    {"out", required_argument, nullptr, 'o'},
      {"compare", required_argument, nullptr, 'c'},  {nullptr, 0, nullptr, 0}};
  for (int choice; (choice = getopt_long(argc, argv, "", options, nullptr)) != -1;) {
    switch (choice) {
      case 'm':
        out->model = optarg;
        break;
      case 't':
        out->tokens = optarg;
        break;
      case 'f':
        if (std::strcmp(optarg, "exact") != 0 && std::strcmp(optarg, "default") != 0) return false;
        out->fidelity = *optarg == 'e' ? Fidelity::kExact : Fidelity::kDefault;
        break;
      case 'n':
        out->threads = static_cast<uint32_t>(std::atoi(optarg));
        break;
      case 'k':
        out->chunk = static_cast<uint32_t>(std::atoi(optarg));
        break;
      case 'o':
        out->out = optarg;
        break;
      case 'c':
        out->compare = optarg;
        break;
      default:
        return false;
    }
  }
  return !out->model.empty() && !out->tokens.empty() && out->threads > 0 && out->chunk > 0;
}

bool ReadSequences(const std::string& path, uint32_t vocabulary,
                   std::vector<std::vector<TokenId>>* sequences) {
  FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return false;
  uint32_t count = 0;
  bool valid = true;
  while (valid && std::fread(&count, sizeof(count), 1, file) == 1) {
    valid = count > 0 && count <= (1u << 20);
    if (!valid) break;
    std::vector<TokenId> tokens(count);
    valid = std::fread(tokens.data(), sizeof(TokenId), count, file) == count;
    for (const TokenId token : tokens) {
      valid = valid && token >= 0 && static_cast<uint32_t>(token) < vocabulary;
    }
    sequences->push_back(std::move(tokens));
  }
  std::fclose(file);
  return valid && !sequences->empty();
}

double LogSum(const float* row, uint32_t count, float* best) {
  *best = row[0];
  for (uint32_t i = 1; i < count; ++i) *best = std::fmax(*best, row[i]);
  double sum = 0.0;
  for (uint32_t i = 0; i < count; ++i) sum += std::exp(static_cast<double>(row[i]) - *best);
  return *best + std::log(sum);
}

void Compare(const float* got, const float* want, uint32_t count, Divergence* total) {
  float best_got = 0.0f, best_want = 0.0f;
  const double log_got = LogSum(got, count, &best_got);
  const double log_want = LogSum(want, count, &best_want);
  uint32_t first_got = 0, first_want = 0;
  while (got[first_got] != best_got) ++first_got;
  while (want[first_want] != best_want) ++first_want;
  double kl = 0.0;
  for (uint32_t i = 0; i < count; ++i) {
    const double p = want[i] - log_want;
    kl += std::exp(p) * (p - (got[i] - log_got));
  }
  total->kl_sum += kl;
  total->agreements += first_got == first_want ? 1 : 0;
  ++total->positions;
}

// Runs one sequence and hands every row of logits to `use`; false ends early.
template <typename Use>
bool RunSequence(Forward& forward, const Arguments& arguments, const std::vector<TokenId>& tokens,
                 const SequenceSpec& slots, Use&& use) {
  const uint32_t count = static_cast<uint32_t>(tokens.size());
  for (uint32_t at = 0; at < count; at += arguments.chunk) {
    Segment segment;
    segment.tokens = tokens.data() + at;
    segment.position = at;
    segment.count = std::min(arguments.chunk, count - at);
    segment.logit_rows = segment.count;
    segment.fidelity = arguments.fidelity;
    segment.slots = slots.slots.data();
    segment.open = slots.open.data();
    forward.Run({&segment, 1});
    for (uint32_t i = 0; i < segment.count; ++i) {
      if (!use(forward.logits(i))) return false;
    }
  }
  return true;
}

int Dump(const Arguments& arguments, const Model& model) {
  const uint32_t vocabulary = model.parameters().vocabulary;
  std::vector<std::vector<TokenId>> sequences;
  if (!ReadSequences(arguments.tokens, vocabulary, &sequences)) {
    std::fprintf(stderr, "%s: unreadable, or not sequences of tokens\n", arguments.tokens.c_str());
    return 1;
  }
  size_t longest = 0;
  for (const auto& tokens : sequences) longest = std::max(longest, tokens.size());
  SequenceSpec slots;
  // Twice as many tokens: in 16 bits a block takes two slots for one.
  const uint32_t slot_count =
      TakeSlots(model.kv_geometry(), 2 * (longest + kBlockTokens), 0, &slots);
  auto arena = KvArena::Create(model.kv_geometry(), slot_count);
  FILE* out = arguments.out.empty() ? nullptr : std::fopen(arguments.out.c_str(), "wb");
  FILE* reference =
      arguments.compare.empty() ? nullptr : std::fopen(arguments.compare.c_str(), "rb");
  if (!arena.ok() || (out == nullptr && !arguments.out.empty()) ||
      (reference == nullptr && !arguments.compare.empty())) {
    std::fprintf(stderr, "no memory for KV, or a file cannot be opened\n");
    return 1;
  }
  WorkerPool pool(arguments.threads);
  Forward forward(model, **arena, pool);
  Divergence total;
  std::vector<float> want(vocabulary);
  bool complete = true;
  for (const auto& tokens : sequences) {
    complete =
        complete && RunSequence(forward, arguments, tokens, slots, [&](const float* row) {
          if (out != nullptr && std::fwrite(row, sizeof(float), vocabulary, out) != vocabulary)
            return false;
          if (reference == nullptr) return true;
          if (std::fread(want.data(), sizeof(float), vocabulary, reference) != vocabulary)
            return false;
          Compare(row, want.data(), vocabulary, &total);
          return true;
        });
  }
  if (reference != nullptr) {
    const double positions = static_cast<double>(total.positions);
    std::printf("positions %llu mean_kl %.6g top1_percent %.3f\n",
                static_cast<unsigned long long>(total.positions), total.kl_sum / positions,
                100.0 * static_cast<double>(total.agreements) / positions);
    std::fclose(reference);
  }
  if (out != nullptr && std::fclose(out) != 0) complete = false;
  if (!complete)
    std::fprintf(stderr, "the output could not be written, or the reference is too short\n");
  return complete ? 0 : 1;
}

int Main(int argc, char** argv) {
  Arguments arguments;
  if (!ParseArguments(argc, argv, &arguments)) {
    std::fprintf(stderr,
                 "usage: kairos-logits --model M.gguf --tokens T [--fidelity exact|default] "
                 "[--threads N] [--chunk N] [--out L] [--compare R]\n");
    return 2;
  }
  std::string error;
  auto file = GgufFile::Open(arguments.model, &error);
  const KernelTable* kernels = ChooseKernels();
  if (file.ok() && kernels != nullptr) {
    auto model = Model::Load(**file, *kernels, {}, &error);
    if (model.ok()) return Dump(arguments, **model);
  }
  std::fprintf(stderr, "%s\n",
               kernels == nullptr ? "KAIROS_KERNELS is not available" : error.c_str());
  return 1;
}

}  // namespace
}  // namespace kairos

int main(int argc, char** argv) { return kairos::Main(argc, argv); }
