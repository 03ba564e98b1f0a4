// SPDX-License-Identifier: Apache-2.0
// The GGUF parser on well-formed files and on each way a file can lie.
#include "sidecar/model/gguf.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <random>

#include "tests/support/gguf_writer.h"

namespace kairos {
namespace {

std::vector<uint8_t> Bytes(size_t count) { return std::vector<uint8_t>(count, 7); }

GgufWriter Sound() {
  GgufWriter writer;
  writer.String("general.architecture", "llama");
  writer.Unsigned("count", 42);
  writer.Float("ratio", 0.5f);
  writer.Bool("flag", 1);
  writer.StringArray("words", {"a", "", "ccc"});
  writer.IntegerArray("numbers", {1, -2, 3});
  writer.Raw("wide", 10, BytesOf<uint64_t>(0xffffffffffffffffull));
  writer.Raw("negative", 5, BytesOf<int32_t>(-1));
  writer.Raw("floats", 9,
             BytesOf<uint32_t>(6) + BytesOf<uint64_t>(2) + BytesOf(1.5f) + BytesOf(2.5f));
  writer.Tensor("norm", 0, {5}, Bytes(20));
  writer.Tensor("matrix", 8, {64, 3}, Bytes(34 * 6));
  return writer;
}

std::string ErrorOf(const std::vector<uint8_t>& image) {
  std::string error;
  const auto file = GgufFile::Parse(image, &error);
  return file.ok() ? "accepted" : error;
}

TEST(Gguf, ReadsEveryKindOfValue) {
  for (const uint32_t version : {2u, 3u}) {
    GgufWriter writer = Sound();
    writer.version = version;
    const auto image = writer.Finish();
    std::string error;
    auto parsed = GgufFile::Parse(image, &error);
    ASSERT_TRUE(parsed.ok()) << error;
    const GgufFile& file = **parsed;
    EXPECT_EQ(file.String("general.architecture"), "llama");
    EXPECT_EQ(file.Unsigned("count"), 42u);
    EXPECT_EQ(file.Float("ratio"), 0.5);
    EXPECT_EQ(file.Bool("flag"), true);
    EXPECT_EQ(file.StringArray("words"), (std::vector<std::string_view>{"a", "", "ccc"}));
    EXPECT_EQ(file.IntegerArray("numbers"), (std::vector<int64_t>{1, -2, 3}));
    EXPECT_EQ(file.FloatArray("floats"), (std::vector<float>{1.5f, 2.5f}));
    EXPECT_EQ(file.Unsigned("wide"), 0xffffffffffffffffull);
    EXPECT_EQ(file.file_bytes(), image.size());
  }
}

TEST(Gguf, ReturnsNothingForMissingKeysAndOtherKinds) {
  const auto image = Sound().Finish();
  std::string error;
  auto file = GgufFile::Parse(image, &error);
  ASSERT_TRUE(file.ok());
  EXPECT_FALSE((*file)->Unsigned("absent"));
  EXPECT_FALSE((*file)->Unsigned("negative"));
  EXPECT_FALSE((*file)->Unsigned("ratio"));
  EXPECT_FALSE((*file)->Unsigned("numbers"));
  EXPECT_FALSE((*file)->Unsigned("general.architecture"));
  EXPECT_FALSE((*file)->Float("count"));
  EXPECT_FALSE((*file)->Bool("count"));
  EXPECT_FALSE((*file)->String("words"));
  EXPECT_FALSE((*file)->StringArray("numbers"));
  EXPECT_FALSE((*file)->IntegerArray("words"));
  EXPECT_FALSE((*file)->IntegerArray("floats"));
  EXPECT_FALSE((*file)->FloatArray("numbers"));
}

TEST(Gguf, FindsTensorsWithTheirShapeAndBytes) {
  const auto image = Sound().Finish();
  std::string error;
  auto file = GgufFile::Parse(image, &error);
  ASSERT_TRUE(file.ok());
  const GgufTensor* matrix = (*file)->FindTensor("matrix");
  ASSERT_NE(matrix, nullptr);
  EXPECT_EQ(matrix->extents[0], 64u);
  EXPECT_EQ(matrix->extents[1], 3u);
  EXPECT_EQ(matrix->extents[2], 1u);
  EXPECT_EQ(matrix->bytes, 204u);
  EXPECT_EQ(matrix->data[203], 7);
  EXPECT_EQ((*file)->FindTensor("nothing"), nullptr);
  EXPECT_EQ((*file)->tensors().size(), 2u);
}

struct Lie {
  const char* part_of_message;
  std::function<void(GgufWriter&)> tell;
};

TEST(Gguf, RefusesEachLieAndNamesIt) {
  const uint64_t huge = uint64_t{1} << 62;
  const auto array = [](uint32_t type, uint64_t count, const std::string& rest) {
    return BytesOf(type) + BytesOf(count) + rest;
  };
  const std::vector<Lie> lies = {
      {"version 1 is not supported", [](GgufWriter& w) { w.version = 1; }},
      {"version 9 is not supported", [](GgufWriter& w) { w.version = 9; }},
      {"byte-swapped", [](GgufWriter& w) { w.version = 0x03000000; }},
      {"metadata entries, more than", [](GgufWriter& w) { w.extra_values = 1ll << 40; }},
      {"tensors, more than", [](GgufWriter& w) { w.extra_tensors = 1ll << 40; }},
      {"\"count\" appears twice", [](GgufWriter& w) { w.Unsigned("count", 1); }},
      {"key has 0 bytes", [](GgufWriter& w) { w.Unsigned("", 1); }},
      {"key has 70000 bytes", [](GgufWriter& w) { w.Unsigned(std::string(70000, 'k'), 1); }},
      {"\"odd\" has value type 13", [](GgufWriter& w) { w.Raw("odd", 13, "x"); }},
      {"\"truth\" is a bool with value 2", [](GgufWriter& w) { w.Bool("truth", 2); }},
      {"string \"s\" is longer", [&](GgufWriter& w) { w.Raw("s", 8, BytesOf(huge)); }},
      {"\"nested\" has element type 9",
       [&](GgufWriter& w) { w.Raw("nested", 9, array(9, 1, "")); }},
      {"\"odd\" has element type 77", [&](GgufWriter& w) { w.Raw("odd", 9, array(77, 1, "")); }},
      {"\"a\" claims", [&](GgufWriter& w) { w.Raw("a", 9, array(4, huge, "")); }},
      {"\"a\" claims", [&](GgufWriter& w) { w.Raw("a", 9, array(8, huge, "")); }},
      {"a string of array \"a\" is longer",
       [&](GgufWriter& w) { w.Raw("a", 9, array(8, 1, BytesOf(huge))); }},
      {"general.alignment must be", [](GgufWriter& w) { w.Unsigned("general.alignment", 0); }},
      {"general.alignment must be", [](GgufWriter& w) { w.Unsigned("general.alignment", 48); }},
      {"general.alignment must be", [](GgufWriter& w) { w.Unsigned("general.alignment", 4); }},
      {"general.alignment must be", [](GgufWriter& w) { w.String("general.alignment", "32"); }},
      {"not a multiple of the alignment 64",
       [](GgufWriter& w) { w.Unsigned("general.alignment", 64); }},
      {"tensor norm appears twice", [](GgufWriter& w) { w.Tensor("norm", 0, {5}, Bytes(20)); }},
      {"tensor name has 65 bytes",
       [](GgufWriter& w) { w.Tensor(std::string(65, 'n'), 0, {1}, Bytes(4)); }},
      {"tensor name has 0 bytes", [](GgufWriter& w) { w.Tensor("", 0, {1}, Bytes(4)); }},
      {"has 5 dimensions",
       [](GgufWriter& w) {
         w.Tensor("t", 0, {1, 1, 1, 1, 1}, Bytes(4));
       }},
      {"has 0 dimensions", [](GgufWriter& w) { w.Tensor("t", 0, {}, Bytes(4)); }},
      {"tensor t has extent 0", [](GgufWriter& w) { w.Tensor("t", 0, {0}, {}); }},
      {"zero or too large",
       [&](GgufWriter& w) {
         w.TensorEntry("t", 0, {huge, 8}, 0);
       }},
      {"tensor t is too large", [&](GgufWriter& w) { w.TensorEntry("t", 0, {huge}, 0); }},
      {"needs a multiple of 32", [](GgufWriter& w) { w.TensorEntry("t", 8, {33}, 0); }},
      {"needs a multiple of 256", [](GgufWriter& w) { w.TensorEntry("t", 12, {128}, 0); }},
      {"has type number 99", [](GgufWriter& w) { w.TensorEntry("t", 99, {32}, 0); }},
      {"offset 7, not a multiple", [](GgufWriter& w) { w.TensorEntry("t", 0, {1}, 7); }},
      {"tensor t of 4 bytes at offset 1048576",
       [](GgufWriter& w) { w.TensorEntry("t", 0, {1}, 1 << 20); }},
      {"does not fit", [](GgufWriter& w) { w.TensorEntry("t", 0, {1}, 0xffffffffffffffe0ull); }},
  };
  for (const Lie& lie : lies) {
    GgufWriter writer = Sound();
    lie.tell(writer);
    const std::string error = ErrorOf(writer.Finish());
    EXPECT_NE(error.find(lie.part_of_message), std::string::npos)
        << "wanted: " << lie.part_of_message << "\ngot:    " << error;
  }
}

TEST(Gguf, RefusesForeignMagicAndTinyFiles) {
  auto image = Sound().Finish();
  image[0] = 'g';
  EXPECT_NE(ErrorOf(image).find("begins with bytes 67 47 55 46"), std::string::npos)
      << ErrorOf(image);
  EXPECT_NE(ErrorOf({}).find("not a GGUF file"), std::string::npos);
  EXPECT_NE(ErrorOf({'G', 'G', 'U', 'F', 3, 0, 0, 0}).find("truncated"), std::string::npos);
}

TEST(Gguf, RefusesEveryTruncation) {
  const auto image = Sound().Finish();
  for (size_t size = 0; size < image.size(); ++size) {
    const std::vector<uint8_t> cut(image.begin(), image.begin() + static_cast<ptrdiff_t>(size));
    const std::string error = ErrorOf(cut);
    EXPECT_NE(error, "accepted") << size;
    EXPECT_FALSE(error.empty()) << size;
  }
}

TEST(Gguf, SurvivesRandomDamage) {
  const auto image = Sound().Finish();
  std::mt19937_64 random(20240817);
  for (int round = 0; round < 20000; ++round) {
    auto damaged = image;
    for (uint64_t i = 0; i <= random() % 4; ++i) {
      damaged[random() % damaged.size()] = static_cast<uint8_t>(random());
    }
    std::string error;
    const auto file = GgufFile::Parse(damaged, &error);
    ASSERT_EQ(file.ok(), error.empty());
    if (!file.ok()) continue;
    for (const GgufTensor& tensor : (*file)->tensors()) {
      ASSERT_GE(tensor.data, damaged.data());
      ASSERT_LE(tensor.data + tensor.bytes, damaged.data() + damaged.size());
    }
  }
}

TEST(Gguf, SaysWhichFileIsMissingOrNotAFile) {
  std::string error;
  auto missing = GgufFile::Open("no/such/model.gguf", &error);
  EXPECT_EQ(missing.status().code(), Code::kNotFound);
  EXPECT_EQ(error, "no/such/model.gguf: No such file or directory");
  auto folder = GgufFile::Open(testing::TempDir(), &error);
  EXPECT_FALSE(folder.ok());
  EXPECT_NE(error.find("not a regular file"), std::string::npos);
}

TEST(Gguf, OpensAFileAndReadsItAgainAfterReleasingItsPages) {
  const std::string path = testing::TempDir() + "kairos_gguf_test.gguf";
  const auto image = Sound().Finish();
  FILE* out = std::fopen(path.c_str(), "wb");
  ASSERT_EQ(std::fwrite(image.data(), 1, image.size(), out), image.size());
  std::fclose(out);
  std::string error;
  auto file = GgufFile::Open(path, &error);
  ASSERT_TRUE(file.ok()) << error;
  std::remove(path.c_str());
  (*file)->ReleasePages();
  EXPECT_EQ((*file)->Unsigned("count"), 42u);
  EXPECT_EQ((*file)->FindTensor("norm")->data[0], 7);
}

TEST(Gguf, NamesTypes) {
  EXPECT_STREQ(GgufTypeName(3), "Q4_1");
  EXPECT_STREQ(GgufTypeName(13), "Q5_K");
  EXPECT_EQ(GgufTypeName(4), nullptr);
}

}  // namespace
}  // namespace kairos
