// SPDX-License-Identifier: Apache-2.0
#include "sidecar/preflight/place_checks.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "sidecar/preflight/host_checks.h"
#include "sidecar/preflight/instance_lock.h"
#include "sidecar/state/catalog_format.h"
#include "sidecar/state/disk_reserve.h"

namespace kairos {

namespace {

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

bool May(const std::string& path, int access) {
  return faccessat(AT_FDCWD, path.c_str(), access, AT_EACCESS) == 0;
}

// "/run/kairos belongs to uid 0 with mode 0700; this is uid 1000".
std::string Ownership(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return path + ": " + std::strerror(errno);
  return fmt::format("{} belongs to uid {} with mode {:04o}; this is uid {}", path, status.st_uid,
                     status.st_mode & 07777, geteuid());
}

Finding Refuse(const char* check, std::string words, std::string remedy) {
  return {check, Severity::kFail, std::move(words), std::move(remedy), kExitCannotCreate};
}

// Whether files can be made in `folder`, or it be made: `deep` with all folders above it. Empty, or
// what is in the way.
std::string FolderFault(const std::string& folder, bool deep) {
  struct stat status {};
  if (stat(folder.c_str(), &status) == 0) {
    if (!S_ISDIR(status.st_mode)) return folder + " is no folder";
    return May(folder, W_OK | X_OK) ? "" : "no permission: " + Ownership(folder);
  }
  if (errno == EACCES) return "no permission to look into the folders above " + folder;
  if (errno != ENOENT) return folder + ": " + std::strerror(errno);
  const std::string parent = FolderOf(folder);
  if (deep && parent != folder) return FolderFault(parent, true);
  if (stat(parent.c_str(), &status) != 0) return parent + ": " + std::strerror(errno);
  return May(parent, W_OK | X_OK) ? "" : "no permission: " + Ownership(parent);
}

gid_t GroupOf(const std::string& folder) {
  struct stat status {};
  return stat(folder.c_str(), &status) == 0 ? status.st_gid : getegid();
}

mode_t ModeOf(const std::string& folder) {
  struct stat status {};
  return stat(folder.c_str(), &status) == 0 ? status.st_mode & 07777 : 0;
}

// The group of what is made in `folder`.
gid_t SocketGroup(const std::string& folder) {
  return (ModeOf(folder) & S_ISGID) != 0 ? GroupOf(folder) : getegid();
}

// The folder nearest to the socket that keeps the socket's group from reaching it; empty where none
// does, or where only the owner may attach anyway.
std::string FolderClosedToGroup(std::string folder, mode_t socket_mode) {
  if ((socket_mode & S_IRWXG) == 0) return "";
  const gid_t group = SocketGroup(folder);
  for (;;) {
    struct stat status {};
    if (stat(folder.c_str(), &status) == 0 &&
        (status.st_mode & (status.st_gid == group ? S_IXGRP : S_IXOTH)) == 0) {
      return folder;
    }
    const std::string parent = FolderOf(folder);
    if (parent == folder) return "";
    folder = parent;
  }
}

// The process that holds a lock in the way of opening the SQLite file at `path`, or 0 where it is
// in a namespace that this one does not see. Nothing where none does.
std::optional<pid_t> LockHolder(const std::string& path) {
  // The bytes that SQLite's locks are on, in every file of its format: pending, reserved, shared.
  constexpr off_t kFirstLockByte = 0x40000000;
  constexpr off_t kLockBytes = 512;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return std::nullopt;
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = kFirstLockByte;
  lock.l_len = kLockBytes;
  const bool known = fcntl(fd, F_GETLK, &lock) == 0;
  close(fd);
  if (!known || lock.l_type == F_UNLCK) return std::nullopt;
  return lock.l_pid;
}

// Whether somebody has the socket at `path` open; EAGAIN is a full queue, EPROTOTYPE another kind.
bool IsServed(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return false;
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  const int result = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  const bool served = result == 0 || errno == EAGAIN || errno == EPROTOTYPE;
  close(fd);
  return served;
}

}  // namespace

mode_t SocketFolderMode(mode_t socket_mode) {
  mode_t mode = 0700;
  if ((socket_mode & S_IRWXG) != 0) mode |= 0050;
  if ((socket_mode & S_IRWXO) != 0) mode |= 0055;
  return mode;
}

Finding CheckSocketFolder(const std::string& socket, mode_t socket_mode) {
  const std::string folder = FolderOf(socket);
  const std::string fault = FolderFault(folder, false);
  if (!fault.empty()) {
    return Refuse("folder", "no socket can be made in " + folder + ": " + fault,
                  "make the folder for this user (mkdir, chown, chmod 0700), or name another place "
                  "by `socket`");
  }
  Finding found{"folder", Severity::kOk, folder + " can be used", "", 0};
  struct stat status {};
  if (stat(folder.c_str(), &status) != 0) {
    found.words = folder + " will be made";
  } else if ((status.st_mode & S_IWOTH) != 0 && (status.st_mode & S_ISVTX) == 0) {
    found.severity = Severity::kWarn;
    found.words = fmt::format("every user may replace the sockets in {} (mode {:04o})", folder,
                              status.st_mode & 07777);
    found.remedy = "chmod o-w " + folder;
  } else if (const std::string closed = FolderClosedToGroup(folder, socket_mode);
             !closed.empty()) {
    const bool is_own = GroupOf(closed) == SocketGroup(folder);
    found.severity = Severity::kWarn;
    found.words = fmt::format("socket_mode = \"{:04o}\" lets gid {} attach, but {}, which belongs "
                              "to gid {} with mode {:04o}, shuts it out",
                              socket_mode, SocketGroup(folder), closed, GroupOf(closed),
                              ModeOf(closed));
    found.remedy = is_own ? "chmod g+x " + closed
                          : fmt::format("chmod o+x {}, or chgrp {} {} and chmod g+x", closed,
                                        SocketGroup(folder), closed);
  }
  return found;
}

Finding CheckEndpoint(const std::string& key, const std::string& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return {key, Severity::kOk, path + " is free", "", 0};
  std::string flag = key;
  std::replace(flag.begin(), flag.end(), '_', '-');
  const std::string elsewhere = "or name another path by --" + flag + " (`" + key + "`)";
  if (!S_ISSOCK(status.st_mode)) {
    return Refuse(key.c_str(), path + " is taken by a file that is no socket",
                  "remove it, " + elsewhere);
  }
  if (IsServed(path)) {
    return Refuse(key.c_str(), "another program listens on " + path, "end it, " + elsewhere);
  }
  return {key, Severity::kWarn,
          path + " is left over from a program that was killed; nobody answers there",
          "start kairosd, which replaces it, or remove the file", 0};
}

Finding CheckInstance(const std::string& socket, std::string* pid) {
  Finding found{"instance", Severity::kOk, "no kairosd has this socket", "", 0};
  if (InstanceLock::IsHeld(socket + ".lock", pid)) {
    found.words = "a kairosd runs here" + (pid->empty() ? "" : " (pid " + *pid + ")") +
                  "; to start another: " + InstanceLock::SecondInstanceRemedy();
  }
  return found;
}

Finding CatalogFault(const std::string& path, const Status& status, const std::string& error) {
  // A log without its file is as bad as a file without its log.
  const std::string away = "move the file and " + path + "-wal, if it is there, away";
  std::string remedy;
  if (status.code() == Code::kDataLoss) {
    remedy = away + ": the next start then makes a catalog without sessions; or put a backup in "
                    "their place";
  } else if (status.code() == Code::kFailedPrecondition) {
    remedy = status.detail() != 0 ? "start a kairosd that knows this format; or " + away
                                  : away;
    remedy += ", or name another file by `catalog.path`";
  }
  return Refuse("catalog", "session catalog: " + error, std::move(remedy));
}

Finding CheckCatalogFile(const std::string& path) {
  Finding found{"catalog", Severity::kOk, path + " can be a catalog", "", 0};
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return found;
  if (!S_ISREG(status.st_mode)) {
    const bool folder = S_ISDIR(status.st_mode);
    return Refuse("catalog",
                  fmt::format("session catalog: {}: is {}; a file is wanted", path,
                              folder ? "a folder" : "no regular file"),
                  folder ? "name a file in it by `catalog.path`: " + path + "/catalog.db"
                         : "name another file by `catalog.path`");
  }
  if (!May(path, R_OK) || LockHolder(path)) return found;
  std::string error;
  const Status checked = CheckCatalogFormat(path, &error);
  return checked.ok() ? found : CatalogFault(path, checked, path + ": " + error);
}

Finding CheckCatalog(const std::string& path, uint64_t bytes_max) {
  const std::string elsewhere = "or name another place by `catalog.path`";
  std::string place = FolderOf(path);
  if (const std::string fault = FolderFault(place, true); !fault.empty()) {
    return Refuse("catalog", "the session catalog cannot be made in " + place + ": " + fault,
                  "make the folder for this user (mkdir, chown, chmod 0700), " + elsewhere);
  }
  struct stat status {};
  const bool exists = stat(path.c_str(), &status) == 0;
  if (const Finding file = CheckCatalogFile(path); file.severity == Severity::kFail) return file;
  if (exists && !May(path, R_OK | W_OK)) {
    return Refuse("catalog", "the session catalog cannot be read and written: " + Ownership(path),
                  "give it to this user (chown), " + elsewhere);
  }
  struct statvfs disk {};
  while (statvfs(place.c_str(), &disk) != 0 && place != "/" && place != ".") {
    place = FolderOf(place);
  }
  const uint64_t free_bytes = disk.f_bavail * disk.f_frsize;
  const uint64_t used = exists ? static_cast<uint64_t>(status.st_size) : 0;
  // What has been committed is in the log first; the limit, and catalog_bytes of the figures, count
  // what is in use of both.
  struct stat log {};
  const uint64_t log_bytes =
      stat((path + "-wal").c_str(), &log) == 0 ? static_cast<uint64_t>(log.st_size) : 0;
  Finding found{"catalog", Severity::kOk,
                fmt::format("{} and its log take {} on the disk, which has {} free; "
                            "catalog.bytes_max, {}, limits what is in use of them (catalog_bytes "
                            "of kairosctl stats)",
                            path, BytesWords(used + log_bytes), BytesWords(free_bytes),
                            BytesWords(bytes_max)),
                "", 0};
  if (free_bytes < kDiskBytesMin) {
    found.severity = Severity::kFail;
    found.words = fmt::format("the disk of the session catalog {} has {} free; {} are needed", path,
                              BytesWords(free_bytes), BytesWords(kDiskBytesMin));
    found.remedy = "make room on " + place + ", " + elsewhere +
                   "; until then kairosd may not start, and one that runs refuses turns";
  } else if (used < bytes_max && free_bytes < bytes_max - used) {
    found.severity = Severity::kWarn;
    found.remedy = "the disk is full before the limit is reached: make room, or lower "
                   "catalog.bytes_max";
  }
  return found;
}

Finding CheckCatalogFree(const std::string& path) {
  const std::optional<pid_t> holder = LockHolder(path);
  if (!holder) return {"catalog", Severity::kOk, path + " is free", "", 0};
  const std::string who = *holder > 0 ? fmt::format(" (pid {})", *holder) : "";
  return Refuse("catalog",
                "session catalog: " + path + ": is in use, by another kairosd perhaps" + who,
                "end that one, or give this one a --catalog-path of its own");
}

}  // namespace kairos
