/* SPDX-License-Identifier: Apache-2.0
 * kairos.h: the C interface of KAIROS. C11, also C++; the only header a client needs.
 *
 * A *client* is one attachment of this process to the sidecar. A *session* is an agent's durable
 * dialogue; it outlives clients and sidecar. A *turn* is one request of a session and its reply.
 *
 * Conventions
 *  1. A call returns zero or a count, or minus one of the KAIROS_* codes. kairos_last_error() has the
 *     words and kairos_last_detail() the finer cause, both per thread.
 *  2. Structs that you pass start with struct_size = sizeof the struct as you compiled it; use the
 *     kairos_*_init() function or KAIROS_INIT. Reserved fields are zero. Fields are only ever appended.
 *  3. Strings are UTF-8, not terminated, and copied. Null with size 0 means "not given".
 *  4. Memory that the library hands out is an event; free it with kairos_event_release().
 *  5. Threads: calls on a kairos_client_t may come from any thread, but close must be the last to start;
 *     a thread blocked in a call when close begins returns -KAIROS_CANCELLED. An event belongs to one
 *     thread at a time. No call takes callbacks and no thread is started.
 *  6. Fork: a child cannot use its parent's clients (KAIROS_DETAIL_FORKED). Open one after the fork.
 *  7. Blocking: calls with timeout_ms block at most that long (-1: without limit); others never.
 */
#ifndef KAIROS_KAIROS_H_
#define KAIROS_KAIROS_H_

#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define KAIROS_API __attribute__((visibility("default")))
#else
#define KAIROS_API
#endif
#define KAIROS_ABI_VERSION 1u

/* Codes, frozen. Calls return the negative value; events carry the positive one. */
#define KAIROS_OK 0
#define KAIROS_CANCELLED 1
#define KAIROS_INVALID_ARGUMENT 3
#define KAIROS_DEADLINE_EXCEEDED 4
#define KAIROS_NOT_FOUND 5
#define KAIROS_ALREADY_EXISTS 6
#define KAIROS_RESOURCE_EXHAUSTED 8
#define KAIROS_FAILED_PRECONDITION 9
#define KAIROS_ABORTED 10
#define KAIROS_UNIMPLEMENTED 12
#define KAIROS_INTERNAL 13
#define KAIROS_UNAVAILABLE 14
#define KAIROS_DATA_LOSS 15

/* Finer causes. 0 means none. */
#define KAIROS_DETAIL_FORKED 1          /* client opened in a parent process */
#define KAIROS_DETAIL_RING_FULL 2       /* try again after reading events */
#define KAIROS_DETAIL_SIDECAR_LOST 3    /* the sidecar died or closed; open a new client */
#define KAIROS_DETAIL_SLOW_CONSUMER 4   /* events were not read; the turn was cancelled */
#define KAIROS_DETAIL_STALE_VERSION 5   /* if_version does not name the head */
#define KAIROS_DETAIL_CONTEXT_FULL 6    /* prompt longer than the model's context */
#define KAIROS_DETAIL_DRAINING 7        /* the sidecar is shutting down */
#define KAIROS_DETAIL_RECORD_TOO_LARGE 8
#define KAIROS_DETAIL_OTHER_MODEL 9     /* the session is another model's than asked for or resident */
#define KAIROS_DETAIL_QUOTA 10          /* a configured limit; the message names it */
#define KAIROS_DETAIL_BAD_UTF8 11
#define KAIROS_DETAIL_STORAGE 12        /* the session catalog cannot be written */
#define KAIROS_DETAIL_PROTOCOL 13       /* the peer broke the ring protocol; attachment closed */
#define KAIROS_DETAIL_KV_FULL 14        /* this turn cannot fit the configured KV memory */
#define KAIROS_DETAIL_TEMPLATE 15       /* the chat template refused or ran out of budget */
#define KAIROS_DETAIL_GRAMMAR 23        /* tool schema or constraint cannot be enforced; the text says why */
#define KAIROS_DETAIL_SKIPPED 24        /* of a session event: earlier changes were left out */
/* Of a text event: the text is a tool call that could not be read, as the model wrote it. */
#define KAIROS_DETAIL_CALL_MALFORMED 16    /* not JSON, or not the model's notation of calls */
#define KAIROS_DETAIL_CALL_NO_NAME 17
#define KAIROS_DETAIL_CALL_NO_ARGUMENTS 18 /* none, or no JSON object of them */
#define KAIROS_DETAIL_CALL_TOO_DEEP 19     /* nested deeper than 64 */
#define KAIROS_DETAIL_CALL_UNFINISHED 20   /* the reply ended within it */
#define KAIROS_DETAIL_CALL_UNKNOWN_TOOL 21 /* the name is not in the turn's tool list */
#define KAIROS_DETAIL_CALL_TOO_LARGE 22    /* more than 256 KiB, or the reply's 65th */

