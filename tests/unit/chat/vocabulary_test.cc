// SPDX-License-Identifier: Apache-2.0
// What is refused, and in which words.
#include "sidecar/chat/vocabulary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/chat/tiny_spm_vocabulary.h"
#include "tests/unit/chat/tiny_vocabulary.h"

namespace kairos {
namespace {

std::string StandInBytes(std::string_view text) {
  std::string bytes = "x";
  return AppendStandInBytes(text, &bytes) ? bytes : "refused:" + bytes;
}

TEST(StandIns, ReadBackEveryByte) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string expected = {'x', static_cast<char>(byte)};
    EXPECT_EQ(StandInBytes(StandIn(static_cast<uint8_t>(byte))), expected) << byte;
  }
}

TEST(StandIns, RefuseCharactersThatStandForNoByte) {
  for (const char* text : {" ", "a b", "\u0144", "\u00AD", "\n", "\U0001f600", "\xFF", "\xC4"}) {
    EXPECT_EQ(StandInBytes(text), "refused:x") << ::testing::PrintToString(text);
  }
}

Vocabulary Words(std::vector<std::string_view> tokens) {
  Vocabulary vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.tokens = std::move(tokens);
  vocabulary.kinds.assign(vocabulary.tokens.size(), TokenKind::kNormal);
  return vocabulary;
}

TEST(FirstDifference, NamesTheFirstTokenThatMeansSomethingElse) {
  const Vocabulary served = Words({"a", "b", "<0x41>"});
  EXPECT_EQ(FirstDifference(served, Words({"a", "b", "<0x41>"})), "");
  EXPECT_EQ(FirstDifference(served, Words({"a", "c", "d"})), "token 1 is \"c\", not \"b\"");
  EXPECT_EQ(FirstDifference(served, Words({"a", "b"})),
            "token 2, \"<0x41>\", is in one vocabulary only");
  EXPECT_EQ(FirstDifference(served, Words({"a", "b", "<0x41>", "\n"})),
            "token 3, \"\\n\", is in one vocabulary only");
  Vocabulary padded = Words({"a", "b", "<0x41>", "[PAD3]", "[PAD4]"});
  padded.kinds[3] = padded.kinds[4] = TokenKind::kUnused;
  EXPECT_EQ(FirstDifference(served, padded), "");
  EXPECT_EQ(FirstDifference(padded, served), "");
  Vocabulary bytes = served;
  bytes.kinds[2] = TokenKind::kByte;
  EXPECT_EQ(FirstDifference(served, bytes), "token 2 is \"<0x41>\" as a byte, not \"<0x41>\"");
  Vocabulary other = served;
  other.model = "llama";
  EXPECT_EQ(FirstDifference(served, other), "the vocabulary is of kind \"llama\", not \"gpt2\"");
}

template <typename Tiny>
struct Fault {
  const char* name;
  std::function<void(Tiny&, Vocabulary&)> plant;
  Code code;
  const char* words;
};

const Fault<TinySpmVocabulary> kSpmFaults[] = {
    {"no scores", [](auto&, auto& v) { v.scores.clear(); }, Code::kInvalidArgument,
     "tokenizer.ggml.scores has 0 entries for 260 tokens"},
    {"score that is no number", [](auto&, auto& v) { v.scores[7] = std::nanf(""); },
     Code::kInvalidArgument, "tokenizer.ggml.scores[7] is not a finite number"},
    {"byte out of range", [](auto&, auto& v) { v.tokens[3] = "<0x0G>"; }, Code::kInvalidArgument,
     "tokenizer.ggml.tokens[3] is of the type of bytes, but not <0x00> to <0xFF>"},
    {"byte that is text", [](auto&, auto& v) { v.kinds[259] = TokenKind::kByte; },
     Code::kInvalidArgument, "tokenizer.ggml.tokens[259] is of the type of bytes"},
    {"unknown out of range", [](auto&, auto& v) { v.unknown = 260; }, Code::kInvalidArgument,
     "tokenizer.ggml.unknown_token_id is 260; the vocabulary has 260 tokens"},
    {"no bos although one is added", [](auto&, auto& v) { v.bos.reset(); }, Code::kInvalidArgument,
     "there is no bos_token_id"},
};

