#include "settled.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "fork.h"

namespace tailor {
namespace {

// How much may be kept: TAILOR_KEEP_MIB, else 16 GiB. Beyond it, what was not used for longest goes.
std::int64_t most_bytes() {
  static const std::int64_t bytes = [] {
    constexpr std::int64_t otherwise = 16384;
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max() >> 20;
    const char* value = std::getenv("TAILOR_KEEP_MIB");
    if (value == nullptr || *value == '\0') return otherwise << 20;
    char* end = nullptr;
    const long long given = std::strtoll(value, &end, 10);  // the largest there is, where it is larger
    if (end != value && *end == '\0' && given >= 0) return std::min<std::int64_t>(given, most) << 20;
    std::fprintf(stderr, "Tailor takes TAILOR_KEEP_MIB=%s for %lld. It is to be a number of MiB, such as 0 or 4096.\n",
                 value, static_cast<long long>(otherwise));
    return otherwise << 20;
  }();
  return bytes;
}

c10::Stream stream_of(const at::Tensor& weight) {
  return c10::impl::VirtualGuardImpl(weight.device().type()).getStream(weight.device());
}

// All that torch can see of a weight. Weak references: addresses of what is gone are not used again while one is held.
struct Sight {
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  const void* data;
  std::uint32_t version;
  std::vector<std::int64_t> sizes, strides;

  explicit Sight(const at::Tensor& weight)
      : storage(weight.storage().getWeakStorageImpl()),
        data(weight.const_data_ptr()),
        version(weight._version()),
        sizes(weight.sizes().vec()),
        strides(weight.strides().vec()) {}
  bool is_of(const at::Tensor& weight) const {
    return storage._unsafe_get_target() == weight.storage().unsafeGetStorageImpl() && data == weight.const_data_ptr() &&
           version == weight._version() && sizes == weight.sizes() && strides == weight.strides();
  }
};

struct Kept {
  Sight sight;
  const WholeKernels* kernels;  // all chains have kernels of their own
  at::Tensor made;
  c10::Stream stream;
  c10::Event event;
  std::uint64_t used;
};

struct Settled {
  c10::weak_intrusive_ptr<c10::TensorImpl> weight;
  std::optional<Kept> kept;
};

class Store {
 public:
  std::mutex& mutex() { return mutex_; }
  bool is_empty() const { return count_.load(std::memory_order_relaxed) == 0; }

  void settle(const at::Tensor& weight) {
    most_bytes();  // whoever settles hears of a number that is none
    const std::lock_guard lock(mutex_);
    forget_the_dead();
    all_.try_emplace(weight.unsafeGetTensorImpl(),
                     Settled{c10::weak_intrusive_ptr<c10::TensorImpl>(weight.getIntrusivePtr()), std::nullopt});
    count_ = all_.size();
  }

  void release(const at::Tensor& weight) {
    const std::lock_guard lock(mutex_);
    all_.erase(weight.unsafeGetTensorImpl());
    forget_the_dead();
  }

  bool has(const at::Tensor& weight) {
    const std::lock_guard lock(mutex_);
    return all_.contains(weight.unsafeGetTensorImpl());
  }

  std::int64_t bytes() {
    const std::lock_guard lock(mutex_);
    forget_the_dead();
    return bytes_now();
  }

  at::Tensor kept(const at::Tensor& weight, const WholeKernels& kernels, const Linear& linear, const Tail& tail) {
    const std::lock_guard lock(mutex_);
    const auto found = all_.find(weight.unsafeGetTensorImpl());
    if (found == all_.end()) {
      forget_the_dead();
      return {};
    }
    const c10::Stream stream = stream_of(weight);
    if (!kernels.may_keep(stream.native_handle())) return {};
    std::optional<Kept>& kept = found->second.kept;
    if (kept && (kept->kernels->keep != kernels.keep || !kept->sight.is_of(weight))) kept.reset();
    if (!kept && !make(kept, weight, kernels, linear, tail, stream)) return {};
    kept->event.block(stream);  // it costs nothing once it is over
    if (stream != kept->stream) kept->made.record_stream(stream);
    kept->used = ++clock_;
    return kept->made;
  }

 private:
  bool make(std::optional<Kept>& kept, const at::Tensor& weight, const WholeKernels& kernels, const Linear& linear,
            const Tail& tail, const c10::Stream& stream) {
    const std::int64_t bytes = kernels.kept_bytes(linear, tail);
    if (bytes > most_bytes()) return false;
    forget_the_dead();
    while (bytes_now() + bytes > most_bytes()) forget_the_oldest();
    const at::Tensor made = at::empty({bytes}, weight.options().dtype(at::kByte).requires_grad(false));
    const char* error = kernels.keep(linear, tail, made.mutable_data_ptr(), stream.native_handle());
    TORCH_CHECK(error == nullptr, "tailor: what is kept of a weight: ", error);
    c10::Event event(stream.device_type());
    event.record(stream);
    kept.emplace(Kept{Sight(weight), &kernels, made, stream, std::move(event), 0});
    return true;
  }

  std::int64_t bytes_now() const {
    std::int64_t sum = 0;
    for (const auto& [impl, settled] : all_)
      sum += settled.kept ? static_cast<std::int64_t>(settled.kept->made.nbytes()) : 0;
    return sum;
  }

  void forget_the_dead() {
    for (auto each = all_.begin(); each != all_.end();)
      each = each->second.weight.expired() ? all_.erase(each) : std::next(each);
    count_ = all_.size();
  }

  void forget_the_oldest() {
    Settled* oldest = nullptr;
    for (auto& [impl, settled] : all_)
      if (settled.kept && (oldest == nullptr || settled.kept->used < oldest->kept->used)) oldest = &settled;
    if (oldest != nullptr) oldest->kept.reset();
  }

  std::mutex mutex_;
  std::unordered_map<const c10::TensorImpl*, Settled> all_;
  std::atomic<std::size_t> count_{0};
  std::uint64_t clock_ = 0;
};

// Never destroyed: at exit the driver may be gone before it.
Store& store() {
  static Store* const all = [] {
    free_in_children<[]() -> std::mutex& { return store().mutex(); }>();
    return new Store;
  }();
  return *all;
}

}  // namespace

void settle(const at::Tensor& weight) { store().settle(weight); }
void release(const at::Tensor& weight) { store().release(weight); }
bool is_settled(const at::Tensor& weight) { return !store().is_empty() && store().has(weight); }
std::int64_t kept_bytes() { return store().bytes(); }

bool can_keep(const at::Tensor& weight, const WholeKernels& kernels, const Linear& linear, const Tail& tail) {
  if (kernels.keep == nullptr || weight.is_inference() || !is_settled(weight)) return false;
  return kernels.may_keep(stream_of(weight).native_handle()) && kernels.kept_bytes(linear, tail) <= most_bytes();
}

at::Tensor kept(const at::Tensor& weight, const WholeKernels& kernels, const Linear& linear, const Tail& tail) {
  // A tensor of inference mode has no version.
  if (store().is_empty() || kernels.keep == nullptr || weight.is_inference()) return {};
  return store().kept(weight, kernels, linear, tail);
}

}  // namespace tailor
