#include "pass_generate.h"

#include <algorithm>
#include <utility>

#include "pass_assemble.h"
#include "pass_calls.h"

namespace tailor::fuzz {
namespace {

using Kind = Attribute::Kind;
using Values = Attribute::Values;

// One class: methods made of chains, branches, loops and calls of blocks. In a method `x` is its input, `h` the value that
// flows on, of `out` features once it is there, and `t` collects what else is to be seen.
class Writer {
 public:
  Writer(Random& random, Model& model, std::string name, std::string file, std::int64_t in)
      : random_(random), model_(model), type_(std::make_shared<Class>()), scope_(random, model, *type_), in_(in) {
    type_->name = std::move(name);
    type_->file = std::move(file);
  }

  // Blocks that a method may call, of `out` features.
  void add_block(const ClassPtr& block) { blocks_.push_back(block); }

  void add_method(const std::string& name, int items) {
    has_h_ = false;
    std::vector<Piece> body = {line("t = self.zero + 0.0")};
    std::vector<std::string> returned;
    scope_.returned = &returned;
    flow(body, items, 0);
    scope_.returned = nullptr;
    std::string result = random_.chance(0.5) ? "return h, t" : "return h + t * 0.125";
    for (const std::string& more : returned) result += ", " + more;
    body.push_back(line(result));
    add_method(under("def " + name + "(self, x):", std::move(body)));
  }

  // A block takes and gives one tensor. Nobody calls its other methods.
  void add_block_methods(int items) {
    has_h_ = false;
    std::vector<Piece> body = {line("t = self.zero + 0.0")};
    flow(body, items, 1);
    body.push_back(line("return h + t * 0.125"));
    add_method(under("def forward(self, x):", std::move(body)));
    if (random_.chance(0.5)) add_method(under("def twice(self, x):", {line("return self.forward(self.forward(x))")}));
    if (random_.chance(0.3)) add_method(under("def more(self, x):", {line("return self.forward(x) + 1.0")}));
  }

  ClassPtr take() {
    add_zero("zero", {1});
    add_zero("zeros", {model_.sizes.out});
    return type_;
  }

 private:
  void add_zero(const char* name, std::vector<std::int64_t> shape) {
    Attribute attribute;
    attribute.name = name;
    attribute.kind = Kind::buffer;
    attribute.shape = std::move(shape);
    attribute.values = Values::zero;
    type_->attributes.push_back(std::move(attribute));
  }

  void add_method(Piece method) {
    method.number = scope_.number();
    scope_.add_method(std::move(method));
  }

  void flow(std::vector<Piece>& into, int items, int depth) {
    for (int i = 0; i < items; ++i) {
      const double draw = random_.uniform();
      if (!has_h_) {
        if (draw < 0.2 && depth < 2)
          choice(into, depth, /*both=*/true);
        else
          chain(into);
        has_h_ = true;
      } else if (draw < 0.15 && depth < 2) {
        choice(into, depth, random_.chance(0.5));
      } else if (draw < 0.28 && depth < 2) {
        loop(into, depth);
      } else if (draw < 0.40 && !blocks_.empty()) {
        block(into);
      } else if (draw < 0.44) {
        forked(into);
      } else if (draw < 0.54) {
        interleaved(into);
      } else if (draw < 0.58) {
        twice(into);
      } else {
        chain(into);
      }
    }
  }

  // From `x`, from `h`, or from a copy that may be written to.
  std::string draw_input(std::vector<Piece>& into, std::int64_t& features) {
    const bool from_h = has_h_ && random_.chance(0.6);
    features = from_h ? model_.sizes.out : in_;
    std::string input = from_h ? "h" : "x";
    if (random_.chance(0.2)) {
      const std::string copy = scope_.fresh("v");
      into.push_back(line(copy + " = " + input + random_.text({" * 1.5", ".clone()", " + 0.0"})));
      input = copy;
    }
    return input;
  }

  Planted planted(std::vector<Piece>& into, bool twisted) {
    std::int64_t features = 0;
    const std::string input = draw_input(into, features);
    return spell(scope_, input, features, "x", in_, twisted);
  }

  // Nothing is overwritten that nobody has read: torch would take the chain that made it out of the graph.
  void keep(std::vector<Piece>& into, const std::string& result) {
    if (has_h_) into.push_back(line("t = t + h.mean()"));
    into.push_back(line(!has_h_ || random_.chance(0.6) ? "h = " + result : "h = h + " + result));
    has_h_ = true;
  }