const Fault<TinyVocabulary> kFaults[] = {
    {"other model", [](auto&, auto& v) { v.model = "bert"; }, Code::kUnimplemented,
     "tokenizer.ggml.model is 'bert'; known: gpt2, llama"},
    {"no pre-tokenizer", [](auto&, auto& v) { v.pre = ""; }, Code::kInvalidArgument,
     "tokenizer.ggml.pre is missing or not a string"},
    {"unknown pre-tokenizer", [](auto&, auto& v) { v.pre = "qwen99"; }, Code::kUnimplemented,
     "tokenizer.ggml.pre is 'qwen99'"},
    {"no tokens", [](auto&, auto& v) { v.tokens.clear(), v.kinds.clear(); }, Code::kInvalidArgument,
     "tokenizer.ggml.tokens has 0 entries"},
    {"kinds too few", [](auto&, auto& v) { v.kinds.pop_back(); }, Code::kInvalidArgument,
     "tokenizer.ggml.token_type has 257 entries for 258 tokens"},
    {"empty token", [](auto&, auto& v) { v.tokens[9] = ""; }, Code::kInvalidArgument,
     "tokenizer.ggml.tokens[9] is empty"},
    {"same token twice", [](auto&, auto& v) { v.tokens[66] = "A"; }, Code::kInvalidArgument,
     "tokenizer.ggml.tokens[66] is the same as [65]"},
    {"no merges", [](auto&, auto& v) { v.merges.clear(); }, Code::kInvalidArgument,
     "tokenizer.ggml.merges is missing"},
    {"merge of one", [](auto&, auto& v) { v.merges[0] = "ab"; }, Code::kInvalidArgument,
     "tokenizer.ggml.merges[0] is not two tokens"},
    {"merge of three", [](auto&, auto& v) { v.merges[0] = "a b c"; }, Code::kInvalidArgument,
     "tokenizer.ggml.merges[0] is not two tokens"},
    {"merge without left", [](auto&, auto& v) { v.merges[0] = " a"; }, Code::kInvalidArgument,
     "tokenizer.ggml.merges[0] is not two tokens"},
    {"merge without right", [](auto&, auto& v) { v.merges[0] = "a "; }, Code::kInvalidArgument,
     "tokenizer.ggml.merges[0] is not two tokens"},
    {"empty merge", [](auto&, auto& v) { v.merges[0] = ""; }, Code::kInvalidArgument,
     "tokenizer.ggml.merges[0] is not two tokens"},
    {"merge of unknown token", [](auto&, auto& v) { v.merges[0] = "a\xFF b"; },
     Code::kInvalidArgument, "tokenizer.ggml.merges[0] makes a token that does not exist"},
    {"merge twice", [](auto&, auto& v) { v.merges.push_back(v.merges[0]); }, Code::kInvalidArgument,
     "tokenizer.ggml.merges[1] repeats"},
    {"merge to control", [](auto&, auto& v) { v.kinds[256] = TokenKind::kControl; },
     Code::kInvalidArgument, "tokenizer.ggml.merges[0] names or makes a control token"},
    {"merge to unknown kind", [](auto&, auto& v) { v.kinds[256] = TokenKind::kUnknown; },
     Code::kInvalidArgument, "tokenizer.ggml.merges[0] names or makes a control token"},
    {"eos out of range", [](auto&, auto& v) { v.eos = 258; }, Code::kInvalidArgument,
     "tokenizer.ggml.eos_token_id is 258; the vocabulary has 258 tokens"},
    {"bos out of range", [](auto&, auto& v) { v.bos = ~uint64_t{0}; }, Code::kInvalidArgument,
     "tokenizer.ggml.bos_token_id is 18446744073709551615"},
    {"bos to add is missing", [](auto&, auto& v) { v.adds_bos = true; }, Code::kInvalidArgument,
     "tokenizer.ggml.add_bos_token is set"},
};

template <typename Tiny>
void ExpectRefused(const Fault<Tiny>& fault, Tiny vocabulary) {
  SCOPED_TRACE(fault.name);
  Vocabulary view = vocabulary.View();
  std::string error;
  ASSERT_TRUE(Tokenizer::Create(view, &error).ok()) << error;

  fault.plant(vocabulary, view);
  const auto tokenizer = Tokenizer::Create(view, &error);

  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.status().code(), fault.code);
  EXPECT_NE(error.find(fault.words), std::string::npos) << error;
}

TEST(Vocabulary, RefusesWhatIsNotSoundAndNamesIt) {
  for (const auto& fault : kFaults) {
    TinyVocabulary vocabulary;
    vocabulary.AddMerge("a", "b");
    vocabulary.Add("<|end|>", TokenKind::kControl);
    ExpectRefused(fault, std::move(vocabulary));
  }
  for (const auto& fault : kSpmFaults) {
    TinySpmVocabulary vocabulary;
    vocabulary.Add("a", 0);
    ExpectRefused(fault, std::move(vocabulary));
  }
}

