// SPDX-License-Identifier: Apache-2.0
// A tier: a place where whole KV blocks live under their keys, with a byte budget. The device tier
// holds the blocks that sequences run on; tiers below it (host, nvme, remote) will hold copies, and
// pass the same conformance suite (tests/conformance/tier_conformance_test.cc).
// Owner: conductor. Nothing here blocks; a tier that does I/O will answer through its own thread.
//
// 1. A block is found only under its exact key and by its exact tokens; any doubt is a miss.
// 2. bytes_used() never exceeds bytes_total(), not by one block.
// 3. Pinned blocks stay; everything else may go at any time, coldest first.
#pragma once

#include <cstdint>
#include <span>

#include "base/units.h"
#include "sidecar/kv/prefix_index.h"

namespace kairos {

class Tier {
 public:
  virtual ~Tier() = default;

  virtual const char* name() const = 0;  // "device"
  virtual uint64_t bytes_total() const = 0;
  virtual uint64_t bytes_used() const = 0;   // pinned and unpinned blocks, and slots being written
  virtual uint64_t bytes_cached() const = 0; // of these, what MakeRoom could free now

  // Blocks, from the first on, that are here for this chain.
  virtual uint32_t CountMatch(const BlockKey& root, std::span<const TokenId> tokens) const = 0;
  virtual bool Contains(const BlockKey& key) const = 0;
  // Drops the coldest blocks until `bytes` are free. False, with what could be dropped gone, when
  // the rest is in use.
  virtual bool MakeRoom(uint64_t bytes) = 0;
};

}  // namespace kairos
