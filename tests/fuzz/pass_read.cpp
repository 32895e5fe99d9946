// Reads what pass_text.cpp has written.
#include <algorithm>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "pass_text.h"

namespace tailor::fuzz {
namespace {

using Kind = Attribute::Kind;
using Values = Attribute::Values;

// "a, b, c" as a, b and c; not within brackets.
std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    depth += (c == '(') - (c == ')');
    if (c == ',' && depth == 0)
      parts.emplace_back();
    else if (c != ' ' || !parts.back().empty())
      parts.back() += c;
  }
  return parts;
}

// What stands behind a word, where the text begins with it.
std::optional<std::string> behind(const std::string& word, const std::string& text) {
  if (!text.starts_with(word)) return std::nullopt;
  return text.substr(word.size());
}

template <class T>
std::optional<T> named(std::initializer_list<T> all, const std::string& name) {
  for (const T each : all)
    if (name == to_string(each)) return each;
  return std::nullopt;
}

class Reader {
 public:
  explicit Reader(const std::string& text) : text_(text) {}

  Model take() {
    std::istringstream in(text_);
    for (std::string line; std::getline(in, line);) {
      ++number_;
      if (line.empty() || line.starts_with("##")) continue;
      if (const auto rest = behind("# class ", line))
        begin_class(*rest);
      else if (const auto attribute = behind("#   ", line))
        add_attribute(*attribute);
      else if (const auto call = behind("# call ", line))
        add_call(*call);
      else if (const auto note = behind("# ", line))
        type_ ? add_chain(*note) : read_head(*note);
      else
        lines_.push_back(line);
    }
    end_class();
    if (!model_.top) fail("no class is the model");
    for (const Door door : all_doors)
      if (door != Door::pass) model_.doors.push_back(door);
    model_.silent_writes = model_.silent_writes || text_.find(".data.") != std::string::npos;
    for (const char* unseen : {"torch._foreach_", " round"})
      model_.writes_unseen = model_.writes_unseen || text_.find(unseen) != std::string::npos;
    return std::move(model_);
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw std::runtime_error("line " + std::to_string(number_) + ": " + why);
  }

  std::int64_t integer(const std::string& text) const {
    std::istringstream in(text);
    std::int64_t value = 0;
    if (!(in >> value)) fail("'" + text + "' is no number");
    return value;
  }

  void read_head(const std::string& text) {
    for (const std::string& part : parts_of(text)) {
      if (const auto type = named({Type::float64, Type::float32, Type::bfloat16, Type::float16}, part))
        model_.type = *type;
      else if (const auto in = behind("in ", part))
        model_.sizes.in = integer(*in);
      else if (const auto out = behind("out ", part))
        model_.sizes.out = integer(*out);
      else if (const auto groups = behind("groups ", part))
        model_.sizes.groups = integer(*groups);
      else if (const auto values = behind("values ", part))
        std::istringstream(*values) >> model_.seed;
      else
        fail("what is '" + part + "'?");
    }
  }

  // "Net in net.py, the model"
  void begin_class(const std::string& text) {
    end_class();
    const auto parts = parts_of(text);
    const auto in = parts[0].find(" in ");
    if (in == std::string::npos) fail("a class has a name and a file");
    type_ = std::make_shared<Class>();
    type_->name = parts[0].substr(0, in);
    type_->file = parts[0].substr(in + 4);
    if (parts.size() > 1) model_.top = type_;
  }

  void end_class() {
    if (!type_) return;
    std::size_t next = 0;
    type_->methods = pieces(next, 0);
    if (next < lines_.size()) fail("a line is indented more than the one before");
    model_.classes.push_back(type_);
    lines_.clear();
    chains_.clear();
    type_.reset();
  }

  static std::size_t indentation(const std::string& line) { return line.find_first_not_of(' '); }

  // From line `next` on, those that are indented by as much, with what stands under them.
  std::vector<Piece> pieces(std::size_t& next, std::size_t indented) {
    std::vector<Piece> all;
    while (next < lines_.size() && indentation(lines_[next]) == indented) {
      Piece piece = line(lines_[next].substr(indented), ++model_.numbers);
      if (const auto chain = chains_.find(type_->file + ":" + std::to_string(next + 1)); chain != chains_.end())
        piece.chain = chain->second;
      ++next;
      if (next < lines_.size() && indentation(lines_[next]) > indented)
        piece.body = pieces(next, indentation(lines_[next]));
      all.push_back(std::move(piece));
    }
    return all;
  }

