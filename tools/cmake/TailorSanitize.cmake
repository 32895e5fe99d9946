# TAILOR_SANITIZE: our code, instrumented by gcc, in a build tree of its own. torch is not, so that an address or a lock
# that only torch knows is unknown to the sanitizer. Nothing had to be suppressed for that yet: tools/trust runs without a
# file of suppressions.
set(TAILOR_SANITIZE "" CACHE STRING "Instrument our code: thread, address, undefined, or address,undefined")
set_property(CACHE TAILOR_SANITIZE PROPERTY STRINGS "" thread address undefined address,undefined)
if(NOT TAILOR_SANITIZE)
  return()
endif()
if(NOT TAILOR_SANITIZE MATCHES "^(thread|address|undefined|address,undefined)$")
  message(FATAL_ERROR "TAILOR_SANITIZE is '${TAILOR_SANITIZE}'; it can be thread, address, undefined or address,undefined.")
endif()
if(TAILOR_WITH_CUDA)
  message(FATAL_ERROR "A sanitizer cannot look into a GPU: give -DTAILOR_CUDA=OFF as well. There, use compute-sanitizer.")
endif()
add_compile_options(-fsanitize=${TAILOR_SANITIZE} -fno-omit-frame-pointer -g1
  -Wno-stringop-overflow -Wno-array-bounds -Wno-maybe-uninitialized)  # gcc 12 cannot follow the code that it has put in
add_link_options(-fsanitize=${TAILOR_SANITIZE})
if(TAILOR_SANITIZE MATCHES "undefined")
  # vptr asks for the type information of classes that torch keeps to itself. What is found ends the program.
  add_compile_options(-fno-sanitize=vptr -fno-sanitize-recover=all)
endif()
