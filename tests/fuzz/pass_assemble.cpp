#include "pass_assemble.h"

#include <cctype>

namespace tailor::fuzz {
namespace {

// For all of the chain; where it is dropped, its result is still there.
Piece group_of(Scope& scope, const Planted& planted) {
  Piece whole;
  whole.number = scope.number();
  whole.instead = planted.result + " = " + planted.input + ".sum(-1, keepdim=True) + self.zeros";
  return whole;
}

Piece piece_of(const Planted& planted, const Statement& statement) {
  Piece piece = line(statement.line);
  if (statement.is_site) piece.chain = planted.chain;
  return piece;
}

bool is_in_name(char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)); }

// Whether the text reads the variable.
bool names(const std::string& text, const std::string& variable) {
  for (auto at = text.find(variable); at != std::string::npos; at = text.find(variable, at + 1)) {
    const char before = at == 0 ? '\n' : text[at - 1];
    const char after = at + variable.size() < text.size() ? text[at + variable.size()] : '\n';
    if (before != '.' && !is_in_name(before) && !is_in_name(after)) return true;
  }
  return false;
}

std::string first_word(const std::string& text) { return text.substr(0, text.find_first_of(" .")); }

}  // namespace

void add_border(Scope& scope, const Planted& planted, Disturbances& to) {
  std::vector<int> places;
  for (std::size_t i = 0; i + 1 < planted.statements.size(); ++i)
    if (!planted.statements[i].gap.value.empty()) places.push_back(static_cast<int>(i));
  if (places.empty()) return;
  to.border = scope.random.of(places);
  to.border_header =
      scope.random.text({"if self.training:", "if x.size(0) > 2:", "for i in range(1):", "for i in range(2):"});
  disturb(scope.model.chains[static_cast<std::size_t>(planted.chain)], Fate::stays, "the border of a branch or a loop");
}

Piece assembled(Scope& scope, const Planted& planted, const Disturbances& disturbances) {
  Piece whole = group_of(scope, planted);
  for (const std::string& setup : planted.setup) whole.body.push_back(line(setup));
  const auto insert = [&](int at, std::vector<Piece>& into) {
    for (const Insertion& insertion : disturbances.inside)
      if (insertion.after == at) into.insert(into.end(), insertion.pieces.begin(), insertion.pieces.end());
  };
  insert(-1, whole.body);
  std::vector<Piece> rest;
  std::vector<Piece>* into = &whole.body;
  for (std::size_t i = 0; i < planted.statements.size(); ++i) {
    const Statement& statement = planted.statements[i];
    into->push_back(piece_of(planted, statement));
    insert(static_cast<int>(i), *into);
    if (static_cast<int>(i) == disturbances.border) into = &rest;
  }
  if (into == &rest) {
    // Where the branch is not taken, the value so far or, so that nobody else reads that, another.
    const std::string& value = planted.statements[static_cast<std::size_t>(disturbances.border)].gap.value;
    whole.body.push_back(line(scope.random.chance(0.3) ? planted.result + " = " + value : whole.instead));
    whole.body.push_back(line(disturbances.border_header));
    whole.body.back().body = std::move(rest);
  }
  whole.body.insert(whole.body.end(), disturbances.afterwards.begin(), disturbances.afterwards.end());
  return whole;
}

std::optional<Outline> outlined_tail(Scope& scope, const Planted& planted) {
  const auto& all = planted.statements;
  std::size_t cut = 0;
  while (cut + 1 < all.size() && all[cut].gap.value.empty()) ++cut;
  if (cut + 1 >= all.size() || all[cut].gap.before_bias) return std::nullopt;
  const std::string value = all[cut].gap.value;

  std::string rest;
  for (std::size_t i = cut + 1; i < all.size(); ++i) rest += all[i].line + "\n";
  std::vector<std::string> others = {"x", "h", "t", planted.input};
  for (const std::string& setup : planted.setup) others.push_back(first_word(setup));
  for (std::size_t i = 0; i <= cut; ++i) others.push_back(first_word(all[i].line));
  for (const std::string& other : others)
    if (other != value && names(rest, other)) return std::nullopt;

  const std::string name = scope.fresh("tail");
  std::vector<Piece> body;
  for (std::size_t i = cut + 1; i < all.size(); ++i) body.push_back(line(all[i].line));
  body.push_back(line("return " + planted.result));
  Outline outline;
  outline.method = under("def " + name + "(self, " + value + "):", std::move(body));
  outline.call = group_of(scope, planted);
  for (const std::string& setup : planted.setup) outline.call.body.push_back(line(setup));
  for (std::size_t i = 0; i <= cut; ++i) outline.call.body.push_back(piece_of(planted, all[i]));
  outline.call.body.push_back(line(planted.result + " = self." + name + "(" + value + ")"));
  return outline;
}

}  // namespace tailor::fuzz
