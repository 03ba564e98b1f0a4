// SPDX-License-Identifier: Apache-2.0
#include "sidecar/preflight/host_checks.h"

#include <linux/io_uring.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include "base/control_group.h"
#include "sidecar/engine/kernels/kernel_table.h"

namespace kairos {

namespace {

constexpr uint64_t kLockedBytesAdvised = 8u << 20;
// Of descriptors, beside the clients': files, wake-ups, the control socket. And the fifth that
// ingress keeps free (ring_ingress.cc).
constexpr uint64_t kDescriptorsOfOurOwn = 64;
// The file and the wake-ups of a model beside the first.
constexpr uint64_t kDescriptorsOfAModel = 8;

// What a process takes beside models and KV: code, stacks of threads, heaps. The service file says
// it, too.
constexpr uint64_t kBytesOfOurOwn = 256u << 20;

std::string LimitWords(rlim_t limit) {
  return limit == RLIM_INFINITY ? "unlimited" : BytesWords(limit);
}

// The number behind `key:` in a file of lines "key:  12 kB", in bytes; 0 when it is not there.
uint64_t MemoryLine(const char* key) {
  std::ifstream file("/proc/meminfo");
  std::string name;
  uint64_t kibibytes = 0;
  std::string unit;
  while (file >> name >> kibibytes) {
    if (name == key) return kibibytes * 1024;
    std::getline(file, unit);
  }
  return 0;
}

}  // namespace

std::string BytesWords(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto number = static_cast<double>(bytes);
  size_t unit = 0;
  for (; number >= 1024 && unit < 4; ++unit) number /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", number, kUnits[unit]);
}

Finding CheckKernel() {
  utsname host{};
  uname(&host);
  const std::string_view release = host.release;
  int major = 0;
  int minor = 0;
  const auto at = std::from_chars(release.data(), release.data() + release.size(), major).ptr;
  if (at < release.data() + release.size()) {
    std::from_chars(at + 1, release.data() + release.size(), minor);
  }
  Finding found{"kernel", Severity::kOk, fmt::format("{} {}", host.sysname, release), "", 0};
  if (major > 5 || (major == 5 && minor >= 1)) return found;
  found.severity = Severity::kFail;
  found.remedy = "shared memory of clients needs Linux 5.1 or newer: update the kernel";
  return found;
}

Finding CheckProcessor() {
  const KernelTable* kernels = ChooseKernels();
  if (kernels == nullptr) {
    const char* asked = std::getenv("KAIROS_KERNELS");
    const std::string name = asked == nullptr ? "" : asked;
    const bool known = IsKernelName(name.c_str());
    return {"processor", Severity::kFail,
            "KAIROS_KERNELS=" + name +
                (known ? ": this processor does not have these instructions"
                       : ": unknown; known are " + KernelNames()),
            known ? "unset it, or name another of " + KernelNames() + " that `lscpu` has flags for"
                  : "unset it, or name a known one",
            kExitConfig};
  }
  Finding found{"processor", Severity::kOk, fmt::format("computes with {}", kernels->name), "", 0};
  if (std::strcmp(kernels->name, "scalar") != 0) return found;
  found.severity = Severity::kWarn;
  found.remedy = std::getenv("KAIROS_KERNELS") != nullptr
                     ? "KAIROS_KERNELS asks for the slow arithmetic: unset it"
                     : "no AVX2 here: turns take some ten times longer; run on another processor, "
                       "or let the virtual machine see this one's flags";
  return found;
}

Finding RaiseDescriptorLimit(uint64_t clients, uint64_t models) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  getrlimit(RLIMIT_NOFILE, &limit);
  const uint64_t own =
      kDescriptorsOfOurOwn + kDescriptorsOfAModel * (std::max<uint64_t>(models, 1) - 1);
  const uint64_t needed = (clients + own) * 5 / 4;
  Finding found{"nofile", Severity::kOk,
                fmt::format("{} open files; {} clients need {}", limit.rlim_cur, clients, needed),
                "", 0};
  if (limit.rlim_cur >= needed) return found;
  if (limit.rlim_cur < own) {
    found.severity = Severity::kFail;
    found.words = fmt::format("the limit of open files (RLIMIT_NOFILE) is {}; kairosd itself needs "
                              "{}, and {} clients {} in all",
                              limit.rlim_cur, own, clients, needed);
    found.remedy = fmt::format("set LimitNOFILE={} in the service, or `ulimit -n {}` where it is "
                               "started", needed, needed);
    found.exit_status = kExitOsError;
    return found;
  }
  found.severity = Severity::kWarn;
  found.remedy = fmt::format(
      "raise LimitNOFILE of the service (or `ulimit -Hn`) to {}, or lower limits.attachments: "
      "clients beyond are refused",
      needed);
  return found;
}

Finding CheckLockedMemory() {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  Finding found{"memlock", Severity::kOk, LimitWords(limit.rlim_max) + " may be locked", "", 0};
  if (limit.rlim_max >= kLockedBytesAdvised) return found;
  found.severity = Severity::kWarn;
  found.words += fmt::format("; {} are advised for buffers of io_uring and of accelerators, "
                             "which this version has none of",
                             BytesWords(kLockedBytesAdvised));
  found.remedy = "set LimitMEMLOCK=8M in the service, or `ulimit -Hl 8192` where it is started";
  return found;
}

