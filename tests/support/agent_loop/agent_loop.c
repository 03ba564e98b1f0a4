/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_loop SOCKET TOOLS.json TEMPERATURE: for each line of stdin a turn that must call one of the
 * tools, then the tool's result and a short answer. Prints each call as it is told, one JSON object
 * a line. An empty line begins a new session. Run by tests/live/agent_loop_test.py.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kairos/kairos.h>

static void fail(const char* what) {
  char text[512];
  kairos_last_error(text, sizeof(text));
  fprintf(stderr, "agent_loop: %s: %s\n", what, text);
  exit(1);
}

static kairos_string_t str(const char* text) {
  kairos_string_t view = {text, strlen(text)};
  return view;
}

/* Runs one turn to its end; prints the calls of it and returns their number. */
static int run(kairos_client_t* client, uint64_t* session, const char* role, const char* content,
               const char* tools, int32_t choice, double temperature, uint64_t seed) {
  kairos_message_t message;
  kairos_message_init(&message);
  message.role = str(role);
  message.content = str(content);
  kairos_generation_t generation;
  kairos_generation_init(&generation);
  generation.max_tokens = choice == KAIROS_TOOL_CHOICE_NONE ? 8 : 160;
  generation.temperature = (float)temperature;
  generation.seed = seed;
  kairos_turn_options_t options;
  kairos_turn_options_init(&options);
  options.session_id = *session;
  options.messages = &message;
  options.message_count = 1;
  options.generation = &generation;
  options.tool_choice = choice;
  options.flags = KAIROS_TURN_ONE_CALL;
  if (*session == 0) options.tools_json = str(tools);
  uint64_t request = 0;
  if (kairos_turn_submit(client, &options, &request) < 0) fail("submit");
  int calls = 0;
  for (;;) {
    kairos_event_t* event = NULL;
    if (kairos_event_next(client, 120000, &event) <= 0) fail("event");
    const int type = kairos_event_type(event);
    const kairos_string_t text = kairos_event_text(event);
    if (type == KAIROS_EVENT_TOOL_CALL) {
      printf("%.*s\n", (int)text.size, text.data);
      ++calls;
    }
    if (type == KAIROS_EVENT_ERROR) {
      fprintf(stderr, "agent_loop: %.*s\n", (int)text.size, text.data);
      exit(1);
    }
    *session = kairos_event_session(event);
    kairos_event_release(event);
    if (type == KAIROS_EVENT_FINAL) return calls;
  }
}

static char* read_file(const char* path) {
  FILE* file = fopen(path, "rb");
  if (file == NULL) {
    perror(path);
    exit(1);
  }
  char* text = calloc(1, 1 << 20);
  if (text == NULL || fread(text, 1, (1 << 20) - 1, file) == 0) exit(1);
  fclose(file);
  return text;
}

int main(int argc, char** argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: agent_loop SOCKET TOOLS.json TEMPERATURE < LINES\n");
    return 2;
  }
  char* tools = read_file(argv[2]);
  const double temperature = atof(argv[3]);
  kairos_client_options_t options;
  kairos_client_options_init(&options);
  options.socket_path = str(argv[1]);
  kairos_client_t* client = NULL;
  if (kairos_client_open(&options, &client) < 0) fail("open");
  uint64_t session = 0;
  uint64_t seed = 0;
  char line[8192];
  while (fgets(line, sizeof(line), stdin) != NULL) {
    line[strcspn(line, "\n")] = '\0';
    if (line[0] == '\0') {
      session = 0;
      continue;
    }
    if (run(client, &session, "user", line, tools, KAIROS_TOOL_CHOICE_REQUIRED, temperature,
            ++seed) != 1) {
      fprintf(stderr, "agent_loop: a turn without its call\n");
      return 1;
    }
    run(client, &session, "tool", "{\"ok\": true}", tools, KAIROS_TOOL_CHOICE_NONE, temperature,
        seed);
  }
  kairos_client_close(client);
  free(tools);
  return 0;
}
