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

const char* to_string(Door door) {
  static const char* names[] = {"pass", "fuse", "hook", "executor", "file", "unfuse", "back"};
  return names[static_cast<int>(door)];
}

Source source_of(const Class& type, const Without& without) { return Printer(type, without).take(); }

}  // namespace tailor::fuzz
