// SPDX-License-Identifier: Apache-2.0
// The last error of each thread, behind kairos_last_error() and kairos_last_detail().
// Kept in fixed thread-local storage: recording an error never allocates, and a call that succeeds
// leaves the previous error alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace kairos {

// Records the error for this thread and returns the negative code. Text over 511 bytes is cut at a
// character.
int32_t Fail(const Status& status) noexcept;
int32_t Fail(int32_t code, int32_t detail, std::string_view text) noexcept;

int64_t CopyLastError(char* buffer, size_t capacity) noexcept;
int32_t LastDetail() noexcept;

}  // namespace kairos
