/* SPDX-License-Identifier: Apache-2.0
 *
 * What the examples share: options, errors, and running one turn to its end. Every failure prints
 * what the library says and exits with 1; a program with more to lose would return the code.
 */
#pragma once

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kairos/kairos.h>

/* A whole reply. Text beyond the array is shown but not kept. */
typedef struct reply {
  kairos_final_t final;
  size_t text_size;
  char text[16384];       /* terminated */
  char tool_call[4096];   /* JSON of the first tool call event, or empty */
} reply_t;

static inline void fail(const char* what) {
  char text[512];
  kairos_last_error(text, sizeof(text));
  fprintf(stderr, "%s: %s (detail %d)\n", what, text, (int)kairos_last_detail());
  exit(1);
}

static inline kairos_string_t str(const char* text) {
  kairos_string_t view = {text, strlen(text)};
  return view;
}

static inline kairos_message_t message(const char* role, const char* content) {
  kairos_message_t out;
  kairos_message_init(&out);
  out.role = str(role);
  out.content = str(content);
  return out;
}

/* `--socket PATH` is the only option; without it the library finds the sidecar itself. */
static inline kairos_client_t* open_client(int argc, char** argv) {
  kairos_client_options_t options;
  kairos_client_options_init(&options);
  if (argc == 3 && strcmp(argv[1], "--socket") == 0) {
    options.socket_path = str(argv[2]);
  } else if (argc != 1) {
    fprintf(stderr, "usage: %s [--socket PATH]\n", argv[0]);
    exit(2);
  }
  kairos_client_t* client = NULL;
  if (kairos_client_open(&options, &client) != 0) fail("open");
  return client;
}

static inline uint64_t create_session(kairos_client_t* client, const char* label) {
  kairos_session_options_t options;
  kairos_session_options_init(&options);
  options.label = str(label);
  uint64_t session = 0;
  if (kairos_session_create(client, &options, &session, 10000) != 0) fail("session create");
  return session;
}

static inline void delete_session(kairos_client_t* client, uint64_t session) {
  if (kairos_session_delete(client, session, 10000) != 0) fail("session delete");
}

static inline void keep_text(reply_t* reply, kairos_string_t text) {
  const size_t room = sizeof(reply->text) - 1 - reply->text_size;
  const size_t size = text.size < room ? (size_t)text.size : room;
  memcpy(reply->text + reply->text_size, text.data, size);
  reply->text_size += size;
  reply->text[reply->text_size] = '\0';
}

/* Takes one event into the reply and shows its text; 1 when it was the turn's last. */
static inline int take_event(const kairos_event_t* event, reply_t* reply) {
  const kairos_string_t text = kairos_event_text(event);
  switch (kairos_event_type(event)) {
    case KAIROS_EVENT_TEXT:
      fwrite(text.data, 1, (size_t)text.size, stdout);
      fflush(stdout);
      keep_text(reply, text);
      return 0;
    case KAIROS_EVENT_TOOL_CALL:
      if (reply->tool_call[0] == '\0') {
        snprintf(reply->tool_call, sizeof(reply->tool_call), "%.*s", (int)text.size, text.data);
      }
      return 0;
    case KAIROS_EVENT_FINAL:
      reply->final.struct_size = sizeof(reply->final);
      if (kairos_event_final(event, &reply->final) != 0) fail("final");
      return 1;
    case KAIROS_EVENT_ERROR:
      fprintf(stderr, "turn failed: %s: %.*s (detail %d)\n",
              kairos_strerror(kairos_event_code(event)), (int)text.size, text.data,
              (int)kairos_event_detail(event));
      exit(1);
    default:
      return 0;
  }
}

static inline void print_numbers(const kairos_final_t* numbers) {
  printf("\n  [session %016" PRIx64 " version %" PRIu64 ": %" PRIu64 " new, %" PRIu64
         " reused (%" PRIu64 " shared with other sessions), %" PRIu64 " recomputed, %" PRIu64
         " generated; first token after %.1f ms, all %.1f ms]\n",
         numbers->session_id, numbers->version, numbers->new_tokens, numbers->reused_tokens,
         numbers->shared_tokens, numbers->recomputed_tokens, numbers->generated_tokens,
         (double)numbers->ttft_ns / 1e6, (double)numbers->total_ns / 1e6);
}

/* Runs a turn to its end, streaming its text to standard output. Only one turn may be open. */
static inline void run_turn(kairos_client_t* client, const kairos_turn_options_t* options,
                            reply_t* reply) {
  memset(reply, 0, sizeof(*reply));
  uint64_t request = 0;
  if (kairos_turn_submit(client, options, &request) != 0) fail("submit");
  for (int last = 0; !last;) {
    kairos_event_t* event = NULL;
    const int32_t got = kairos_event_next(client, 120000, &event);
    if (got < 0) fail("event");
    if (got == 0) {
      fprintf(stderr, "no event in two minutes\n");
      exit(1);
    }
    last = take_event(event, reply);
    kairos_event_release(event);
  }
  print_numbers(&reply->final);
}

/* A user's message in a session, with a short greedy answer. */
static inline void ask(kairos_client_t* client, uint64_t session, const char* question,
                       reply_t* reply) {
  kairos_message_t user = message("user", question);
  kairos_generation_t generation;
  kairos_generation_init(&generation);
  generation.max_tokens = 48;
  kairos_turn_options_t options;
  kairos_turn_options_init(&options);
  options.session_id = session;
  options.messages = &user;
  options.message_count = 1;
  options.generation = &generation;
  printf("> %s\n", question);
  run_turn(client, &options, reply);
}
