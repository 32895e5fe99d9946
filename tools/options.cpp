#include "options.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <set>

#include "failure.h"
#include "inputs.h"
#include "staged_file.h"

namespace tailor::tool {
namespace {

[[noreturn]] void wrong_use(const std::string& message) { throw Failure(Exit::wrong_use, message); }

std::uint64_t number(const std::string& option, const std::string& text) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stopped != end) {
    wrong_use(option + " wants a number from 0 to 18446744073709551615, got '" + printable(text) + "'");
  }
  return value;
}

Expectation expectation(const std::string& text) {
  const auto sign = text.rfind('=');
  if (sign == std::string::npos) wrong_use("--expect wants NAME=COUNT, got '" + printable(text) + "'");
  return {text.substr(0, sign), number("--expect", text.substr(sign + 1))};
}

std::string input_text(const std::string& text) {
  try {
    parse_input(text);
  } catch (const std::exception& error) {
    wrong_use("--input: " + one_line(error));
  }
  return text;
}

Place place(const std::string& text) {
  if (text == "cpu") return Place::cpu;
  wrong_use("--device knows only 'cpu', got '" + printable(text) + "'");
}

// ---- the table

struct Option {
  std::string name;   // without the two dashes
  const char* value;  // what its value is called; null if it takes none
  bool repeated;
  std::vector<Command> commands;
  const char* help;
  void (*apply)(Request&, const std::string& value);
};

const std::vector<Option>& options() {
  using enum Command;
  static const std::vector<Option> table{
      {"output",
       "OUT",
       false,
       {fuse, unfuse},
       "Where to write, also -o. May be IN. A link's target is replaced, not the link.",
       [](Request& r, const std::string& v) { r.output = v; }},
      {"rule",
       "NAME",
       true,
       {fuse, inspect},
       "Use only this rule. Give it again for more. Without it: all.",
       [](Request& r, const std::string& v) { r.rules.push_back(v); }},
      {"expect",
       "NAME=COUNT",
       true,
       {fuse},
       "Fail, and write nothing, unless exactly COUNT sites of the rule are fused, those of IN among them.",
       [](Request& r, const std::string& v) { r.expectations.push_back(expectation(v)); }},
      {"input",
       "float32[16,8192]",
       true,
       {fuse},
       "Also verify the whole model, on standard normal values. Once for each argument of\nforward, in order. "
       "A number is written as such: 3, 0.5, true.",
       [](Request& r, const std::string& v) { r.inputs.push_back(input_text(v)); }},
      {"input-file",
       "FILE.pt",
       false,
       {fuse},
       "The same on what torch.save wrote to this file: a tensor, or a tuple or list with one\n"
       "element for each argument: tensors, numbers, and tuples, lists and dictionaries of them.",
       [](Request& r, const std::string& v) { r.input_file = v; }},
      {"seed",
       "N",
       false,
       {fuse},
       "For the values that verification draws. Without it: 0.",
       [](Request& r, const std::string& v) { r.seed = number("--seed", v); }},
      {"settle",
       nullptr,
       false,
       {fuse},
       "Your word that the weights in OUT will not be written to. A file cannot keep that word,\n"
       "so this changes nothing: give it to the module that was loaded, with\ntorch.ops.tailor.settle_(module).",
       [](Request& r, const std::string&) { r.settle = true; }},
      {"no-verify",
       nullptr,
       false,
       {fuse},
       "Do not verify the fused sites. What is written is still read back and compared.",
       [](Request& r, const std::string&) { r.verify = false; }},
      {"report",
       "FILE",
       false,
       {fuse, inspect, unfuse},
       "Write what was found, and why, as JSON.",
       [](Request& r, const std::string& v) { r.report = v; }},
      {"svg",
       "FILE",
       false,
       {fuse, inspect},
       "Draw the graph; fuse draws it before and after.",
       [](Request& r, const std::string& v) { r.svg = v; }},
      {"library",
       "FILE",
       true,
       {fuse, inspect, unfuse},
       "Load this library first: it defines operators that the model uses. Its code runs.",
       [](Request& r, const std::string& v) { r.libraries.push_back(v); }},
      {"device",
       "cpu",
       false,
       {fuse, unfuse},
       "Read all tensors to the CPU, and write them as CPU tensors. Without it each tensor\n"
       "keeps the device that the file names, and this machine must have it.",
       [](Request& r, const std::string& v) { r.place = place(v); }},
  };
  return table;
}

struct Topic {
  Command command;
  const char* name;
  const char* usage;
  const char* summary;
  const char* text;
};

