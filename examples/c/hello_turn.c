/* SPDX-License-Identifier: Apache-2.0
 *
 * Two turns of one session. The second sends only what is new: the sidecar still has the first, and
 * the numbers show how many tokens it did not have to compute again.
 */
#include "examples/c/turn.h"

int main(int argc, char** argv) {
  kairos_client_t* client = open_client(argc, argv);
  const uint64_t session = create_session(client, "hello");

  reply_t reply;
  ask(client, session, "Name three rivers of Europe.", &reply);
  ask(client, session, "Which of them is the longest?", &reply);

  delete_session(client, session);
  kairos_client_close(client);
  return 0;
}
