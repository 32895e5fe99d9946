// What all kernels of this folder ask of a call.
#pragma once
#include "../cuda/launch.cuh"
#include "../split.h"
#include "../whole.h"
#include "maps.h"
#include "plan.h"

namespace tailor::hopper {

inline int bytes_of(Element element) { return element == Element::float32 ? 4 : 2; }

// As the copy engine reads them.
inline Matrix x_of(const Linear& linear, const Tail& tail) {
  return {linear.x, tail.rows, linear.inner, linear.x_stride, bytes_of(tail.element)};
}
inline Matrix weight_of(const Linear& linear, const Tail& tail) {
  return {linear.weight, tail.columns, linear.inner, linear.weight_stride, bytes_of(tail.element)};
}

template <class Chain>
Shape shape_of(const Linear& linear, const Tail& tail) {
  Shape shape;
  shape.rows = tail.rows;
  shape.columns = tail.columns;
  shape.inner = linear.inner;
  shape.element_bytes = bytes_of(tail.element);
  if (has_group_norm<Chain>) shape.group_width = tail.columns / tail.norm.groups;
  shape.processors = cuda::processors();
  shape.memory_rate = cuda::memory_rate();
  shape.weight_is_settled = linear.weight_is_settled;
  shape.of_gradients = linear.of_gradients;
  shape.keeps_result = linear.keeps_result;
  shape.batch_statistics = has_batch_norm<Chain> && tail.norm.batch_statistics;
  return shape;
}

// What refuses a call on this device for any kernel of this folder, or null.
inline const char* refuses_call() { return is_hopper() ? nullptr : "the GPU is not of compute capability 9.0"; }

// What refuses float32 that is to be multiplied as several numbers of 16 bits, or null.
inline const char* refuses_split(const Linear& linear, const Tail& tail) {
  if (tail.element != Element::float32) return "it is for float32";
  if (linear.tensor_float32) return "TF32 is allowed, and faster";
  if (!linear.split_float32) return "float32 is cuBLAS's by the user's switch";
  return refuses_call();
}

constexpr const char* not_described = "the driver could not describe a matrix to the copy engine";

// do_it.operator()<width>() for the width of the call's groups, 0 where there are none.
template <class Chain, class Do>
const char* by_group_width(const Tail& tail, Do do_it) {
  if constexpr (has_group_norm<Chain>) {
    switch (tail.columns / tail.norm.groups) {
      case 16:
        return do_it.template operator()<16>();
      case 32:
        return do_it.template operator()<32>();
      default:
        return do_it.template operator()<64>();
    }
  } else {
    return do_it.template operator()<0>();
  }
}

}  // namespace tailor::hopper