typedef struct kairos_client kairos_client_t;
typedef struct kairos_event kairos_event_t;
typedef struct kairos_string { const char* data; uint64_t size; /* bytes */ } kairos_string_t;

/* ---- Library ---------------------------------------------------------------------------------- */
KAIROS_API uint32_t kairos_abi_version(void);   /* of the library, compare KAIROS_ABI_VERSION */
KAIROS_API uint64_t kairos_layout_hash(void);   /* of the shared segment layout it speaks */
KAIROS_API const char* kairos_version(void);    /* "0.1.0", static */
KAIROS_API const char* kairos_strerror(int32_t code); /* either sign; static, never null */
/* Copies this thread's last error text, terminated; returns its full size in bytes. */
KAIROS_API int64_t kairos_last_error(char* buffer, size_t capacity);
KAIROS_API int32_t kairos_last_detail(void);

/* ---- Client ----------------------------------------------------------------------------------- */
typedef struct kairos_client_options {
  uint32_t struct_size;
  uint32_t flags;
  kairos_string_t socket_path; /* not given: $KAIROS_SOCKET, else the per-user default */
  kairos_string_t name_space;  /* tenant; not given: "default". 1..64 of [A-Za-z0-9._-] */
  uint32_t request_ring_bytes; /* 0: sidecar's default; else a power of two, 64 KiB..64 MiB */
  uint32_t reply_ring_bytes;
  int32_t spin_us;             /* how long to poll before sleeping; -1: default */
  int32_t connect_timeout_ms;  /* 0: 5000 */
  uint64_t reserved[4];
} kairos_client_options_t;

KAIROS_API void kairos_client_options_init(kairos_client_options_t* options);
/* Attaches to the sidecar. Blocks up to connect_timeout_ms. options may be null. */
KAIROS_API int32_t kairos_client_open(const kairos_client_options_t* options, kairos_client_t** client);
/* Detaches and frees. The sidecar cancels this client's open turns; sessions stay. Null is allowed. */
KAIROS_API void kairos_client_close(kairos_client_t* client);
/* A descriptor, owned by the client, that polls readable when kairos_event_next() or _watch_next() may
 * have something. Read until they return 0 before waiting on it again. */
KAIROS_API int32_t kairos_client_fd(kairos_client_t* client);
/* Echo of 0..65536 bytes by the sidecar; returns nanoseconds. spin != 0 polls without sleeping. */
KAIROS_API int64_t kairos_client_ping(kairos_client_t* client, uint32_t size, int32_t spin,
                                      int32_t timeout_ms);

/* ---- Sessions --------------------------------------------------------------------------------- */
#define KAIROS_FIDELITY_DEFAULT 0 /* sealed KV blocks in INT8 */
#define KAIROS_FIDELITY_EXACT 1   /* all KV in 16 bits */
#define KAIROS_SESSION_DROP_REASONING 1u /* what the model thinks is told, and not kept in the log */
#define KAIROS_PHASE_IDLE 0
#define KAIROS_PHASE_RUNNING 1
#define KAIROS_PHASE_WAITING_TOOL 2
#define KAIROS_PHASE_WAITING_USER 3
#define KAIROS_PHASE_CLOSED 4

typedef struct kairos_session_options {
  uint32_t struct_size;
  uint32_t flags;         /* KAIROS_SESSION_* */
  int32_t fidelity;       /* KAIROS_FIDELITY_* */
  int32_t priority;       /* -100..100, higher first */
  uint64_t ttl_seconds;   /* 0: no limit; deleted after this long without a turn */
  kairos_string_t label;  /* shown to operators, at most 128 bytes */
  kairos_string_t model;  /* name of a resident model; not given: the sidecar's default */
  uint64_t reserved[2];
} kairos_session_options_t;

