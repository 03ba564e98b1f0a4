/* SPDX-License-Identifier: Apache-2.0
 *
 * One beginning, two ends: a fork shares everything up to the fork, and neither session sees what
 * the other says later. A rewind undoes a turn.
 */
#include "examples/c/turn.h"

static uint64_t version_of(kairos_client_t* client, uint64_t session) {
  kairos_session_t record;
  memset(&record, 0, sizeof(record));
  record.struct_size = sizeof(record);
  if (kairos_session_stat(client, session, &record, 10000) != 0) fail("stat");
  return record.version;
}

int main(int argc, char** argv) {
  kairos_client_t* client = open_client(argc, argv);
  const uint64_t session = create_session(client, "plan");

  static reply_t reply;
  ask(client, session, "I have two free days in Lisbon. Suggest a plan in one sentence.", &reply);
  const uint64_t base = version_of(client, session);

  uint64_t fork = 0;
  if (kairos_session_fork(client, session, base, &fork, 10000) != 0) fail("fork");
  ask(client, session, "I like museums. Change the plan.", &reply);
  ask(client, fork, "I like the sea. Change the plan.", &reply);
  printf("  [the fork reused %" PRIu64 " tokens]\n", reply.final.reused_tokens);

  if (kairos_session_rewind(client, session, base, 10000) != 0) fail("rewind");
  printf("  [the first session is back at version %" PRIu64 "]\n", version_of(client, session));

  delete_session(client, fork);
  delete_session(client, session);
  kairos_client_close(client);
  return 0;
}
