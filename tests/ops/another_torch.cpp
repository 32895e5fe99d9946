// Preloaded by version_test.py: makes this process's torch say that it is another version.
#include <ATen/Version.h>

std::string at::show_config() { return "PyTorch built with:\n  - Build settings: TORCH_VERSION=1.2.3, USE_CUDA=OFF, "; }
