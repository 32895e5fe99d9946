// The counters of paths.
#include "ops/calls.h"
#include "ops/chain.h"
#include "ops/settled.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "sample.h"

namespace tailor::test {
namespace {

c10::impl::GenericDict all() {
  torch::jit::Stack stack;
  op("calls").callBoxed(stack);
  return stack.at(0).toGenericDict();
}

std::int64_t calls(const std::string& name) {
  const auto counters = all();
  return counters.contains(name) ? counters.at(name).toInt() : 0;  // a kernel's counter comes with the op's first call
}

TEST(Calls, CountEachOp) {
  ASSERT_FALSE(all_chains().empty());
  for (const Chain* chain : all_chains()) {
    const std::string name(chain->name);
    const std::string key = name + "/cpu";
    const auto before = calls(key);
    call(op(name), sample());
    call(op(name), sample());
    EXPECT_EQ(calls(key), before + 2) << name << " has no kernel for the CPU: is it in kernels/CMakeLists.txt?";
    // The kernels are for floating dtypes.
    Arguments complex = sample();
    for (const char* argument : {"input", "weight", "bias"})
      complex[argument] = complex[argument].toTensor().to(at::kComplexDouble);
    const auto reference = calls(name + "/reference");
    try {
      call(op(name), complex);
    } catch (const c10::Error&) {  // a norm takes no complex numbers
    }
    EXPECT_EQ(calls(name + "/reference"), reference + 1) << name;
    EXPECT_EQ(calls(key), before + 2) << name;
  }
}

TEST(Calls, Reset) {
  call(op("linear_sigmoid_mul_add"), sample());
  EXPECT_GT(calls("linear_sigmoid_mul_add/cpu"), 0);
  torch::jit::Stack stack;
  op("reset_calls").callBoxed(stack);
  for (const auto& entry : all()) EXPECT_EQ(entry.value().toInt(), 0) << entry.key();
}

// How a child ends that does what another thread of its parent's does all the time.
template <class Work>
int end_of_children(Work work) {
  std::atomic<bool> over{false};
  std::thread other([&] {
    while (!over) work();
  });
  int wrong = 0;
  for (int i = 0; i < 200 && wrong == 0; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);  // a lock that the other thread held would never be free
      work();
      _exit(0);
    }
    waitpid(child, &wrong, 0);
  }
  over = true;
  other.join();
  return wrong;
}

TEST(Calls, AreToldToAChildThatWasForkedMeanwhile) {
  EXPECT_EQ(end_of_children([] { all(); }), 0);
}

TEST(Settled, InAChildThatWasForkedMeanwhile) {
  const at::Tensor weight = at::randn({3, 2});
  settle(weight);
  EXPECT_EQ(end_of_children([&] { is_settled(weight); }), 0);
  release(weight);
}

TEST(Calls, ACounterLivesAsLongAsItsOwner) {
  const std::size_t before = all().size();
  {
    CallCounter counter("some_op", "some_path");
    EXPECT_EQ(counter.name(), "some_op/some_path");
    EXPECT_EQ(all().size(), before + 1);
    EXPECT_EQ(calls("some_op/some_path"), 0);
  }
  EXPECT_EQ(all().size(), before);
}

TEST(Calls, FromManyThreads) {
  CallCounter counter("some_op", "threads");
  std::atomic<bool> begun = false;  // together: a thread that ends before the next one begins proves nothing
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t)
    threads.emplace_back([&] {
      while (!begun) std::this_thread::yield();
      for (int i = 0; i < 100000; ++i) counter.count();
    });
  begun = true;
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(calls("some_op/threads"), 1600000);
}

}  // namespace
}  // namespace tailor::test
