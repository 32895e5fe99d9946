#include "halves.h"

#include "../ceiling.h"
#include "halves_split.cuh"

namespace tailor::hopper {

std::int64_t place_halves(Halves& halves, SplitMatrix Halves::*which, void* place) {
  SplitMatrix& matrix = halves.*which;
  halves.padded = static_cast<int>(ceiling(halves.inner, halves_step) * halves_step);
  matrix.aligned = matrix.is_aligned();
  const std::int64_t of_halves =
      whole_places(matrix.rows * halves.padded * 2 * static_cast<std::int64_t>(sizeof(__half)));
  const std::int64_t of_facts = whole_places(matrix.rows * static_cast<std::int64_t>(sizeof(RowFacts)));
  const bool is_x = which == &Halves::x;
  if (place != nullptr) {
    char* const facts = static_cast<char*>(place) + of_halves;
    matrix.halves = place;
    matrix.facts = reinterpret_cast<RowFacts*>(facts);
    if (is_x) halves.progress = reinterpret_cast<std::uint32_t*>(facts + of_facts);
  }
  const std::int64_t counts = is_x ? halves.progress_count() : 0;
  return of_halves + of_facts + whole_places(counts * static_cast<std::int64_t>(sizeof(std::uint32_t)));
}

const char* make_halves(const Halves& halves, void* stream) {
  auto* const to = static_cast<cudaStream_t>(stream);
  Halves by_rows = halves;
  Halves by_columns = halves;
  for (const auto which : {&Halves::x, &Halves::weight}) {
    const SplitMatrix& matrix = halves.*which;
    if (matrix.is_made || matrix.transposed) (by_rows.*which).rows = 0;
    if (matrix.is_made || !matrix.transposed) (by_columns.*which).rows = 0;
  }
  if (by_rows.x.rows + by_rows.weight.rows > 0)
    if (const char* error = split_by_rows(by_rows, to)) return error;
  return split_by_columns(by_columns, to);
}

}  // namespace tailor::hopper