constexpr Topic topics[] = {
    {Command::fuse, "fuse", "tailor fuse IN -o OUT [options]", "rewrite a saved TorchScript module with Tailor's ops",
     "Reads IN, fuses what can be proven safe, verifies every site that it fuses and can draw inputs for (values and\n"
     "gradients, in training and in eval, against float64), and writes OUT. Prints every linear with its rule, or why "
     "it was left.\n"
     "Loading OUT needs the library; `tailor unfuse` gives a file that does not."},
    {Command::inspect, "inspect", "tailor inspect IN [options]", "say what fuse would do, and write nothing",
     "Prints every linear with its rule, or why it would be left, the parameters and buffers, and whether\n"
     "the file needs Tailor to be loaded."},
    {Command::unfuse, "unfuse", "tailor unfuse IN -o OUT [options]", "give back a module without Tailor's ops",
     "Reads IN and writes OUT, which computes the same and loads without Tailor."},
};

constexpr const char* exit_statuses =
    "Exit status: 0 done, 1 a fault in Tailor, 2 wrong use, 3 unreadable or damaged input, 4 verification failed,\n"
    "5 expectation not met, 6 output not written. Files are written only with 0.\n";

const Topic* find_topic(const std::string& name) {
  const auto* found =
      std::find_if(std::begin(topics), std::end(topics), [&](const Topic& t) { return name == t.name; });
  return found == std::end(topics) ? nullptr : found;
}

const Topic& topic_of(Command command) {
  return *std::find_if(std::begin(topics), std::end(topics), [&](const Topic& t) { return t.command == command; });
}

bool takes(const Option& option, Command command) {
  return std::find(option.commands.begin(), option.commands.end(), command) != option.commands.end();
}

std::string joined(const std::vector<std::string>& names, const std::string& between = ", ") {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : between) + name;
  return text;
}

// ---- parsing

// The words behind the command's name.
class Parser {
 public:
  Parser(const Topic& topic, const std::vector<std::string>& words) : topic_(topic), words_(words) {
    request_.command = topic.command;
  }

  Request operator()() {
    for (bool only_names = false; at_ < words_.size();) {
      const std::string word = words_[at_++];
      if (!only_names && word == "--") {
        only_names = true;
      } else if (!only_names && (word == "--help" || word == "-h")) {
        request_.topic = topic_.command;
        request_.command = Command::help;
        return request_;
      } else if (!only_names && word.size() > 1 && word.front() == '-') {
        option(word);
      } else if (word.empty()) {
        fail("wants the name of a file, got ''");
      } else if (request_.input.empty()) {
        request_.input = word;
      } else {
        fail("got '" + printable(word) + "' besides IN, and takes one file");
      }
    }
    if (request_.input.empty()) fail("wants the name of a file");
    return request_;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    wrong_use(std::string(topic_.name) + ' ' + what + "; see 'tailor help " + topic_.name + "'");
  }

  void option(const std::string& word) {
    const std::string name = word.substr(0, word.find('='));
    const std::string whole_name = name == "-o" ? "--output" : name;
    const auto& table = options();
    const auto found =
        std::find_if(table.begin(), table.end(), [&](const Option& o) { return "--" + o.name == whole_name; });
    if (found == table.end() || !takes(*found, topic_.command)) fail("has no option '" + printable(name) + "'");
    if (!found->repeated && !given_.insert(found->name).second) fail("wants " + name + " once at most");
    const auto sign = word.find('=');
    if (found->value == nullptr) {
      if (sign != std::string::npos) fail("wants no value for " + name);
      return found->apply(request_, {});
    }
    if (sign == std::string::npos && at_ == words_.size()) fail("wants a value for " + name + ": " + found->value);
    const std::string value = sign == std::string::npos ? words_[at_++] : word.substr(sign + 1);
    if (value.empty()) fail("wants a value for " + name + ": " + found->value);
    found->apply(request_, value);
  }

  const Topic& topic_;
  const std::vector<std::string>& words_;
  std::size_t at_ = 1;
  Request request_;
  std::set<std::string> given_;
};

void require_known(const std::string& option, const std::string& rule, const std::vector<std::string>& rules) {
  if (std::find(rules.begin(), rules.end(), rule) != rules.end()) return;
  wrong_use(option + ": there is no rule '" + printable(rule) + "'; there are " + joined(rules));
}

