// SPDX-License-Identifier: Apache-2.0
// The edge of the library: finds the client of a handle, and turns what went wrong, exceptions
// included, into a negative code and this thread's last error.
#pragma once

#include <new>

#include "base/status.h"
#include "capi/client.h"
#include "capi/error.h"
#include "capi/handle_table.h"

namespace kairos {

// Runs `body`, which returns the call's result.
template <typename Body>
auto Fenced(Body body) noexcept -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Fail(Status(Code::kResourceExhausted, "out of memory in this process"));
  } catch (...) {
    return Fail(Status(Code::kInternal, "unexpected failure inside the library"));
  }
}

// Runs `body(Client&)` where the handle is open and belongs to this process.
template <typename Body>
auto WithClient(kairos_client_t* handle, Body body) noexcept
    -> decltype(body(std::declval<Client&>())) {
  if (handle == nullptr) return Fail(Status(Code::kInvalidArgument, "client: null pointer"));
  const ClientRef reference(handle);
  if (reference.get() == nullptr) {
    return Fail(Status(Code::kInvalidArgument, "client: not an open client"));
  }
  Client& client = *reference.get();
  if (const Status process = client.CheckProcess(); !process.ok()) return Fail(process);
  return Fenced([&] { return body(client); });
}

inline int32_t InvalidArgument(const char* message) {
  return Fail(Status(Code::kInvalidArgument, message));
}

}  // namespace kairos
