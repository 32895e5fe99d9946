// The `tailor` command.
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <tailor/tailor.h>
#include <unistd.h>

#include <iostream>

#include "../passes/inlined_size.h"
#include "commands.h"
#include "failure.h"
#include "staged_file.h"

namespace {

using namespace tailor::tool;

// A door that opens by itself would fuse the original too, while it is compared with the fused one.
void close_automatic_doors() {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("tailor::auto", "");
  torch::jit::Stack stack{false};
  op.callBoxed(&stack);
}

void run(const Request& request, const std::vector<std::string>& rules) try {
  switch (request.command) {
    case Command::help:
      std::cout << help(request.topic, rules);
      return;
    case Command::version:
      std::cout << "tailor " << tailor::version() << '\n';
      return;
    case Command::fuse:
      return fuse(request, std::cout);
    case Command::inspect:
      return inspect(request, std::cout);
    case Command::unfuse:
      return unfuse(request, std::cout);
  }
} catch (const tailor::TooLarge& why) {
  throw Failure(Exit::unreadable, request.input + ": " + why.what());
}

// A model must not become the standard input, output or error that whoever started this has closed. What is printed to a
// closed output is an error as before.
void occupy_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) >= 0) continue;
    const int mode = descriptor == STDERR_FILENO ? O_WRONLY : O_RDONLY;
    if (open("/dev/null", mode) < 0) open("/", O_RDONLY | O_DIRECTORY);  // the lowest number that is free
  }
}

// torch warns of what it has only just begun to support, such as sparse tensors, when it meets one in a model. Nobody who
// rewrites a file can do anything about that.
class Unheard : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

}  // namespace

int main(int count, char** words) {
  occupy_standard_descriptors();
  Unheard unheard;
  c10::WarningUtils::set_warning_handler(&unheard);
  remove_staged_files_on_signals();
  try {
    const std::vector<std::string> rules = tailor::rules();
    const Request request = parse({words + 1, words + count}, rules);
    close_automatic_doors();
    run(request, rules);
    if (!std::cout.flush()) throw Failure(Exit::not_written, "standard output: cannot be written");
    return static_cast<int>(Exit::done);
  } catch (const Failure& failure) {
    return tell(failure);
  } catch (const std::exception& error) {
    return tell(Failure(Exit::fault, "this is a fault in Tailor, please report it: " + one_line(error)));
  }
}
