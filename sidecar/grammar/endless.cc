// SPDX-License-Identifier: Apache-2.0
#include "sidecar/grammar/endless.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/printable_text.h"

namespace kairos {
namespace {

// Which of many things can come to an end, where each needs others. What needs itself never does.
class EndGraph {
 public:
  using Node = uint32_t;

  // Ends where all that it needs ends; at once where it needs nothing.
  Node AddAll() { return Add(false); }
  // Ends where one of what it needs ends; never where it needs nothing.
  Node AddAny() { return Add(true); }

  void Need(Node whole, Node part) {
    ++steps_[whole].needs;
    steps_[part].wholes.push_back(whole);
  }

  // For each node, whether it ends.
  std::vector<bool> Solve() const {
    std::vector<bool> ends(steps_.size());
    std::vector<uint32_t> left(steps_.size());  // needs that are not known to end
    std::vector<Node> found;
    for (Node i = 0; i < steps_.size(); ++i) {
      left[i] = steps_[i].needs;
      if (!steps_[i].any && left[i] == 0) found.push_back(i);
    }
    while (!found.empty()) {
      const Node node = found.back();
      found.pop_back();
      if (ends[node]) continue;
      ends[node] = true;
      for (const Node whole : steps_[node].wholes) {
        if (--left[whole] == 0 || steps_[whole].any) found.push_back(whole);
      }
    }
    return ends;
  }

 private:
  struct Step {
    bool any = false;
    uint32_t needs = 0;
    std::vector<Node> wholes;  // that need this
  };

  Node Add(bool any) {
    steps_.push_back({any, 0, {}});
    return static_cast<Node>(steps_.size() - 1);
  }

  std::vector<Step> steps_;
};

// What the body of a rule needs, word for word.
class RuleBody {
 public:
  RuleBody(EndGraph* graph, EndGraph::Node rule) : graph_(*graph) { Open(rule); }

  void Item(std::optional<EndGraph::Node> needs) {
    Group& group = groups_.back();
    if (group.last) graph_.Need(group.alternative, *group.last);
    group.last = needs;
  }
  void MayBeLeftOut() { groups_.back().last.reset(); }
  void Or() {
    Item(std::nullopt);
    Begin(&groups_.back());
  }
  void OpenGroup() { Open(graph_.AddAny()); }
  void CloseGroup(bool may_be_left_out) {
    if (groups_.size() == 1) return;  // refused by the compiler
    Item(std::nullopt);
    const EndGraph::Node whole = groups_.back().whole;
    groups_.pop_back();
    Item(whole);
    if (may_be_left_out) MayBeLeftOut();
  }
  void Finish() {
    while (groups_.size() > 1) CloseGroup(false);
    Item(std::nullopt);
  }

 private:
  struct Group {
    EndGraph::Node whole = 0;        // one of its alternatives
    EndGraph::Node alternative = 0;  // that is read
    std::optional<EndGraph::Node> last;
  };

  void Open(EndGraph::Node whole) {
    groups_.push_back({whole, 0, std::nullopt});
    Begin(&groups_.back());
  }
  void Begin(Group* group) {
    group->alternative = graph_.AddAll();
    graph_.Need(group->whole, group->alternative);
  }

  EndGraph& graph_;
  std::vector<Group> groups_;
};

using RuleNodes = std::map<std::string_view, EndGraph::Node>;

void ReadBody(std::span<const LarkWord> words, const RuleNodes& rules, RuleBody* body) {
  for (size_t at = 0; at < words.size(); ++at) {
    const LarkWord& word = words[at];
    const std::optional<LarkRepetition> times = RepetitionAt(words, at);
    if (word.kind == LarkKind::kName) {
      const auto rule = rules.find(word.text);
      body->Item(rule == rules.end() ? std::nullopt : std::optional(rule->second));
    } else if (word.kind == LarkKind::kString || word.kind == LarkKind::kRegex ||
               word.kind == LarkKind::kSpecial) {
      body->Item(std::nullopt);
    } else if (word.Is('(') || word.Is('[')) {
      body->OpenGroup();
    } else if (word.Is(')') || word.Is(']')) {
      body->CloseGroup(word.Is(']'));
    } else if (word.Is('|')) {
      body->Or();
    } else if (word.Is('?') || word.Is('*') || (times && times->least == 0)) {
      body->MayBeLeftOut();
    }
  }
  body->Finish();
}

// What the values of a schema need, in the ways in which one can need another.
class SchemaReader {
 public:
  explicit SchemaReader(const SchemaJson& root) : root_(root) {}

  std::string Fault() {
    AddWithin(root_);
    // More references are found while those known are followed.
    for (size_t i = 0; i < references_.size(); ++i) {
      const Reference one = references_[i];
      if (const SchemaJson* target = Find(one.text)) graph_.Need(one.node, Add(*target));
    }
    const std::vector<bool> ends = graph_.Solve();
    for (const Reference& one : references_) {
      if (ends[one.node]) continue;
      return fmt::format("$ref: nothing matches {}, since it requires itself, without end",
                         QuotedText(one.text));
    }
    return "";
  }

 private:
  struct Reference {
    std::string text;
    EndGraph::Node node;
  };

  // Also what need not be there: a reply may begin it.
  bool AddWithin(const SchemaJson& schema) {
    Add(schema);
    return EachSubschema(schema, [this](const SchemaJson& part) { return AddWithin(part); });
  }