// No file is written over another that this run reads or writes, however both are spelled. IN may be written over: OUT is
// made of it. What is read from a pipe or a device cannot be lost.
void check_files(const Request& request) {
  std::vector<std::string> written;
  for (const std::string& path : {request.output, request.report, request.svg}) {
    if (path.empty()) continue;
    if (path == "-")
      wrong_use(
          "'-' is no file here, and standard output is for the table: give a name, or ./- for a file that is called "
          "so");
    const auto keep = [&](const std::string& read, const char* what) {
      if (!read.empty() && is_same_file(path, read))
        wrong_use("'" + whole(path) + "' is " + what + ": give another name");
    };
    for (const std::string& other : written)
      if (is_same_file(path, other)) wrong_use("'" + whole(path) + "' would be written twice: give another name");
    written.push_back(path);
    if (path != request.output) keep(request.input, "the input");
    keep(request.input_file, "the file of --input-file");
    for (const std::string& library : request.libraries) keep(library, "the file of --library");
    if (is_standard_output(path)) wrong_use("'" + whole(path) + "' is where messages go: give another name");
  }
}

// What no single option can say.
void check(const Request& request, const std::vector<std::string>& rules) {
  for (const std::string& rule : request.rules) require_known("--rule", rule, rules);
  std::set<std::string> expected;
  for (const auto& [rule, count] : request.expectations) {
    require_known("--expect", rule, rules);
    if (!expected.insert(rule).second) wrong_use("--expect names " + rule + " twice");
  }
  const bool describes_inputs = !request.inputs.empty() || !request.input_file.empty();
  if (!request.inputs.empty() && !request.input_file.empty()) wrong_use("give --input or --input-file, not both");
  if (describes_inputs && !request.verify)
    wrong_use("--input and --input-file are for verification: leave out --no-verify");
  if (request.command != Command::inspect && request.output.empty()) {
    wrong_use(std::string(topic_of(request.command).name) + " wants a place to write to: -o OUT");
  }
  check_files(request);
}

}  // namespace

Request parse(const std::vector<std::string>& arguments, const std::vector<std::string>& rules) {
  Request request;
  if (arguments.empty()) wrong_use("wants to be told what to do; see 'tailor --help'");
  const std::string& word = arguments.front();
  const auto nothing_after = [&](std::size_t words) {
    if (arguments.size() > words)
      wrong_use(joined({arguments.begin(), arguments.begin() + static_cast<std::ptrdiff_t>(words)}, " ") +
                " wants nothing after it, got '" + printable(arguments[words]) + "'");
  };
  if (word == "--help" || word == "-h") {
    nothing_after(1);
    return request;
  }
  if (word == "--version") {
    nothing_after(1);
    request.command = Command::version;
    return request;
  }
  if (word == "help") {
    if (arguments.size() == 1) return request;
    const Topic* topic = find_topic(arguments[1]);
    if (topic == nullptr)
      wrong_use("there is no help on '" + printable(arguments[1]) + "'; there is on fuse, inspect, unfuse");
    nothing_after(2);
    request.topic = topic->command;
    return request;
  }
  const Topic* topic = find_topic(word);
  if (topic == nullptr)
    wrong_use("there is no command '" + printable(word) + "'; there are fuse, inspect, unfuse, help");
  request = Parser(*topic, arguments)();
  if (request.command != Command::help) check(request, rules);
  return request;
}

std::string help(Command topic, const std::vector<std::string>& rules) {
  std::string text;
  if (topic == Command::help) {
    text = "Tailor sews what follows a Linear in a TorchScript model into the linear's kernel.\n\n";
    for (const Topic& each : topics) text += std::string("  ") + each.usage + "\n      " + each.summary + "\n";
    return text + "  tailor help COMMAND\n      its options\n  tailor --version\n\n" + exit_statuses;
  }
  const Topic& which = topic_of(topic);
  text = std::string("usage: ") + which.usage + "\n\n" + which.text + "\n\n";
  for (const Option& option : options()) {
    if (!takes(option, topic)) continue;
    text += "  --" + option.name + (option.value ? std::string(" ") + option.value : "") +
            (option.repeated ? " ..." : "") + "\n";
    const std::string lines = option.help;
    for (std::size_t begin = 0; begin < lines.size();) {
      const std::size_t end = std::min(lines.find('\n', begin), lines.size());
      text += "      " + lines.substr(begin, end - begin) + "\n";
      begin = end + 1;
    }
  }
  const auto names_rules = [&](const Option& option) { return option.name == "rule" && takes(option, topic); };
  if (std::any_of(options().begin(), options().end(), names_rules)) {
    text += "\nRules:\n";
    for (const std::string& rule : rules) text += "  " + rule + "\n";
  }
  return text + "\n" + exit_statuses;
}

}  // namespace tailor::tool
