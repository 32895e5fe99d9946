// What is known of each device: asked once, since the driver answers in microseconds and a tail takes a few.
#pragma once

namespace tailor::cuda {

class OfDevice {
 public:
  // Of the current device. `ask(device)` gives a positive number; after 0 it will be asked again.
  template <class Ask>
  int get(Ask ask) {
    const int device = current();
    const int before = known(device);
    if (before != 0) return before;
    const int answer = ask(device);
    keep(device, answer);
    return answer;
  }

 private:
  static int current();
  int known(int device);
  void keep(int device, int answer);

  static constexpr int devices = 64;  // those beyond are asked each time
  int answers_[devices] = {};         // read and written as atomics are; 0: not asked
};

int processors();
int memory_rate();  // what the memory brings at most, in bytes a microsecond; 0 if the driver does not say

}  // namespace tailor::cuda
