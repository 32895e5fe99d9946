// Decides whether a match may become one op that stands where its last node stands, and what must be asked on the way.
//
// Between the chain's parts stand foreign nodes: the checks of the norm's module, its batch counter, whatever the author
// put there. The op reads its operands later than the parts did and raises later than they did, so
//   - a foreign node that may write to an operand is refused, or the operand is held as it was (tailor::unwritten),
//   - before foreign nodes that may raise or have an effect, the parts so far are checked (tailor::check).
#pragma once
#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "aliases.h"
#include "match.h"
#include "views.h"

namespace tailor {

// What the rewriter inserts right after a part.
struct Gap {
  struct Target {
    Value* tensor;
    Value* if_true = nullptr;  // a bool without which it is not written to, where one can be had at the part
  };
  std::size_t part;             // index into Match::parts
  bool check = false;           // raise what the parts so far raise, and learn the shape
  std::vector<Target> written;  // what foreign nodes before the next part write to
};

struct Proof {
  std::vector<Gap> gaps;
};

// Puts a word of its own into what the chain's check says, and a check where there is none: torch makes one of equal ops.
void tell_apart(Match& match, Proof& proof, const std::string& word);

// What all proofs over one graph share. Made before anything is rewritten; each node is looked at once.
class Surroundings {
 public:
  explicit Surroundings(std::shared_ptr<Graph> graph);

  // The reason against, or the proof.
  std::variant<Proof, std::string> prove(const Match& match);

 private:
  struct Place {
    std::size_t index;  // in the row
    bool under_autocast;
  };
  struct Foreign {
    std::size_t index;  // in the row
    Node* node;         // the node there, or one within its blocks
  };
  struct Row {                            // of one block
    std::vector<std::size_t> noticeable;  // [i]: how many of the first i nodes can be noticed
    std::vector<Node*> nodes;
    std::vector<Foreign> writers;
    std::vector<Foreign> barriers;  // nodes that nothing may be moved across
  };

  void read(Block* block);
  std::string prove_writer(const Match& match, const Part& part, Node* writer, Gap& gap);
  const Aliases& aliases();

  std::shared_ptr<Graph> graph_;
  std::unordered_map<const Node*, Place> places_;  // of ATen's ops, and of branches and loops
  std::unordered_map<const Block*, Row> rows_;
  std::unordered_set<std::string> assigned_attributes_;
  Views views_;
  int autocast_depth_ = 0;
  std::unique_ptr<Aliases> aliases_;  // built when first asked: most graphs have no writer
};

}  // namespace tailor
