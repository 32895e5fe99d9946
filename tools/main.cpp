// The `tailor` command.
#include <ATen/core/dispatch/Dispatcher.h>
#include <tailor/tailor.h>

#include <iostream>

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

void run(const Request& request, const std::vector<std::string>& rules) {
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
}

int fail(int status, const std::string& message) {
  std::cerr << "tailor: " << message << '\n';
  return status;
}

}  // namespace

int main(int count, char** words) {
  remove_staged_files_on_signals();
  try {
    const std::vector<std::string> rules = tailor::rules();
    const Request request = parse({words + 1, words + count}, rules);
    close_automatic_doors();
    run(request, rules);
    if (!std::cout.flush()) throw Failure(Exit::not_written, "standard output: cannot be written");
    return static_cast<int>(Exit::done);
  } catch (const Failure& failure) {
    return fail(static_cast<int>(failure.exit), failure.what());
  } catch (const std::exception& error) {
    return fail(1, "this is a fault in Tailor, please report it: " + one_line(error));
  }
}
