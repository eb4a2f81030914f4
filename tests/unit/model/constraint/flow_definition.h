// What a flow holds, by definition.
#ifndef TLM_TESTS_UNIT_MODEL_CONSTRAINT_FLOW_DEFINITION_H_
#define TLM_TESTS_UNIT_MODEL_CONSTRAINT_FLOW_DEFINITION_H_

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "model/constraint/flow.h"
#include "tests/support/recognizer_walk.h"

namespace tlm {

// For texts of ASCII and marks, of which no marker has a 'b', and contents that are
// lists.
class FlowDefinition {
 public:
  struct Edge {
    std::string begin;
    std::set<std::string> contents;
    std::string end;
    size_t target;
  };
  struct Node {
    ConstraintSpec::Node spec;
    std::vector<Edge> edges;
  };
  std::vector<Node> nodes;

  // With `closed` the free text in which the text is there is closed.
  Verdict Read(std::string_view text, std::optional<size_t> closed = std::nullopt) {
    text_ = text;
    closed_ = closed;
    open_.clear();
    return ReadNode(0, 0);
  }
  // Whether an end can be reached from all nodes.
  bool AllEnd() const {
    std::vector<bool> ends(nodes.size());
    for (size_t round = 0; round < nodes.size(); ++round) {
      for (size_t i = 0; i < nodes.size(); ++i) {
        ends[i] = ends[i] || nodes[i].spec.may_end;
        for (const Edge& edge : nodes[i].edges) {
          if (ends[edge.target] && MayFollow(nodes[i], edge)) ends[i] = true;
        }
      }
    }
    return std::ranges::find(ends, false) == ends.end();
  }

 private:
  struct Marker {
    std::string text;
    bool only_first;
  };
  // Of free text: the marker with which it ends, and where that begins.
  struct End {
    std::string marker;
    size_t begin;
  };

  static bool HasMark(std::string_view text) { return text.find('\xFF') != text.npos; }
  static std::string Plain(std::string text) {
    std::erase(text, '\xFF');
    return text;
  }
  static std::vector<Marker> MarkersOf(const Node& node) {
    std::vector<Marker> markers;
    for (const std::string& text : node.spec.triggers) markers.push_back({text, false});
    for (const std::string& text : node.spec.leads) markers.push_back({text, true});
    return markers;
  }
  static bool Begins(const Node& node, std::string_view marker) {
    return std::ranges::any_of(node.edges,
                               [&](const Edge& edge) { return edge.begin.starts_with(marker); });
  }
  // Of those that end first the longest; "" for a plain spelling.
  static std::optional<End> FindEnd(const Node& node, std::string_view text) {
    for (size_t end = 1; end <= text.size(); ++end) {
      std::optional<End> longest;
      const auto look = [&](const std::string& marker, bool only_first, bool is_plain) {
        const std::string_view before = text.substr(0, end);
        if (!before.ends_with(marker)) return;
        const std::string_view free = before.substr(0, end - marker.size());
        if (HasMark(free) || (only_first && !free.empty())) return;
        if (longest.has_value() && longest->begin <= free.size()) return;
        longest = {is_plain ? "" : marker, free.size()};
      };
      for (const Marker& marker : MarkersOf(node)) look(marker.text, marker.only_first, false);
      for (const Marker& marker : MarkersOf(node)) {
        if (HasMark(marker.text)) look(Plain(marker.text), marker.only_first, true);
      }
      if (longest.has_value()) return longest;
    }
    return std::nullopt;
  }
  static bool MayFollow(const Node& node, const Edge& edge) {
    if (!node.spec.is_free) return true;
    for (const Marker& marker : MarkersOf(node)) {
      const std::string text = marker.only_first ? marker.text : "b" + marker.text;
      if (!edge.begin.starts_with(marker.text)) continue;
      const auto end = FindEnd(node, text);
      if (end.has_value() && end->marker == marker.text &&
          end->begin + marker.text.size() == text.size()) {
        return true;
      }
    }
    return false;
  }
  // What no marker has ended: whether it can go on to one, or may end.
  static Verdict Unended(const Node& node, std::string_view text, bool may_close) {
    Verdict verdict = {.whole = node.spec.may_end && !HasMark(text)};
    verdict.alive = (node.spec.may_end || may_close) && !HasMark(text);
    for (const Marker& marker : MarkersOf(node)) {
      if (!Begins(node, marker.text)) continue;
      const auto ends = [&](const std::string& longer) {
        const auto end = FindEnd(node, longer);
        return end.has_value() && Begins(node, end->marker) && !end->marker.empty() &&
               end->begin + end->marker.size() == longer.size();
      };
      // What it needs of another letter, which no marker has, or of the marker.
      verdict.alive |= ends(std::string(text) + "b" + marker.text);
      for (size_t i = 0; i < marker.text.size(); ++i) {
        verdict.alive |= ends(std::string(text) + marker.text.substr(i));
      }
    }
    return verdict;
  }
  static void Add(const Verdict& other, Verdict& verdict) {
    verdict.whole |= other.whole;
    verdict.alive |= other.alive;
  }

  Verdict ReadNode(size_t number, size_t offset) {
    const Node& node = nodes[number];
    if (!open_.insert({number, offset}).second) return {};  // adds nothing
    Verdict verdict;
    if (node.spec.is_free) {
      verdict = ReadFree(node, offset);
    } else {
      if (node.spec.may_end && offset == text_.size()) verdict = {.whole = true, .alive = true};
      for (const Edge& edge : node.edges) Add(ReadEdge(edge, offset), verdict);
    }
    open_.erase({number, offset});
    return verdict;
  }
  Verdict ReadFree(const Node& node, size_t offset) {
    const std::string_view text = text_.substr(offset);
    const auto end = FindEnd(node, text);
    if (node.spec.is_budgeted && closed_.has_value() && *closed_ >= offset) {
      const std::string_view before = text.substr(0, *closed_ - offset);
      if (!FindEnd(node, before).has_value() && !HasMark(before)) {
        return Unended(node, before, true).alive
                   ? ReadEdge(node.edges[static_cast<size_t>(node.spec.closing)], *closed_)
                   : Verdict();
      }
    }
    if (!end.has_value()) return Unended(node, text, node.spec.is_budgeted);
    Verdict verdict;
    for (const Edge& edge : node.edges) {
      if (end->marker.empty() || !edge.begin.starts_with(end->marker)) continue;
      Add(ReadEdge(edge, offset + end->begin), verdict);
    }
    return verdict;
  }
  Verdict ReadEdge(const Edge& edge, size_t offset) {
    const std::string_view text = text_.substr(offset);
    Verdict verdict;
    for (const std::string& content : edge.contents) {
      const std::string all = edge.begin + content + edge.end;
      if (all.starts_with(text) && all.size() > text.size()) verdict.alive = true;
      if (text.starts_with(all)) Add(ReadNode(edge.target, offset + all.size()), verdict);
    }
    return verdict;
  }

  std::string_view text_;
  std::optional<size_t> closed_;
  std::set<std::pair<size_t, size_t>> open_;
};

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_MODEL_CONSTRAINT_FLOW_DEFINITION_H_
