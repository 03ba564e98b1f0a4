// SPDX-License-Identifier: Apache-2.0
#include "sidecar/preflight/place_checks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include <fmt/format.h>

#include "sidecar/engine/kv_arena.h"
#include "sidecar/preflight/host_checks.h"
#include "sidecar/preflight/instance_lock.h"
#include "sidecar/state/catalog.h"

namespace kairos {
namespace {

class PlaceChecks : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "kairos-places-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // A socket bound at `path`, listening or not; closed by the caller.
  static int Bind(const std::string& path, int type, bool listens) {
    const int fd = socket(AF_UNIX, type, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    if (listens) {
      EXPECT_EQ(listen(fd, 1), 0);
    }
    return fd;
  }

  std::string folder_;
};

// A catalog of this program as it is after a clean end.
void MakeCatalog(const std::string& path) {
  CatalogOptions options;
  options.path = path;
  std::string error;
  ASSERT_TRUE(Catalog::Open(options, &error).ok()) << error;
}

// Writes `bytes` over those at `offset`.
void Overwrite(const std::string& path, std::streamoff offset, const std::string& bytes) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(offset);
  file << bytes;
}

TEST_F(PlaceChecks, CatalogThatIsNoneOfThisProgramIsRefusedWithARemedy) {
  const std::string path = folder_ + "/cata log?%#.db";
  const struct {
    const char* words;
    const char* remedy;
    std::function<void()> spoil;
  } cases[] = {
      {"file is not a database", "put a backup in their place",
       [&] { std::ofstream(path, std::ios::trunc) << std::string(4096, 'x'); }},
      {"file is not a database", "put a backup in their place",
       [&] { Overwrite(path, 0, "XQLite"); }},
      {"malformed", "put a backup in their place",
       [&] { std::filesystem::resize_file(path, 8192); }},
      {"is a database of another program", "`catalog.path`",
       [&] { Overwrite(path, 68, std::string("\0\0\0\1", 4)); }},
      {"has format 9, this program knows up to", "start a kairosd that knows this format",
       [&] { Overwrite(path, 60, std::string("\0\0\0\x09", 4)); }},
  };
  for (const auto& fault : cases) {
    std::filesystem::remove(path);
    MakeCatalog(path);
    EXPECT_EQ(CheckCatalogFile(path).severity, Severity::kOk) << fault.words;
    fault.spoil();

    const Finding found = CheckCatalog(path, 1 << 20);

    EXPECT_EQ(found.exit_status, kExitCannotCreate) << fault.words;
    EXPECT_NE(found.words.find(path + ": "), std::string::npos) << found.words;
    EXPECT_NE(found.words.find(fault.words), std::string::npos) << found.words;
    EXPECT_NE(found.remedy.find(fault.remedy), std::string::npos) << found.remedy;
    EXPECT_FALSE(std::filesystem::exists(path + "-wal")) << "the check made a file";
  }
}

TEST_F(PlaceChecks, CatalogWhoseLogIsNotReadInYetMayBeBehindIt) {
  const std::string path = folder_ + "/catalog.db";
  MakeCatalog(path);
  std::filesystem::resize_file(path, 8192);
  std::ofstream(path + "-wal") << "log";

  EXPECT_EQ(CheckCatalogFile(path).severity, Severity::kOk);
}

TEST_F(PlaceChecks, CatalogThatIsAFolderIsCalledOne) {
  const Finding found = CheckCatalog(folder_, 1 << 20);

  EXPECT_EQ(found.exit_status, kExitCannotCreate);
  EXPECT_NE(found.words.find(folder_ + ": is a folder"), std::string::npos) << found.words;
  EXPECT_EQ(found.remedy.find("chown"), std::string::npos) << found.remedy;
}

TEST_F(PlaceChecks, FolderMayLackOneLevelButNotTwo) {
  EXPECT_EQ(CheckSocketFolder(folder_ + "/a.sock", 0600).severity, Severity::kOk);
  EXPECT_EQ(CheckSocketFolder(folder_ + "/new/a.sock", 0600).severity, Severity::kOk);

  const Finding deep = CheckSocketFolder(folder_ + "/new/deep/a.sock", 0600);

  EXPECT_EQ(deep.severity, Severity::kFail);
  EXPECT_EQ(deep.exit_status, kExitCannotCreate);
  EXPECT_NE(deep.words.find(folder_ + "/new: No such file"), std::string::npos) << deep.words;
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/new")) << "it only looks";
}

TEST_F(PlaceChecks, WarnsOfAFolderInWhichEverybodyMayReplaceTheSocket) {
  ASSERT_EQ(chmod(folder_.c_str(), 0777), 0);
  EXPECT_EQ(CheckSocketFolder(folder_ + "/a.sock", 0600).severity, Severity::kWarn);
  ASSERT_EQ(chmod(folder_.c_str(), 01777), 0);
  EXPECT_EQ(CheckSocketFolder(folder_ + "/a.sock", 0600).severity, Severity::kOk);
}

TEST_F(PlaceChecks, WarnsOfAFolderThatShutsOutTheGroupThatMayAttach) {
  const std::string inner = folder_ + "/inner";
  const std::string socket = inner + "/a.sock";
  ASSERT_EQ(mkdir(inner.c_str(), 0700), 0);
  ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
  EXPECT_EQ(CheckSocketFolder(socket, 0600).severity, Severity::kOk);
  const Finding found = CheckSocketFolder(socket, 0660);
  EXPECT_EQ(found.severity, Severity::kWarn);
  EXPECT_EQ(found.exit_status, 0);
  EXPECT_NE(found.words.find(inner + ", which belongs to gid"), std::string::npos) << found.words;
  EXPECT_EQ(found.remedy, "chmod g+x " + inner);

  ASSERT_EQ(chmod(inner.c_str(), 0750), 0);
  EXPECT_EQ(CheckSocketFolder(socket, 0660).severity, Severity::kOk);
  ASSERT_EQ(chmod(folder_.c_str(), 0700), 0);
  EXPECT_EQ(CheckSocketFolder(socket, 0660).remedy, "chmod g+x " + folder_);
}

TEST_F(PlaceChecks, FolderIsMadeForThoseWhomTheSocketLetsIn) {
  const std::string folder = folder_ + "/made";
  const mode_t mask = umask(077);
  InstanceLock lock;
  std::string error;
  const auto outcome = lock.Take(folder + "/a.sock.lock", SocketFolderMode(0660), &error);
  umask(mask);
  ASSERT_EQ(outcome, InstanceLock::Outcome::kTaken) << error;
  struct stat status {};
  ASSERT_EQ(stat(folder.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0750u);
  EXPECT_EQ(SocketFolderMode(0600), 0700u);
}

TEST_F(PlaceChecks, EndpointIsFreeLeftOverServedOrAFile) {
  const std::string path = folder_ + "/a.sock";
  EXPECT_EQ(CheckEndpoint("socket", path).severity, Severity::kOk);
  for (const int type : {SOCK_STREAM, SOCK_SEQPACKET}) {
    const int fd = Bind(path, type, true);
    const Finding served = CheckEndpoint("socket", path);
    EXPECT_EQ(served.severity, Severity::kFail);
    EXPECT_EQ(served.exit_status, kExitCannotCreate);
    EXPECT_NE(served.words.find("another program listens"), std::string::npos) << served.words;
    close(fd);
    const Finding left_over = CheckEndpoint("socket", path);
    EXPECT_EQ(left_over.severity, Severity::kWarn);
    EXPECT_EQ(left_over.exit_status, 0) << "kairosd starts all the same";
    ASSERT_EQ(unlink(path.c_str()), 0);
  }
  std::ofstream(path) << "a file";
  EXPECT_EQ(CheckEndpoint("socket", path).severity, Severity::kFail);
}

TEST_F(PlaceChecks, InstanceIsTheHolderOfTheLock) {
  const std::string socket = folder_ + "/a.sock";
  std::string pid = "stale";
  CheckInstance(socket, &pid);
  EXPECT_EQ(pid, "");
  InstanceLock lock;
  std::string error;
  ASSERT_EQ(lock.Take(socket + ".lock", 0700, &error), InstanceLock::Outcome::kTaken) << error;

  const Finding held = CheckInstance(socket, &pid);

  EXPECT_EQ(pid, std::to_string(getpid()));
  EXPECT_EQ(held.severity, Severity::kOk);
  EXPECT_NE(held.words.find("kairosctl drain"), std::string::npos) << held.words;
}

TEST_F(PlaceChecks, CatalogMayLackFoldersButMustBeAFileWithRoom) {
  EXPECT_EQ(CheckCatalog(folder_ + "/a/b/c.db", 1 << 20).severity, Severity::kOk);
  EXPECT_EQ(CheckCatalog(folder_, 1 << 20).severity, Severity::kFail) << "it is a folder";
  EXPECT_EQ(CheckCatalog(folder_ + "/c.db", 1ull << 62).severity, Severity::kWarn)
      << "no disk has so much room";
}

TEST_F(PlaceChecks, CatalogIsFreeUnlessAnotherProcessHoldsALockOfSqlite) {
  const std::string path = folder_ + "/c.db";
  EXPECT_EQ(CheckCatalogFree(path).severity, Severity::kOk) << "it is not there";
  std::ofstream(path) << "";
  EXPECT_EQ(CheckCatalogFree(path).severity, Severity::kOk);
  int locked[2];
  ASSERT_EQ(pipe(locked), 0);
  const pid_t other = fork();
  if (other == 0) {
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = 0x40000002;  // the first shared byte
    lock.l_len = 1;
    const bool holds = fcntl(open(path.c_str(), O_RDWR), F_SETLK, &lock) == 0;
    const bool told = write(locked[1], "x", holds ? 1 : 0) == 1;
    while (told) pause();
    _exit(1);
  }
  close(locked[1]);
  char byte = 0;
  ASSERT_EQ(read(locked[0], &byte, 1), 1);
  close(locked[0]);

  const Finding held = CheckCatalogFree(path);
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);

  EXPECT_EQ(held.severity, Severity::kFail);
  EXPECT_EQ(held.exit_status, kExitCannotCreate);
  EXPECT_NE(held.words.find(fmt::format("(pid {})", other)), std::string::npos) << held.words;
  EXPECT_EQ(CheckCatalogFree(path).severity, Severity::kOk) << "it is gone";
}

TEST_F(PlaceChecks, CatalogCountsItsLog) {
  std::ofstream(folder_ + "/c.db") << std::string(4096, 'x');
  std::ofstream(folder_ + "/c.db-wal") << std::string(8192, 'x');

  const Finding found = CheckCatalog(folder_ + "/c.db", 1 << 20);

  EXPECT_NE(found.words.find("and its log take 12.0 KiB on the disk"), std::string::npos)
      << found.words;
  EXPECT_NE(found.words.find("catalog_bytes"), std::string::npos) << found.words;
}

TEST(HostChecks, RefuseAModelLargerThanTheMemoryAndWarnOfTooMuchKv) {
  constexpr uint64_t kTooMuch = 1ull << 60;

  const Finding fits = CheckMemory(1, 1);
  const Finding kv = CheckMemory(1, kTooMuch);
  const Finding model = CheckMemory(kTooMuch, 1);

  EXPECT_EQ(fits.severity, Severity::kOk) << fits.words;
  EXPECT_EQ(kv.severity, Severity::kWarn) << kv.words;
  EXPECT_EQ(kv.exit_status, 0);
  EXPECT_EQ(model.severity, Severity::kFail) << model.words;
  EXPECT_EQ(model.exit_status, kExitOsError);
}

TEST(HostChecks, PrivateMemoryMustHoldWeightsAndKvAndSaysHowMuchThatIs) {
  constexpr rlim_t kLimit = rlim_t{1} << 46;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_DATA, &before), 0);
  EXPECT_EQ(CheckPrivateMemory(kLimit, {}).severity, Severity::kOk) << "without a limit";
  const rlimit limit{kLimit, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &limit), 0);

  const Finding fits = CheckPrivateMemory(kLimit / 2, {});
  const Finding small = CheckPrivateMemory(kLimit, {});

  ASSERT_EQ(setrlimit(RLIMIT_DATA, &before), 0);
  EXPECT_EQ(fits.severity, Severity::kOk) << fits.words;
  EXPECT_EQ(small.severity, Severity::kFail);
  EXPECT_EQ(small.exit_status, kExitOsError);
  EXPECT_NE(small.words.find("RLIMIT_DATA"), std::string::npos) << small.words;
  EXPECT_NE(small.remedy.find("LimitDATA"), std::string::npos) << small.remedy;
  EXPECT_NE(small.remedy.find("at least 68719738880"), std::string::npos) << small.remedy;
}