typedef struct kairos_session {
  uint32_t struct_size;
  int32_t phase;              /* KAIROS_PHASE_* */
  uint64_t id;                /* printed as 16 hex digits */
  uint64_t version;           /* head; 0 before the first turn */
  uint64_t oldest_version;    /* oldest version that can still be named */
  uint64_t token_count;       /* token log of the head */
  uint64_t resident_tokens;   /* of these, tokens whose KV is resident */
  uint64_t message_count;
  uint64_t kv_bytes;
  uint64_t created_unix_ms;
  uint64_t used_unix_ms;      /* last turn */
  uint64_t parent_id;         /* session it was forked from, or 0 */
  int32_t fidelity;
  uint32_t label_size;
  char label[128];            /* not terminated */
  char waiting_for[64];       /* tool name in KAIROS_PHASE_WAITING_TOOL, zero padded */
  char model[64];             /* name of its model, zero padded; empty: not resident */
  uint32_t flags, reserved;   /* KAIROS_SESSION_* that it was made with */
} kairos_session_t;

KAIROS_API void kairos_session_options_init(kairos_session_options_t* options);
/* options may be null. */
KAIROS_API int32_t kairos_session_create(kairos_client_t* client, const kairos_session_options_t* options,
                                         uint64_t* session_id, int32_t timeout_ms);
/* Binds the session to this client until released; out may be null. Others' are -KAIROS_NOT_FOUND. */
KAIROS_API int32_t kairos_session_open(kairos_client_t* client, uint64_t session_id,
                                       kairos_session_t* out, int32_t timeout_ms);
/* A new session that starts as `version` of this one (0: head) and shares its KV. */
KAIROS_API int32_t kairos_session_fork(kairos_client_t* client, uint64_t session_id, uint64_t version,
                                       uint64_t* new_session_id, int32_t timeout_ms);
/* Makes `version` the head. Later versions stay nameable until pruned. */
KAIROS_API int32_t kairos_session_rewind(kairos_client_t* client, uint64_t session_id, uint64_t version,
                                         int32_t timeout_ms);
/* Drops this client's hold and lets the session cool down. */
KAIROS_API int32_t kairos_session_release(kairos_client_t* client, uint64_t session_id, int32_t timeout_ms);
/* Cancels its open turn and frees it everywhere. */
KAIROS_API int32_t kairos_session_delete(kairos_client_t* client, uint64_t session_id, int32_t timeout_ms);
/* Fills up to `capacity` sessions of this uid and namespace with id > after_id in id order; returns the
 * number filled. out[0].struct_size gives the size of each element. */
KAIROS_API int32_t kairos_session_list(kairos_client_t* client, uint64_t after_id, kairos_session_t* out,
                                       uint32_t capacity, int32_t timeout_ms);
KAIROS_API int32_t kairos_session_stat(kairos_client_t* client, uint64_t session_id, kairos_session_t* out,
                                       int32_t timeout_ms);
/* The messages of a version (0: head) as a JSON array in kairos_event_text(*out). */
KAIROS_API int32_t kairos_session_messages(kairos_client_t* client, uint64_t session_id, uint64_t version,
                                           kairos_event_t** out, int32_t timeout_ms);
/* The task context of a version (0: head) as a JSON object. */
KAIROS_API int32_t kairos_context_read(kairos_client_t* client, uint64_t session_id, uint64_t version,
                                       kairos_event_t** out, int32_t timeout_ms);
/* Replaces the task context; makes a new version, returned in *new_version (may be null). */
KAIROS_API int32_t kairos_context_write(kairos_client_t* client, uint64_t session_id, int64_t if_version,
                                        kairos_string_t json, uint64_t* new_version, int32_t timeout_ms);

/* ---- Turns ------------------------------------------------------------------------------------ */
#define KAIROS_VERSION_ANY (-1)
/* kairos_turn_options.flags */
#define KAIROS_TURN_WHOLE_HISTORY 1u /* messages are the whole dialogue: match it with what is stored */
#define KAIROS_TURN_NO_GENERATE 2u   /* append and prefill only */
#define KAIROS_TURN_NO_REUSE 4u      /* recompute everything, as a stateless server would */
#define KAIROS_TURN_ONE_CALL 8u      /* at most one tool call in the reply; otherwise up to 8 */
#define KAIROS_TURN_MOVE_MODEL 16u   /* the session goes over to `model`: all is rendered anew */
#define KAIROS_ON_CANCEL_COMMIT 0  /* keep the user's message and the text so far, marked cancelled */
#define KAIROS_ON_CANCEL_DISCARD 1 /* leave the session as it was */