  void chain(std::vector<Piece>& into) {
    const double draw = random_.uniform();
    const Planted plant = planted(into, draw < 0.12);
    Disturbances disturbances;
    if (draw > 0.95) {
      add_border(scope_, plant, disturbances);
    } else if (draw > 0.87) {
      if (outlined(into, plant)) return;
    } else if (draw > 0.45) {
      const int count = draw > 0.7 ? 1 : 1 + static_cast<int>(random_.below(3));
      for (int i = 0; i < count; ++i) add_disturbance(scope_, plant, disturbances);
    }
    into.push_back(assembled(scope_, plant, disturbances));
    keep(into, plant.result);
  }

  // The end of the chain in a method of its own, where it needs no more than the value.
  bool outlined(std::vector<Piece>& into, const Planted& plant) {
    const auto outline = outlined_tail(scope_, plant);
    if (!outline) return false;
    add_method(outline->method);
    into.push_back(outline->call);
    keep(into, plant.result);
    return true;
  }

  // Two chains whose statements alternate.
  void interleaved(std::vector<Piece>& into) {
    const Planted one = planted(into, false);
    const Planted two = planted(into, false);
    Piece whole;
    whole.number = scope_.number();
    whole.instead = has_h_ ? "" : "h = x.sum(-1, keepdim=True) + self.zeros";
    for (const Planted* plant : {&one, &two})
      for (const std::string& setup : plant->setup) whole.body.push_back(line(setup));
    const Planted* plants[] = {&one, &two};
    std::size_t next[] = {0, 0};
    const auto is_open = [&](std::size_t side) { return next[side] < plants[side]->statements.size(); };
    while (is_open(0) || is_open(1)) {
      const std::size_t side = !is_open(0) ? 1 : !is_open(1) ? 0 : random_.below(2);
      const std::size_t other = 1 - side;
      const Planted& plant = *plants[side];
      const Statement& statement = plant.statements[next[side]++];
      whole.body.push_back(line(statement.line));
      if (statement.is_site) whole.body.back().chain = plant.chain;
      if (next[other] == 0 || !is_open(other)) continue;
      // It stands in a gap of the other chain.
      const Gap& gap = plants[other]->statements[next[other] - 1].gap;
      Chain& disturbed = model_.chains[static_cast<std::size_t>(plants[other]->chain)];
      disturb(disturbed, gap.after_norm || gap.before_bias ? Fate::stays : Fate::fuses,
              "interleaved with another chain");
    }
    if (has_h_) whole.body.push_back(line("t = t + h.mean()"));
    whole.body.push_back(line("h = " + one.result + " + " + two.result));
    into.push_back(std::move(whole));
    has_h_ = true;
  }

  // One chain of the same tensors without gradients and with them, the latter maybe in a loop. No op of the two may be one.
  void twice(std::vector<Piece>& into) {
    const Planted plant = planted(into, false);
    const int again = static_cast<int>(model_.chains.size());
    Chain& of_plant = model_.chains[static_cast<std::size_t>(plant.chain)];
    disturb(of_plant, Fate::fuses, "the same chain with and without gradients");
    model_.chains.push_back(Chain(of_plant));
    Piece whole;
    whole.number = scope_.number();
    whole.instead = has_h_ ? "" : "h = x.sum(-1, keepdim=True) + self.zeros";
    for (const std::string& setup : plant.setup) whole.body.push_back(line(setup));
    const auto write = [&](std::vector<Piece>& to, int chain) {
      for (const Statement& statement : plant.statements) {
        to.push_back(line(statement.line));
        if (statement.is_site) to.back().chain = chain;
      }
    };
    const auto without_gradients = [&](int chain) {
      std::vector<Piece> body;
      write(body, chain);
      body.push_back(line("t = t + " + plant.result + ".mean()"));
      whole.body.push_back(under("with no_grad():", std::move(body)));
    };
    const bool first = random_.chance(0.5);
    if (first) without_gradients(plant.chain);
    whole.body.push_back(line(has_h_ ? "h = h + 0.0" : "h = x.sum(-1, keepdim=True) + self.zeros"));
    std::vector<Piece> body;
    write(body, first ? again : plant.chain);
    body.push_back(line("h = h * 0.5 + " + plant.result));
    if (random_.chance(0.5))
      whole.body.push_back(under("for " + scope_.fresh("i") + " in range(2):", std::move(body)));
    else
      whole.body.insert(whole.body.end(), body.begin(), body.end());
    if (!first) without_gradients(again);
    into.push_back(std::move(whole));
    has_h_ = true;
  }

  std::string condition() {
    std::vector<std::string> all = {"x.size(0) > 3", "self.training", "x.dim() == 2", "not self.training"};
    // Of the input, not of a norm's result, whose sum is zero but for rounding.
    if (model_.type == Type::float64 && type_->name == "Net") all.emplace_back("bool(x.sum() > 0)");
    return random_.of(all);
  }

