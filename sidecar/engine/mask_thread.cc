// SPDX-License-Identifier: Apache-2.0
#include "sidecar/engine/mask_thread.h"

#include <sys/prctl.h>

#include "base/start_thread.h"

namespace kairos {

MaskThread::MaskThread() { started_ = StartThread([this] { Run(); }, &thread_); }

MaskThread::~MaskThread() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  begun_.notify_one();
  thread_.join();
}

void MaskThread::Begin(std::span<MaskJob> jobs) {
  if (jobs.empty()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    jobs_ = jobs;
  }
  begun_.notify_one();
}

void MaskThread::Wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  ended_.wait(lock, [this] { return jobs_.empty(); });
}

void MaskThread::Run() {
  prctl(PR_SET_NAME, "kairos-mask");
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    begun_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    const std::span<MaskJob> jobs = jobs_;
    lock.unlock();
    for (MaskJob& job : jobs) job.done = job.constraint->ComputeMask(job.mask, job.tokens_left);
    lock.lock();
    jobs_ = {};
    ended_.notify_one();
  }
}

}  // namespace kairos
