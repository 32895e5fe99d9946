// The kernels of one chain: which one takes a call, and its launch. A generated file for each chain (CMakeLists.txt) says
//
//   static const tailor::TailRegistration registration = tailor::cuda::register_chain<tailor::chains::…>();
#pragma once
#include "backward.cuh"
#include "launch.cuh"
#include "wide.cuh"

namespace tailor::cuda {

constexpr std::int64_t larger(std::int64_t a, std::int64_t b) { return a > b ? a : b; }

// Calls `work` with an element of the tail's type.
template <class Work>
auto with_element(Element element, Work work) {
  switch (element) {
    case Element::float64:
      return work(double());
    case Element::float32:
      return work(float());
    case Element::bfloat16:
      return work(__nv_bfloat16());
    case Element::float16:
      break;
  }
  return work(__half());
}

inline bool aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

// Whether everything that is read along a row can be read 16 bytes at a time.
inline bool in_packets(const Tail& tail, std::int64_t group_width, int width) {
  bool all = group_width % width == 0 && tail.columns % width == 0 && aligned(tail.y) && aligned(tail.out);
  for (const Operand& vector : tail.vectors) all = all && (!vector.per_column || aligned(vector.data));
  const NormArguments& norm = tail.norm;
  return all && aligned(norm.weight) && aligned(norm.bias) && aligned(norm.mean) && aligned(norm.var);
}

// Of what a slot holds: a group, or without a group norm one packet.
template <class Chain>
std::int64_t group_width(const Tail& tail, int width) {
  return has_group_norm<Chain> ? tail.columns / tail.norm.groups : width;
}

template <class Chain, class T>
struct Launch {
  const Tail& tail;
  cudaStream_t stream;

  // How many rows a thread works on at a time: enough bytes on their way to hide the memory's latency, few enough
  // registers for many threads.
  template <int Width>
  static constexpr int rows_at_once = has_group_norm<Chain>&& Width == 8 ? 2 : 4;

  void run() const {
    constexpr int width = elements_in_16_bytes<T>;
    if (in_packets(tail, group_width<Chain>(tail, width), width))
      run_with<width>();
    else
      run_with<1>();
  }

  template <int Width>
  void run_with() const {
    if constexpr (has_batch_norm<Chain>) {
      if (tail.norm.batch_statistics) prepare_statistics<Width>();
    }
    if (ceiling(group_width<Chain>(tail, Width), Width) <= most_threads) return rows<Width>();
    if constexpr (has_group_norm<Chain>) wide<Width>();
  }

  template <int Width>
  void rows() const {
    constexpr int many = rows_at_once<Width>;
    constexpr auto kernel = rows_kernel<Chain, T, many, Width>;
    const int blocks = processors() * resident<kernel, most_threads>();
    // A small problem is spread over as many threads as there are.
    const std::int64_t tiles = ceiling(tail.rows, many) * (tail.columns / Width);
    if (tiles < static_cast<std::int64_t>(blocks) * most_threads / 2) return rows_in<Width, 1>(blocks);
    rows_in<Width, many>(blocks);
  }

  template <int Width, int at_once>
  void rows_in(int blocks) const {
    const Layout layout = lay_out(tail.rows, tail.columns, group_width<Chain>(tail, Width), Width, at_once, blocks);
    launch<rows_kernel<Chain, T, at_once, Width>>(grid_of(layout.column_blocks, layout.row_blocks), most_threads,
                                                  stream, tail, layout);
  }

  template <int Width>
  void prepare_statistics() const {
    if (tail.norm.gathered_rows == 0) return gather<Width>();
    if (needs_merging(tail))
      launch<merge_kernel<Compute<T>>>(grid_of(ceiling(tail.columns, merging_columns), 1),
                                       merging_columns * merging_runs, stream, tail);
  }

  template <int Width>
  void gather() const {
    const Gathering gathering = share_out(tail.rows, tail.columns, Width);
    launch<gather_kernel<Chain, T, 4, Width>>(grid_of(ceiling(tail.columns, gathering.lanes * Width), gathering.chunks),
                                              gathering_threads, stream, tail, gathering);
  }

