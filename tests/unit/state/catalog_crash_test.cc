// SPDX-License-Identifier: Apache-2.0
// A child commits in a loop and says each version it was promised; it is killed at an arbitrary
// moment. What it was promised must be there, whole.
#include <csignal>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "tests/unit/state/catalog_fixture.h"

namespace kairos {
namespace {

class CatalogCrashTest : public CatalogFixture {
 protected:
  static VersionDelta Next(uint64_t version, const StateVersion& parent) {
    return Delta(version, parent, static_cast<uint32_t>(1 + version * 37 % 900));
  }

  [[noreturn]] void CommitForEver(int pipe_fd, StateVersion head) {
    auto opened = Catalog::Open(options_, nullptr);
    if (!opened.ok()) _exit(1);
    for (uint64_t version = head.version.value + 1;; ++version) {
      const VersionDelta delta = Next(version, head);
      if (!(*opened)->Commit(Session(1), version == 1, delta, "", nullptr, nullptr).ok()) _exit(2);
      if (write(pipe_fd, &version, sizeof(version)) != sizeof(version)) _exit(3);
      head = Apply(head, delta);
    }
  }
};

TEST_F(CatalogCrashTest, KeepsEveryAcknowledgedVersionWhenKilledInTheMiddle) {
  const uint32_t seed = 20240611;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  StateVersion head;
  for (int round = 0; round < 12; ++round) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) CommitForEver(ends[1], head);
    close(ends[1]);
    const uint64_t wanted = 5 + random() % 60;
    uint64_t acknowledged = 0;
    uint64_t read_version = 0;
    for (uint64_t i = 0; i < wanted; ++i) {
      if (read(ends[0], &read_version, sizeof(read_version)) != sizeof(read_version)) break;
      acknowledged = read_version;
    }
    kill(child, SIGKILL);
    int exit_status = 0;
    waitpid(child, &exit_status, 0);
    ASSERT_TRUE(WIFSIGNALED(exit_status)) << WEXITSTATUS(exit_status);
    while (read(ends[0], &read_version, sizeof(read_version)) == sizeof(read_version)) {
      acknowledged = read_version;
    }
    close(ends[0]);

    Open();

    const SessionRecord record = catalog_->LoadSessions()->at(0);
    ASSERT_GE(record.newest.value, acknowledged);
    ASSERT_LE(record.newest.value, acknowledged + 1);
    for (uint64_t version = head.version.value + 1; version <= record.newest.value; ++version) {
      head = Apply(head, Next(version, head));
      if (version < record.oldest.value) continue;
      auto loaded = catalog_->LoadVersion(SessionId{1}, Version{version});
      ASSERT_TRUE(loaded.ok()) << loaded.status().message();
      ExpectEqual(*loaded, head);
    }
    catalog_.reset();
  }
  EXPECT_GT(head.version.value, 60u);
}

}  // namespace
}  // namespace kairos
