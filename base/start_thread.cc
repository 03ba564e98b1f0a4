// SPDX-License-Identifier: Apache-2.0
#include "base/start_thread.h"

#include <condition_variable>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

namespace kairos {

Status StartThread(std::function<void()> work, std::thread* out) {
  try {
    *out = std::thread(std::move(work));
    return {};
  } catch (const std::system_error& error) {
    return {Code::kResourceExhausted, "the system refuses a thread", error.code().value()};
  }
}

Status TryThreads(uint32_t count) {
  std::mutex mutex;
  std::condition_variable ended;
  bool end = false;
  std::vector<std::thread> threads(count);
  Status status;
  for (std::thread& thread : threads) {
    status = StartThread(
        [&] {
          std::unique_lock<std::mutex> lock(mutex);
          ended.wait(lock, [&] { return end; });
        },
        &thread);
    if (!status.ok()) break;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex);
    end = true;
  }
  ended.notify_all();
  for (std::thread& thread : threads) {
    if (thread.joinable()) thread.join();
  }
  return status;
}

}  // namespace kairos
