// SPDX-License-Identifier: Apache-2.0
// The places where kairosd makes files: folder and path of its sockets, and the catalog. Looks and
// changes nothing. Any thread; may block on a file system.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/status.h"
#include "sidecar/preflight/finding.h"

namespace kairos {

// The mode of the folder that kairosd makes for a socket of `socket_mode`: whoever may attach gets
// through.
mode_t SocketFolderMode(mode_t socket_mode);
// The folder of `socket` can be made or written by this user, nobody else can replace what is in
// it, and no folder above the socket shuts out a group that `socket_mode` lets attach.
Finding CheckSocketFolder(const std::string& socket, mode_t socket_mode);
// Nobody listens at `path`, and nothing but a socket is there. One left over is a warning: the next
// start replaces it. `key` is the setting that names the path.
Finding CheckEndpoint(const std::string& key, const std::string& path);
// Whether a kairosd holds the lock of this socket; then `*pid` says which, where that is known.
// A process that runs is no fault here.
Finding CheckInstance(const std::string& socket, std::string* pid);
// The file at `path`, where there is one that can be read, is a catalog of a format that is known.
// One that a kairosd has open is taken to be; what of it CheckCatalogFree says holds here, too.
Finding CheckCatalogFile(const std::string& path);
// Why opening the catalog failed, in the words `error`, and what to do.
Finding CatalogFault(const std::string& path, const Status& status, const std::string& error);
// The same; and the catalog or its folder can be made, read and written, and its disk has room up
// to `bytes_max`.
Finding CheckCatalog(const std::string& path, uint64_t bytes_max);
// Whether no other process has the catalog at `path` open; one that cannot be read counts as free.
// Not for a process that has the catalog open itself: it would lose its own locks.
Finding CheckCatalogFree(const std::string& path);

}  // namespace kairos
