#include "commands.h"

#include <unistd.h>

#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include "draw.h"
#include "failure.h"
#include "inputs.h"
#include "progress.h"
#include "save.h"
#include "tables.h"
#include "verify.h"

namespace tailor::tool {
namespace {

// Before any work: every file that the request names for writing can be written.
void require_outputs(const Request& request) {
  for (const std::string& path : {request.output, request.report, request.svg}) {
    if (!path.empty()) require_writable(path);
  }
}

// What a library throws while it is loaded cannot be caught: dlopen is C. A second copy of Tailor's own library throws.
std::string library_now;

[[noreturn]] void end_with_library() {
  std::string why = "it ended this process";
  try {
    if (const auto thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    why = one_line(error);
  } catch (...) {
  }
  _exit(tell(Failure(Exit::unreadable, library_now + ": cannot be loaded as a library: " + why)));
}

void load_libraries(const Request& request) {
  const auto before = std::set_terminate(end_with_library);
  for (const std::string& library : request.libraries) {
    library_now = library;
    load_library(library);
  }
  std::set_terminate(before);
}

Advance watch(Progress& progress, const std::string& what) {
  return [&progress, what](std::uint64_t done, std::uint64_t total) { progress.show(what, done, total); };
}

// A file's records that are not a module's are lost by rewriting it. Said, because nobody would expect it.
void warn_of_losses(const ModelFile& file, const Request& request) {
  for (const std::string& record : file.foreign_records()) {
    std::cerr << "tailor: " << whole(request.input) << ": note: record '" << printable(record)
              << "' is no part of a module and is not in " << whole(request.output) << '\n';
  }
}

std::unique_ptr<StagedFile> staged(const std::string& path, const std::string& text) {
  if (path.empty()) return nullptr;
  auto file = std::make_unique<StagedFile>(path);
  file->write(text.data(), text.size());
  file->sync();
  return file;
}

// What was printed must have arrived before a file appears: with status 0 both are there, with another neither.
void flush(std::ostream& out) {
  if (!out.flush()) throw Failure(Exit::not_written, "standard output: cannot be written");
}

void require_expected(const Report& report, const Request& request) {
  for (const Expectation& expected : request.expectations) {
    std::size_t fused = 0;
    std::string reason;
    for (const Site& site : report.sites) {
      if (site.rule != expected.rule) continue;
      if (site.fused) ++fused;
      if (!site.fused && reason.empty()) reason = "; " + site.source + ": " + site.reason;
    }
    if (fused == expected.count) continue;
    const std::string sites = std::to_string(expected.count) + (expected.count == 1 ? " site of " : " sites of ");
    throw Failure(Exit::expectation,
                  request.input + ": expected " + sites + expected.rule + ", fused " + std::to_string(fused) +
                      printable(reason) +
                      "; the table says what became of each linear: mend the model, or the --expect");
  }
}

// The user's inputs come in a file that is as little to be trusted as the model.
void check_input_file(const std::string& path) {
  if (path.empty()) return;
  const FileBytes file(path);
  const Archive archive = check_archive(file, path);
  Limits limits;
  limits.memory += 3 * archive.size();
  const auto read = [&] {
    try {
      std::vector<char> bytes(file.size());
      file.read(0, {reinterpret_cast<unsigned char*>(bytes.data()), bytes.size()});
      read_inputs(bytes, path);
    } catch (const std::invalid_argument& error) {
      const std::string what = error.what(), begin = path + ": ";  // which comes before it below
      throw std::runtime_error(what.starts_with(begin) ? what.substr(begin.size()) : what);
    }
  };
  if (const auto wrong = trial(read, limits)) {
    throw Failure(Exit::unreadable, path + ": cannot be loaded: " + *wrong);
  }
}

std::string verified(const torch::jit::Module& original, const torch::jit::Module& fused,
                     const std::vector<Specimen>& specimens, const Request& request, Progress& progress) {
  VerifyOptions options;
  options.inputs = request.inputs;
  options.input_file = request.input_file;
  options.seed = request.seed;
  options.progress = [&](std::size_t done, std::size_t total, const std::string& what) {
    progress.show("verifying " + what, done, total);
  };
  try {
    const Verdict verdict = verify(original, fused, specimens, options);
    if (!verdict.ok) throw Failure(Exit::verification, request.input + ": verification failed: " + verdict.message);
    return verdict.message;
  } catch (const std::invalid_argument& error) {
    throw Failure(Exit::wrong_use, request.input + ": verification: " + one_line(error));
  }
}

// What every command begins with: what was asked for can be done, and the file is sound.
ModelFile open(const Request& request, Progress& progress) {
  require_outputs(request);
  check_input_file(request.input_file);
  load_libraries(request);
  return ModelFile(request.input, watch(progress, "checking " + request.input));
}

torch::jit::Module load(const ModelFile& file, const Request& request, Place place, Progress& progress) {
  progress.show("loading " + request.input);
  return file.load(place);
}

// And what every command ends with: all is on the disk, what is left is renaming. The model comes last, for where it is there the rest
// must be.
void commit(std::ostream& out, std::initializer_list<StagedFile*> files) {
  flush(out);
  std::vector<StagedFile*> wanted;
  for (StagedFile* file : files)
    if (file) wanted.push_back(file);
  commit(wanted);
}

// Whether what is written needs Tailor to be loaded.
bool write(const torch::jit::Module& module, const ModelFile& file, const Request& request, Progress& progress,
           StagedFile& output) {
  progress.show("writing " + request.output);
  const bool needs_tailor = save(module, file.extra_files(), request.place, output);
  progress.clear();
  return needs_tailor;
}

// What somebody has fused already. Taking it out of a copy of its own is the way to know.
Report fused_before(const ModelFile& file, const Request& request, Progress& progress) {
  if (!file.needs_tailor()) return {};
  auto copy = load(file, request, Place::cpu, progress);
  return tailor::unfuse(copy);
}

}  // namespace

void fuse(const Request& request, std::ostream& out) {
  Progress progress;
  const ModelFile file = open(request, progress);
  torch::jit::Module module = load(file, request, request.place, progress);
  // Loaded once more, not copied: a copy would share its graphs with the one that is rewritten.
  std::optional<torch::jit::Module> original;
  if (request.verify || !request.svg.empty()) original = load(file, request, request.place, progress);

  const Report before = fused_before(file, request, progress);
  progress.show("fusing");
  std::vector<Specimen> specimens;
  const Report report = tailor::fuse(module, Options{request.rules}, specimens);
  progress.clear();
  out << site_table(report, "fused", before);
  flush(out);
  require_expected(report, request);

  if (request.verify) {
    const std::string verdict = verified(*original, module, specimens, request, progress);
    progress.clear();
    if (!verdict.empty()) out << printable(verdict) << '\n';
  }
  const auto report_file = staged(request.report, report.json() + "\n");
  const auto drawing = staged(request.svg, request.svg.empty() ? "" : draw(*original, &module));
  original.reset();
  specimens.clear();

  StagedFile output(request.output);
  write(module, file, request, progress, output);
  warn_of_losses(file, request);
  commit(out, {report_file.get(), drawing.get(), &output});
}

void inspect(const Request& request, std::ostream& out) {
  Progress progress;
  const ModelFile file = open(request, progress);
  // Nothing is rewritten, so the CPU will do, on every machine.
  const torch::jit::Module module = load(file, request, Place::cpu, progress);
  const Report report = tailor::inspect(module, Options{request.rules});
  const Report before = fused_before(file, request, progress);
  progress.clear();
  out << site_table(report, "would fuse", before) << '\n' << tensor_table(module) << '\n';
  out << whole(request.input) << (file.needs_tailor() ? " needs Tailor to be loaded\n" : " loads without Tailor\n");

  const auto report_file = staged(request.report, report.json() + "\n");
  const auto drawing = staged(request.svg, request.svg.empty() ? "" : draw(module, nullptr));
  commit(out, {report_file.get(), drawing.get()});
}

void unfuse(const Request& request, std::ostream& out) {
  Progress progress;
  const ModelFile file = open(request, progress);
  torch::jit::Module module = load(file, request, request.place, progress);
  const Report report = tailor::unfuse(module);
  const auto report_file = staged(request.report, report.json() + "\n");
  StagedFile output(request.output);
  if (write(module, file, request, progress, output)) {
    throw Failure(Exit::verification, request.input + ": not written: some of Tailor's ops could not be undone");
  }
  out << whole(request.output) << " loads without Tailor\n";
  warn_of_losses(file, request);
  commit(out, {report_file.get(), &output});
}

}  // namespace tailor::tool
