/* SPDX-License-Identifier: Apache-2.0
 *
 * Stops a long answer after a few pieces of text. The text so far is kept, and the session goes on.
 */
#include "examples/c/turn.h"

static uint64_t submit_long_turn(kairos_client_t* client, uint64_t session) {
  const char* question = "Tell me everything about the history of bridges.";
  kairos_message_t user = message("user", question);
  kairos_generation_t generation;
  kairos_generation_init(&generation);
  generation.max_tokens = 1500;
  generation.flags = KAIROS_IGNORE_EOS;
  kairos_turn_options_t options;
  kairos_turn_options_init(&options);
  options.session_id = session;
  options.messages = &user;
  options.message_count = 1;
  options.generation = &generation;
  uint64_t request = 0;
  if (kairos_turn_submit(client, &options, &request) != 0) fail("submit");
  printf("> %s\n", question);
  return request;
}

int main(int argc, char** argv) {
  kairos_client_t* client = open_client(argc, argv);
  const uint64_t session = create_session(client, "bridges");
  const uint64_t request = submit_long_turn(client, session);

  static reply_t reply;
  int pieces = 0;
  for (int last = 0; !last;) {
    kairos_event_t* event = NULL;
    const int32_t got = kairos_event_next(client, 120000, &event);
    if (got <= 0) fail("event");
    if (kairos_event_type(event) == KAIROS_EVENT_TEXT && ++pieces == 10) {
      if (kairos_turn_cancel(client, request) != 0) fail("cancel");
    }
    last = take_event(event, &reply);
    kairos_event_release(event);
  }
  print_numbers(&reply.final);
  if (reply.final.finish != KAIROS_FINISH_CANCELLED) {
    fprintf(stderr, "the turn was not cancelled\n");
    return 1;
  }

  ask(client, session, "In one word: what was that about?", &reply);
  delete_session(client, session);
  kairos_client_close(client);
  return 0;
}
