// SPDX-License-Identifier: Apache-2.0
//
// Two turns of one session. The second sends only what is new: the sidecar still has the first, and
// the numbers show how many tokens it did not have to compute again.
#include "examples/cpp/show.h"

int main(int argc, char** argv) {
  return RunExample(argc, argv, [](kairos::Client& client) {
    kairos::Session session = CreateSession(client, "hello");
    Show(session.Submit(Question("Name three rivers of Europe.")));
    Show(session.Submit(Question("Which of them is the longest?")));
    session.Delete();
    return 0;
  });
}
