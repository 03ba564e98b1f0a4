/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop of an agent: ask, run the tool that the model calls, give it the result, ask again.
 *
 * The tool is real: a look-up in this program's table. The first turn must call it, so that also a
 * small model does; its arguments match the tool's schema. The second must not, so that it answers.
 */
#include "examples/c/turn.h"

static const char kTools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\","
    "\"description\":\"The weather of a city now\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"city\":{\"enum\":[\"Oslo\",\"Lisbon\",\"Nairobi\"]}},"
    "\"required\":[\"city\"]}}}]";

typedef struct weather {
  const char* city;
  const char* report; /* JSON */
} weather_t;

static const weather_t kWeather[] = {
    {"Oslo", "{\"city\": \"Oslo\", \"celsius\": -3, \"sky\": \"snow\"}"},
    {"Lisbon", "{\"city\": \"Lisbon\", \"celsius\": 18, \"sky\": \"clear\"}"},
    {"Nairobi", "{\"city\": \"Nairobi\", \"celsius\": 24, \"sky\": \"cloudy\"}"},
};

static const char* get_weather(const char* city) {
  for (size_t i = 0; i < sizeof(kWeather) / sizeof(kWeather[0]); ++i) {
    if (strcmp(kWeather[i].city, city) == 0) return kWeather[i].report;
  }
  return "{\"error\":\"unknown city\"}";
}

/* Copies the text value of `key` out of JSON; enough for this tool's two fields. 1 when found. */
static int json_text(const char* json, const char* key, char* out, size_t capacity) {
  char quoted[64];
  snprintf(quoted, sizeof(quoted), "\"%s\"", key);
  const char* at = strstr(json, quoted);
  if (at == NULL) return 0;
  at += strlen(quoted);
  at += strspn(at, " :\\");
  if (*at != '"') return 0;
  ++at;
  const size_t size = strcspn(at, "\"\\");
  if (size == 0 || size >= capacity) return 0;
  memcpy(out, at, size);
  out[size] = '\0';
  return 1;
}

static void first_turn(kairos_client_t* client, uint64_t session, reply_t* reply) {
  kairos_message_t messages[2] = {
      message("system", "You help with questions about the weather. Use the tool."),
      message("user", "What is the weather in Oslo?"),
  };
  kairos_generation_t generation;
  kairos_generation_init(&generation);
  /* A call takes some 32. When few are left, the shortest way to close it decides, no more the
   * model, and that might name another city. */
  generation.max_tokens = 128;
  kairos_turn_options_t options;
  kairos_turn_options_init(&options);
  options.session_id = session;
  options.messages = messages;
  options.message_count = 2;
  options.tools_json = str(kTools);
  options.tool_choice = KAIROS_TOOL_CHOICE_REQUIRED;
  options.flags = KAIROS_TURN_ONE_CALL;
  options.generation = &generation;
  printf("> What is the weather in Oslo?\n");
  run_turn(client, &options, reply);
}

/* Gives back the result of the call that `reply` brought. */
static void tool_turn(kairos_client_t* client, uint64_t session, const char* result,
                      reply_t* reply) {
  char id[64];
  if (!json_text(reply->tool_call, "id", id, sizeof(id))) exit(1);
  kairos_message_t answer = message("tool", result);
  answer.name = str("get_weather");
  answer.tool_call_id = str(id);
  kairos_generation_t generation;
  kairos_generation_init(&generation);
  generation.max_tokens = 48;
  kairos_turn_options_t options;
  kairos_turn_options_init(&options);
  options.session_id = session;
  options.messages = &answer;
  options.message_count = 1;
  options.tool_choice = KAIROS_TOOL_CHOICE_NONE;
  options.generation = &generation;
  run_turn(client, &options, reply);
}

int main(int argc, char** argv) {
  kairos_client_t* client = open_client(argc, argv);
  const uint64_t session = create_session(client, "weather agent");

  static reply_t reply;
  first_turn(client, session, &reply);
  char city[64];
  if (!json_text(reply.tool_call, "city", city, sizeof(city))) {
    fprintf(stderr, "no city in the call: %s\n", reply.tool_call);
    return 1;
  }
  const char* result = get_weather(city);
  printf("  [get_weather(%s) = %s]\n", city, result);
  tool_turn(client, session, result, &reply);

  delete_session(client, session);
  kairos_client_close(client);
  return 0;
}
