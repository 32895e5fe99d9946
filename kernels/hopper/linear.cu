// Of float32 by 16-bit numbers only: there is nothing to gain over cuBLAS with the other types.
#include "linear.h"

#include "chain.cuh"

namespace tailor::hopper {
namespace {

const WholeRegistration few_rows = register_few_rows<linear>();
const WholeRegistration halves = register_halves<linear>();

}  // namespace
}  // namespace tailor::hopper
