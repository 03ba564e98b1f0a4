// SPDX-License-Identifier: Apache-2.0
//
// One beginning, two ends: a fork shares everything up to the fork, and neither session sees what
// the other says later. A rewind undoes a turn.
#include "examples/cpp/show.h"

int main(int argc, char** argv) {
  return RunExample(argc, argv, [](kairos::Client& client) {
    kairos::Session session = CreateSession(client, "plan");
    Show(session.Submit(
        Question("I have two free days in Lisbon. Suggest a plan in one sentence.")));
    const uint64_t base = session.Stat().version;

    kairos::Session fork = session.Fork(base);
    Show(session.Submit(Question("I like museums. Change the plan.")));
    const kairos_final_t figures = Show(fork.Submit(Question("I like the sea. Change the plan.")));
    std::printf("  [the fork reused %" PRIu64 " tokens]\n", figures.reused_tokens);

    session.Rewind(base);
    std::printf("  [the first session is back at version %" PRIu64 "]\n", session.Stat().version);
    fork.Delete();
    session.Delete();
    return 0;
  });
}
