// Prints what the kernels for Hopper would do with one problem, and why: kernels/hopper/plan.h, by hand. It needs no GPU.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/hopper/batch_plan.h"
#include "kernels/hopper/elements_plan.h"
#include "kernels/hopper/few_rows_plan.h"

namespace {

using namespace tailor::hopper;

constexpr const char* help =
    R"(hopper_plan ROWS INNER COLUMNS [options]: which kernel a linear and its tail get on a Hopper GPU, and why

  --dtype NAME       bfloat16, float16, tf32 (float32 that may be rounded), float32; bfloat16
  --group-width N    a group norm's columns a group; without it there is no group norm
  --batch-statistics a batch norm in training mode
  --gradients        are wanted: the linear's result is kept for the backward, and batch statistics are hopper_gather's
  --settled          the weight is settled: what is made of it is kept
  --processors N     of the GPU; 132
  --memory N         what its memory brings, in GB/s; 4900, an H200's

The kernels are asked in this order, and the first that takes a call gets it; a call that none takes gets torch's linear and a
kernel for its tail. Times are the plan's estimates in microseconds, made to be compared with each other; `not` are other ways to
cut a problem. The plan takes it that rows lie one after another, aligned, and heeds TAILOR_HOPPER.
)";

struct Question {
  Shape shape;
  std::string dtype = "bfloat16";
  bool gradients = false;
  bool is_float32() const { return dtype == "float32"; }
};

[[noreturn]] void wrong(const std::string& why) {
  std::fprintf(stderr, "hopper_plan: %s; --help says more\n", why.c_str());
  std::exit(2);
}

std::int64_t number(std::string_view text) {
  char* end = nullptr;
  const std::string copy(text);
  const long long value = std::strtoll(copy.c_str(), &end, 10);
  constexpr long long most = std::numeric_limits<int>::max();  // estimates of more are beyond their types
  if (copy.empty() || *end != 0 || value < 1 || value > most)
    wrong("'" + copy + "' is no number from 1 to " + std::to_string(most));
  return value;
}

Question read(const std::vector<std::string_view>& words) {
  Question question;
  question.shape.processors = 132;
  question.shape.memory_rate = 4.9e6;
  std::vector<std::int64_t> sizes;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    const auto value = [&] {
      if (++i == words.size()) wrong(std::string(word) + " wants a value");
      return words[i];
    };
    if (word == "--dtype")
      question.dtype = value();
    else if (word == "--group-width")
      question.shape.group_width = number(value());
    else if (word == "--processors")
      question.shape.processors = static_cast<int>(number(value()));
    else if (word == "--memory")
      question.shape.memory_rate = 1e3 * static_cast<double>(number(value()));
    else if (word == "--batch-statistics")
      question.shape.batch_statistics = true;
    else if (word == "--gradients")
      question.gradients = true;
    else if (word == "--settled")
      question.shape.weight_is_settled = true;
    else if (word.substr(0, 2) == "--")
      wrong("there is no option " + std::string(word));
    else
      sizes.push_back(number(word));
  }
  if (sizes.size() != 3) wrong("it takes three sizes");
  if (question.shape.batch_statistics && question.shape.group_width != 0) wrong("a tail has one norm");
  const std::string& dtype = question.dtype;
  if (dtype != "bfloat16" && dtype != "float16" && dtype != "tf32" && dtype != "float32")
    wrong("there is no dtype " + dtype);
  question.shape.keeps_result = question.gradients && !question.shape.batch_statistics;
  question.shape.rows = sizes[0];
  question.shape.inner = sizes[1];
  question.shape.columns = sizes[2];
  question.shape.element_bytes = dtype == "bfloat16" || dtype == "float16" ? 2 : 4;
  return question;
}

// What a kernel would do, and whether it takes the problem.
struct Answer {
  std::string path;
  const char* refused;  // null: it takes it
  double time, apart;
  std::string how, instead;
  std::string others = {};  // lines
};
const char* const tail = "torch's linear and a tail apart";

std::string tiles_by(const TilePlan& plan) {
  std::string how = "tiles of " + std::to_string(plan.rows) + " x " + std::to_string(plan.columns) +
                    ", two at a time, in " + std::to_string(plan.rounds) + " rounds";
  if (plan.narrow_last) how += ", the last round's half as wide";
  if (plan.in_turns) how += ", the halves of a tile in turns";
  if (plan.rows_beside > 0) how += ", " + std::to_string(plan.rows_beside) + " rows of x split meanwhile";
  return how;
}

std::string strips_of(const StripsPlan& plan) {
  return "strips of 128 columns x " + std::to_string(plan.tile_rows) + " rows, the sums in " +
         std::to_string(plan.parts) + " parts";
}

