/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop of an agent: ask, run the tool that the model calls, give it the result, ask again.
 *
 * The tool is real: a look-up in this program's table. Whether the model calls it depends on the
 * model. A small one often does not; then this program writes the call that a larger model would
 * have made into the dialogue itself, says so, and the rest of the loop is the same.
 */
#include "examples/c/turn.h"

static const char kTools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\","
    "\"description\":\"The weather of a city now\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"city\":{\"type\":\"string\"}},\"required\":[\"city\"]}}}]";

typedef struct weather {
  const char* city;
  const char* report; /* JSON */
} weather_t;

static const weather_t kWeather[] = {
    {"Oslo", "{\"city\":\"Oslo\",\"celsius\":-3,\"sky\":\"snow\"}"},
    {"Lisbon", "{\"city\":\"Lisbon\",\"celsius\":18,\"sky\":\"clear\"}"},
    {"Nairobi", "{\"city\":\"Nairobi\",\"celsius\":24,\"sky\":\"cloudy\"}"},
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

/* The call as an event, or as the model wrote it into its text. */
static int find_call(const reply_t* reply, char* city, size_t capacity) {
  const char* call = reply->tool_call;
  if (*call == '\0') call = strstr(reply->text, "<tool_call>");
  if (call == NULL || strstr(call, "get_weather") == NULL) return 0;
  return json_text(call, "city", city, capacity);
}

static void first_turn(kairos_client_t* client, uint64_t session, reply_t* reply) {
  kairos_message_t messages[2] = {
      message("system", "You help with questions about the weather. Use the tool."),
      message("user", "What is the weather in Oslo?"),
  };
  kairos_generation_t generation;
  kairos_generation_init(&generation);
  generation.max_tokens = 64;
  kairos_turn_options_t options;
  kairos_turn_options_init(&options);
  options.session_id = session;
  options.messages = messages;
  options.message_count = 2;
  options.tools_json = str(kTools);
  options.generation = &generation;
  printf("> What is the weather in Oslo?\n");
  run_turn(client, &options, reply);
}

/* Gives the tool's result back; with `scripted`, after the call that the model did not make. */
static void tool_turn(kairos_client_t* client, uint64_t session, const char* result, int scripted,
                      reply_t* reply) {
  kairos_message_t messages[2] = {message("assistant", ""), message("tool", result)};
  messages[0].tool_calls_json = str(
      "[{\"id\":\"call_1\",\"type\":\"function\",\"function\":{\"name\":\"get_weather\","
      "\"arguments\":\"{\\\"city\\\":\\\"Oslo\\\"}\"}}]");
  messages[1].name = str("get_weather");
  char id[64] = "call_1";
  if (!scripted) json_text(reply->tool_call, "id", id, sizeof(id));
  messages[1].tool_call_id = str(id);
  kairos_generation_t generation;
  kairos_generation_init(&generation);
  generation.max_tokens = 48;
  kairos_turn_options_t options;
  kairos_turn_options_init(&options);
  options.session_id = session;
  options.messages = scripted ? messages : messages + 1;
  options.message_count = scripted ? 2 : 1;
  options.generation = &generation;
  run_turn(client, &options, reply);
}

int main(int argc, char** argv) {
  kairos_client_t* client = open_client(argc, argv);
  const uint64_t session = create_session(client, "weather agent");

  static reply_t reply;
  first_turn(client, session, &reply);
  char city[64] = "Oslo";
  const int called = find_call(&reply, city, sizeof(city));
  printf("  [the model %s]\n", called ? "called the tool"
                                      : "did not call the tool; the call is scripted");
  const char* result = get_weather(city);
  printf("  [get_weather(%s) = %s]\n", city, result);
  tool_turn(client, session, result, !called, &reply);

  delete_session(client, session);
  kairos_client_close(client);
  return 0;
}
