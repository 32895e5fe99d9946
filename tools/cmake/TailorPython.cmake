# tailor_python_environment(FOLDER requirement...): a virtual environment with exactly these packages.
#
# The stamp is written last and names the packages: an environment whose installation failed, was interrupted or wanted
# other versions is made anew, a finished one is used again.
function(tailor_python_environment folder)
  set(python ${folder}/bin/python)
  set(stamp ${folder}/tailor-stamp.txt)
  if(EXISTS ${stamp})
    file(READ ${stamp} installed)
    # A copied or moved build tree, or a Python that has gone, leaves an environment that does not start.
    execute_process(COMMAND ${python} -c "import sys; sys.exit(sys.prefix != '${folder}')"
      RESULT_VARIABLE broken OUTPUT_QUIET ERROR_QUIET)
    if(installed STREQUAL "${ARGN}" AND broken EQUAL 0)
      return()
    endif()
  endif()

  find_program(TAILOR_PYTHON3 python3 DOC "The Python that makes environments in the build tree")
  if(NOT TAILOR_PYTHON3)
    message(FATAL_ERROR "There is no python3 on PATH. Install it (on Debian and Ubuntu: apt install python3 python3-venv).")
  endif()
  execute_process(COMMAND ${TAILOR_PYTHON3} -c "import sys; sys.exit(sys.version_info < (3, 10))" RESULT_VARIABLE old)
  if(old)
    message(FATAL_ERROR "${TAILOR_PYTHON3} is older than 3.10, the first for which torch ${TAILOR_TORCH_VERSION} exists. "
      "Name another one with -DTAILOR_PYTHON3=/path/to/python3.")
  endif()
  execute_process(COMMAND ${TAILOR_PYTHON3} -c "import venv, ensurepip" RESULT_VARIABLE no_venv ERROR_QUIET)
  if(no_venv)
    message(FATAL_ERROR "${TAILOR_PYTHON3} cannot make virtual environments. "
      "Install them (on Debian and Ubuntu: apt install python3-venv).")
  endif()

  list(JOIN ARGN " " packages)
  message(STATUS "Installing ${packages} into ${folder}: this takes some minutes the first time")
  file(REMOVE_RECURSE ${folder})
  execute_process(COMMAND ${TAILOR_PYTHON3} -m venv ${folder} RESULT_VARIABLE failed)
  if(NOT failed)
    execute_process(COMMAND ${python} -m pip install --disable-pip-version-check --no-input ${ARGN} RESULT_VARIABLE failed)
  endif()
  if(failed)
    message(FATAL_ERROR "pip could not install ${packages} (its own words are above). It needs a network connection and "
      "some gigabytes in ${folder}; PIP_INDEX_URL names another package index. "
      "To use a torch that you have: -DTAILOR_TORCH_PYTHON=/path/to/its/python. Without CUDA: -DTAILOR_CUDA=OFF.")
  endif()
  file(WRITE ${stamp} "${ARGN}")
endfunction()
