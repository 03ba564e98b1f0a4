// SPDX-License-Identifier: Apache-2.0
// Which client handles are open. A kairos_client_t* is a number, never an address that is read:
// slot and generation of this table. Numbers are not used again, so a handle that was closed,
// closed twice or made up is recognised instead of touching freed memory.
//
// A slot is one 64-bit word: generation << 24 | open << 23 | references. No lock: a forked child
// must not find one held by a thread that it does not have.
#pragma once

#include <cstdint>

#include "kairos/kairos.h"

namespace kairos {

class Client;

inline constexpr uint32_t kClientsMax = 1024;  // of one process

// Takes ownership of `client`; null when the table is full, the client is then still the caller's.
kairos_client_t* RegisterClient(Client* client) noexcept;

// A reference that keeps the client alive for one call. `client` is null where the handle is not
// open.
class ClientRef {
 public:
  explicit ClientRef(kairos_client_t* handle) noexcept;
  ~ClientRef();
  ClientRef(const ClientRef&) = delete;
  ClientRef& operator=(const ClientRef&) = delete;

  Client* get() const { return client_; }

 private:
  friend bool CloseHandle(kairos_client_t* handle) noexcept;
  uint32_t slot_ = 0;
  Client* client_ = nullptr;
};

// Ends a handle: no new reference is given out, calls that run are told, and the client is
// destroyed with the last of them. False where the handle was not open.
bool CloseHandle(kairos_client_t* handle) noexcept;

}  // namespace kairos
