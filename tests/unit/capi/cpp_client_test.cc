// SPDX-License-Identifier: Apache-2.0
// kairos.hpp against a fake sidecar: who owns what, what is left after moves, exceptions, closing
// and forks, and which thread gets which event.
#include "kairos/kairos.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>
#include <type_traits>

#include "tests/unit/capi/fake_sidecar.h"

namespace {

using kairos::Client;
using kairos::ClientOptions;
using kairos::Error;
using kairos::Event;
using kairos::EventType;
using kairos::Milliseconds;
using kairos::Session;
using kairos::Turn;
using kairos::TurnOptions;

static_assert(!std::is_copy_constructible_v<Client> && !std::is_copy_assignable_v<Client>);
static_assert(!std::is_copy_constructible_v<Session> && !std::is_copy_assignable_v<Session>);
static_assert(!std::is_copy_constructible_v<Turn> && !std::is_copy_assignable_v<Turn>);
static_assert(!std::is_copy_constructible_v<Event> && !std::is_copy_assignable_v<Event>);
static_assert(std::is_nothrow_move_constructible_v<Client> &&
              std::is_nothrow_move_assignable_v<Client>);
static_assert(std::is_nothrow_move_constructible_v<Session> &&
              std::is_nothrow_move_assignable_v<Session>);
static_assert(std::is_nothrow_move_constructible_v<Turn> &&
              std::is_nothrow_move_assignable_v<Turn>);
static_assert(std::is_nothrow_move_constructible_v<Event> &&
              std::is_nothrow_move_assignable_v<Event>);

Client Open(const std::string& path) {
  ClientOptions options;
  options.socket_path = path;
  return Client(options);
}

// The error that `act` throws; a failure of the test where it throws none.
Error ErrorOf(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(0, 0, "");
}

class CppClient : public ::testing::Test {
 protected:
  kairos::FakeSidecar sidecar_;
  Client client_ = Open(sidecar_.path());
  Session session_ = client_.CreateSession();
};

TEST(CppClientAlone, OpenSaysThatThereIsNoSidecar) {
  const Error error = ErrorOf([] { Open("/nonexistent/kairos.sock"); });

  EXPECT_EQ(error.code(), KAIROS_UNAVAILABLE);
  EXPECT_NE(std::string(error.what()).find("/nonexistent/kairos.sock"), std::string::npos);
}

TEST_F(CppClient, TurnIsARangeOfItsEvents) {
  std::vector<EventType> types;
  std::string text;
  std::vector<int32_t> tokens;
  Turn turn = session_.Submit("burst 3");
  for (const Event& event : turn) {
    EXPECT_EQ(event.request(), turn.request());
    types.push_back(event.type());
    text += event.text();
    tokens.insert(tokens.end(), event.tokens().begin(), event.tokens().end());
  }

  const std::vector<EventType> expected = {EventType::kAccepted, EventType::kText,
                                           EventType::kText, EventType::kText, EventType::kFinal};
  EXPECT_EQ(types, expected);
  EXPECT_EQ(text, "0 1 2 ");
  EXPECT_EQ(tokens, (std::vector<int32_t>{0, 7, 1, 7, 2, 7}));
  EXPECT_TRUE(turn.is_over());
  EXPECT_EQ(turn.session_id(), session_.id());
  EXPECT_EQ(turn.final_record().version, 1u);
  EXPECT_FALSE(turn.Next().has_value()) << "nothing follows the last event";
  EXPECT_TRUE(turn.begin() == turn.end());
}

TEST_F(CppClient, ErrorEventIsThrownAndEndsTheTurn) {
  Turn turn = session_.Submit("fail");
  const Error error = ErrorOf([&] { turn.ReadText(); });

  EXPECT_EQ(error.code(), KAIROS_RESOURCE_EXHAUSTED);
  EXPECT_EQ(error.detail(), KAIROS_DETAIL_QUOTA);
  EXPECT_STREQ(error.what(), "quota: turns");
  EXPECT_TRUE(turn.is_over());
  EXPECT_FALSE(turn.Next().has_value());
  EXPECT_EQ(ErrorOf([&] { turn.final_record(); }).code(), KAIROS_FAILED_PRECONDITION);
}

TEST_F(CppClient, EveryOptionReachesTheLibrary) {
  TurnOptions options;
  options.tokens = {1, 2, 3};
  EXPECT_EQ(session_.Submit(options).ReadText(), "tokens 3");
  options.if_version = 7;
  EXPECT_EQ(ErrorOf([&] { session_.Submit(options).ReadText(); }).detail(),
            KAIROS_DETAIL_STALE_VERSION);
  options = {};
  options.messages.push_back({"user", "hello", "", "", ""});
  options.generation.emplace();
  options.generation->stops.assign(17, "stop");
  EXPECT_NE(std::string(ErrorOf([&] { (void)session_.Submit(options); }).what()).find("stop"),
            std::string::npos);
  options.generation.reset();
  options.deadline = Milliseconds(-1);
  EXPECT_STREQ(ErrorOf([&] { (void)session_.Submit(options); }).what(), "deadline: below 0");
}

TEST_F(CppClient, SessionsForkRewindAndKeepTaskContext) {
  kairos::SessionOptions options;
  options.label = "plan";
  options.drop_reasoning = true;
  Session session = client_.CreateSession(options);
  session.Submit("one").ReadText();
  session.Submit("two").ReadText();

  Session fork = session.Fork(1);
  session.Rewind(1);

  EXPECT_EQ(fork.Stat().parent_id, session.id());
  EXPECT_EQ(session.Stat().version, 1u);
  EXPECT_EQ(kairos::LabelOf(session.Stat()), "plan");
  EXPECT_EQ(session.Stat().flags, KAIROS_SESSION_DROP_REASONING);
  EXPECT_EQ(session.SetContext(R"({"goal":"Lisbon"})"), 2u);
  EXPECT_EQ(session.Context(), R"({"goal":"Lisbon"})");
  EXPECT_EQ(ErrorOf([&] { session.SetContext("{}", 9); }).detail(), KAIROS_DETAIL_STALE_VERSION);
  EXPECT_NE(session.Messages(1).find("turn 1"), std::string::npos);
  EXPECT_EQ(client_.Sessions().size(), 3u);
  fork.Delete();
  EXPECT_EQ(client_.Sessions().size(), 2u);
  EXPECT_EQ(ErrorOf([&] { (void)client_.OpenSession(fork.id()); }).code(), KAIROS_NOT_FOUND);
  EXPECT_GT(client_.Ping(64).count(), 0);
}

TEST_F(CppClient, ListOfSessionsGoesOnBeyondOnePage) {
  std::vector<Session> sessions;
  for (int i = 0; i < 300; ++i) sessions.push_back(client_.CreateSession());

  EXPECT_EQ(client_.Sessions().size(), 301u);
}

// ---- Ownership ----------------------------------------------------------------------------------

TEST_F(CppClient, MovedFromObjectsThrowAndCanBeAssignedTo) {
  Turn turn = session_.Submit("hello");
  Turn taken_turn = std::move(turn);
  Session taken_session = std::move(session_);
  Client taken_client = std::move(client_);

  for (const auto& act : std::vector<std::function<void()>>{
           [&] { turn.Next(); },  // NOLINT(bugprone-use-after-move): what is tested
           [&] { turn.Cancel(); }, [&] { turn.begin(); }, [&] { (void)turn.is_over(); },
           [&] { turn.final_record(); }, [&] { (void)session_.Submit("hello"); },
           [&] { session_.Stat(); }, [&] { (void)session_.Fork(); }, [&] { session_.Release(); },
           [&] { client_.fd(); }, [&] { client_.Next(Milliseconds(0)); },
           [&] { (void)client_.CreateSession(); }, [&] { client_.Ping(); }}) {
    EXPECT_EQ(ErrorOf(act).code(), KAIROS_INVALID_ARGUMENT);
  }
  client_.Close();
  EXPECT_EQ(taken_turn.ReadText(), "hello");
  session_ = std::move(taken_session);
  client_ = std::move(taken_client);
  EXPECT_EQ(session_.Stat().version, 1u);
  EXPECT_GT(client_.Ping().count(), 0);
}

TEST_F(CppClient, DestroyedTurnIsCancelled) {
  { Turn turn = session_.Submit("hang"); }

  EXPECT_EQ(session_.Stat().version, 1u) << "the fake ends a turn that it was told to cancel";
}

TEST_F(CppClient, AssigningOverATurnCancelsIt) {
  Turn turn = session_.Submit("hang");
  turn = session_.Submit("hello");

  EXPECT_EQ(turn.ReadText(), "hello");
  EXPECT_EQ(session_.Stat().version, 2u);
}

TEST_F(CppClient, ExceptionThatLeavesALoopCancelsTheTurn) {
  EXPECT_THROW(
      {
        Turn turn = session_.Submit("hang");
        for (const Event& event : turn) {
          if (event.type() == EventType::kAccepted) throw std::runtime_error("of the program");
        }
      },
      std::runtime_error);

  EXPECT_EQ(session_.Stat().version, 1u);
  EXPECT_EQ(session_.Submit("hello").ReadText(), "hello") << "the client goes on";
}

TEST_F(CppClient, TurnThatIsOverIsNotCancelled) {
  { session_.Submit("hello").ReadText(); }
  const uint64_t before = sidecar_.requests();
  session_.Stat();

  EXPECT_EQ(sidecar_.requests(), before + 1) << "no cancel was sent";
}

TEST_F(CppClient, ClosingTwiceIsHarmlessAndUseAfterItThrows) {
  Turn turn = session_.Submit("hang");
  client_.Close();
  client_.Close();

  EXPECT_EQ(ErrorOf([&] { client_.Ping(); }).code(), KAIROS_INVALID_ARGUMENT);
  EXPECT_EQ(ErrorOf([&] { session_.Stat(); }).code(), KAIROS_INVALID_ARGUMENT);
  EXPECT_EQ(ErrorOf([&] { turn.Next(); }).code(), KAIROS_CANCELLED);
  EXPECT_EQ(ErrorOf([&] { turn.Cancel(); }).code(), KAIROS_INVALID_ARGUMENT);
  Client other = Open(sidecar_.path());
  client_.Close();
  EXPECT_GT(other.Ping().count(), 0) << "a later client is not closed by it";
}

TEST_F(CppClient, SessionsAndTurnsMayOutliveTheirClient) {
  std::optional<Client> client(Open(sidecar_.path()));
  Session session = client->CreateSession();
  Turn turn = session.Submit("hang");
  client.reset();

  EXPECT_THROW(session.Stat(), Error);
  EXPECT_THROW(turn.Next(), Error);
}

TEST_F(CppClient, DestroyedSessionDropsItsHoldWithoutWaiting) {
  sidecar_.Pause();
  { Session other = std::move(session_); }  // would wait for ever for an answer
  sidecar_.Resume();

  EXPECT_EQ(client_.Sessions().size(), 1u) << "the session itself stays";
}

// ---- Events, threads, event loops ---------------------------------------------------------------

TEST_F(CppClient, TimeOutGivesNoneAndTheTurnGoesOn) {
  Turn turn = session_.Submit("hang");
  ASSERT_EQ(turn.Next()->type(), EventType::kAccepted);

  EXPECT_FALSE(turn.Next(Milliseconds(0)).has_value());
  EXPECT_FALSE(turn.Next(Milliseconds(1)).has_value());
  EXPECT_FALSE(turn.is_over());
  turn.Cancel();
  EXPECT_EQ(turn.Next(Milliseconds::max())->final_record().finish, KAIROS_FINISH_CANCELLED);
}

TEST_F(CppClient, EventsReadForAnotherTurnAreKeptForIt) {
  Turn first = session_.Submit("burst 5");
  Turn second = session_.Submit("burst 3");

  EXPECT_EQ(second.ReadText(), "0 1 2 ");
  EXPECT_EQ(first.ReadText(), "0 1 2 3 4 ");
}

TEST_F(CppClient, EventsOfADroppedTurnReachNobody) {
  { Turn dropped = session_.Submit("burst 5"); }
  Turn kept = session_.Submit("hello");

  while (std::optional<Event> event = client_.Next(kairos::kForever)) {
    ASSERT_EQ(event->request(), kept.request());
    if (event->is_last()) break;
  }
}

TEST_F(CppClient, EventLoopReadsAllTurnsByOneDescriptor) {
  Turn turns[] = {session_.Submit("burst 3"), session_.Submit("fail"), session_.Submit("burst 2")};
  pollfd ready = {client_.fd(), POLLIN, 0};
  std::map<uint64_t, int> events;
  for (int open = 3; open > 0;) {
    ASSERT_EQ(poll(&ready, 1, -1), 1);
    while (std::optional<Event> event = client_.Next(Milliseconds(0))) {
      ++events[event->request()];
      if (event->is_last()) --open;
    }
  }

  EXPECT_EQ(events[turns[0].request()], 5);
  EXPECT_EQ(events[turns[1].request()], 2);
  EXPECT_EQ(events[turns[2].request()], 4);
  EXPECT_TRUE(turns[0].is_over()) << "what Client::Next() gave out counts for the turn";
  EXPECT_EQ(turns[2].final_record().session_id, session_.id());
}

TEST_F(CppClient, ThreadsOfOneClientGetTheirOwnTurns) {
  constexpr int kThreads = 8;
  std::vector<std::thread> threads;
  std::vector<std::string> texts(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 20; ++round) {
        texts[i] += client_.CreateSession().Submit("from " + std::to_string(i)).ReadText();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  for (int i = 0; i < kThreads; ++i) {
    std::string expected;
    for (int round = 0; round < 20; ++round) expected += "from " + std::to_string(i);
    EXPECT_EQ(texts[i], expected);
  }
}

// Threads that wait for turns which never end: one of them reads, the others wait for it.
class Waiting {
 public:
  Waiting(Session& session, int count) {
    for (int i = 0; i < count; ++i) {
      turns_.push_back(session.Submit("hang"));
      EXPECT_EQ(turns_.back().Next()->type(), EventType::kAccepted);
    }
    for (Turn& turn : turns_) {
      threads_.emplace_back([this, &turn] {
        const Error error = ErrorOf([&] { turn.Next(); });
        codes_.fetch_add(error.code() == KAIROS_CANCELLED ? 1 : 1000);
      });
    }
  }
  int Join() {
    for (std::thread& thread : threads_) thread.join();
    return codes_.load();
  }

 private:
  std::vector<Turn> turns_;
  std::vector<std::thread> threads_;
  std::atomic<int> codes_{0};
};

TEST_F(CppClient, CloseEndsEveryThreadThatWaits) {
  Waiting waiting(session_, 4);
  client_.Close();

  EXPECT_EQ(waiting.Join(), 4);
}

TEST_F(CppClient, LostSidecarEndsEveryTurnOnce) {
  Turn first = session_.Submit("hang");
  Turn second = session_.Submit("hang");
  first.Next();
  sidecar_.DropClients();

  for (Turn* turn : {&first, &second}) {
    const Error error = ErrorOf([&] {
      while (turn->Next()) continue;
    });
    EXPECT_EQ(error.code(), KAIROS_UNAVAILABLE);
    EXPECT_EQ(error.detail(), KAIROS_DETAIL_SIDECAR_LOST);
    EXPECT_TRUE(turn->is_over());
    EXPECT_FALSE(turn->Next().has_value());
  }
  EXPECT_EQ(ErrorOf([&] { (void)session_.Submit("hello"); }).detail(),
            KAIROS_DETAIL_SIDECAR_LOST);
}

TEST_F(CppClient, WatchedStatesComeWhileATurnIsRead) {
  EXPECT_EQ(ErrorOf([&] { client_.NextState(Milliseconds(0)); }).code(),
            KAIROS_FAILED_PRECONDITION);
  client_.Watch();
  Turn turn = session_.Submit("states 2");
  for (const Event& event : turn) EXPECT_NE(event.type(), EventType::kSession);

  for (uint64_t version = 1; version <= 2; ++version) {
    const std::optional<Event> state = client_.NextState();
    ASSERT_TRUE(state.has_value());
    EXPECT_EQ(state->type(), EventType::kSession);
    EXPECT_EQ(state->summary().version, version);
    EXPECT_FALSE(state->skipped());
  }
  EXPECT_FALSE(client_.NextState(Milliseconds(0)).has_value());
  client_.Watch(false);
}

// Every object is used and destroyed in the child, while threads of the parent wait.
TEST_F(CppClient, ForkedChildIsRefusedAndDestroysItsCopies) {
  Turn turn = session_.Submit("hang");
  Waiting waiting(session_, 2);
  const pid_t child = fork();
  if (child == 0) {
    int refused = 0;
    for (const auto& act : std::vector<std::function<void()>>{
             [&] { (void)session_.Submit("hello"); }, [&] { turn.Next(); }, [&] { turn.Cancel(); },
             [&] { (void)turn.is_over(); }, [&] { client_.Ping(); }, [&] { session_.Stat(); },
             [&] { client_.Next(Milliseconds(0)); }}) {
      try {
        act();
      } catch (const Error& error) {
        refused += error.detail() == KAIROS_DETAIL_FORKED ? 1 : 100;
      }
    }
    { const Turn copy = std::move(turn); }
    { const Session copy = std::move(session_); }
    { const Client copy = std::move(client_); }
    _exit(refused);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(turn.Next()->type(), EventType::kAccepted) << "the parent's turn is not cancelled";
  EXPECT_FALSE(turn.Next(Milliseconds(0)).has_value());
  client_.Close();
  EXPECT_EQ(waiting.Join(), 2);
}

}  // namespace