/* What the reply must be, where the session knows tools: arguments of calls match their schemas. */
#define KAIROS_TOOL_CHOICE_AUTO 0     /* text or calls; a call that is begun is a valid one */
#define KAIROS_TOOL_CHOICE_NONE 1     /* text only */
#define KAIROS_TOOL_CHOICE_REQUIRED 2 /* at least one call */
#define KAIROS_TOOL_CHOICE_NAMED 3    /* one call of tool_name */
#define KAIROS_TOOL_CHOICE_FREE 4     /* nothing is enforced; a broken call comes back as text */
/* kairos_generation.constraint_kind: what the reply's text must match. 0: nothing */
#define KAIROS_CONSTRAINT_NONE 0
#define KAIROS_CONSTRAINT_JSON_SCHEMA 1
#define KAIROS_CONSTRAINT_REGEX 2 /* of the whole text, Rust syntax */
#define KAIROS_CONSTRAINT_LARK 3  /* a grammar, llguidance's dialect of Lark; its start rule is `start` */

/* kairos_generation.flags: fields for the sidecar's filter to choose ("auto") */
#define KAIROS_AUTO_TEMPERATURE 1u
#define KAIROS_AUTO_MAX_TOKENS 2u
#define KAIROS_AUTO_CONTEXT 4u      /* the filter may reset the context; a rewind undoes it */
#define KAIROS_IGNORE_EOS 8u        /* do not end at end-of-turn tokens */
#define KAIROS_LOGITS_HASH 16u      /* fill kairos_final.logits_hash */
#define KAIROS_DEFAULT_TEMPERATURE 32u /* the sidecar's setting holds in place of the field */
#define KAIROS_DEFAULT_TOP_P 64u
#define KAIROS_DEFAULT_TOP_K 128u

typedef struct kairos_message {
  uint32_t struct_size;
  uint32_t flags;
  kairos_string_t role;            /* "system", "user", "assistant", "tool" */
  kairos_string_t content;
  kairos_string_t name;            /* of the tool, optional */
  kairos_string_t tool_call_id;    /* for role "tool", optional */
  kairos_string_t tool_calls_json; /* for role "assistant": JSON array, optional */
} kairos_message_t;

/* The bias is added to the logit; -INFINITY bans. */
typedef struct kairos_logit_bias { int32_t token; float bias; } kairos_logit_bias_t;

typedef struct kairos_generation {
  uint32_t struct_size;
  uint32_t flags;
  uint32_t max_tokens;        /* 0: sidecar's default */
  float temperature;          /* 0 (greedy) to 2 */
  int32_t top_k;              /* 0: off */
  float top_p;                /* 1: off */
  float min_p;                /* 0: off */
  float repetition_penalty;   /* 1: off */
  float presence_penalty;     /* 0: off */
  int32_t penalty_window;     /* tokens looked back, 0: 64, -1: all */
  uint64_t seed;
  uint32_t logprobs;          /* alternatives per token in events, 0..20; 0: no logprob events */
  uint32_t stop_count;
  const kairos_string_t* stops; /* at most 16 of at most 256 bytes */
  const kairos_logit_bias_t* biases;
  uint32_t bias_count;        /* at most 1024 */
  int32_t constraint_kind;    /* KAIROS_CONSTRAINT_* */
  kairos_string_t constraint; /* at most 256 KiB */
  uint64_t reserved[2];
} kairos_generation_t;

typedef struct kairos_turn_options {
  uint32_t struct_size;
  uint32_t flags;
  uint64_t session_id;             /* 0: create a session and report its id */
  int64_t if_version;              /* KAIROS_VERSION_ANY, or refuse unless this is the head */
  const kairos_message_t* messages;
  const int32_t* tokens;           /* raw-token turn instead of messages */
  uint32_t message_count;
  uint32_t token_count;
  kairos_string_t tools_json;      /* JSON array of function schemas; not given: as before */
  kairos_string_t idempotency_key; /* at most 128 bytes */
  uint32_t deadline_ms;            /* from submit; 0: none */
  int32_t priority;                /* -100..100, added to the session's */
  int32_t on_cancel;               /* KAIROS_ON_CANCEL_* */
  int32_t tool_choice;             /* KAIROS_TOOL_CHOICE_* */
  const kairos_generation_t* generation; /* null: defaults */
  kairos_string_t tool_name;       /* for KAIROS_TOOL_CHOICE_NAMED, at most 128 bytes */
  kairos_string_t model;           /* not given: the session's; a new session's: the default */
} kairos_turn_options_t;