Finding CheckIoUring() {
  io_uring_params params{};
  const long ring = syscall(SYS_io_uring_setup, 1, &params);
  if (ring >= 0) {
    close(static_cast<int>(ring));
    return {"io_uring", Severity::kOk, "available; nothing in this version needs it", "", 0};
  }
  return {"io_uring", Severity::kOk,
          fmt::format("not available ({}); nothing in this version needs it",
                      std::strerror(errno)),
          "", 0};
}

Finding CheckMemory(uint64_t weight_bytes, uint64_t kv_bytes) {
  const uint64_t total = std::min(MemoryLine("MemTotal:"), ReadGroupLimits().memory_bytes);
  const uint64_t available = std::min(MemoryLine("MemAvailable:"), total);
  Finding found{"memory", Severity::kOk,
                fmt::format("the weights take {}, kv.memory up to {}; {} of {} are free",
                            BytesWords(weight_bytes), BytesWords(kv_bytes), BytesWords(available),
                            BytesWords(total)),
                "", 0};
  if (total == 0) return found;  // no procfs: nothing is known
  if (weight_bytes > total) {
    found.severity = Severity::kFail;
    found.words = fmt::format("the model is too big: its weights take {}, and this process may "
                              "have {} of memory",
                              BytesWords(weight_bytes), BytesWords(total));
    found.remedy = "serve a smaller or more strongly quantised model, or give it more memory";
    found.exit_status = kExitOsError;
  } else if (weight_bytes + kv_bytes > available) {
    found.severity = Severity::kWarn;
    found.remedy = "lower kv.memory, or end other programs: when it has filled, the system may "
                   "swap or kill kairosd";
  }
  return found;
}

Finding CheckAddressSpace(uint64_t bytes) {
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  const uint64_t needed = bytes + kBytesOfOurOwn;
  Finding found{"address_space", Severity::kOk,
                fmt::format("{} (RLIMIT_AS); {} are needed, and 2 MiB for each client",
                            LimitWords(limit.rlim_cur), BytesWords(needed)),
                "", 0};
  if (limit.rlim_cur >= needed) return found;
  found.severity = Severity::kFail;
  found.words = fmt::format("the limit of address space (RLIMIT_AS) is {}; the models while they "
                            "load, kv.memory and kairosd itself need {}, and 2 MiB for each client",
                            BytesWords(limit.rlim_cur), BytesWords(needed));
  found.remedy = fmt::format("set LimitAS=infinity in the service, or `ulimit -v unlimited` (at "
                             "least {}) where it is started, or lower kv.memory",
                             (needed + 1023) / 1024);
  found.exit_status = kExitOsError;
  return found;
}

CommitLimit ReadCommitLimit() {
  constexpr int kStrict = 2;
  int mode = 0;
  std::ifstream("/proc/sys/vm/overcommit_memory") >> mode;
  return {mode == kStrict, MemoryLine("CommitLimit:"), MemoryLine("Committed_AS:")};
}

Finding CheckPrivateMemory(uint64_t bytes, const CommitLimit& commit) {
  rlimit limit{};
  getrlimit(RLIMIT_DATA, &limit);
  const uint64_t needed = bytes + kBytesOfOurOwn;
  Finding found{"private_memory", Severity::kOk,
                fmt::format("{} (RLIMIT_DATA); {} are needed", LimitWords(limit.rlim_cur),
                            BytesWords(needed)),
                "", 0};
  if (limit.rlim_cur < needed) {
    found.severity = Severity::kFail;
    found.words = fmt::format("the limit of private memory (RLIMIT_DATA) is {}; weights, kv.memory "
                              "and kairosd itself need {}",
                              BytesWords(limit.rlim_cur), BytesWords(needed));
    found.remedy = fmt::format("set LimitDATA=infinity in the service, or `ulimit -d unlimited` "
                               "(at least {}) where it is started, or lower kv.memory",
                               (needed + 1023) / 1024);
    found.exit_status = kExitOsError;
  } else if (commit.is_strict && commit.taken_bytes + needed > commit.limit_bytes) {
    found.severity = Severity::kWarn;
    found.words = fmt::format("the host promises no more than {} of memory, of which {} are taken; "
                              "weights, kv.memory and kairosd itself need {}",
                              BytesWords(commit.limit_bytes), BytesWords(commit.taken_bytes),
                              BytesWords(needed));
    found.remedy = RemedyForRefusedMemory(commit);
  }
  return found;
}

std::string RemedyForRefusedMemory(const CommitLimit& commit) {
  if (commit.is_strict) {
    return fmt::format("vm.overcommit_memory is 2, and of {} that the host promises {} are taken: "
                       "lower kv.memory, raise vm.overcommit_ratio, or `sysctl "
                       "vm.overcommit_memory=0`",
                       BytesWords(commit.limit_bytes), BytesWords(commit.taken_bytes));
  }
  return "lower kv.memory, or raise what limits memory here: `ulimit -v`, `ulimit -d`, or LimitAS= "
         "and LimitDATA= of the service";
}

std::string WordsForRefusedThread(const Status& status) {
  return fmt::format("{}: {}\n  raise what limits threads here: `ulimit -u`, or TasksMax= and "
                     "LimitNPROC= of the service; or lower engine.threads",
                     status.message(), std::strerror(static_cast<int>(status.detail())));
}

}  // namespace kairos