  // What a block defines cannot be returned.
  void inner_flow(std::vector<Piece>& into, int items, int depth) {
    std::vector<std::string>* const returned = std::exchange(scope_.returned, nullptr);
    flow(into, items, depth);
    scope_.returned = returned;
  }

  void choice(std::vector<Piece>& into, int depth, bool both) {
    const bool had_h = has_h_;
    Piece whole;
    whole.number = scope_.number();
    whole.instead = had_h ? "" : "h = x.sum(-1, keepdim=True) + self.zeros";
    whole.flat = scope_.number();
    for (const std::string& header : {"if " + condition() + ":", std::string("else:")}) {
      if (!both && header == "else:") break;
      has_h_ = had_h;
      std::vector<Piece> arm;
      inner_flow(arm, 1, depth + 1);
      whole.body.push_back(under(header, std::move(arm)));
    }
    has_h_ = true;
    into.push_back(std::move(whole));
  }

  void loop(std::vector<Piece>& into, int depth) {
    Piece whole;
    whole.number = scope_.number();
    const std::string i = scope_.fresh("i");
    std::vector<Piece> body;
    inner_flow(body, random_.of({1, 1, 2}), depth + 1);
    if (random_.chance(0.3)) {
      body.push_back(line(i + " = " + i + " + 1"));
      whole.body = {line(i + " = 0"), under("while " + i + " < 2:", std::move(body))};
    } else {
      Piece repeated =
          under("for " + i + " in range(" + random_.text({"2", "1", "3", "x.dim()"}) + "):", std::move(body));
      repeated.flat = scope_.number();
      whole.body = {std::move(repeated)};
    }
    into.push_back(std::move(whole));
  }

  void block(std::vector<Piece>& into) {
    const std::string child = scope_.child("block", random_.of(blocks_));
    into.push_back(line("h = self." + child + ".forward(h)", scope_.number()));
  }

  // A chain in a method that is forked.
  void forked(std::vector<Piece>& into) {
    const bool had_h = has_h_;
    has_h_ = false;
    const std::string method = scope_.fresh("part");
    std::vector<Piece> body = {line("t = self.zero + 0.0")};
    std::vector<std::string>* const returned = std::exchange(scope_.returned, nullptr);
    chain(body);
    if (random_.chance(0.3)) loop(body, 1);
    scope_.returned = returned;
    body.push_back(line("return h + t * 0.125"));
    add_method(under("def " + method + "(self, x):", std::move(body)));
    has_h_ = had_h;
    const std::string future = scope_.fresh("future");
    Piece whole;
    whole.number = scope_.number();
    whole.body = {line(future + " = fork(self." + method + ", x)"), line("h = h + torch.wait(" + future + ")")};
    into.push_back(std::move(whole));
  }

  Random& random_;
  Model& model_;
  std::shared_ptr<Class> type_;
  Scope scope_;
  std::int64_t in_;
  std::vector<ClassPtr> blocks_;
  bool has_h_ = false;
};

bool switches_gradients_off(const Chain& chain) {
  return std::ranges::any_of(chain.disturbed,
                             [](const std::string& what) { return what.starts_with("gradients switched off"); });
}

}  // namespace

Model generate(std::uint64_t seed) {
  Random random(seed);
  Model model;
  model.seed = seed;
  const double draw = random.uniform();
  model.type = draw < 0.85 ? Type::float64 : draw < 0.95 ? Type::float32 : draw < 0.98 ? Type::bfloat16 : Type::float16;
  model.sizes = random.of<Sizes>({{5, 12, 3}, {3, 6, 2}, {4, 8, 4}, {6, 6, 3}, {7, 10, 5}});

  ClassPtr block;
  if (random.chance(0.15)) {
    Writer writer(random, model, "Block", "block.py", model.sizes.out);
    writer.add_block_methods(1);
    block = writer.take();
    model.classes.push_back(block);
  }
  Writer writer(random, model, "Net", "net.py", model.sizes.in);
  if (block) writer.add_block(block);
  const int methods = random.chance(0.15) ? 2 : 1;
  writer.add_method("forward", random.of({1, 1, 1, 2, 2, 3}));
  if (methods > 1) writer.add_method("other", 1);
  model.top = writer.take();
  model.classes.push_back(model.top);
  if (model.assigns_operands)
    for (Chain& chain : model.chains)
      for (const std::string& what : chain.disturbed)
        if (what.find("written to") != std::string::npos) chain.fate = std::max(chain.fate, Fate::either);
  if (std::ranges::any_of(model.chains, switches_gradients_off))  // nobody follows which of them stand in one graph
    for (Chain& chain : model.chains) disturb(chain, Fate::either, "gradients switched off in the model");
  draw_calls(random, model, methods);
  model.doors = draw_doors(seed);
  return model;
}

}  // namespace tailor::fuzz
