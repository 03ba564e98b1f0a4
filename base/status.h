// SPDX-License-Identifier: Apache-2.0
// Status and Result: how the world's and the client's faults travel.
// A Status is a code, a static string and one integer detail. It never allocates, because errors
// are most frequent exactly when memory is short. Faults of our own are KAIROS_CHECK
// (base/check.h).
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "base/check.h"
#include "kairos/kairos.h"

namespace kairos {

// Numbers are those of kairos.h and frozen with it.
enum class Code : int32_t {
  kOk = KAIROS_OK,
  kCancelled = KAIROS_CANCELLED,
  kInvalidArgument = KAIROS_INVALID_ARGUMENT,
  kDeadlineExceeded = KAIROS_DEADLINE_EXCEEDED,
  kNotFound = KAIROS_NOT_FOUND,
  kAlreadyExists = KAIROS_ALREADY_EXISTS,
  kResourceExhausted = KAIROS_RESOURCE_EXHAUSTED,
  kFailedPrecondition = KAIROS_FAILED_PRECONDITION,
  kAborted = KAIROS_ABORTED,
  kUnimplemented = KAIROS_UNIMPLEMENTED,
  kInternal = KAIROS_INTERNAL,
  kUnavailable = KAIROS_UNAVAILABLE,
  kDataLoss = KAIROS_DATA_LOSS,
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  // `message` must be a string literal or otherwise outlive every copy. `detail` is errno, an
  // offset, an id, or a KAIROS_DETAIL_* where the Status goes to a client.
  Status(Code code, const char* message, int64_t detail = 0)
      : message_(message), detail_(detail), code_(code) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const char* message() const { return message_; }
  int64_t detail() const { return detail_; }

 private:
  const char* message_ = "";
  int64_t detail_ = 0;
  Code code_ = Code::kOk;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(Status status) : status_(status) { KAIROS_CHECK(!status_.ok()); }  // NOLINT: implicit
  Result(T value) : value_(std::move(value)) {}                             // NOLINT: implicit

  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  T&& Take() { return std::move(*value_); }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace kairos

#define KAIROS_RETURN_IF_ERROR(expression)                   \
  do {                                                       \
    ::kairos::Status kairos_status_ = (expression);          \
    if (!kairos_status_.ok()) return kairos_status_;         \
  } while (false)

#define KAIROS_CONCAT_INNER(a, b) a##b
#define KAIROS_CONCAT(a, b) KAIROS_CONCAT_INNER(a, b)
#define KAIROS_ASSIGN_OR_RETURN(target, expression)                                \
  auto KAIROS_CONCAT(kairos_result_, __LINE__) = (expression);                     \
  if (!KAIROS_CONCAT(kairos_result_, __LINE__).ok())                               \
    return KAIROS_CONCAT(kairos_result_, __LINE__).status();                       \
  target = KAIROS_CONCAT(kairos_result_, __LINE__).Take()
