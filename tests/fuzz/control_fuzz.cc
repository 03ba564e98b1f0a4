// SPDX-License-Identifier: Apache-2.0
// Any bytes as the bodies of the control socket: what is accepted can be written again, and
// nothing is allocated beyond what the bytes can hold.
#include <cstdlib>

#include "sidecar/control/control_messages.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  kairos::ControlRequest request;
  if (kairos::DecodeRequest(bytes, &request).ok() && kairos::EncodeRequest(request).size() > size) {
    std::abort();
  }
  kairos::ControlReply reply;
  if (kairos::DecodeReply(bytes, &reply).ok() && !kairos::EncodeReply(reply).ok()) std::abort();
  kairos::ControlEnvelope envelope;
  const kairos::Status status = kairos::DecodeEnvelope(bytes.substr(0, 32), bytes, &envelope);
  static_cast<void>(status);
  uint32_t uid = 0;
  kairos::ParsePeerUid(bytes, &uid);
  return 0;
}