  template <int Width>
  void wide() const {
    const std::int64_t groups = tail.rows * tail.norm.groups;
    launch<wide_kernel<Chain, T, Width>>(grid_of(groups < 0x7fffffff ? groups : 0x7fffffff, 1), wide_threads, stream,
                                         tail);
  }
};

// How many neighbours a thread of the backward has at most. For each it holds a value, a gradient and sums, in registers that more threads
// could do with; but where groups are added up, the fewer threads the better.
template <class Chain, class T>
inline constexpr int widest_backward =
    has_group_norm<Chain> || elements_in_16_bytes<T> < 4 ? elements_in_16_bytes<T> : 4;

template <class Chain, class T>
int backward_width(const Tail& tail) {
  for (const int width : {widest_backward<Chain, T>, 4})
    if (width <= widest_backward<Chain, T> && in_packets(tail, group_width<Chain>(tail, width), width)) return width;
  return 1;
}

template <class Chain>
const char* refuses(const Tail& tail, bool with_backward) {
  if (tail.columns >= (std::int64_t{1} << 31)) return "it has 2^31 columns or more";
  // A thread counts its rows in an int, and adds its step to them, which is as many rows as all blocks take at a time.
  if (tail.rows >= (std::int64_t{1} << 30)) return "it has 2^30 rows or more";
  if constexpr (has_group_norm<Chain>) {
    const int width =
        with_element(tail.element, [&](auto element) { return backward_width<Chain, decltype(element)>(tail); });
    const std::int64_t lanes = ceiling(group_width<Chain>(tail, width), width);
    if (with_backward && lanes > most_threads) return "its groups are wider than the backward holds";
  }
  return nullptr;
}

template <class Chain>
std::int64_t workspace(const Tail& tail) {
  if (!has_batch_norm<Chain> || !tail.norm.batch_statistics) return 0;
  // For either width, since alignment is not known yet.
  const std::int64_t most = tail.norm.gathered_rows != 0 ? gathered_chunks(tail)
                                                         : larger(share_out(tail.rows, tail.columns, 1).chunks,
                                                                  share_out(tail.rows, tail.columns, 8).chunks);
  const std::int64_t number = tail.element == Element::float64 ? 8 : 4;
  return 2 * most * tail.columns * number;
}

template <class Chain, class T>
struct LaunchBackward {
  using F = Compute<T>;
  const Tail& tail;
  const TailGradient& gradient;
  cudaStream_t stream;

  static constexpr int widest = widest_backward<Chain, T>;
  template <int Width>
  static constexpr int rows_at_once = Width == 8 ? 1 : 2;

  void run() const {
    const int width = aligned(gradient.of_out) && aligned(gradient.of_y) ? backward_width<Chain, T>(tail) : 1;
    if (width == widest) return run_with<widest>();
    if constexpr (widest > 4)
      if (width == 4) return run_with<4>();
    run_with<1>();
  }

  template <int Width>
  void run_with() const {
    if constexpr (has_batch_norm<Chain>) {
      if (tail.norm.batch_statistics) {
        F* sums = static_cast<F*>(gradient.workspace) + parts_size();
        const NormSums<F> of_norm{sums, sums + tail.columns};
        run_phase<Width, Phase::norm_sums>(of_norm);
        return run_phase<Width, Phase::before_norm>(of_norm);
      }
    }
    run_phase<Width, Phase::whole>({});
  }

  template <int Width, Phase phase>
  void run_phase(const NormSums<F>& sums) const {
    const Layout to = layout<Width, phase>(tail);
    launch<backward_kernel<Chain, T, rows_at_once<Width>, Width, phase>>(
        grid_of(to.column_blocks, to.row_blocks), most_threads, stream, tail, gradient, sums, to);
    AddUp what = destinations(phase, sums);
    what.parts = static_cast<int>(to.row_blocks);
    bool any = false;
    for (const Destination& each : what.to) any = any || each.narrow != nullptr || each.wide != nullptr;
    if (!any) return;
    launch<add_up_kernel<T>>(grid_of(ceiling(tail.columns, add_up_columns), Sums<Chain>::count),
                             add_up_columns * add_up_rows, stream, static_cast<const F*>(gradient.workspace),
                             tail.columns, what);
    add_up_columns_of(what);
  }

  // Of vectors that are one value for all columns, once their rows are added up.
  void add_up_columns_of(const AddUp& what) const {
    OneForAll<F> vectors;
    bool any = false;
    for (int i = 0; i < vectors_of<Chain>; ++i) {
      if (what.to[Sums<Chain>::vector + i].wide == nullptr) continue;
      vectors.from[i] = of_columns(i);
      vectors.to[i] = gradient.of_vectors[i];
      any = true;
    }
    if (any) launch<one_for_all_kernel<T>>(dim3(vectors_of<Chain>), one_for_all_threads, stream, tail.columns, vectors);
  }

