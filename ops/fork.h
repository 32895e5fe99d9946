// Mutexes in a process that forks.
#pragma once
#include <pthread.h>

#include <new>
#include <type_traits>

namespace tailor {

// A child that is forked while another thread holds the mutex would wait for that thread, which it has not, for ever. So who forks
// takes the mutex first. `mutex` is a function that returns it; to be called once for each.
template <auto mutex>
void free_in_children() {
  pthread_atfork([] { mutex().lock(); }, [] { mutex().unlock(); }, [] { mutex().unlock(); });
}

// The same of a mutex that is held for long, by threads that may wait for what the one that forks has: the child's is a new one. What it
// guards must bear that a thread has stopped in the middle.
template <auto mutex>
void renew_in_children() {
  using Mutex = std::remove_reference_t<decltype(mutex())>;
  pthread_atfork(nullptr, nullptr, [] { new (&mutex()) Mutex; });
}

}  // namespace tailor
