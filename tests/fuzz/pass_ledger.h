// Keeps count of a model's chains: what each door has made of them, against what the generator knows.
#pragma once
#include "pass_doors.h"
#include "pass_judge.h"

namespace tailor::fuzz {

class Ledger {
 public:
  // All of them are kept as they are, and read when something is noted.
  Ledger(const Model& model, const Compiled& compiled, const Graphs& plain, Tally& tally)
      : model_(model), compiled_(compiled), plain_(plain), tally_(tally) {}

  // Of the pass itself: its report, and what it has made. Returns the first chain that should have been fused and was not.
  std::string note(const std::vector<Site>& sites, const Places& made, bool wrong);

  // Of another door, in graphs that it gave the pass: what the pass has fused, and what the generator says, it must have
  // fused, and nothing else. Returns the first chain of which that is not so.
  std::string note_at(Door door, const Places& made, bool wrong);

  // What the executor's pre-pass has made. Not in it is
  //   - anything of a model that switches gradients on: in graphs with some, the pre-pass is given what torch leaves over;
  //   - addmm, of which torch makes a product and a sum that have no line;
  //   - a chain of whose parts torch has made one with another's before, as it does of equal ones: two chains' products.
  // torch may also have unrolled a loop, so that one op of the rule is enough, and made one of two equal linears, so that a
  // line is gone.
  Places seen_by(const Watch& watch, const Side& side);

 private:
  bool is_run(const std::vector<std::string>& lines) const;
  Places left_by_torch(bool unrolled) const;

  const Model& model_;
  const Compiled& compiled_;
  const Graphs& plain_;
  Tally& tally_;
  std::set<int> fused_by_pass_, left_by_pass_;  // chains
};

}  // namespace tailor::fuzz
