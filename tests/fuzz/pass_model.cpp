#include "pass_model.h"

#include <sstream>

namespace tailor::fuzz {
namespace {

class Printer {
 public:
  Printer(const Class& type, const Without& without) : file_(type.file), without_(without) {
    print(type.methods, 0);
    source_.text = text_.str();
  }

  Source take() { return std::move(source_); }

 private:
  void print(const std::vector<Piece>& pieces, int depth) {
    for (const Piece& piece : pieces) print(piece, depth);
  }

  void print(const Piece& piece, int depth) {
    if (without_.contains(piece.number)) {
      if (!piece.instead.empty()) put(piece.instead, depth);
    } else if (without_.contains(piece.flat)) {
      if (piece.line.empty())  // a choice: its first branch
        print(piece.body.front().body, depth);
      else
        print(piece.body, depth);
    } else if (piece.line.empty()) {
      print(piece.body, depth);
    } else {
      put(piece.line, depth);
      if (piece.chain >= 0) source_.sites[piece.chain].push_back(file_ + ":" + std::to_string(lines_));
      const int before = lines_;
      print(piece.body, depth + 1);
      if (piece.line.back() == ':' && lines_ == before) put("pass", depth + 1);
    }
  }

  void put(const std::string& line, int depth) {
    text_ << std::string(static_cast<std::size_t>(4 * depth), ' ') << line << '\n';
    ++lines_;
  }

  const std::string& file_;
  const Without& without_;
  std::ostringstream text_;
  Source source_;
  int lines_ = 0;
};

const char* kind_of(const Attribute& a) {
  switch (a.kind) {
    case Attribute::Kind::parameter:
      return "parameter";
    case Attribute::Kind::buffer:
      return "buffer";
    case Attribute::Kind::tensors:
      return "list";
    case Attribute::Kind::number:
      return "float";
    case Attribute::Kind::integer:
      return "int";
    case Attribute::Kind::flag:
      return "bool";
  }
  return "";
}

void describe(std::ostream& out, const Attribute& a) {
  out << "#   " << a.name << ": " << kind_of(a);
  if (a.kind == Attribute::Kind::number || a.kind == Attribute::Kind::integer || a.kind == Attribute::Kind::flag) {
    out << " " << a.number << "\n";
    return;
  }
  if (!a.same.empty()) {
    out << ", another name of " << a.same << "\n";
    return;
  }
  if (a.kind == Attribute::Kind::tensors) {
    out << " of";
    for (const std::string& path : a.holds) out << " " << path;
    out << "\n";
    return;
  }
  if (!a.alias.empty()) {
    out << ", a view of " << a.alias << (a.silent ? " (with a version counter of its own)" : "") << "\n";
    return;
  }
  out << " (";
  for (const auto size : a.shape) out << size << ",";
  out << ")" << (a.gradient ? ", wants a gradient" : "") << (a.float32 ? ", float32" : "") << "\n";
}

}  // namespace

Piece line(std::string text, int number) {
  Piece piece;
  piece.line = std::move(text);
  piece.number = number;
  return piece;
}

Piece under(std::string header, std::vector<Piece> body) {
  Piece piece = line(std::move(header));
  piece.body = std::move(body);
  return piece;
}

const char* to_string(Fate fate) { return fate == Fate::fuses ? "fuses" : fate == Fate::either ? "either" : "stays"; }

const char* to_string(Input input) {
  static const char* names[] = {"plain", "one row", "no row",  "too wide", "1-D",
                                "3-D",   "strided", "float32", "integers"};
  return names[static_cast<int>(input)];
}

const char* to_string(Type type) {
  static const char* names[] = {"float64", "float32", "bfloat16", "float16"};
  return names[static_cast<int>(type)];
}

Source source_of(const Class& type, const Without& without) { return Printer(type, without).take(); }

std::string description_of(const Model& model, const Without& without) {
  std::ostringstream out;
  out << "# " << to_string(model.type) << ", in " << model.sizes.in << ", out " << model.sizes.out << ", groups "
      << model.sizes.groups << "\n";
  for (const ClassPtr& type : model.classes) {
    const Source source = source_of(*type, without);
    out << "# class " << type->name << " in " << type->file << (type == model.top ? ", the model" : "") << "\n";
    for (const Attribute& attribute : type->attributes)
      if (source.text.find("self." + attribute.name) != std::string::npos) describe(out, attribute);
    for (const Child& child : type->children)
      if (source.text.find("self." + child.name + ".") != std::string::npos)
        out << "#   " << child.name << ": " << child.type->name
            << (child.same.empty() ? "" : ", whose weight is " + child.same) << "\n";
    out << source.text;
    for (const auto& [chain, places] : source.sites) {
      const Chain& c = model.chains[static_cast<std::size_t>(chain)];
      for (const auto& place : places) out << "# " << place << ": " << c.rule << ", " << to_string(c.fate);
      for (const auto& what : c.disturbed) out << ", " << what;
      out << "\n";
    }
  }
  for (const Call& call : model.calls)
    if (!without.contains(call.number))
      out << "# call " << call.method << ": " << to_string(call.input) << ", " << call.rows << " rows, "
          << (call.training ? "training" : "eval") << (call.gradients ? ", with gradients" : "") << "\n";
  return out.str();
}

}  // namespace tailor::fuzz
