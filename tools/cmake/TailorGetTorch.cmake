# Finds the torch to build against: the one of the Python that the user names, else a pinned one in the build tree.
# Sets TAILOR_TORCH_PYTHON, TAILOR_TORCH_ROOT (torch's own folder), TAILOR_TORCH_CUDA (such as 13.0, or None) and
# TAILOR_TORCH_FOUND (its version, such as 2.11.0).
if(NOT TAILOR_TORCH_PYTHON AND DEFINED ENV{TAILOR_TORCH_PYTHON})
  set_property(CACHE TAILOR_TORCH_PYTHON PROPERTY VALUE $ENV{TAILOR_TORCH_PYTHON})  # remembered, as an option would be
endif()
if(TAILOR_TORCH_PYTHON)
  find_program(torch_python ${TAILOR_TORCH_PYTHON} NO_CACHE)  # a path, or a name on PATH
  if(NOT torch_python)
    message(FATAL_ERROR "TAILOR_TORCH_PYTHON is '${TAILOR_TORCH_PYTHON}', and there is no such program.")
  endif()
  set(TAILOR_TORCH_PYTHON ${torch_python})
  set(how_to_mend "Name another Python with -DTAILOR_TORCH_PYTHON=..., or give -UTAILOR_TORCH_PYTHON to fetch torch ${TAILOR_TORCH_VERSION}.")
else()
  # numpy is not needed to build; without it torch warns at every import, and the tests use it.
  tailor_python_environment(${PROJECT_BINARY_DIR}/torch-venv torch==${TAILOR_TORCH_VERSION} "numpy>=2,<3")
  set(TAILOR_TORCH_PYTHON ${PROJECT_BINARY_DIR}/torch-venv/bin/python)
  set(how_to_mend "Delete ${PROJECT_BINARY_DIR}/torch-venv and configure again.")
endif()

# torch/version.py is run without importing torch, which would take seconds and may need what is not here.
execute_process(
  COMMAND ${TAILOR_TORCH_PYTHON} -c "
import importlib.util, pathlib, runpy
root = pathlib.Path(importlib.util.find_spec('torch').submodule_search_locations[0]).resolve()
version = runpy.run_path(str(root / 'version.py'))
print(root, version['__version__'], version['cuda'], sep=';', end='')"
  WORKING_DIRECTORY ${PROJECT_BINARY_DIR}
  OUTPUT_VARIABLE torch RESULT_VARIABLE failed ERROR_QUIET)
if(failed)
  message(FATAL_ERROR "${TAILOR_TORCH_PYTHON} has no torch. ${how_to_mend}")
endif()
list(GET torch 0 TAILOR_TORCH_ROOT)
list(GET torch 1 torch_version)
list(GET torch 2 TAILOR_TORCH_CUDA)
message(STATUS "torch ${torch_version} (CUDA ${TAILOR_TORCH_CUDA}) in ${TAILOR_TORCH_ROOT}")

# torch promises no stable C++ interface: another minor version compiles differently or not at all.
string(REGEX MATCH "^[0-9]+\\.[0-9]+" wanted ${TAILOR_TORCH_VERSION})
string(REGEX MATCH "^([0-9]+\\.[0-9]+)[0-9.]*" TAILOR_TORCH_FOUND ${torch_version})
if(NOT CMAKE_MATCH_1 STREQUAL wanted)
  message(FATAL_ERROR "Tailor is written for torch ${wanted}, but ${TAILOR_TORCH_PYTHON} has ${torch_version}. ${how_to_mend}")
endif()
