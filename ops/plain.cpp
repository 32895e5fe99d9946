#include "plain.h"

#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>

namespace tailor {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

// Autograd's keys sit on every tensor; whether it is at work is a question of its own. Autocast's too.
constexpr DispatchKeySet plain_keys = DispatchKeySet({DispatchKey::CPU, DispatchKey::CUDA, DispatchKey::AutogradCPU,
                                                      DispatchKey::AutogradCUDA, DispatchKey::ADInplaceOrView}) |
                                      c10::autocast_dispatch_keyset;

bool has_only(DispatchKeySet keys, DispatchKeySet allowed) { return (keys.raw_repr() & ~allowed.raw_repr()) == 0; }

}  // namespace

const char* unusual_thread() {
  const auto keys = c10::impl::tls_local_dispatch_key_set();
  if (!has_only(keys.included_, c10::default_included_set)) return "a mode, a transform or a trace is active";
  if (!has_only(c10::default_excluded_set, keys.excluded_)) return "autocast is on";
  // As in the body of an op of the user's, to which torch gives gradients from outside. Inference mode wants none.
  if (c10::GradMode::is_enabled() && keys.excluded_.has_any(c10::autograd_dispatch_keyset))
    return "autograd is switched off where gradients are wanted";
  return nullptr;
}

const char* unusual_tensor(const at::Tensor& tensor) {
  if (!has_only(tensor.key_set(), plain_keys)) return "a tensor is no plain dense one";
  if (is_dual(tensor)) return "a tensor carries a forward-mode gradient";
  if (!tensor.unsafeGetTensorImpl()->storage_initialized()) return "a tensor's memory was released";
  return nullptr;
}

bool is_dual(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl()->_fw_grad(0, tensor).defined(); }

bool is_refused_by_autograd(const at::Tensor& tensor) {
  if (!tensor.defined()) return false;
  if (tensor.is_inference()) return true;
  const auto* view = torch::autograd::impl::get_view_autograd_meta(tensor);
  return view && view->has_bw_view() && view->get_creation_meta() != torch::autograd::CreationMeta::DEFAULT &&
         view->get_attr_version() != tensor._version();
}

bool is_aligned(const at::Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % 16 == 0;
}

}  // namespace tailor
