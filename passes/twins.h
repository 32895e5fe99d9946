// Two chains that compute the same of the same, written in different ways. What their authors wrote torch would leave as it is; of two
// equal ops it makes one, even where gradients are wanted of one of them only.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "prove.h"

namespace tailor {

class Twins {
 public:
  explicit Twins(Graph& graph);
  ~Twins();

  // Whether two of the ops that stand in the graph already are equal. To be asked first, or not at all.
  bool has_equal_ops();

  // The last node of a chain before, or an op that stands in the graph, which would be one with this chain's op, though what was
  // written is not; or null.
  const Node* of(const Match& match, const Proof& proof);

 private:
  class Numbers;
  struct Noted {
    std::vector<Value*> arguments;       // of its op
    bool turned = false;                 // the weight is to be
    std::optional<std::string> checked;  // what its check says; a check that says something else makes another op of it
    std::string spelling;
    const Node* last = nullptr;
    bool is_apart = false;  // torch makes no one of two that are written so, or nobody knows how they were
  };
  using Key = std::pair<std::vector<std::size_t>, std::optional<std::string>>;
  struct OfChain {
    std::vector<Noted> alike;  // as long as none can be another's twin, which spares the numbers
    std::map<Key, Noted> by_numbers;
  };

  const Noted* find_or_keep(const Chain& chain, Noted noted);

  Graph& graph_;
  bool knows_ops_ = false;
  std::unique_ptr<Numbers> numbers_;
  std::unordered_map<const Chain*, OfChain> noted_;
};

}  // namespace tailor
