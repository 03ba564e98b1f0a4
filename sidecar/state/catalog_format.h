// SPDX-License-Identifier: Apache-2.0
// Whose file a catalog is and of which format: asked when it is opened, and beforehand by who only
// wants to know whether it could be. docs/STATE_FORMAT.md describes the tables.
#pragma once

#include <string>

#include "base/status.h"
#include "sidecar/state/sqlite_database.h"

namespace kairos {

// Makes the tables in a new file; takes those of an older format to this one. FAILED_PRECONDITION
// for a file of another program or of a newer format, DATA_LOSS for a damaged one; then *error says
// what it is. Owner's thread; blocks on disk.
Status OpenCatalogFormat(SqliteDatabase& database, std::string* error);

// Whether OpenCatalogFormat would take the file at `path`, which nobody may have open for writing;
// errors as there. Changes nothing. What a log that is not read in yet (PATH-wal) may still mend is
// no error here. Any thread; blocks on disk.
Status CheckCatalogFormat(const std::string& path, std::string* error);

}  // namespace kairos
