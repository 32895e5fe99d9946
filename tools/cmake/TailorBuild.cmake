# What every target of ours has in common.

# Warnings are errors in our own code; torch's headers are system headers (TailorTorch.cmake) and are left in peace.
set(TAILOR_WARNINGS -Wall -Wextra -Wpedantic -Wshadow=local -Wnon-virtual-dtor -Woverloaded-virtual -Wextra-semi -Werror
  -Wno-maybe-uninitialized  # gcc 12 reports torch's own code where it is inlined into ours: c10::SmallVector
  -Wno-restrict -Wno-array-bounds -Wno-stringop-overflow)  # gcc 12 reports its own std::string, inlined: its bug 105329
# The host compiler sees the code that nvcc generates: no -Wpedantic, it objects to every line of that.
set(TAILOR_CUDA_WARNINGS --Werror=all-warnings -Xcompiler=-Wall,-Wextra)

function(tailor_warnings target)
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CXX>:${TAILOR_WARNINGS}>" "$<$<COMPILE_LANGUAGE:CUDA>:${TAILOR_CUDA_WARNINGS}>")
endfunction()

# For C++ alone: CMAKE_CXX_STANDARD would be taken for CUDA too, of which CMake 3.25 does not know that nvcc has C++20.
function(tailor_cxx20 target)
  set_target_properties(${target} PROPERTIES CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
endfunction()

# A file with torch's headers takes 12 s to compile if they are not precompiled. All targets share the precompiled header
# of `tailor`, which gcc allows only for equal flags: so -fPIC for programs too, and no tailor_EXPORTS.
function(tailor_precompiled target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fPIC>)
  set_target_properties(${target} PROPERTIES DEFINE_SYMBOL "")
  if(target STREQUAL tailor)
    target_precompile_headers(tailor PRIVATE ${PROJECT_SOURCE_DIR}/tools/cmake/precompiled.h)
  else()
    target_precompile_headers(${target} REUSE_FROM tailor)
  endif()
endfunction()

# Sources of such a target that include none of torch's headers: the precompiled one would cost each of them 4 s.
function(tailor_without_torch)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# A program linked with the library, which may also include headers that are not installed: "ops/chain.h".
function(tailor_program target)
  target_link_libraries(${target} PRIVATE tailor tailor_kernels)
  tailor_cxx20(${target})
  tailor_warnings(${target})
  tailor_precompiled(${target})
endfunction()
