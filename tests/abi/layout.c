/* SPDX-License-Identifier: Apache-2.0
 *
 * kairos.h as a C11 program sees it: the frozen layout, and one use of every declaration's type, so
 * that a change of signature does not compile. Run, it exits 0 when library and header agree.
 */
#include <stdio.h>
#include <string.h>

#include "kairos/kairos.h"

#define SIZE(type, size) _Static_assert(sizeof(type) == (size), #type " changed its size");
#define FIELD(type, field, offset, size)                                           \
  _Static_assert(offsetof(type, field) == (offset), #type "." #field " moved");    \
  _Static_assert(sizeof(((type*)0)->field) == (size), #type "." #field " changed");
#include "layout_v1.inc"
#undef SIZE
#undef FIELD

static int32_t (*const client_open)(const kairos_client_options_t*, kairos_client_t**) =
    kairos_client_open;
static void (*const client_close)(kairos_client_t*) = kairos_client_close;
static int32_t (*const client_fd)(kairos_client_t*) = kairos_client_fd;
static int64_t (*const client_ping)(kairos_client_t*, uint32_t, int32_t, int32_t) =
    kairos_client_ping;
static int32_t (*const session_create)(kairos_client_t*, const kairos_session_options_t*, uint64_t*,
                                       int32_t) = kairos_session_create;
static int32_t (*const session_open)(kairos_client_t*, uint64_t, kairos_session_t*, int32_t) =
    kairos_session_open;
static int32_t (*const session_fork)(kairos_client_t*, uint64_t, uint64_t, uint64_t*, int32_t) =
    kairos_session_fork;
static int32_t (*const session_rewind)(kairos_client_t*, uint64_t, uint64_t, int32_t) =
    kairos_session_rewind;
static int32_t (*const session_release)(kairos_client_t*, uint64_t, int32_t) =
    kairos_session_release;
static int32_t (*const session_delete)(kairos_client_t*, uint64_t, int32_t) = kairos_session_delete;
static int32_t (*const session_list)(kairos_client_t*, uint64_t, kairos_session_t*, uint32_t,
                                     int32_t) = kairos_session_list;
static int32_t (*const session_stat)(kairos_client_t*, uint64_t, kairos_session_t*, int32_t) =
    kairos_session_stat;
static int32_t (*const session_messages)(kairos_client_t*, uint64_t, uint64_t, kairos_event_t**,
                                         int32_t) = kairos_session_messages;
static int32_t (*const context_read)(kairos_client_t*, uint64_t, uint64_t, kairos_event_t**,
                                     int32_t) = kairos_context_read;
static int32_t (*const context_write)(kairos_client_t*, uint64_t, int64_t, kairos_string_t,
                                      uint64_t*, int32_t) = kairos_context_write;
static int32_t (*const turn_submit)(kairos_client_t*, const kairos_turn_options_t*, uint64_t*) =
    kairos_turn_submit;
static int32_t (*const turn_cancel)(kairos_client_t*, uint64_t) = kairos_turn_cancel;
static int32_t (*const event_next)(kairos_client_t*, int32_t, kairos_event_t**) = kairos_event_next;
static kairos_string_t (*const event_text)(const kairos_event_t*) = kairos_event_text;
static const int32_t* (*const event_tokens)(const kairos_event_t*, uint32_t*) = kairos_event_tokens;
static int32_t (*const event_final)(const kairos_event_t*, kairos_final_t*) = kairos_event_final;

#define EXPECT(condition)                                          \
  do {                                                             \
    if (!(condition)) {                                            \
      fprintf(stderr, "line %d: %s\n", __LINE__, #condition);      \
      return 1;                                                    \
    }                                                              \
  } while (0)

int main(void) {
  EXPECT(kairos_abi_version() == KAIROS_ABI_VERSION);
  EXPECT(kairos_layout_hash() != 0);
  EXPECT(strlen(kairos_version()) > 0);
  EXPECT(client_open && client_close && client_fd && client_ping && session_create && session_open);
  EXPECT(session_fork && session_rewind && session_release && session_delete && session_list);
  EXPECT(session_stat && session_messages && context_read && context_write && turn_submit);
  EXPECT(turn_cancel && event_next && event_text && event_tokens && event_final);

  kairos_client_options_t client;
  memset(&client, 0xff, sizeof(client));
  KAIROS_INIT(client, kairos_client_options_init);
  EXPECT(client.struct_size == sizeof(client) && client.spin_us == -1 && client.reserved[3] == 0);
  kairos_session_options_t session;
  memset(&session, 0xff, sizeof(session));
  KAIROS_INIT(session, kairos_session_options_init);
  EXPECT(session.struct_size == sizeof(session) && session.priority == 0);
  kairos_message_t message;
  memset(&message, 0xff, sizeof(message));
  KAIROS_INIT(message, kairos_message_init);
  EXPECT(message.struct_size == sizeof(message) && message.role.data == NULL);
  kairos_generation_t generation;
  memset(&generation, 0xff, sizeof(generation));
  KAIROS_INIT(generation, kairos_generation_init);
  EXPECT(generation.struct_size == sizeof(generation) && generation.top_p == 1.0f);
  EXPECT(generation.repetition_penalty == 1.0f && generation.temperature == 0.0f);
  kairos_turn_options_t turn;
  memset(&turn, 0xff, sizeof(turn));
  KAIROS_INIT(turn, kairos_turn_options_init);
  EXPECT(turn.struct_size == sizeof(turn) && turn.if_version == KAIROS_VERSION_ANY);
  return 0;
}
