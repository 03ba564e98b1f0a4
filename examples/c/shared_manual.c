/* SPDX-License-Identifier: Apache-2.0
 *
 * Two agents with the same product manual in front. The second finds the manual's blocks computed
 * by the first: "shared" counts the tokens that it took from there.
 */
#include "examples/c/turn.h"

static const char kManual[] =
    "You answer questions about the Larch 4 coffee machine from this manual.\n"
    "1. Before first use rinse the tank and run two cups of plain water through the machine.\n"
    "2. The tank holds 1.2 litres. Fill it to the upper line and no further.\n"
    "3. Press the left button once for a small cup of 60 ml, twice for a large cup of 120 ml.\n"
    "4. A steady green light means ready, a blinking green light means heating up, a red light "
    "means that the tank is empty or missing.\n"
    "5. Empty the drip tray when the red float shows. Wash it by hand, not in a dishwasher.\n"
    "6. Descale after 300 cups or when the yellow light comes on: put 100 ml of descaler and one "
    "litre of water into the tank, hold both buttons for five seconds, and wait 25 minutes. Then "
    "rinse with two full tanks of water.\n"
    "7. The machine switches itself off after nine minutes. Hold the right button for three "
    "seconds to change that to thirty minutes.\n"
    "8. Do not move the machine while it is hot. Do not open the lid while it brews.\n"
    "9. The guarantee is two years. Keep the receipt and the serial number under the tank.\n";

static void ask_with_manual(kairos_client_t* client, uint64_t session, const char* question,
                            reply_t* reply) {
  kairos_message_t messages[2] = {message("system", kManual), message("user", question)};
  kairos_generation_t generation;
  kairos_generation_init(&generation);
  generation.max_tokens = 40;
  kairos_turn_options_t options;
  kairos_turn_options_init(&options);
  options.session_id = session;
  options.messages = messages;
  options.message_count = 2;
  options.generation = &generation;
  printf("> %s\n", question);
  run_turn(client, &options, reply);
}

int main(int argc, char** argv) {
  kairos_client_t* client = open_client(argc, argv);
  const uint64_t first = create_session(client, "support one");
  const uint64_t second = create_session(client, "support two");

  static reply_t reply;
  ask_with_manual(client, first, "How do I descale the machine?", &reply);
  ask_with_manual(client, second, "What does a red light mean?", &reply);
  const uint64_t shared = reply.final.shared_tokens;
  printf("  [the second agent took %" PRIu64 " tokens of the manual from the first]\n", shared);

  delete_session(client, first);
  delete_session(client, second);
  kairos_client_close(client);
  if (shared == 0) {
    fprintf(stderr, "nothing was shared\n");
    return 1;
  }
  return 0;
}
