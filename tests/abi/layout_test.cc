// SPDX-License-Identifier: Apache-2.0
// kairos.h as C++ sees it, its frozen numbers, and the segment layout's hash.
#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>

#include "kairos/kairos.h"
#include "shm/layout.h"

namespace kairos {
namespace {

#define SIZE(type, size)                                              \
  static_assert(sizeof(type) == (size), #type " changed its size");   \
  static_assert(std::is_standard_layout_v<type> && std::is_trivially_copyable_v<type>);
#define FIELD(type, field, offset, size)                                        \
  static_assert(offsetof(type, field) == (offset), #type "." #field " moved");  \
  static_assert(sizeof(type::field) == (size), #type "." #field " changed");
#include "tests/abi/layout_v1.inc"
#undef SIZE
#undef FIELD

struct Frozen {
  const char* name;
  int64_t value;
  int64_t frozen;
};
#define FROZEN(name, value) {#name, name, value}

TEST(AbiNumbers, AreFrozen) {
  const Frozen numbers[] = {
      FROZEN(KAIROS_OK, 0), FROZEN(KAIROS_CANCELLED, 1), FROZEN(KAIROS_INVALID_ARGUMENT, 3),
      FROZEN(KAIROS_DEADLINE_EXCEEDED, 4), FROZEN(KAIROS_NOT_FOUND, 5),
      FROZEN(KAIROS_ALREADY_EXISTS, 6), FROZEN(KAIROS_RESOURCE_EXHAUSTED, 8),
      FROZEN(KAIROS_FAILED_PRECONDITION, 9), FROZEN(KAIROS_ABORTED, 10),
      FROZEN(KAIROS_UNIMPLEMENTED, 12), FROZEN(KAIROS_INTERNAL, 13), FROZEN(KAIROS_UNAVAILABLE, 14),
      FROZEN(KAIROS_DATA_LOSS, 15), FROZEN(KAIROS_DETAIL_FORKED, 1),
      FROZEN(KAIROS_DETAIL_RING_FULL, 2), FROZEN(KAIROS_DETAIL_SIDECAR_LOST, 3),
      FROZEN(KAIROS_DETAIL_SLOW_CONSUMER, 4), FROZEN(KAIROS_DETAIL_STALE_VERSION, 5),
      FROZEN(KAIROS_DETAIL_CONTEXT_FULL, 6), FROZEN(KAIROS_DETAIL_DRAINING, 7),
      FROZEN(KAIROS_DETAIL_RECORD_TOO_LARGE, 8), FROZEN(KAIROS_DETAIL_OTHER_MODEL, 9),
      FROZEN(KAIROS_DETAIL_QUOTA, 10), FROZEN(KAIROS_DETAIL_BAD_UTF8, 11),
      FROZEN(KAIROS_DETAIL_STORAGE, 12), FROZEN(KAIROS_DETAIL_PROTOCOL, 13),
      FROZEN(KAIROS_DETAIL_KV_FULL, 14), FROZEN(KAIROS_DETAIL_TEMPLATE, 15),
      FROZEN(KAIROS_DETAIL_CALL_MALFORMED, 16), FROZEN(KAIROS_DETAIL_CALL_NO_NAME, 17),
      FROZEN(KAIROS_DETAIL_CALL_NO_ARGUMENTS, 18), FROZEN(KAIROS_DETAIL_CALL_TOO_DEEP, 19),
      FROZEN(KAIROS_DETAIL_CALL_UNFINISHED, 20), FROZEN(KAIROS_DETAIL_CALL_UNKNOWN_TOOL, 21),
      FROZEN(KAIROS_DETAIL_CALL_TOO_LARGE, 22), FROZEN(KAIROS_DETAIL_GRAMMAR, 23),
      FROZEN(KAIROS_DETAIL_SKIPPED, 24), FROZEN(KAIROS_WATCH_SESSIONS, 1),
      FROZEN(KAIROS_EVENT_ACCEPTED, 1), FROZEN(KAIROS_EVENT_TEXT, 2),
      FROZEN(KAIROS_EVENT_TOOL_CALL, 3), FROZEN(KAIROS_EVENT_LOGPROBS, 4),
      FROZEN(KAIROS_EVENT_FINAL, 5), FROZEN(KAIROS_EVENT_ERROR, 6), FROZEN(KAIROS_EVENT_REPLY, 7),
      FROZEN(KAIROS_EVENT_REASONING, 8), FROZEN(KAIROS_EVENT_SESSION, 9),
      FROZEN(KAIROS_PLAN_FULL_COMPUTE, 1), FROZEN(KAIROS_PLAN_CONTINUATION, 2),
      FROZEN(KAIROS_PLAN_LIGHTWEIGHT_REFINE, 3), FROZEN(KAIROS_FINISH_STOP, 1),
      FROZEN(KAIROS_FINISH_LENGTH, 2), FROZEN(KAIROS_FINISH_STRING, 3),
      FROZEN(KAIROS_FINISH_TOOL_CALL, 4), FROZEN(KAIROS_FINISH_CANCELLED, 5),
      FROZEN(KAIROS_FINISH_DEADLINE, 6), FROZEN(KAIROS_FINISH_NONE, 7),
      FROZEN(KAIROS_TURN_WHOLE_HISTORY, 1), FROZEN(KAIROS_TURN_NO_GENERATE, 2),
      FROZEN(KAIROS_TURN_NO_REUSE, 4), FROZEN(KAIROS_AUTO_TEMPERATURE, 1),
      FROZEN(KAIROS_AUTO_MAX_TOKENS, 2), FROZEN(KAIROS_AUTO_CONTEXT, 4),
      FROZEN(KAIROS_DEFAULT_TEMPERATURE, 32), FROZEN(KAIROS_DEFAULT_TOP_P, 64),
      FROZEN(KAIROS_DEFAULT_TOP_K, 128),
      FROZEN(KAIROS_IGNORE_EOS, 8), FROZEN(KAIROS_LOGITS_HASH, 16), FROZEN(KAIROS_VERSION_ANY, -1),
      FROZEN(KAIROS_PHASE_IDLE, 0), FROZEN(KAIROS_PHASE_RUNNING, 1),
      FROZEN(KAIROS_PHASE_WAITING_TOOL, 2), FROZEN(KAIROS_PHASE_WAITING_USER, 3),
      FROZEN(KAIROS_PHASE_CLOSED, 4), FROZEN(KAIROS_REASON_CHECKSUM, 7),
      FROZEN(KAIROS_REASON_OTHER_FORMAT, 8), FROZEN(KAIROS_STAGE_COMMIT, 8),
  };
  for (const Frozen& number : numbers) EXPECT_EQ(number.value, number.frozen) << number.name;
}

TEST(AbiLayoutHash, IsThatOfTheSegmentLayout) {
  EXPECT_EQ(kairos_layout_hash(), LayoutHash());
  // Layout major 1. Another number means that libraries and sidecars already built refuse each
  // other.
  EXPECT_EQ(LayoutHash(), 0x2b63273c6edd6961u);
}

TEST(AbiVersion, OfLibraryAndHeaderAgree) { EXPECT_EQ(kairos_abi_version(), KAIROS_ABI_VERSION); }

}  // namespace
}  // namespace kairos
