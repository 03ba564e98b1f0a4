// SPDX-License-Identifier: Apache-2.0
// From the private copy of one ring message to a checked Request, or to a refusal that names the
// field and its limit. Everything the conductor may rely on without looking again is checked here:
// ranges, finite numbers, UTF-8, counts. No state; ingress thread (and fuzz targets).
#pragma once

#include <string_view>

#include "base/status.h"
#include "shm/records.h"
#include "sidecar/ingress/request.h"

namespace kairos {

// Limits beyond those of the wire (shm/records.h).
struct RequestLimits {
  uint32_t max_tokens_max = 1u << 20;
  uint64_t ttl_seconds_max = 100ull * 366 * 24 * 3600;
};

// Fills kind and the fields of `type` in *request; attachment, id, received_ns and uid are the
// caller's, and received_ns is read for the deadline. A refusal with KAIROS_DETAIL_PROTOCOL means
// that the bytes are no record of that type at all. kPing is not a request.
[[nodiscard]] Status ReadRequest(RecordType type, PayloadView payload, const RequestLimits& limits,
                                 Request* request);

// RFC 3629: shortest form only, no surrogates, nothing above U+10FFFF.
bool IsUtf8(std::string_view text);

}  // namespace kairos
