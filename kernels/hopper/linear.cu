// Of float32 by halves only: there is nothing to gain over cuBLAS with the other types.
#include "linear.h"

#include "chain.cuh"

namespace tailor::hopper {
namespace {

const WholeRegistration registration = register_halves<linear>();

}  // namespace
}  // namespace tailor::hopper
