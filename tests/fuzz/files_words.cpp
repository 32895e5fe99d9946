// The languages inside an archive: pickles, a program for a stack machine, and TorchScript.
#include <algorithm>
#include <optional>

#include "files_mutant.h"

namespace tailor::fuzz {
namespace {

struct Word {
  std::size_t at, size;
};

std::uint32_t little(const std::string& text, std::size_t at, int size) {
  std::uint32_t value = 0;
  for (int i = 0; i < size && at + static_cast<std::size_t>(i) < text.size(); ++i)
    value |= static_cast<std::uint32_t>(static_cast<unsigned char>(text[at + static_cast<std::size_t>(i)])) << (8 * i);
  return value;
}

// The operations of a pickle with what belongs to each.
std::vector<Word> pickle_words(const std::string& pickle) {
  std::vector<Word> words;
  for (std::size_t at = 0; at < pickle.size();) {
    std::size_t size = 1;
    switch (pickle[at]) {
      case 'K':
      case 'q':
      case 'h':
      case '\x80':
        size = 2;
        break;
      case 'M':
        size = 3;
        break;
      case 'J':
      case 'r':
      case 'j':
        size = 5;
        break;
      case 'G':
        size = 9;
        break;
      case 'X':
      case 'T':
      case 'B':
        size = 5 + little(pickle, at + 1, 4);
        break;
      case 'U':
      case 'C':
      case '\x8a':
        size = 2 + little(pickle, at + 1, 1);
        break;
      case 'c':
        size = pickle.find('\n', std::min(pickle.find('\n', at), pickle.size() - 1) + 1) + 1 - at;
        break;
      default:
        break;
    }
    if (size == 0 || size > pickle.size() - at) break;
    words.push_back({at, size});
    at += size;
  }
  return words;
}

std::string bytes_of(std::uint64_t value, int size) {
  std::string text;
  for (int i = 0; i < size; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

bool is_number(char operation) { return std::string("KMJ\x8a").find(operation) != std::string::npos; }

std::string odd_text(Random& random) {
  const char* const texts[] = {"",       "meta",          "cuda:0",   "cpu:7",   "xla",       "../0",
                               "1",      "weight",        "training", "forward", "List[int]", "Dict[str, Tensor]",
                               "Tuple[", "__torch__.Net", "\xff\xfe", "storage", "\n"};
  return random.one_in(12) ? std::string(65536, 'x') : texts[random.below(std::size(texts))];
}

std::string odd_class(Random& random) {
  const char* const classes[] = {"cposix\nsystem\n",
                                 "cbuiltins\neval\n",
                                 "cos\npopen\n",
                                 "c__torch__\nNet\n",
                                 "c__torch__\nNothing\n",
                                 "c__torch__.torch.classes.quantized\nConv2dPackedParamsBase\n",
                                 "c__torch__.torch.classes.quantized\nLinearPackedParamsBase\n",
                                 "ctorch._utils\n_rebuild_tensor_v2\n",
                                 "ctorch._utils\n_rebuild_qtensor\n",
                                 "ctorch._utils\n_rebuild_sparse_tensor\n",
                                 "ctorch._utils\n_rebuild_meta_tensor_no_storage\n",
                                 "ctorch._utils\n_rebuild_parameter\n",
                                 "ctorch.jit._pickle\nbuild_intlist\n",
                                 "ctorch.jit._pickle\nbuild_tensorlist\n",
                                 "ctorch.jit._pickle\nbuild_tensor_from_id\n",
                                 "ctorch.jit._pickle\nrestore_type_tag\n",
                                 "ccollections\nOrderedDict\n",
                                 "ctorch\nDoubleStorage\n",
                                 "ctorch\nByteStorage\n",
                                 "ctorch\nQInt8Storage\n",
                                 "ctorch\nComplexDoubleStorage\n",
                                 "ctorch\ndevice\n",
                                 "ctorch\nGenerator\n",
                                 "ctorch.distributed.rpc\nrref\n"};
  return classes[random.below(std::size(classes))];
}

// Something else of the same kind: a number for a number, a class for a class.
std::string instead_of(const std::string& word, Random& random) {
  if (is_number(word[0])) {
    const std::uint64_t value = odd_number(random, little(word, 1, word[0] == 'K' ? 1 : 2));
    if (value < 256) return std::string("K") + static_cast<char>(value);
    if (random.one_in(4)) return "J" + bytes_of(value, 4);
    return "\x8a\x08" + bytes_of(value, 8);
  }
  if (word[0] == 'c') return odd_class(random);
  if (word[0] == 'X') {
    const std::string text = odd_text(random);
    return "X" + bytes_of(text.size(), 4) + text;
  }
  if (word[0] == 'q' || word[0] == 'h') return {word[0], static_cast<char>(random.below(random.one_in(4) ? 256 : 24))};
  if (word[0] == 'G') return "G" + bytes_of(odd_number(random, 0), 8);
  const std::string operations = "N)(t}]\x85\x86\x87\x88\x89QRbuea.s0";
  return {operations[random.below(operations.size())]};
}

// Deeper than any stack, one way or another.
std::string nest(Random& random) {
  const std::size_t depth = std::size_t{1} << (6 + random.below(13));
  std::string text;
  switch (random.below(3)) {
    case 0:
      text.append(depth, '(');
      break;
    case 1:
      text.append(depth, ']').append(depth, 'a');
      break;
    default:
      text.append("N").append(depth, '\x85');  // a tuple of a tuple of a tuple
  }
  return text;
}

// Names, numbers and single signs.
std::vector<Word> code_words(const std::string& code) {
  std::vector<Word> words;
  const auto in_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  for (std::size_t at = 0; at < code.size();) {
    std::size_t end = at + 1;
    if (in_name(code[at]))
      while (end < code.size() && in_name(code[end])) ++end;
    if (!std::isspace(static_cast<unsigned char>(code[at]))) words.push_back({at, end - at});
    at = end;
  }
  return words;
}

std::vector<Word> lines_of(const std::string& code) {
  std::vector<Word> lines;
  for (std::size_t at = 0; at < code.size();) {
    const std::size_t end = std::min(code.find('\n', at), code.size() - 1) + 1;
    lines.push_back({at, end - at});
    at = end;
  }
  return lines;
}

std::string shown(std::string text) {
  if (text.size() > 40) text.replace(40, std::string::npos, "...");
  for (char& c : text) c = c >= 32 && c < 127 ? c : '?';
  return "'" + text + "'";
}

std::string replace(std::string& text, Word word, const std::string& with) {
  const std::string old = text.substr(word.at, word.size);
  text.replace(word.at, word.size, with);
  return shown(with) + " for " + shown(old) + " at byte " + std::to_string(word.at);
}

}  // namespace

std::string change_pickle(std::string& pickle, Random& random) {
  const auto words = pickle_words(pickle);
  if (words.empty()) return "it has no words";
  Word word = words[random.below(words.size())];
  // Numbers and names are what lies can be told with; half of all words only put values away.
  for (int i = 0; i < 6 && std::string("KMJ\x8a"
                                       "cX")
                                   .find(pickle[word.at]) == std::string::npos;
       ++i)
    word = words[random.below(words.size())];
  const std::string old = pickle.substr(word.at, word.size);
  switch (random.below(12)) {
    case 0:
      return "without " + replace(pickle, word, "");
    case 1:
      return "twice: " + replace(pickle, word, old + old);
    case 2: {
      const Word other = words[random.below(words.size())];
      return "copied: " + replace(pickle, word, pickle.substr(other.at, other.size));
    }
    case 3:
      if (random.one_in(4)) return "nested: " + replace(pickle, word, nest(random) + old);
      [[fallthrough]];
    default:
      return replace(pickle, word, instead_of(old, random));
  }
}

std::string change_code(std::string& code, Random& random) {
  const auto words = code_words(code), lines = lines_of(code);
  if (words.empty()) return "it has no words";
  const Word word = words[random.below(words.size())], line = lines[random.below(lines.size())];
  const char* const texts[] = {"0",
                               "-1",
                               "9223372036854775807",
                               "9223372036854775808",
                               "1e999",
                               "None",
                               "True",
                               "self",
                               "x",
                               "ops.tailor",
                               "ops.aten",
                               "torch",
                               "Tensor",
                               "Optional[Tensor]",
                               "__torch__",
                               "CONSTANTS.c0",
                               "CONSTANTS.c9",
                               "while",
                               "return",
                               "(",
                               ")",
                               "\"",
                               "#",
                               ",",
                               "annotate",
                               "uninitialized",
                               "prim.rethrow",
                               "__setstate__"};
  switch (random.below(8)) {
    case 0:
      return "without " + replace(code, line, "");
    case 1:
      return "twice: " + replace(code, line, code.substr(line.at, line.size) + code.substr(line.at, line.size));
    case 2: {
      const Word other = lines[random.below(lines.size())];
      return "copied: " + replace(code, line, code.substr(other.at, other.size));
    }
    case 3:
      return replace(code, word, texts[random.below(std::size(texts))]);
    case 4:
      if (random.one_in(3)) {
        const std::size_t depth = std::size_t{1} << (4 + random.below(13));
        return "nested: " + replace(code, word, std::string(depth, '(') + "x" + std::string(depth, ')'));
      }
      [[fallthrough]];
    default: {
      const Word other = words[random.below(words.size())];
      return replace(code, word, code.substr(other.at, other.size));
    }
  }
}

}  // namespace tailor::fuzz
