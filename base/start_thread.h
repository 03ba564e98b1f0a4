// SPDX-License-Identifier: Apache-2.0
// Threads where the system may refuse one: std::thread throws then, and what is built without
// exceptions would end. Any thread; does not block for long.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>

#include "base/status.h"

namespace kairos {

// *out runs `work` and is to be joined, as any std::thread. RESOURCE_EXHAUSTED with errno as detail
// where the system refuses a thread, or its stack; *out is as it was then.
[[nodiscard]] Status StartThread(std::function<void()> work, std::thread* out);

// Whether `count` more threads can be had at once, for libraries that end the process where they
// are refused one. Starts them and waits for their end. RESOURCE_EXHAUSTED.
[[nodiscard]] Status TryThreads(uint32_t count);

}  // namespace kairos
