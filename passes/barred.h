// What must not be fused for the sake of a method that calls it. One that fits no file (file.h) cannot have its calls inlined, and goes on
// calling: where it does so inside `with autocast`, or beside what would lose its order (order.h), what it calls stays unfused.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "calls.h"
#include "entries.h"
#include "pass.h"

namespace tailor {

// The function's graph, which goes on calling, with what keeps its order (order.h). Null where that is not enough: what it calls is
// others', too, and a loop there stays as it is.
std::shared_ptr<Graph> with_order(const torch::jit::GraphFunction& function, Instead instead = {});

// The functions, and why.
using Barred = std::unordered_map<torch::jit::GraphFunction*, std::string>;

PassOptions options_of(const Member& member, const Options& options);
PassResult look_at(const Member& member, const std::shared_ptr<Graph>& graph, const Options& options,
                   const Barred& barred = {});

// Bars what these methods must not call fused, and returns what is new: taken back, it may bring bare loops before another of them, which
// is to be asked again. `fused`: the graphs of what they call, where those are not the functions' own.
std::vector<torch::jit::GraphFunction*> bar(const std::vector<const Member*>& unfit, const Options& options,
                                            Barred& barred, const Instead& fused = {});

// What fuse makes of a module's methods, before it does.
struct Foreseen {
  Instead fused;
  Barred barred;
};

Foreseen foresee(const Members& members, const Options& options);

}  // namespace tailor
