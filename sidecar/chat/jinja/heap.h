// SPDX-License-Identifier: Apache-2.0
// What one rendering owns: its objects, its budgets and its first error. Objects live until the
// heap dies, so values are plain pointers and cycles need no care. One thread.
//
// Every part of the interpreter charges its work here before doing it. After the first failure
// everything returns quickly with an undefined value; callers test failed() at loop heads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kairos {

struct JinjaLimits {
  uint64_t steps = 5'000'000;          // nodes evaluated, plus text work at 64 bytes a step
  uint64_t heap_bytes = 64ull << 20;  // everything ever allocated in one rendering
  uint64_t output_bytes = 8ull << 20;
  uint32_t depth = 600;           // nested evaluations, macro calls included
  uint32_t value_depth = 96;      // nested lists and dicts when printed or compared
  int64_t range_items = 100'000;  // the reference sandbox's own limit
};

struct JinjaObject {
  virtual ~JinjaObject() = default;
};

class JinjaHeap {
 public:
  explicit JinjaHeap(const JinjaLimits& limits) : limits_(limits) {}
  JinjaHeap(const JinjaHeap&) = delete;
  JinjaHeap& operator=(const JinjaHeap&) = delete;

  // False when the budget is gone (and the failure is recorded).
  bool Step(uint64_t steps = 1) {
    steps_ += steps;
    if (steps_ <= limits_.steps) return !failed_;
    Fail("ran for more than " + std::to_string(limits_.steps) + " steps");
    return false;
  }
  // Before text of `bytes` is scanned or made.
  bool Work(uint64_t bytes) { return Step(bytes / 64); }
  bool Allocate(uint64_t bytes) {
    if (bytes <= limits_.heap_bytes && heap_bytes_ + bytes <= limits_.heap_bytes) {
      heap_bytes_ += bytes;
      return Step(bytes / 64);
    }
    Fail("used more than " + std::to_string(limits_.heap_bytes) + " bytes of memory");
    return false;
  }
  template <typename T, typename... Args>
  T* New(Args&&... args) {
    Allocate(sizeof(T) + 16);
    auto owned = std::make_unique<T>(std::forward<Args>(args)...);
    T* object = owned.get();
    objects_.push_back(std::move(owned));
    return object;
  }

  // Keeps the first failure only.
  void Fail(std::string reason) {
    if (failed_) return;
    failed_ = true;
    error_ =
        line_ == 0 ? std::move(reason) : "line " + std::to_string(line_) + ": " + std::move(reason);
  }
  bool failed() const { return failed_; }
  const std::string& error() const { return error_; }
  void set_line(uint32_t line) { line_ = line; }
  const JinjaLimits& limits() const { return limits_; }
  uint64_t steps() const { return steps_; }

 private:
  const JinjaLimits limits_;
  uint64_t steps_ = 0;
  uint64_t heap_bytes_ = 0;
  uint32_t line_ = 0;
  bool failed_ = false;
  std::string error_;
  std::vector<std::unique_ptr<JinjaObject>> objects_;
};

}  // namespace kairos
