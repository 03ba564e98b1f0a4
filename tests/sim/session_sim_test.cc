// SPDX-License-Identifier: Apache-2.0
// What is done to a session between its turns and beside them, through the real conductor.
#include "tests/sim/sidecar_sim.h"

namespace kairos {
namespace {

ChatMessage User(std::string content) { return {"user", std::move(content), "", "", ""}; }

Request ContextWrite(SessionId session, std::string json, int64_t if_version = -1) {
  Request request = SidecarSim::Operation(RequestKind::kContextWrite, session);
  request.json = std::move(json);
  request.if_version = if_version;
  return request;
}

TEST(SessionSim, ATaskContextWrittenBeforeTheFirstTurnSurvivesIt) {
  SidecarSim sim;
  const SessionId session = sim.Create();
  const std::string written = R"({"goal":"Book a hotel","facts":[{"text":"vegetarian"}]})";
  ASSERT_EQ(sim.Run(ContextWrite(session, written)).last()->version, 1u);

  ASSERT_TRUE(sim.Play(session, {User("Hi. See /etc/hosts")}).final());

  const std::string context =
      sim.Run(SidecarSim::Operation(RequestKind::kContextRead, session)).last()->text;
  EXPECT_NE(context.find(R"("goal":"Book a hotel")"), std::string::npos) << context;
  EXPECT_NE(context.find("vegetarian"), std::string::npos) << context;
}

}  // namespace
}  // namespace kairos