// How the path `hopper` multiplies elements, and how not.
std::string elements_of(const Shape& shape) {
  return takes_strips_of_elements(shape, wanted()) ? strips_of(plan_few_elements(shape))
                                                   : tiles_by(plan_tiles(shape, wanted()));
}
std::string others_of(const Shape& shape) {
  const bool by_strips = takes_strips_of_elements(shape, wanted());
  const TilePlan taken = plan_tiles(shape, wanted());
  std::string lines;
  const auto add = [&](const std::string& how, double time) {
    lines += "    not " + how + ": " + std::to_string(std::lround(time)) + " us\n";
  };
  for_each_tiling(shape, [&](const TilePlan& plan) {
    const bool is_taken =
        plan.columns == taken.columns && plan.in_turns == taken.in_turns && plan.narrow_last == taken.narrow_last;
    if (by_strips || !is_taken) add(tiles_by(plan), plan.time);
  });
  if (!by_strips && may_be_strips_of_elements(shape)) {
    const StripsPlan plan = plan_few_elements(shape);
    add(strips_of(plan), plan.time);
  }
  return lines;
}

std::vector<Answer> answers(const Question& question) {
  Shape shape = question.shape;
  const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
    return Matrix{nullptr, rows, columns, columns, shape.element_bytes};
  };
  const Matrix weight = matrix(shape.columns, shape.inner);
  if (!question.is_float32()) {
    const char* why = nullptr;
    for (const Matrix& each : {matrix(shape.rows, shape.inner), weight, matrix(shape.rows, shape.columns)})
      if (why == nullptr) why = refuses_matrix(each);
    const auto refused = [&](const char* otherwise) { return why != nullptr ? why : otherwise; };
    if (!shape.batch_statistics) {
      const Estimate time = estimate(shape, wanted());
      return {{"hopper", refused(refuses(shape, wanted())), time.whole, time.apart, elements_of(shape), tail,
               others_of(shape)}};
    }
    const Estimate time = estimate_of_gathering(shape);
    shape.clusters = shape.processors / 2;
    const AgreementPlan plan = plan_agreement(shape);
    const Estimate agreed = estimate_of_agreement(shape);
    const char* const agrees = question.gradients ? "gradients are wanted" : refuses_to_agree(shape, wanted());
    return {{"hopper", refused(agrees), agreed.whole, agreed.apart,
             std::to_string(plan.column_tiles) + " columns of tiles at a time, in " + std::to_string(plan.rounds) +
                 " rounds",
             "gathered, and a tail apart"},
            {"hopper_gather", refused(refuses_to_gather(shape, wanted())), time.whole, time.apart,
             tiles_by({.rounds = rounds_of(shape)}), "torch's linear and a kernel that gathers"}};
  }
  // Otherwise they have the linear alone.
  const bool with_tail = refuses_tail(shape) == nullptr &&
                         (shape.group_width == 0 || takes_groups_of(shape.group_width)) &&
                         !(shape.keeps_result && refuses_halves(shape, wanted()) != nullptr);
  const std::string linear = with_tail ? "" : "linear/";
  if (!with_tail) {
    shape.batch_statistics = shape.keeps_result = false;
    shape.group_width = 0;
  }
  const StripsPlan few = plan_few_rows(shape);
  const Estimate halves = time_of_halves(shape, wanted());
  const std::string of_halves = takes_strips_of_halves(shape, wanted())
                                    ? strips_of(plan_few_halves(shape))
                                    : tiles_by(plan_tiles_of_halves(shape, wanted()));
  return {{linear + "bf16x6", refuses_few_rows(shape, weight, wanted()), few.time, float32_apart(shape), strips_of(few),
           tail},
          {linear + "fp16x3", refuses_halves(shape, wanted()), halves.whole, halves.apart, of_halves, tail}};
}

}  // namespace

int main(int count, char** words) {
  const std::vector<std::string_view> all(words + 1, words + count);
  for (const std::string_view word : all)
    if (word == "--help" || word == "-h") return std::fputs(help, stdout) < 0;
  const Question question = read(all);
  bool is_taken = false;
  for (const Answer& answer : answers(question)) {
    const char* verdict = answer.refused != nullptr ? answer.refused : is_taken ? "another has it already" : "takes it";
    std::printf("%s: %s\n    %s: %.0f us; %s: %.0f us\n%s", answer.path.c_str(), verdict, answer.how.c_str(),
                answer.time, answer.instead.c_str(), answer.apart, answer.others.c_str());
    is_taken = is_taken || answer.refused == nullptr;
  }
  if (!is_taken) std::printf("cuda: torch's linear, and a kernel for the tail\n");
  return 0;
}