KAIROS_API void kairos_message_init(kairos_message_t* message);
KAIROS_API void kairos_generation_init(kairos_generation_t* generation);
KAIROS_API void kairos_turn_options_init(kairos_turn_options_t* options);
/* Queues a turn and returns its request id. KAIROS_DETAIL_RING_FULL means: read events, then try
 * again. A turn larger than the request ring goes out in pieces, as events are read. */
KAIROS_API int32_t kairos_turn_submit(kairos_client_t* client, const kairos_turn_options_t* options,
                                      uint64_t* request_id);
/* Asks the turn to stop; its final event follows. Cancelling a finished turn is no error. */
KAIROS_API int32_t kairos_turn_cancel(kairos_client_t* client, uint64_t request_id);

/* ---- Events ----------------------------------------------------------------------------------- */
#define KAIROS_EVENT_ACCEPTED 1  /* session id and base version are known; the turn is queued */
#define KAIROS_EVENT_TEXT 2      /* whole UTF-8 characters, without the markup of calls; tokens: those
                                    generated since, markup too; detail: a KAIROS_DETAIL_CALL_*, or 0 */
#define KAIROS_EVENT_TOOL_CALL 3 /* text: {"id","name","arguments"}; tokens: as above */
#define KAIROS_EVENT_LOGPROBS 4  /* text: JSON of tokens and alternatives */
#define KAIROS_EVENT_FINAL 5     /* kairos_event_final; tokens: as above; last event of an accepted turn */
#define KAIROS_EVENT_ERROR 6     /* code, detail, text; the last event of a turn that was not done */
#define KAIROS_EVENT_REPLY 7     /* result of a blocking call */
#define KAIROS_EVENT_REASONING 8 /* as a text event: what the model thinks before it answers */
#define KAIROS_EVENT_SESSION 9   /* kairos_event_summary; of kairos_watch_next alone */

#define KAIROS_PLAN_FULL_COMPUTE 1
#define KAIROS_PLAN_CONTINUATION 2
#define KAIROS_PLAN_LIGHTWEIGHT_REFINE 3
#define KAIROS_LABEL_UNKNOWN 0
#define KAIROS_LABEL_NEW_TOPIC 1
#define KAIROS_LABEL_CONTINUATION 2
#define KAIROS_LABEL_CLARIFICATION 3
#define KAIROS_LABEL_TOOL_RETURN 4

#define KAIROS_FINISH_STOP 1      /* end-of-turn token */
#define KAIROS_FINISH_LENGTH 2    /* max_tokens or end of context */
#define KAIROS_FINISH_STRING 3    /* a stop string */
#define KAIROS_FINISH_TOOL_CALL 4
#define KAIROS_FINISH_CANCELLED 5
#define KAIROS_FINISH_DEADLINE 6
#define KAIROS_FINISH_NONE 7      /* KAIROS_TURN_NO_GENERATE */

/* Why a token of the past had to be computed again: index into kairos_final.recomputed_by. */
#define KAIROS_REASON_BLOCK_BOUNDARY 0  /* rewind, fork or match ended inside a sealed block */
#define KAIROS_REASON_RESTART 1         /* the sidecar restarted; KV was not kept */
#define KAIROS_REASON_EVICTED 2         /* KV memory was needed by others */
#define KAIROS_REASON_HISTORY_CHANGED 3 /* resent history differs from what is stored */
#define KAIROS_REASON_TOOLS_CHANGED 4
#define KAIROS_REASON_CONTEXT_RESET 5   /* the filter or the client started over */
#define KAIROS_REASON_REUSE_OFF 6       /* KAIROS_TURN_NO_REUSE */
#define KAIROS_REASON_CHECKSUM 7        /* a stored block failed verification */
#define KAIROS_REASON_OTHER_FORMAT 8    /* the turn moved the session to another model */
#define KAIROS_REASON_COUNT 16

/* Stages of a turn: index into kairos_final.stage_ns. */
#define KAIROS_STAGE_ADMIT 0
#define KAIROS_STAGE_ROUTE 1    /* includes waiting for the session's open turn */
#define KAIROS_STAGE_RESTORE 2
#define KAIROS_STAGE_FILTER 3
#define KAIROS_STAGE_RENDER 4   /* template and tokenizing */
#define KAIROS_STAGE_QUEUE 5    /* waiting for the engine */
#define KAIROS_STAGE_PREFILL 6
#define KAIROS_STAGE_DECODE 7
#define KAIROS_STAGE_COMMIT 8
#define KAIROS_STAGE_COUNT 12

