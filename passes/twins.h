// Ops of one rule of which torch may make one. What their authors wrote it would leave as it is; of two ops that read the same it makes
// one, also where one stands under no_grad and the other wants gradients, and also late: once a loop is unrolled, a constant folded.
//
// So an op that may meet another is given a word of its own, which its check says: torch sees that they read different things.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "from_arguments.h"
#include "prove.h"

namespace tailor {

class Twins {
 public:
  explicit Twins(Graph& graph);
  ~Twins();

  // Whether there is a mode in which parts of the graph run and others do not, and two ops stand there that nothing tells apart.
  bool has_equal_ops();

  // How a chain's op is kept from being one with that of another chain, or one that stands in the graph.
  struct Apart {
    const Node* from = nullptr;  // the last node of the other; null where there is none, and nothing to do
    std::string word;            // for its check; empty where no check tells them apart
  };
  Apart apart(const Match& match, const Proof& proof);

 private:
  class Numbers;
  struct Noted {
    std::vector<Value*> arguments;       // of its op
    bool turned = false;                 // the weight is to be
    std::optional<std::string> checked;  // what its check says; a check that says something else makes another op of it
    std::string spelling;
    const Node* last = nullptr;
    bool stays_two = false;  // torch makes no one of two that are written so, or nobody knows how they were
  };
  using Key = std::pair<std::vector<std::size_t>, std::optional<std::string>>;
  struct OfChain {
    std::vector<Noted> alike;  // as long as none can be another's twin, which spares the numbers
    std::map<Key, Noted> by_numbers;
    const Node* first = nullptr;
    std::set<std::optional<std::string>> checked;  // of all ops
  };

  void note_ops();
  const Noted* find_or_keep(const Chain& chain, Noted noted);
  bool may_become_constant(Value* value);

  Graph& graph_;
  bool changes_a_mode_ = false;
  bool knows_ops_ = false;
  bool has_equal_ops_ = false;
  std::unique_ptr<Numbers> numbers_;
  std::unique_ptr<FromArguments> from_arguments_;
  std::unordered_map<const Chain*, OfChain> noted_;
};

}  // namespace tailor