TEST(HostChecks, WarnsOfWhatAStrictHostWillNotPromise) {
  constexpr uint64_t kGib = 1ull << 30;
  const CommitLimit strict{true, 8 * kGib, 6 * kGib};

  EXPECT_EQ(CheckPrivateMemory(kGib, strict).severity, Severity::kOk);
  EXPECT_EQ(CheckPrivateMemory(2 * kGib, {false, 8 * kGib, 6 * kGib}).severity, Severity::kOk);
  const Finding found = CheckPrivateMemory(2 * kGib, strict);

  EXPECT_EQ(found.severity, Severity::kWarn);
  EXPECT_EQ(found.exit_status, 0);
  EXPECT_NE(found.words.find("no more than 8.0 GiB of memory, of which 6.0 GiB are taken"),
            std::string::npos)
      << found.words;
  EXPECT_NE(found.remedy.find("vm.overcommit_memory is 2"), std::string::npos) << found.remedy;
  EXPECT_NE(found.remedy.find("lower kv.memory"), std::string::npos) << found.remedy;
}

TEST(HostChecks, AddressSpaceMustHoldTheModelsAndSaysHowMuchThatIs) {
  // Above what a sanitizer maps, so that this process goes on under it.
  constexpr rlim_t kLimit = rlim_t{1} << 46;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  EXPECT_EQ(CheckAddressSpace(kLimit).severity, Severity::kOk) << "without a limit";
  const rlimit limit{kLimit, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);

  const Finding fits = CheckAddressSpace(kLimit / 2);
  const Finding small = CheckAddressSpace(kLimit);

  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_EQ(fits.severity, Severity::kOk) << fits.words;
  EXPECT_EQ(small.severity, Severity::kFail);
  EXPECT_EQ(small.exit_status, kExitOsError);
  EXPECT_NE(small.words.find("RLIMIT_AS"), std::string::npos) << small.words;
  EXPECT_NE(small.remedy.find("LimitAS"), std::string::npos) << small.remedy;
  EXPECT_NE(small.remedy.find("at least 68719738880"), std::string::npos) << small.remedy;
}

TEST(HostChecks, DescriptorsMustSufficeForTheClients) {
  EXPECT_EQ(RaiseDescriptorLimit(1, 1).severity, Severity::kOk);
  const Finding many = RaiseDescriptorLimit(1ull << 40, 1);
  EXPECT_EQ(many.severity, Severity::kWarn);
  EXPECT_NE(many.remedy.find("limits.attachments"), std::string::npos) << many.remedy;
}

TEST(KvSlotCount, NamesTheSettingWhenThereAreTooFew) {
  const KvGeometry geometry{2, 1, 64};
  std::string error;

  EXPECT_EQ(*KvSlotCount(10 * SlotBytes(geometry), geometry, &error), 10u);
  EXPECT_FALSE(KvSlotCount(3 * SlotBytes(geometry), geometry, &error).ok());
  EXPECT_NE(error.find("kv.memory of "), std::string::npos) << error;
  EXPECT_FALSE(KvSlotCount(3 * SlotBytes(geometry), geometry, &error, "other.key").ok());
  EXPECT_TRUE(error.starts_with("other.key of ")) << error;
}

}  // namespace
}  // namespace kairos
