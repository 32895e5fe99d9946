// Sets of instructions for which the CPU's kernels are compiled.
#pragma once

namespace tailor::cpu {

enum class Isa { baseline, avx2, avx512 };

bool can_run(Isa isa);

// The best that this machine can run, or the one that ATEN_CPU_CAPABILITY asks for: torch's own switch holds here too.
Isa best_isa();

}  // namespace tailor::cpu