  // "w1: parameter (12, 5), wants a gradient"; "bn2: module BatchNorm1d, whose weight is w1"
  void add_attribute(const std::string& text) {
    if (!type_) fail("an attribute before its class");
    const auto colon = text.find(": ");
    if (colon == std::string::npos) fail("an attribute has a name and a kind");
    const auto parts = parts_of(text.substr(colon + 2));
    if (const auto name = behind("module ", parts[0])) return add_child(text.substr(0, colon), *name, parts);
    Attribute attribute;
    attribute.name = text.substr(0, colon);
    std::istringstream first(parts[0]);
    std::string kind, rest;
    first >> kind;
    std::getline(first >> std::ws, rest);
    const auto is = [&](const char* name, Kind it) {
      if (kind == name) attribute.kind = it;
      return kind == name;
    };
    if (is("float", Kind::number) || is("int", Kind::integer) || is("bool", Kind::flag) || is("None", Kind::nothing))
      std::istringstream(rest) >> attribute.number;
    else if (is("list", Kind::tensors))
      read_paths(rest.substr(std::min<std::size_t>(2, rest.size())), attribute.holds);
    else if (is("parameter", Kind::parameter) || is("buffer", Kind::buffer))
      read_shape(rest, attribute.shape);
    else
      fail("'" + kind + "' is no kind of attribute");
    for (std::size_t i = 1; i < parts.size(); ++i) read_property(parts[i], attribute);
    model_.silent_writes = model_.silent_writes || attribute.silent;
    type_->attributes.push_back(std::move(attribute));
  }

  static void read_paths(const std::string& text, std::vector<std::string>& into) {
    std::istringstream in(text);
    for (std::string path; in >> path;) into.push_back(path);
  }

  void read_shape(const std::string& text, std::vector<std::int64_t>& into) const {
    if (text.size() <= 2) return;
    for (const std::string& size : parts_of(text.substr(1, text.size() - 2))) into.push_back(integer(size));
  }

  void read_property(const std::string& text, Attribute& attribute) const {
    if (const auto same = behind("another name of ", text))
      attribute.same = *same;
    else if (const auto alias = behind("a view of ", text))
      attribute.alias = *alias;
    else if (text == "with a version counter of its own")
      attribute.silent = true;
    else if (text == "positive")
      attribute.values = Values::positive;
    else if (text == "a counter")
      attribute.values = Values::counter;
    else if (text == "zero")
      attribute.values = Values::zero;
    else if (text == "wants a gradient")
      attribute.gradient = true;
    else if (text == "float32")
      attribute.float32 = true;
    else
      fail("what is '" + text + "'?");
  }

  void add_child(const std::string& name, const std::string& type, const std::vector<std::string>& parts) {
    const auto found = std::ranges::find_if(model_.classes, [&](const ClassPtr& each) { return each->name == type; });
    if (found == model_.classes.end()) fail("there is no class '" + type + "' before this one");
    Child child{name, *found};
    if (parts.size() > 1) child.same = behind("whose weight is ", parts[1]).value_or("");
    type_->children.push_back(child);
  }

  // "net.py:2: linear_mul_batch_norm, fuses, a shape reader". The text that it is about has been read.
  void add_chain(const std::string& text) {
    const auto end = text.find(": ");
    if (end == std::string::npos) fail("what is '" + text + "'?");
    const auto parts = parts_of(text.substr(end + 2));
    Chain chain;
    chain.rule = parts[0];
    const auto fate = named({Fate::fuses, Fate::either, Fate::stays}, parts.size() > 1 ? parts[1] : "");
    if (!fate) fail("a chain fuses, stays, or either");
    chain.fate = *fate;
    chain.disturbed.assign(parts.begin() + 2, parts.end());
    chains_[text.substr(0, end)] = static_cast<int>(model_.chains.size());
    model_.chains.push_back(std::move(chain));
  }

  // "forward: plain, 4 rows, training, with gradients"
  void add_call(const std::string& text) {
    const auto colon = text.find(": ");
    const auto parts = parts_of(colon == std::string::npos ? "" : text.substr(colon + 2));
    if (parts.size() < 3) fail("a call has an input, rows and a mode");
    const auto input = named({Input::plain, Input::row, Input::none, Input::wide, Input::flat, Input::cube,
                              Input::strided, Input::other_dtype, Input::integers},
                             parts[0]);
    if (!input) fail("'" + parts[0] + "' is no input");
    model_.calls.push_back({++model_.numbers, text.substr(0, colon), *input, integer(parts[1]), parts[2] == "training",
                            parts.size() > 3 && parts[3] == "with gradients"});
  }

  const std::string& text_;
  int number_ = 0;
  Model model_;
  std::shared_ptr<Class> type_;
  std::vector<std::string> lines_;     // of the class
  std::map<std::string, int> chains_;  // by place
};

}  // namespace

Model read_model(const std::string& description) { return Reader(description).take(); }

}  // namespace tailor::fuzz
