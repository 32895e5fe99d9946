#include "isa.h"

#include <cstdlib>
#include <string_view>

namespace tailor::cpu {

bool can_run(Isa isa) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  if (isa == Isa::avx2) return avx2;
  if (isa == Isa::avx512)
    return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
  return isa == Isa::baseline;
}

Isa best_isa() {
  Isa most = Isa::avx512;
  if (const char* wanted = std::getenv("ATEN_CPU_CAPABILITY")) {
    if (std::string_view(wanted) == "default") most = Isa::baseline;
    if (std::string_view(wanted) == "avx2") most = Isa::avx2;
  }
  for (const Isa isa : {Isa::avx512, Isa::avx2})
    if (isa <= most && can_run(isa)) return isa;
  return Isa::baseline;
}

}  // namespace tailor::cpu
