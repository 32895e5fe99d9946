# Chooses nvcc and enables CUDA. Sets TAILOR_WITH_CUDA.
set(TAILOR_WITH_CUDA OFF)
if(NOT TAILOR_CUDA)
  return()
elseif(TAILOR_TORCH_CUDA STREQUAL "None")
  if(NOT TAILOR_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "TAILOR_CUDA is ${TAILOR_CUDA}, but the torch of ${TAILOR_TORCH_PYTHON} has no CUDA.")
  endif()
  message(STATUS "Building without CUDA: this torch has none")
  return()
endif()

string(REGEX MATCH "^[0-9]+" cuda_major ${TAILOR_TORCH_CUDA})

# Sets RESULT to nvcc's version, or to nothing if it is no nvcc.
function(tailor_nvcc_version nvcc result)
  execute_process(COMMAND ${nvcc} --version OUTPUT_VARIABLE text ERROR_QUIET RESULT_VARIABLE failed)
  string(REGEX MATCH "release ([0-9.]+)" found "${text}")
  set(${result} ${CMAKE_MATCH_1} PARENT_SCOPE)
endfunction()

# 1. The nvcc that the user names must fit. 2. One on PATH is taken if it does. 3. Else it comes from the package index.
if(NOT CMAKE_CUDA_COMPILER AND DEFINED ENV{CUDACXX})
  set(CMAKE_CUDA_COMPILER $ENV{CUDACXX})
endif()
if(CMAKE_CUDA_COMPILER)
  tailor_nvcc_version(${CMAKE_CUDA_COMPILER} nvcc_version)
  if(NOT nvcc_version MATCHES "^${cuda_major}\\.")
    message(FATAL_ERROR "${CMAKE_CUDA_COMPILER} is nvcc ${nvcc_version}, but torch was built with CUDA ${TAILOR_TORCH_CUDA}. "
      "Name an nvcc ${cuda_major} with -DCMAKE_CUDA_COMPILER=... in a new build folder, or give -DTAILOR_CUDA=OFF.")
  endif()
else()
  find_program(nvcc_on_path nvcc PATHS ENV PATH NO_DEFAULT_PATH NO_CACHE)
  if(nvcc_on_path)
    tailor_nvcc_version(${nvcc_on_path} nvcc_version)
    if(nvcc_version MATCHES "^${cuda_major}\\.")
      set(CMAKE_CUDA_COMPILER ${nvcc_on_path})
    else()
      message(STATUS "Passing over ${nvcc_on_path}: it is nvcc ${nvcc_version}, torch was built with CUDA ${TAILOR_TORCH_CUDA}")
    endif()
  endif()
endif()
if(NOT CMAKE_CUDA_COMPILER)
  if(NOT cuda_major EQUAL 13)
    message(FATAL_ERROR "There is no nvcc ${cuda_major} on PATH, and the package index has a whole toolkit only for CUDA 13. "
      "Put nvcc ${cuda_major} on PATH, or give -DTAILOR_CUDA=OFF.")
  endif()
  # What is not named comes as 13.5: the ptxas of 13.0 refuses the output of that nvvm.
  tailor_python_environment(${PROJECT_BINARY_DIR}/cuda-venv "cuda-toolkit[nvcc,cccl,crt]==13.0.2" nvidia-nvvm==13.0.88
    nvidia-cuda-runtime==13.0.96)
  file(GLOB toolkit ${PROJECT_BINARY_DIR}/cuda-venv/lib/python3*/site-packages/nvidia/cu13)
  file(CREATE_LINK lib ${toolkit}/lib64 SYMBOLIC)  # where this nvcc looks for its libraries
  set(CMAKE_CUDA_COMPILER ${toolkit}/bin/nvcc)
  set(CUDAToolkit_ROOT ${toolkit})
endif()

# Code of 8.0 also runs on 8.6 and 8.9, and its PTX, from which the driver makes code, on whatever is not named; 90a is
# Hopper with its own instructions.
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80 90a-real 100-real 120-real)
  # The portable kernels are the same from 9.0 on: their PTX is made once, which is most of what nvcc does.
  set(TAILOR_PORTABLE_CODE
    "--generate-code=arch=compute_80,code=[compute_80,sm_80]" "--generate-code=arch=compute_90,code=[sm_90,sm_100,sm_120]")
endif()
enable_language(CUDA)
set(TAILOR_WITH_CUDA ON)
message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION} from ${CMAKE_CUDA_COMPILER}")
