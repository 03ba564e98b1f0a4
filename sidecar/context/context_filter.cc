// SPDX-License-Identifier: Apache-2.0
// The forcing rules as one table. Most rules fire only where a clause of a short message is nothing
// but the pattern, between openings and endings that add nothing ("ok, could we ... please"). So a
// negation, an object ("start over the engine") or a report ("he said start over") never matches,
// and needs no rule of its own. A reset drops the dialogue; FrameAllowsReset holds the further
// doubts.
#include "sidecar/context/context_filter.h"

#include <algorithm>
#include <span>
#include <string>

#include "sidecar/context/rule_text.h"

namespace kairos {

namespace {

enum class Place {
  kWhole,  // the clause is the pattern, apart from openings and endings that add nothing
  kAny,    // anywhere in the clause, on word boundaries
};

struct Rule {
  const char* name;
  Place place;
  int32_t label;
  int32_t plan;
  bool wants_reset;
  float temperature;  // negative: no opinion
  const char* const* patterns;
};

constexpr float kNoTemperature = -1.0f;
// Said again or built on a tool's result, an answer should stay close to what is known.
constexpr float kCloseTemperature = 0.3f;

// Patterns are in the folded form of rule_text.h: English lower case without apostrophes.
constexpr const char* kStartOver[] = {
    "start over", "start again", "start afresh", "start anew", "start fresh", "start from scratch",
    "start over again", "start all over", "start all over again", "start over from scratch",
    "start again from scratch", "start over from the beginning", "start again from the beginning",
    "begin again", "begin anew", "start a new conversation", "start a new chat",
    "begin a new conversation", "reset the conversation", "reset this conversation",
    "reset our conversation", "reset the chat", "reset this chat", "reset the context",
    "clear the conversation", "clear this conversation", "clear the chat", "clear the context",
    "forget everything", "forget everything we said", "forget everything so far",
    "forget everything above", "forget all of that", "forget our conversation",
    "forget this conversation", "wipe the slate clean", "from the top",
    "重新开始", "重新开始吧", "重新来过", "重新来", "重新来一遍", "重头再来", "从头再来", "从头开始",
    "从头来过", "从头来", "重来", "重来一次", "清空对话", "清空上下文", "清除对话", "清除上下文",
    "重置对话", "重置会话", "重置上下文", "忘掉之前的对话", "忘掉刚才的对话", "忘记之前的对话",
    "忘掉之前的一切", "忘记之前的一切", "忘掉前面的内容", "忘记前面的内容", "忘掉之前的内容",
    "忘记之前的内容", "忘掉以上内容", "忘记以上内容", "开始新的对话", "开始新对话", "重新开始对话",
    "重新开始聊", nullptr};

constexpr const char* kNewTopic[] = {
    "change the subject", "change the topic", "change subject", "change topic", "change topics",
    "switch topics", "switch topic", "switch subjects", "switch the topic",
    "switch to another topic", "switch to a different topic", "switch to a new topic",
    "move on to another topic", "move on to a different topic", "move on to something else",
    "move on to a new topic", "talk about something else", "talk about something different",
    "new topic", "new subject", "a new topic", "different topic", "a different topic",
    "on a different topic", "on another topic", "on a different note", "on another note",
    "new question", "unrelated question", "a new question", "an unrelated question",
    "another question", "a different question", "something completely different",
    "on an unrelated note", "换个话题", "换一个话题", "换个题目", "换个主题", "换一个主题", "换话题", "聊点别的", "聊别的", "聊点其他的",
    "说点别的", "谈点别的", "谈谈别的", "说说别的", "另外一个问题", "另一个问题", "另外一个话题", "另一个话题", "问个别的问题", "问个别的",
    "问一个别的问题", "问个新问题", "问另外一个问题", "问另一个问题", "新话题", "新问题", "新的话题", "新的问题", "一个新问题", "一个新的问题",
    "不相关的问题", nullptr};

constexpr const char* kSayAgain[] = {
    "say that again", "say it again", "say this again", "say again", "repeat that", "repeat it",
    "repeat this", "repeat yourself", "repeat", "repeat please", "repeat the last answer",
    "repeat your answer", "repeat your last answer", "repeat what you said",
    "repeat what you just said", "rephrase", "rephrase that", "rephrase it", "rephrase this",
    "rephrase your answer", "reword that", "reword it", "paraphrase that", "put it differently",
    "put that differently", "say that differently", "say it differently", "put it another way",
    "put that another way", "say it another way", "say that another way", "say that in other words",
    "in other words", "come again", "what did you say", "what did you just say",
    "what was that again", "explain that again", "explain it again", "explain again",
    "explain that more simply", "explain it more simply", "explain that in simpler terms",
    "explain it in simpler terms", "say that more simply", "simplify that", "tell me that again",
    "tell me again", "再说一遍", "再说一次", "再说一下", "再讲一遍", "再讲一次", "重复一遍", "重复一下", "重复一次", "再重复一遍",
    "再解释一遍", "再解释一下", "再解释一次", "重新解释一遍", "重新解释一下", "换个说法", "换一种说法", "换种说法", "换句话说", "换个方式说",
    "换一种方式说", "重新表述一下", "说简单点", "说简单一点", "说得简单点", "讲简单一点", "简单点说", "你刚才说什么", "你刚说什么", "你说什么", "没听懂",
    "没看懂", "我没听懂", "我没看懂", "没听清", "我没听清", "刚才说什么", nullptr};

constexpr const char* kTheOneAbove[] = {
    "the one above", "the ones above", "the above one", "the example above", "the above example",
    "the code above", "the above code", "the answer above", "the above answer", "the list above",
    "the above list", "the table above", "the text above", "the above text", "as mentioned above",
    "as you said", "as you mentioned", "as you just said", "as you told me", "as you suggested",
    "like you said", "you said earlier", "you just said", "you mentioned earlier",
    "you just mentioned", "you said before", "you mentioned before", "your last answer",
    "your previous answer", "your last message", "your last reply", "your previous reply",
    "your previous message", "the previous answer", "the previous one", "the last one",
    "the first one you", "the second one you", "we talked about earlier", "we discussed earlier",
    "上面那个", "上面这个", "上面的", "上面那", "上面提到的", "上面说的", "上述", "以上内容", "刚才说的", "刚才提到的", "刚刚说的", "刚刚提到的",
    "刚才那个", "刚刚那个", "刚才的", "刚刚的", "之前说的", "之前提到的", "前面说的", "前面提到的", "前面那个", "你说的那个", "你刚才说", "你刚刚说",
    "你之前说", "你前面说", "上一个回答", "上一条回答", "上个回答", "上一条消息", nullptr};

constexpr Rule kRules[] = {
    {"start_over", Place::kWhole, KAIROS_LABEL_NEW_TOPIC, KAIROS_PLAN_FULL_COMPUTE, true,
     kNoTemperature, kStartOver},
    // A changed topic keeps the dialogue: what was said may still matter, and its KV is there.
    {"new_topic", Place::kWhole, KAIROS_LABEL_NEW_TOPIC, KAIROS_PLAN_CONTINUATION, false,
     kNoTemperature, kNewTopic},
    {"say_again", Place::kWhole, KAIROS_LABEL_CLARIFICATION, KAIROS_PLAN_LIGHTWEIGHT_REFINE, false,
     kCloseTemperature, kSayAgain},
    {"the_one_above", Place::kAny, KAIROS_LABEL_CLARIFICATION, KAIROS_PLAN_CONTINUATION, false,
     kNoTemperature, kTheOneAbove},
};

// What people put before a request without changing it. Longest first where one begins another.
constexpr const char* kOpenings[] = {
    "could you please", "can you please", "would you please", "will you please", "could we please",
    "can we please", "could you", "can you", "can we", "could we", "may we", "can i ask you",
    "can i ask", "may i ask", "could i ask", "let me ask you", "let me ask", "let us", "lets just",
    "lets", "i would like to", "i want you to", "i want to", "id like you to", "id like to",
    "id rather", "i have", "ive got", "i think we should", "we should", "we need to", "i need to",
    "i need you to", "you should", "how about we", "here is", "heres", "okay", "ok", "no", "nope",
    "well", "so", "now", "alright", "all right", "right", "hmm", "hm", "hey", "hi", "hello",
    "sorry", "excuse me", "actually", "anyway", "please", "just", "then", "and", "but", "oh",
    "wait", "never mind", "nevermind", "to", "我们还是", "我们", "咱们还是", "咱们", "我想要", "我想", "我要", "我有",
    "让我们", "请你", "麻烦你", "麻烦", "请", "能不能", "能否", "可不可以", "可以", "你能", "你可以", "你", "那么", "那就", "那",
    "好的", "好吧", "好", "嗯", "哦", "算了", "不如", "还是", "要不", "现在", "来", "再", "不好意思", "对不起", "抱歉", "先",
    "都", "帮我", "给我" };

// What may follow without changing it.
constexpr const char* kEndings[] = {
    "please", "now", "thanks", "thank you", "again", "then", "for me", "ok", "okay", "for a moment",
    "shall we", "will you", "would you", "could you", "can you", "now please", "one more time",
    "once more", "if you can", "if possible", "with you", "to me", "here", "today", "for you",
    "a bit", "a little", "slowly", "completely", "entirely", "from zero", "once again",
    "everything", "吧", "了", "吗", "呢", "啊", "呀", "嘛", "一下", "好吗", "可以吗", "行吗", "好不好", "行不行", "谢谢",
    "好了", "一遍", "一次", "聊", "给我听", "给我", "给我看" };

// Elsewhere in the message, these may make a whole clause the object of something else: a
// condition, a text to work on, somebody's words.
constexpr const char* kFrames[] = {
    " if ", " when ", " whenever ", " until ", " unless ", " why ", " how to ", " how do ",
    " how does ", " what does ", " what happens ", " he ", " she ", " they ", " said ", " says ",
    " say ", " means ", " mean ", " meaning ", " translate ", " translation ", " write ",
    " rewrite ", " summarize ", " summarise ", " explain ", " define ", " spell ", " print ",
    " type ", " button ", " called ", " titled ", " title ", " song ", " lyrics ", " poem ",
    " phrase ", " word ", " words ", " sentence ", " text ", " code ", " function ", " step ",
    " steps ", " my life ", " life ", " career ", " <> ", "如果", "要是", "假如", "的时候", "怎么", "如何",
    "为什么", "意思", "翻译", "他", "她", "写", "歌", "这句", "句话", "标题", "步骤", "人生", "生活", "按钮", "解释", "造句",
    "说：" };

// Openings that speak of the speaker: alone they ask, within a story they tell.
constexpr const char* kPersonal[] = {" i ", " id ", " ive ", " we need ", " we should ",
                                     "我想", "我要"};

bool IsAscii(std::string_view text) {
  return text.empty() || static_cast<unsigned char>(text.front()) < 0x80;
}

// An English pattern ends at a space; a Chinese one anywhere.
bool StartsWithPattern(std::string_view text, std::string_view pattern) {
  if (text.substr(0, pattern.size()) != pattern) return false;
  return !IsAscii(pattern) || text.size() == pattern.size() || text[pattern.size()] == ' ' ||
         !IsAscii(text.substr(pattern.size()));
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// One opening less; false when there is none.
bool DropOpening(std::string_view* clause) {
  for (const std::string_view opening : kOpenings) {
    if (clause->size() > opening.size() && StartsWithPattern(*clause, opening)) {
      *clause = Trim(clause->substr(opening.size()));
      return true;
    }
  }
  return false;
}

bool OnlyEndings(std::string_view rest) {
  rest = Trim(rest);
  bool dropped = true;
  while (dropped && !rest.empty()) {
    dropped = false;
    for (const std::string_view ending : kEndings) {
      if (!StartsWithPattern(rest, ending)) continue;
      rest = Trim(rest.substr(ending.size()));
      dropped = true;
      break;
    }
  }
  return rest.empty();
}

bool ContainsAny(std::string_view clause, std::span<const char* const> words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
    return clause.find(word) != std::string_view::npos;
  });
}

bool IsWhole(std::string_view clause, const char* const* patterns) {
  for (; *patterns != nullptr; ++patterns) {
    const std::string_view pattern = *patterns;
    if (!StartsWithPattern(clause, pattern)) continue;
    if (OnlyEndings(clause.substr(pattern.size()))) return true;
  }
  return false;
}

bool MatchesAnywhere(std::string_view clause, const char* const* patterns) {
  for (; *patterns != nullptr; ++patterns) {
    const std::string_view pattern = *patterns;
    for (size_t at = clause.find(pattern); at != std::string_view::npos;
         at = clause.find(pattern, at + 1)) {
      const bool left = !IsAscii(pattern) || at == 0 || clause[at - 1] == ' ';
      if (left && StartsWithPattern(clause.substr(at), pattern)) return true;
    }
  }
  return false;
}

bool Matches(std::string_view clause, const Rule& rule) {
  if (rule.place == Place::kAny) return MatchesAnywhere(clause, rule.patterns);
  // Openings may themselves begin a pattern, so each shorter form is tried.
  std::string_view rest = Trim(clause);
  do {
    if (IsWhole(rest, rule.patterns)) return true;
  } while (DropOpening(&rest));
  return false;
}

bool OnlyOpenings(std::string_view clause) {
  std::string_view rest = Trim(clause);
  do {
    const bool is_opening = std::any_of(std::begin(kOpenings), std::end(kOpenings),
                                        [&](std::string_view word) { return rest == word; });
    if (is_opening || OnlyEndings(rest)) return true;
  } while (DropOpening(&rest));
  return false;
}

// A clause that asks for a reset counts when it is the message, or a sentence of its own at its
// start or end; beside other clauses of its sentence it must also say whom it asks ("..., let us
// start over").
bool FrameAllowsReset(const RuleText& text, size_t index) {
  if (text.is_cut) return false;
  const RuleClause& clause = text.clauses[index];
  bool alone = true;
  bool alone_in_sentence = true;
  for (size_t i = 0; i < text.clauses.size(); ++i) {
    if (i == index) continue;
    if (ContainsAny(text.clauses[i].text, kFrames)) return false;
    if (OnlyOpenings(text.clauses[i].text)) continue;
    alone = false;
    if (text.clauses[i].sentence == clause.sentence) alone_in_sentence = false;
  }
  if (alone) return true;
  if (ContainsAny(clause.text, kPersonal)) return false;
  const bool at_an_end = clause.sentence == text.clauses.front().sentence ||
                         clause.sentence == text.clauses.back().sentence;
  std::string_view rest = Trim(clause.text);
  return at_an_end && (alone_in_sentence || DropOpening(&rest));
}

class ForcingRules final : public ContextFilter {
 public:
  FilterVerdict Classify(const FilterInput& input) const override {
    FilterVerdict verdict;
    if (input.first_turn) {
      verdict.label = KAIROS_LABEL_NEW_TOPIC;
      verdict.plan = KAIROS_PLAN_FULL_COMPUTE;
      verdict.rule = "first_turn";
      return verdict;
    }
    if (input.role == "tool") return ToolReturn("tool_return");
    if (input.role == "user" && ApplyRules(input.text, &verdict)) return verdict;
    // A client without a tool role sends the result as it can.
    if (input.phase == KAIROS_PHASE_WAITING_TOOL) return ToolReturn("waiting_tool");
    return verdict;
  }

 private:
  static FilterVerdict ToolReturn(const char* rule) {
    FilterVerdict verdict;
    verdict.label = KAIROS_LABEL_TOOL_RETURN;
    verdict.rule = rule;
    verdict.temperature = kCloseTemperature;
    return verdict;
  }

  static bool ApplyRules(std::string_view message, FilterVerdict* verdict) {
    const RuleText text = FoldForRules(message);
    for (const Rule& rule : kRules) {
      for (size_t i = 0; i < text.clauses.size(); ++i) {
        if (!Matches(text.clauses[i].text, rule)) continue;
        if (rule.wants_reset && !FrameAllowsReset(text, i)) continue;
        verdict->label = rule.label;
        verdict->plan = rule.plan;
        verdict->rule = rule.name;
        verdict->wants_reset = rule.wants_reset;
        verdict->temperature = rule.temperature;
        return true;
      }
    }
    return false;
  }
};

}  // namespace

const ContextFilter& RuleFilter() {
  static const ForcingRules rules;
  return rules;
}

}  // namespace kairos
