#include "one_thread.h"

#include <dlfcn.h>

#include "../ops/fork.h"

namespace tailor {
namespace {

// Python's interpreter lets one thread run at a time. Who waits for another thread must let it go on, or that one may wait for the
// interpreter: to print an op of Python's, say. The library is not linked with Python, and there may be none in the process.
class Interpreter {
 public:
  void* leave() const {
    const bool is_ours = is_initialized_ && is_held_ && leave_ && enter_ && is_initialized_() != 0 && is_held_() != 0;
    return is_ours ? leave_() : nullptr;
  }
  void enter(void* state) const {
    if (state != nullptr) enter_(state);
  }

 private:
  template <class Function>
  static Function* find(const char* name) {
    return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
  }

  int (*is_initialized_)() = find<int()>("Py_IsInitialized");
  int (*is_held_)() = find<int()>("PyGILState_Check");
  void* (*leave_)() = find<void*()>("PyEval_SaveThread");
  void (*enter_)(void*) = find<void(void*)>("PyEval_RestoreThread");
};

std::recursive_mutex& mutex() {
  static auto* one = [] {
    // Graphs are changed in copies: what another thread was about when the process forked, the child has as it was before.
    renew_in_children<mutex>();
    // Never destroyed: torch may call a hook after the statics of this library are gone.
    return new std::recursive_mutex;
  }();
  return *one;
}

}  // namespace

OneThread::OneThread() : lock_(mutex(), std::try_to_lock) {
  if (lock_.owns_lock()) return;
  const Interpreter python;
  void* const state = python.leave();
  lock_.lock();
  python.enter(state);
}

}  // namespace tailor
