#include "pass_follow.h"

#include "pass_doors.h"

namespace tailor::fuzz {
namespace {

std::string of_call(const Model& model, std::size_t i) {
  const Call& call = model.calls[i];
  return std::string(" call ") + std::to_string(i) + " (" + call.method + ", " + to_string(call.input) + ", " +
         (call.training ? "training" : "eval") + (call.gradients ? ", gradients" : "") + "): ";
}

// Eager's refusal to go back through a value that was written to.
bool is_refused(const Outcome& outcome) {
  return outcome.backward && outcome.error.find("modified by an inplace operation") != std::string::npos;
}

// What torch's interpreter says where it has lost an argument of a loop (passes/ahead.h): of the author's model, behind the executor's doors.
bool is_lost(const Outcome& outcome) { return outcome.error.find("Expected Tensor but got None") != std::string::npos; }

class Follower {
 public:
  Follower(const Model& model, const Without& without, Side& plain, Side& fused, Referees& referees, Terms terms,
           Tally& tally)
      : model_(model),
        without_(without),
        plain_(plain),
        fused_(fused),
        referees_(referees),
        terms_(terms),
        tally_(tally) {}

  std::string run() {
    for (std::size_t i = 0; i < model_.calls.size(); ++i) {
      if (is_left_out(i)) continue;
      const std::string text = differs(i);
      if (done_) return "";
      if (!text.empty()) return of_call(model_, i) + text;
    }
    return "";
  }

 private:
  bool is_left_out(std::size_t i) const { return without_.contains(model_.calls[i].number); }

  Outcome call(Side& side, std::size_t i) const {
    Call call = model_.calls[i];
    call.gradients = call.gradients && terms_.gradients;
    return side.call(model_, call);
  }

  std::string differs(std::size_t i) {
    const bool before = automatic(false);  // the executor runs what is forked, also of the plain side
    const Outcome wanted = call(plain_, i);
    std::optional<Outcome> exactly;
    if (referees_.exact) exactly = call(*referees_.exact, i);
    if (exactly && exactly->error.empty() != wanted.error.empty()) {  // its state is another from here on
      referees_.exact.reset();
      exactly.reset();
    }
    terms_.gradients_may_differ = referees_.knows && is_refused(call(*referees_.knows, i));
    automatic(before);
    const Outcome got = call(fused_, i);
    ++tally_.numbers["calls"];
    if (!wanted.error.empty()) ++tally_.numbers["calls that raise"];
    if (wanted.backward && wanted.error.empty()) ++tally_.numbers["calls with gradients"];
    const std::string text = difference({plain_, wanted}, got, exactly);
    if (text.empty()) return "";
    done_ = (terms_.writes_may_move && !wanted.error.empty() && got.error == wanted.error) || is_lost(wanted);
    const bool is_torchs = done_ || (referees_.without_forks && is_right_without_forks(i, got, exactly));
    if (is_torchs) ++tally_.numbers["differences of torch's own executor"];
    return is_torchs ? "" : text;
  }

  std::string difference(const Done& plain, const Outcome& got, const std::optional<Outcome>& exactly) const {
    const Done exact{exactly ? *referees_.exact : plain.side, exactly ? *exactly : plain.outcome};
    return fuzz::difference(model_, plain, {fused_, got}, exactly ? &exact : nullptr, terms_);
  }

  // Then the side that did not race is the plain one from here on.
  bool is_right_without_forks(std::size_t last, const Outcome& got, const std::optional<Outcome>& exactly) {
    const bool before = automatic(false);
    Side direct = referees_.without_forks();
    for (std::size_t i = 0; i < last; ++i)
      if (!is_left_out(i)) call(direct, i);
    const Outcome wanted = call(direct, last);
    automatic(before);
    if (!difference({direct, wanted}, got, exactly).empty()) return false;
    plain_ = std::move(direct);
    return true;
  }

  const Model& model_;
  const Without& without_;
  Side& plain_;
  Side& fused_;
  Referees& referees_;
  Terms terms_;
  Tally& tally_;
  bool done_ = false;  // the state that the sides are in has nothing more to say
};

}  // namespace

std::string follow(const Model& model, const Without& without, Side& plain, Side& fused, Referees& referees,
                   Terms terms, Tally& tally) {
  return Follower(model, without, plain, fused, referees, terms, tally).run();
}

}  // namespace tailor::fuzz