  EndGraph::Node Add(const SchemaJson& schema) {
    const auto known = nodes_.find(&schema);
    if (known != nodes_.end()) return known->second;
    const EndGraph::Node node = graph_.AddAll();
    nodes_.emplace(&schema, node);
    if (!schema.is_object() || schema.contains("const") || schema.contains("enum")) return node;
    if (const auto reference = schema.find("$ref");
        reference != schema.end() && reference->is_string()) {
      const EndGraph::Node target = graph_.AddAll();
      references_.push_back({reference->get<std::string>(), target});
      graph_.Need(node, target);
    }
    for (const char* keyword : {"allOf", "anyOf", "oneOf"}) {
      const auto parts = schema.find(keyword);
      if (parts == schema.end() || !parts->is_array() || parts->empty()) continue;
      const bool all = std::string_view(keyword) == "allOf";
      const EndGraph::Node whole = all ? graph_.AddAll() : graph_.AddAny();
      for (const SchemaJson& part : *parts) graph_.Need(whole, Add(part));
      graph_.Need(node, whole);
    }
    if (IsOnly(schema, "object")) AddRequired(schema, node);
    if (IsOnly(schema, "array")) AddItems(schema, node);
    return node;
  }

  static bool IsOnly(const SchemaJson& schema, const char* type) {
    const auto found = schema.find("type");
    if (found == schema.end()) return false;
    return *found == type || (found->is_array() && found->size() == 1 && found->front() == type);
  }

  void AddRequired(const SchemaJson& schema, EndGraph::Node node) {
    const auto required = schema.find("required");
    const auto properties = schema.find("properties");
    if (required == schema.end() || !required->is_array()) return;
    std::unordered_map<std::string_view, const SchemaJson*> listed;
    if (properties != schema.end() && properties->is_object()) {
      for (const auto& [name, part] : properties->items()) listed.emplace(name, &part);
    }
    const auto others = schema.find("additionalProperties");
    const bool patterns = schema.contains("patternProperties");
    for (const SchemaJson& name : *required) {
      if (!name.is_string()) continue;
      const auto found = listed.find(name.get_ref<const std::string&>());
      if (found != listed.end()) {
        graph_.Need(node, Add(*found->second));
      } else if (others != schema.end() && !patterns) {
        graph_.Need(node, Add(*others));
      }
    }
  }

  void AddItems(const SchemaJson& schema, EndGraph::Node node) {
    const auto least = schema.find("minItems");
    if (least == schema.end() || !least->is_number_unsigned()) return;
    uint64_t left = least->get<uint64_t>();
    const auto items = schema.find("items");
    const bool is_list = items != schema.end() && items->is_array();
    const auto first = is_list ? items : schema.find("prefixItems");
    const auto rest = is_list ? schema.find("additionalItems") : items;
    if (first != schema.end() && first->is_array()) {
      for (const SchemaJson& part : *first) {
        if (left == 0) return;
        --left;
        graph_.Need(node, Add(part));
      }
    }
    if (left > 0 && rest != schema.end()) graph_.Need(node, Add(*rest));
  }

  // Of "#" and "#/a/b"; null for other references.
  const SchemaJson* Find(const std::string& reference) const {
    if (!reference.starts_with('#')) return nullptr;
    const std::string pointer = FragmentText(std::string_view(reference).substr(1));
    const SchemaJson* at = &root_;
    for (size_t begin = 0; begin < pointer.size() && at != nullptr;) {
      if (pointer[begin] != '/') return nullptr;
      const size_t end = std::min(pointer.find('/', begin + 1), pointer.size());
      at = Child(*at, std::string_view(pointer).substr(begin + 1, end - begin - 1));
      begin = end;
    }
    return at;
  }

  static const SchemaJson* Child(const SchemaJson& parent, std::string_view segment) {
    if (parent.is_array()) {
      size_t index = parent.size();
      std::from_chars(segment.data(), segment.data() + segment.size(), index);
      return index < parent.size() ? &parent[index] : nullptr;
    }
    if (!parent.is_object()) return nullptr;
    std::string name;
    for (size_t i = 0; i < segment.size(); ++i) {
      const bool is_escape = segment[i] == '~' && i + 1 < segment.size();
      name += !is_escape ? segment[i] : segment[++i] == '1' ? '/' : '~';
    }
    const auto found = parent.find(name);
    return found == parent.end() ? nullptr : &*found;
  }

  const SchemaJson& root_;
  EndGraph graph_;
  std::unordered_map<const SchemaJson*, EndGraph::Node> nodes_;
  std::vector<Reference> references_;
};

}  // namespace

std::string EndlessFault(std::span<const LarkDefinition> definitions) {
  EndGraph graph;
  RuleNodes rules;
  for (const LarkDefinition& one : definitions) {
    if (!IsTerminal(one.name) && !rules.contains(one.name)) rules[one.name] = graph.AddAny();
  }
  for (const LarkDefinition& one : definitions) {
    const auto rule = rules.find(one.name);
    if (rule == rules.end()) continue;
    RuleBody body(&graph, rule->second);
    ReadBody(one.body, rules, &body);
  }
  const std::vector<bool> ends = graph.Solve();
  for (const LarkDefinition& one : definitions) {
    const auto rule = rules.find(one.name);
    if (rule == rules.end() || ends[rule->second]) continue;
    return fmt::format("nothing matches rule {}: it requires itself, or one that does, without end",
                       QuotedText(one.name));
  }
  return "";
}

std::string EndlessFault(const SchemaJson& schema) { return SchemaReader(schema).Fault(); }

}  // namespace kairos
