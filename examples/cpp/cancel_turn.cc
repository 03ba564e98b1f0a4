// SPDX-License-Identifier: Apache-2.0
//
// Stops a long answer after a few pieces of text. The text so far is kept, and the session goes on.
#include "examples/cpp/show.h"

int main(int argc, char** argv) {
  return RunExample(argc, argv, [](kairos::Client& client) {
    kairos::Session session = CreateSession(client, "bridges");
    kairos::TurnOptions options =
        Question("Tell me everything about the history of bridges.", 1500);
    options.generation->flags = KAIROS_IGNORE_EOS;

    kairos::Turn turn = session.Submit(options);
    int pieces = 0;
    for (const kairos::Event& event : turn) {
      ShowText(event);
      if (event.type() == kairos::EventType::kText && ++pieces == 10) turn.Cancel();
    }
    ShowFigures(turn);
    if (turn.final_record().finish != KAIROS_FINISH_CANCELLED) {
      std::fprintf(stderr, "the turn was not cancelled\n");
      return 1;
    }

    Show(session.Submit(Question("In one word: what was that about?")));
    session.Delete();
    return 0;
  });
}
