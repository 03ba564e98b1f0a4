// SPDX-License-Identifier: Apache-2.0
// Any bytes as any request record: a refusal, or a Request that keeps what request.h promises.
#include <cmath>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "sidecar/ingress/request_reader.h"

namespace kairos {
namespace {

void CheckTurn(const TurnRequest& turn) {
  KAIROS_CHECK(turn.messages.empty() != turn.tokens.empty());
  KAIROS_CHECK(turn.messages.size() <= kMessagesMax && turn.tokens.size() <= kTokensMax);
  for (const ChatMessage& message : turn.messages) {
    KAIROS_CHECK(IsUtf8(message.role) && IsUtf8(message.content) && IsUtf8(message.name));
    KAIROS_CHECK(IsUtf8(message.tool_call_id) && IsUtf8(message.tool_calls_json));
  }
  for (const TokenId token : turn.tokens) KAIROS_CHECK(token >= 0);
  KAIROS_CHECK(turn.priority >= -kPriorityMax && turn.priority <= kPriorityMax);
  const SamplingParams& sampling = turn.sampling;
  for (const float value : {sampling.temperature, sampling.top_p, sampling.min_p,
                            sampling.repetition_penalty, sampling.presence_penalty}) {
    KAIROS_CHECK(std::isfinite(value));
  }
  KAIROS_CHECK(sampling.top_p > 0 && sampling.repetition_penalty > 0 && sampling.temperature >= 0);
  KAIROS_CHECK(sampling.stops.size() <= kStopsMax && sampling.biases.size() <= kBiasesMax);
  for (const std::string& stop : sampling.stops) {
    KAIROS_CHECK(!stop.empty() && stop.size() <= kStopBytesMax);
  }
  for (const auto& [token, bias] : sampling.biases) KAIROS_CHECK(token >= 0 && !std::isnan(bias));
}

}  // namespace
}  // namespace kairos

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kairos;
  if (size == 0) return 0;
  const uint16_t span = kRequestTypes.last - kRequestTypes.first + 1;
  const auto type = static_cast<RecordType>(kRequestTypes.first + data[0] % span);
  Request request;
  request.received_ns = 1;
  const auto payload = std::as_bytes(std::span(data + 1, size - 1));
  const Status status = ReadRequest(type, payload, RequestLimits{}, &request);
  if (!status.ok()) {
    KAIROS_CHECK(status.code() == Code::kInvalidArgument && status.message()[0] != 0);
    return 0;
  }
  KAIROS_CHECK(IsUtf8(request.label) && IsUtf8(request.json));
  if (request.turn) CheckTurn(*request.turn);
  return 0;
}
