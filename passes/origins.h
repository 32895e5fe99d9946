// Where a value comes from, through casts to what somebody declared it to be and through tuples that it was put into and taken out of.
#pragma once
#include <optional>
#include <unordered_map>

#include "graph.h"

namespace tailor {

bool is_plain_tensor(const Value* value);

// Each question is answered once for each value on the way: what goes from call to call in a tuple is asked about in each of them. Ask
// in the order in which things are made, and change nothing of what was asked about but who reads it.
class Origins {
 public:
  std::optional<bool> truth(Value* value);    // of a constant
  std::optional<bool> is_none(Value* value);  // where that is known
  // The value, or the first before it, that has at run time the type that the graph says; or that is a plain tensor; null for none.
  Value* of_own_type(Value* value);
  Value* plain_tensor(Value* value);
  // What went into a tuple where the value was taken out, by unpacking or by an index; null where that is not known.
  Value* put_into_tuple(Value* taken);

 private:
  using Found = std::unordered_map<const Value*, Value*>;
  template <class Holds>
  Value* first(Value* value, Found& found, const Holds& holds);

  Found constants, known, typed, tensors, tuples;
};

}  // namespace tailor
