// Mutexes in a process that forks.
#pragma once
#include <pthread.h>

namespace tailor {

// A child that is forked while another thread holds the mutex would wait for that thread, which it has not, for ever. So who forks
// takes the mutex first. `mutex` is a function that returns it; to be called once for each.
template <auto mutex>
void free_in_children() {
  pthread_atfork([] { mutex().lock(); }, [] { mutex().unlock(); }, [] { mutex().unlock(); });
}

}  // namespace tailor
