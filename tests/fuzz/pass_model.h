// A random model as data: its classes with their TorchScript, what the generator knows about the chains in it, and the calls
// to make. What the minimiser may take out has a number.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace tailor::fuzz {

// A line of a method and what is indented under it, or, without a line, a group.
struct Piece {
  std::string line;         // ends with ':' where it has a body
  std::vector<Piece> body;  //
  int number = 0;           // of what can be dropped; 0: it cannot
  std::string instead;      // the line that then takes its place
  int flat = 0;             // of what can lose its header: the body of its first inner piece stays
  int chain = -1;           // whose linear stands in this line
};

Piece line(std::string text, int number = 0);
Piece under(std::string header, std::vector<Piece> body);

struct Attribute {
  enum class Kind { parameter, buffer, tensors, number, integer, flag, nothing };
  enum class Values { normal, positive, counter, zero };
  std::string name;
  Kind kind = Kind::parameter;
  std::vector<std::int64_t> shape;
  Values values = Values::normal;
  bool gradient = false;
  bool float32 = false;            // whatever the model's dtype
  std::string alias;               // the path of the tensor whose storage this is a view of: "s1", "gemm2.weight"
  bool silent = false;             // such a view that shares no version counter
  std::string same;                // the path of the tensor that this is another name of
  std::vector<std::string> holds;  // of a list of tensors: their paths
  double number = 0;
};

struct Class;
using ClassPtr = std::shared_ptr<const Class>;

struct Child {
  std::string name;
  ClassPtr type;
  std::string same = {};  // the path, from its parent, of the tensor that is its weight
};

struct Class {
  std::string name;
  std::string file;  // in reports and errors
  std::vector<Attribute> attributes;
  std::vector<Child> children;
  std::vector<Piece> methods;
  std::string part;  // of torch.nn's kind: the key under which the compiled class is kept, and its text
};

enum class Fate { fuses, either, stays };  // of a chain, as the generator knows it
const char* to_string(Fate fate);

struct Chain {
  std::string rule;
  Fate fate = Fate::fuses;
  std::vector<std::string> disturbed;  // by what
};

struct Sizes {
  std::int64_t in, out, groups;
};

enum class Input { plain, row, none, wide, flat, cube, strided, other_dtype, integers };
const char* to_string(Input input);

struct Call {
  int number;
  std::string method;
  Input input;
  std::int64_t rows;
  bool training;
  bool gradients;
};

enum class Type { float64, float32, bfloat16, float16 };
const char* to_string(Type type);

// The ways to a fused module, as far as they can be gone from C++.
enum class Door {
  pass,      // run_pass on the graphs, run as they are written
  fuse,      // tailor::fuse, run by torch's executor
  hook,      // the emit hook, which scripting calls
  executor,  // nobody asks: the executor's pre-pass, without gradients
  file,      // tailor::fuse, saved and loaded
  unfuse,    // fused and taken back
  back       // the same of what was saved and loaded in between
};
inline constexpr Door all_doors[] = {Door::pass, Door::fuse,   Door::hook, Door::executor,
                                     Door::file, Door::unfuse, Door::back};
const char* to_string(Door door);
constexpr bool is_by_file(Door door) { return door == Door::file || door == Door::back; }

struct Model {
  std::uint64_t seed = 0;
  std::uint64_t draw = 0;  // of the values; another one changes nothing else
  Type type = Type::float64;
  Sizes sizes{};
  ClassPtr top;
  std::vector<ClassPtr> classes;  // of the model itself, children first
  std::vector<Chain> chains;
  std::vector<Call> calls;
  bool silent_writes = false;  // some are seen by no version counter, or not by that of all who share the memory
  bool assigns_operands = false;
  bool writes_unseen = false;  // by torch: to a list's tensors, or through a loop
  int numbers = 0;             // the highest in use
  std::vector<Door> doors;     // it goes through, after that of the pass itself
  std::string plant;           // what is spoiled on the fused side of a door, see pass_plant.h; empty: nothing
  Door plant_door = Door::pass;

  // What to spoil on the fused side of this door.
  std::string planted_at(Door door) const { return door == plant_door ? plant : ""; }
};

using Without = std::set<int>;  // numbers that are dropped or flattened

struct Source {
  std::string text;
  std::map<int, std::vector<std::string>> sites;  // of a chain: "net.py:3"
};

Source source_of(const Class& type, const Without& without);

}  // namespace tailor::fuzz
