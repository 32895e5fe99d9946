#include "pickle.h"

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <string_view>
#include <unordered_map>

#include "failure.h"
#include "zip_directory.h"

namespace tailor::tool {
namespace {

[[noreturn]] void refuse(const char* what) { throw Damage(what); }

// What torch calls the storages of its dtypes, and the bytes of an element. Those below a byte share one.
struct Dtype {
  std::string_view name;
  std::uint64_t bytes = 1;
  std::uint64_t in_one = 1;
};
constexpr std::array dtypes{
    Dtype{"Byte"},        Dtype{"Char"},          Dtype{"Short", 2},        Dtype{"Int", 4},
    Dtype{"Long", 8},     Dtype{"Half", 2},       Dtype{"Float", 4},        Dtype{"Double", 8},
    Dtype{"Bool"},        Dtype{"BFloat16", 2},   Dtype{"ComplexHalf", 4},  Dtype{"ComplexFloat", 8},
    Dtype{"QInt8"},       Dtype{"QUInt8"},        Dtype{"QInt32", 4},       Dtype{"ComplexDouble", 16},
    Dtype{"UInt16", 2},   Dtype{"UInt32", 4},     Dtype{"UInt64", 8},       Dtype{"QUInt4x2", 1, 2},
    Dtype{"Float8_e5m2"}, Dtype{"Float8_e4m3fn"}, Dtype{"Float8_e5m2fnuz"}, Dtype{"QUInt2x4", 1, 4},
    Dtype{"Bits1x8"},     Dtype{"Bits2x4"},       Dtype{"Float8_e4m3fnuz"}, Dtype{"Float8_e8m0fnu"},
    Dtype{"Bits4x2"},     Dtype{"Bits8"},         Dtype{"Bits16", 2},       Dtype{"Float4_e2m1fn_x2"},
};

// The dtype that a class of storages names; empty where it is none. Torch's integers of fewer than eight bits have a byte each.
std::string_view dtype_of(std::string_view type) {
  constexpr std::string_view before = "torch\n", after = "Storage\n";
  if (!type.starts_with(before) || !type.ends_with(after) || type.size() < before.size() + after.size()) return "";
  type.remove_prefix(before.size());
  type.remove_suffix(after.size());
  const std::string_view sign = type.starts_with("UInt") ? "UInt" : "Int";
  const bool is_narrow =
      type.starts_with(sign) && type.size() == sign.size() + 1 && type.back() >= '1' && type.back() <= '7';
  return is_narrow ? "Byte" : type;
}

// A value on the stack: two words, for a stack may be as long as its pickle. Containers that are filled later, objects
// and numbers with a point are all `other`.
struct Value {
  enum class Kind : std::uint8_t { other, number, text, global, tuple, storage };
  Kind kind = Kind::other;
  std::uint8_t dtype = 0;   // of a storage
  std::uint32_t size = 0;   // of a text in bytes, of a tuple in elements
  std::int64_t number = 0;  // itself; where a text or the elements of a tuple begin; how many elements a storage holds
};
static_assert(sizeof(Value) == 16);

class Machine {
 public:
  Machine(std::span<const unsigned char> pickle, const StorageSize& size_of) : pickle_(pickle), size_of_(size_of) {}

  void run() {
    constexpr unsigned protocol = 0x80, torchs = 2;
    if (byte() != protocol || byte() != torchs) refuse("it does not begin as a pickle of torch does");
    for (;;) {
      const unsigned operation = byte();
      if (operation == '.') break;
      step(operation);
    }
    if (at_ != pickle_.size()) refuse("something follows its pickle");
  }

 private:
  using Kind = Value::Kind;

  // ---- the pickle

  std::span<const unsigned char> take(std::uint64_t size) {
    if (size > pickle_.size() - at_) refuse("its pickle ends early");
    at_ += size;
    return pickle_.subspan(at_ - size, size);
  }
  unsigned byte() { return take(1)[0]; }
  std::uint64_t number(std::size_t size) { return Fields(take(size)).number(size); }
  // What lies between here and the present place.
  void push_text(Kind kind, std::size_t begin) {
    push({.kind = kind, .size = static_cast<std::uint32_t>(at_ - begin), .number = static_cast<std::int64_t>(begin)});
  }
  std::string_view text(const Value& value) const {
    return {reinterpret_cast<const char*>(pickle_.data()) + value.number, value.size};
  }
  void skip_line() {
    while (byte() != '\n') {
    }
  }

  // ---- the stack, the marks on it, and what was put away

