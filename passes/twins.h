// Two chains that compute the same of the same, written in different ways. What their authors wrote torch would leave as it is; of two
// equal ops it makes one, even where gradients are wanted of one of them only.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "match.h"

namespace tailor {

// The chains of a graph, one after the other.
class Twins {
 public:
  explicit Twins(Graph& graph);
  ~Twins();

  // An op that stands in the graph already; false if one noted before equals it.
  bool note(Node* op, const Chain& chain);

  // The last node of a chain noted before whose op would equal this one's, though what was written does not; or null, and
  // this one is noted.
  const Node* note(const Match& match);

 private:
  class Numbers;
  using Key = std::vector<std::size_t>;  // equal where the ops would be
  struct Noted {
    std::optional<std::string> spelling;  // where it is known
    const Node* last;
  };

  Key key_of(const std::vector<Value*>& arguments, bool turned);

  Graph& graph_;
  std::unique_ptr<Numbers> numbers_;  // made for the first chain
  std::map<std::pair<const Chain*, Key>, Noted> noted_;
};

}  // namespace tailor