  // Where the sums go that a phase makes.
  AddUp destinations(Phase phase, const NormSums<F>& of_norm) const {
    AddUp what;
    if (phase != Phase::norm_sums) what.to[Sums<Chain>::bias] = {gradient.of_bias, nullptr};
    for (int i = 0; i < vectors_of<Chain>; ++i) {
      if (!makes_vector<Chain>(phase, i)) continue;
      void* to = gradient.of_vectors[i];
      what.to[Sums<Chain>::vector + i] =
          tail.vectors[i].per_column || to == nullptr ? Destination{to, nullptr} : Destination{nullptr, of_columns(i)};
    }
    if ((has_batch_norm<Chain> || has_group_norm<Chain>)&&phase != Phase::before_norm) {
      what.to[Sums<Chain>::norm_weight] = {gradient.of_norm_weight, of_norm.of_weight};
      what.to[Sums<Chain>::norm_bias] = {gradient.of_norm_bias, of_norm.of_bias};
    }
    return what;
  }

  template <int Width, Phase phase>
  static Layout layout(const Tail& tail) {
    constexpr auto kernel = backward_kernel<Chain, T, rows_at_once<Width>, Width, phase>;
    return lay_out(tail.rows, tail.columns, group_width<Chain>(tail, Width), Width, rows_at_once<Width>,
                   processors() * resident<kernel, most_threads>());
  }

  // Numbers in the workspace that the parts may take: no GPU has more row blocks than this.
  std::int64_t parts_size() const { return Sums<Chain>::count * most_row_blocks() * tail.columns; }
  std::int64_t most_row_blocks() const {
    std::int64_t most = row_blocks_of<Phase::whole>();
    if constexpr (has_batch_norm<Chain>)
      most = larger(most, larger(row_blocks_of<Phase::norm_sums>(), row_blocks_of<Phase::before_norm>()));
    return most;
  }
  // With packets or without: alignment is not known yet.
  template <Phase phase>
  std::int64_t row_blocks_of() const {
    std::int64_t most = row_blocks_if_possible<1, phase>();
    if constexpr (widest > 4) most = larger(most, row_blocks_if_possible<4, phase>());
    return larger(most, row_blocks_if_possible<widest, phase>());
  }
  // None where a row has no packet, or a block cannot hold a group.
  template <int Width, Phase phase>
  std::int64_t row_blocks_if_possible() const {
    if (tail.columns < Width || ceiling(group_width<Chain>(tail, Width), Width) > most_threads) return 0;
    return layout<Width, phase>(tail).row_blocks;
  }
  // In the workspace, behind the parts and the norm's two sums: of a vector that is one value for all columns, before they are added up.
  F* of_columns(int vector) const {
    return static_cast<F*>(gradient.workspace) + parts_size() + (2 + vector) * tail.columns;
  }
  std::int64_t workspace() const {
    return (parts_size() + (2 + vectors_of<Chain>)*tail.columns) * static_cast<std::int64_t>(sizeof(F));
  }
};

template <class Chain>
const char* forward(const Tail& tail, void* stream) {
  with_element(tail.element, [&]<class T>(T) { Launch<Chain, T>{tail, static_cast<cudaStream_t>(stream)}.run(); });
  return launch_error();
}

template <class Chain>
std::int64_t backward_workspace(const Tail& tail) {
  return with_element(tail.element, [&]<class T>(T) {
    return LaunchBackward<Chain, T>{tail, {}, nullptr}.workspace();
  });
}

template <class Chain>
const char* backward(const Tail& tail, const TailGradient& gradient, void* stream) {
  with_element(tail.element, [&]<class T>(T) {
    LaunchBackward<Chain, T>{tail, gradient, static_cast<cudaStream_t>(stream)}.run();
  });
  return launch_error();
}

template <class Chain>
TailRegistration register_chain() {
  static const TailKernels kernels{
      "cuda",         "cuda_backward",           false,          refuses<Chain>, workspace<Chain>,
      forward<Chain>, backward_workspace<Chain>, backward<Chain>};
  return {Chain::name, Device::cuda, kernels};
}

}  // namespace tailor::cuda