  void push(Value value = {}) { stack_.push_back(value); }
  void push_number(std::int64_t value) { push({.kind = Kind::number, .number = value}); }
  Value pop() {
    need(1);
    const Value top = stack_.back();
    stack_.pop_back();
    return top;
  }
  void need(std::size_t count) const {
    if (stack_.size() < count) refuse("its pickle takes more than it gives");
  }
  std::size_t unmark(std::size_t below) {  // with so many values before it
    if (marks_.empty() || marks_.back() > stack_.size() || marks_.back() < below) {
      refuse("its pickle has a mark in a wrong place");
    }
    const std::size_t mark = marks_.back();
    marks_.pop_back();
    return mark;
  }
  void drop_from(std::size_t mark) { stack_.resize(mark); }
  void push_tuple(std::size_t from) {
    constexpr std::size_t most_dimensions =
        256;  // and what describes a tensor has fewer parts; of others none is asked
    const std::size_t size = stack_.size() - from;
    Value value;
    if (size <= most_dimensions) {
      value = {.kind = Kind::tuple,
               .size = static_cast<std::uint32_t>(size),
               .number = static_cast<std::int64_t>(elements_.size())};
      elements_.insert(elements_.end(), stack_.begin() + static_cast<std::ptrdiff_t>(from), stack_.end());
    }
    drop_from(from);
    push(value);
  }
  void put(std::uint64_t place) {
    need(1);
    if (place >= pickle_.size()) refuse("its pickle puts a value where torch does not");
    memo_.insert_or_assign(place, stack_.back());
  }
  void get(std::uint64_t place) {
    const auto found = memo_.find(place);
    if (found == memo_.end()) refuse("its pickle asks for a value that it has not put away");
    push(found->second);
  }

  void step(unsigned operation) {
    const std::size_t begin = at_;
    switch (operation) {
      case '(':
        return marks_.push_back(stack_.size());
      case ')':
        return push({.kind = Kind::tuple});
      case ']':
      case '}':
      case 'N':
      case 0x88:  // true
      case 0x89:  // false
        return push();
      case 'K':
        return push_number(static_cast<std::int64_t>(number(1)));
      case 'M':
        return push_number(static_cast<std::int64_t>(number(2)));
      case 'J':
        return push_number(static_cast<std::int32_t>(number(4)));
      case 0x8a:
        if (byte() != 8) refuse("its pickle has a number of another size than torch writes");
        return push_number(static_cast<std::int64_t>(number(8)));
      case 'G':
        take(8);
        return push();
      case 'X':
        take(number(4));
        return push_text(Kind::text, begin + 4);
      case 'c':  // a module and a name, a line each
        skip_line();
        skip_line();
        return push_text(Kind::global, begin);
      case 'q':
        return put(number(1));
      case 'r':
        return put(number(4));
      case 'h':
        return get(number(1));
      case 'j':
        return get(number(4));
      case 't':
        return push_tuple(unmark(0));
      case 0x85:
      case 0x86:
      case 0x87:
        need(operation - 0x84);
        return push_tuple(stack_.size() - (operation - 0x84));
      case 'a':  // one value into the list before it, as Python has it
        need(2);
        return drop_from(stack_.size() - 1);
      case 's':  // and one pair
        need(3);
        return drop_from(stack_.size() - 2);
      case 'e':  // the values after the mark go into the list before it
        return drop_from(unmark(1));
      case 'u': {  // and pairs into the dictionary
        const std::size_t mark = unmark(1);
        if ((stack_.size() - mark) % 2 != 0) refuse("its pickle has a key without a value");
        return drop_from(mark);
      }
      case 0x81:  // the arguments of an object that is made: none
        pop();
        return;
      case 'b':
      case 'R':
        return call();
      case 'Q':
        return push_storage();
      default:
        refuse("its pickle has an operation that torch does not write");
    }
  }

  // ---- what is checked

  const Value& element(const Value& tuple, std::size_t i, Kind kind, const char* what) const {
    const std::size_t at = static_cast<std::size_t>(tuple.number) + i;
    if (tuple.kind != Kind::tuple || i >= tuple.size || elements_[at].kind != kind) {
      throw Damage(std::string("its pickle describes a tensor without ") + what);
    }
    return elements_[at];
  }