// Writes the metadata part of a GGUF version 3 file without tensors.
class MetadataBytes {
 public:
  MetadataBytes& Text(std::string_view key, std::string_view value) {
    Key(key, 8);
    String(value);
    return *this;
  }
  MetadataBytes& Number(std::string_view key, uint32_t value) {
    Key(key, 4);
    Word<uint32_t>(value);
    return *this;
  }
  MetadataBytes& Texts(std::string_view key, const std::vector<std::string>& values) {
    Key(key, 9);
    Word<uint32_t>(8);
    Word<uint64_t>(values.size());
    for (const std::string& value : values) String(value);
    return *this;
  }
  MetadataBytes& Kinds(std::string_view key, const std::vector<int32_t>& values) {
    Key(key, 9);
    Word<uint32_t>(5);
    Word<uint64_t>(values.size());
    for (const int32_t value : values) Word<int32_t>(value);
    return *this;
  }
  std::vector<uint8_t> File() const {
    MetadataBytes head;
    head.bytes_ = {'G', 'G', 'U', 'F'};
    head.Word<uint32_t>(3);
    head.Word<uint64_t>(0);
    head.Word<uint64_t>(count_);
    head.bytes_.insert(head.bytes_.end(), bytes_.begin(), bytes_.end());
    return head.bytes_;
  }

 private:
  template <typename Number>
  void Word(Number value) {
    uint8_t raw[sizeof(value)];
    std::memcpy(raw, &value, sizeof(value));
    bytes_.insert(bytes_.end(), raw, raw + sizeof(value));
  }
  void String(std::string_view value) {
    Word<uint64_t>(value.size());
    bytes_.insert(bytes_.end(), value.begin(), value.end());
  }
  void Key(std::string_view key, uint32_t type) {
    ++count_;
    String(key);
    Word<uint32_t>(type);
  }
  std::vector<uint8_t> bytes_;
  uint64_t count_ = 0;
};

std::string ErrorOf(const MetadataBytes& metadata) {
  const std::vector<uint8_t> bytes = metadata.File();
  std::string error;
  auto file = GgufFile::Parse(bytes, &error);
  EXPECT_TRUE(file.ok()) << error;
  if (!file.ok()) return error;
  const auto tokenizer = Tokenizer::Create(**file, &error);
  return tokenizer.ok() ? "ok" : error;
}

TEST(Vocabulary, IsReadFromMetadata) {
  MetadataBytes metadata;
  metadata.Text("tokenizer.ggml.model", "gpt2").Text("tokenizer.ggml.pre", "smollm");
  metadata.Texts("tokenizer.ggml.tokens", {"a", "b", "ab", "<|im_end|>"});
  metadata.Kinds("tokenizer.ggml.token_type", {1, 1, 1, 3});
  metadata.Texts("tokenizer.ggml.merges", {"a b"});
  metadata.Number("tokenizer.ggml.eos_token_id", 3).Number("tokenizer.ggml.bos_token_id", 0);
  const std::vector<uint8_t> bytes = metadata.File();
  std::string error;
  const auto file = GgufFile::Parse(bytes, &error);
  ASSERT_TRUE(file.ok()) << error;

  const auto tokenizer = Tokenizer::Create(**file, &error);

  ASSERT_TRUE(tokenizer.ok()) << error;
  EXPECT_EQ((*tokenizer)->Encode("abba<|im_end|>", true).tokens,
            (std::vector<TokenId>{2, 1, 0, 3}));
  EXPECT_EQ((*tokenizer)->eos(), 3);
  EXPECT_EQ((*tokenizer)->bos(), 0);
}

TEST(Vocabulary, NamesTheKeyThatIsMissing) {
  MetadataBytes metadata;
  EXPECT_EQ(ErrorOf(metadata), "tokenizer.ggml.model is missing or not a string");
  metadata.Text("tokenizer.ggml.model", "gpt2");
  metadata.Text("tokenizer.ggml.pre", "smollm");
  EXPECT_EQ(ErrorOf(metadata), "tokenizer.ggml.tokens is missing or not an array of strings");
  metadata.Texts("tokenizer.ggml.tokens", {"a", "b", "ab"});
  EXPECT_EQ(ErrorOf(metadata), "tokenizer.ggml.token_type is missing or not an array of integers");
  MetadataBytes unknown_kind = metadata;
  unknown_kind.Kinds("tokenizer.ggml.token_type", {1, 7, 1});
  EXPECT_EQ(ErrorOf(unknown_kind), "tokenizer.ggml.token_type[1] is 7, not 1 to 6");
  metadata.Kinds("tokenizer.ggml.token_type", {1, 1, 1});
  EXPECT_NE(ErrorOf(metadata).find("tokenizer.ggml.merges is missing"), std::string::npos);
  metadata.Texts("tokenizer.ggml.merges", {"a b"});
  EXPECT_EQ(ErrorOf(metadata), "ok");
}

}  // namespace
}  // namespace kairos
