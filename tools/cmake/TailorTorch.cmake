# The target Tailor::torch: torch's C++ libraries. Used by the build and, installed, by everybody who finds Tailor.
#
# Not find_package(Torch): where torch has CUDA that demands a CUDA toolkit, even of a program that has no line of CUDA,
# tries out a GPU while configuring, and replaces the CUDA flags of every directory after it. What is needed of it is
# three libraries and two include folders. A project may call find_package(Torch) as well: they are the same files.
if(TARGET Tailor::torch)
  return()
endif()
set(_torch ${TAILOR_TORCH_ROOT}/lib)
foreach(_library c10 torch_cpu torch)
  if(NOT EXISTS ${_torch}/lib${_library}.so)
    message(FATAL_ERROR "Tailor: there is no ${_torch}/lib${_library}.so. Is ${TAILOR_TORCH_ROOT} a whole torch?")
  endif()
endforeach()

add_library(Tailor::torch INTERFACE IMPORTED)
target_include_directories(Tailor::torch SYSTEM INTERFACE
  ${TAILOR_TORCH_ROOT}/include ${TAILOR_TORCH_ROOT}/include/torch/csrc/api/include)
# libtorch.so has no symbols of its own but draws in libtorch_cuda.so where there is one. The linker of most
# distributions drops a library without used symbols, and a program would then find no CUDA at run time.
# One item, because CMake sorts several and drops those that it has seen.
target_link_libraries(Tailor::torch INTERFACE
  -Wl,--push-state,--no-as-needed,${_torch}/libtorch.so,--pop-state ${_torch}/libtorch_cpu.so ${_torch}/libc10.so)