  // ("storage", torch.FloatStorage, key, device, count)
  void push_storage() {
    const Value tuple = pop();
    if (text(element(tuple, 0, Kind::text, "the word for it")) != "storage") {
      refuse("its pickle has a reference of another kind");
    }
    const std::string_view type = text(element(tuple, 1, Kind::global, "a dtype"));
    const std::string key(text(element(tuple, 2, Kind::text, "a record")));
    const std::string_view device = text(element(tuple, 3, Kind::text, "a device"));
    const std::int64_t count = element(tuple, 4, Kind::number, "a count").number;
    const std::string_view wanted = dtype_of(type);
    const auto* const dtype =
        std::find_if(dtypes.begin(), dtypes.end(), [&](const Dtype& each) { return each.name == wanted; });
    if (dtype == dtypes.end()) refuse("its pickle has a tensor of a kind of storage that torch does not read");
    // A tensor on the device "meta" has no values, and its record is empty.
    if (const auto size = size_of_(key); device != "meta" && count != 0) {
      if (!size) throw Damage("its pickle names a tensor '" + printable(key) + "', of which there is no record");
      // Not beyond the record, and of the record nothing left but what is no whole element.
      if (count < 0 || static_cast<std::uint64_t>(count) != *size / dtype->bytes) {
        throw Damage("its pickle says that tensor '" + printable(key) + "' has " + std::to_string(count) +
                     " elements, but its record has " + std::to_string(*size) + " bytes");
      }
    }
    if (count < 0 || static_cast<std::uint64_t>(count) > std::numeric_limits<std::int64_t>::max() / 64) {
      refuse("its pickle has a tensor with an impossible count of elements");
    }
    push({.kind = Kind::storage,
          .dtype = static_cast<std::uint8_t>(dtype - dtypes.begin()),
          .number = count * static_cast<std::int64_t>(dtype->in_one)});
  }

  // (storage, offset, sizes, strides, ...): every element must lie in the storage.
  void check_tensor(const Value& tuple) const {
    const Value& storage = element(tuple, 0, Kind::storage, "a storage");
    const std::int64_t offset = element(tuple, 1, Kind::number, "an offset").number;
    const Value &sizes = element(tuple, 2, Kind::tuple, "sizes"), &strides = element(tuple, 3, Kind::tuple, "strides");
    const auto outside = [] { refuse("its pickle describes a tensor that reaches beyond its storage"); };
    if (sizes.size != strides.size) outside();
    // In 128 bits nothing here overflows: each factor is checked before it is used.
    __extension__ using Wide = unsigned __int128;
    constexpr Wide most = std::numeric_limits<std::int64_t>::max();
    Wide last = static_cast<std::uint64_t>(offset), count = dtypes[storage.dtype].bytes;
    bool empty = false;
    if (offset < 0) outside();
    for (std::uint32_t i = 0; i < sizes.size; ++i) {
      const std::int64_t size = element(sizes, i, Kind::number, "sizes").number;
      const std::int64_t stride = element(strides, i, Kind::number, "strides").number;
      if (size < 0 || stride < 0) outside();
      empty = empty || size == 0;
      count *= static_cast<Wide>(std::max<std::int64_t>(size, 1));
      last += static_cast<Wide>(std::max<std::int64_t>(size, 1) - 1) * static_cast<Wide>(stride);
      if (count > most || last > most) outside();
    }
    if (!empty && last >= static_cast<std::uint64_t>(storage.number)) outside();
    if (empty && last > most) outside();
  }

  // A function, or a class, with its arguments. torch finds it by a number, which must have come from its name.
  void call() {
    const Value arguments = pop(), callee = pop();
    const std::string_view name = callee.kind == Kind::global ? text(callee) : "";
    // A dtype is a number too, and may be that of a function.
    if (name.empty() || (name.starts_with("torch\n") && name != "torch\ndevice\n")) {
      refuse("its pickle calls what is no function");
    }
    if (name == "torch._utils\n_rebuild_tensor_v2\n" || name == "torch._utils\n_rebuild_qtensor\n")
      check_tensor(arguments);
    if (name == "torch._tensor\n_rebuild_from_type_v2\n") refuse("its pickle describes a tensor as only Python does");
    push();
  }

  const std::span<const unsigned char> pickle_;
  const StorageSize& size_of_;
  std::size_t at_ = 0;
  std::deque<Value> stack_, elements_;  // no vectors: those need twice and thrice the room while they grow
  std::unordered_map<std::uint64_t, Value> memo_;
  std::deque<std::size_t> marks_;
};

}  // namespace

void check_pickle(std::span<const unsigned char> pickle, const StorageSize& size_of) { Machine(pickle, size_of).run(); }

}  // namespace tailor::tool
