// SPDX-License-Identifier: Apache-2.0
#include "base/control_group.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

namespace kairos {
namespace {

class ControlGroup : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/control_group_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    root_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  GroupLimits Read() const { return ReadGroupLimits(root_ + "/own", root_); }

  std::string root_;
};

TEST_F(ControlGroup, TakesTheLeastLimitOfTheGroupAndThoseAbove) {
  Write("own", "3:cpuset:/other\n0::/a/b\n");
  Write("a/cpu.max", "150000 100000\n");
  Write("a/b/cpu.max", "800000 200000\n");
  Write("a/memory.max", "5000000\n");
  Write("a/b/memory.max", "4000000\n");
  Write("other/memory.max", "7\n");
  EXPECT_EQ(Read().processors, 1.5);
  EXPECT_EQ(Read().memory_bytes, 4'000'000u);
}

TEST_F(ControlGroup, LimitsNothingWhereNothingIsSaid) {
  for (const char* own : {"", "0::/a\n", "0::/\n", "2:cpu:/a\n"}) {
    Write("own", own);
    Write("a/cpu.max", "max 100000\n");
    Write("a/memory.max", "max\n");
    EXPECT_EQ(Read().processors, std::numeric_limits<double>::infinity()) << own;
    EXPECT_EQ(Read().memory_bytes, std::numeric_limits<uint64_t>::max()) << own;
  }
}

}  // namespace
}  // namespace kairos