typedef struct kairos_final {
  uint32_t struct_size;
  int32_t finish;             /* KAIROS_FINISH_* */
  uint64_t session_id;
  uint64_t version;           /* committed by this turn */
  uint64_t prompt_tokens;     /* tokens the model saw before the first generated one */
  uint64_t new_tokens;        /* of these, what this turn brought and the last token sampled before */
  uint64_t reused_tokens;     /* of these, tokens whose KV was reused */
  uint64_t shared_tokens;     /* of the reused, tokens found in other sessions' blocks */
  uint64_t recomputed_tokens; /* of the past, computed again: the sum of recomputed_by */
  uint64_t generated_tokens;
  uint64_t recomputed_by[KAIROS_REASON_COUNT];
  uint64_t stage_ns[KAIROS_STAGE_COUNT];
  uint64_t ttft_ns;           /* admission to first generated token */
  uint64_t total_ns;          /* admission to commit */
  uint64_t model_ns;          /* of total_ns, spent in the model's steps that carried this turn */
  uint64_t logits_hash;       /* chained over all steps, with KAIROS_LOGITS_HASH; else 0 */
  int64_t first_difference;   /* message index where resent history differs, or -1 */
  int32_t plan;               /* KAIROS_PLAN_* */
  int32_t label;              /* KAIROS_LABEL_* */
  int32_t phase;              /* KAIROS_PHASE_* after the turn */
  int32_t replayed;           /* 1: stored reply of an earlier turn with this idempotency key */
  char rule[48];              /* name of the filter rule that decided, zero padded */
  uint64_t forced_tokens;     /* of the generated, those that a constraint left no choice in */
} kairos_final_t;

/* Next event of this client: 1 and *event, or 0 on time-out. */
KAIROS_API int32_t kairos_event_next(kairos_client_t* client, int32_t timeout_ms, kairos_event_t** event);
KAIROS_API void kairos_event_release(kairos_event_t* event); /* null is allowed */
KAIROS_API int32_t kairos_event_type(const kairos_event_t* event);
KAIROS_API uint64_t kairos_event_request(const kairos_event_t* event);
KAIROS_API uint64_t kairos_event_session(const kairos_event_t* event);
KAIROS_API uint64_t kairos_event_version(const kairos_event_t* event);
KAIROS_API int32_t kairos_event_code(const kairos_event_t* event);   /* of an error event */
KAIROS_API int32_t kairos_event_detail(const kairos_event_t* event);
/* Valid until the event is released. */
KAIROS_API kairos_string_t kairos_event_text(const kairos_event_t* event);
KAIROS_API const int32_t* kairos_event_tokens(const kairos_event_t* event, uint32_t* count);
/* Copies min(out->struct_size, known) bytes; -KAIROS_FAILED_PRECONDITION if not an event of that type. */
KAIROS_API int32_t kairos_event_final(const kairos_event_t* event, kairos_final_t* out);
KAIROS_API int32_t kairos_event_summary(const kairos_event_t* event, kairos_session_t* out);

/* ---- Watching --------------------------------------------------------------------------------- */
#define KAIROS_WATCH_SESSIONS 1u
/* Says what kairos_watch_next() is to tell from now on (0: nothing more): changes of version or phase
 * of every session of this uid and namespace, also by this client. For what was before, list them then. */
KAIROS_API int32_t kairos_watch(kairos_client_t* client, uint32_t flags, int32_t timeout_ms);
/* Next KAIROS_EVENT_SESSION: 1 and *event, or 0 on time-out. Of a deleted session only id and phase
 * (KAIROS_PHASE_CLOSED) are told. Whoever reads slowly gets the latest state of each session, with
 * KAIROS_DETAIL_SKIPPED; with session 0 that means: sessions were left out, list them again. */
KAIROS_API int32_t kairos_watch_next(kairos_client_t* client, int32_t timeout_ms, kairos_event_t** event);

#define KAIROS_INIT(object, init_function) (init_function)(&(object))

#ifdef __cplusplus
}
#endif

#endif /* KAIROS_KAIROS_H_ */
