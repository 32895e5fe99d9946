# `cmake --install` and find_package(Tailor). The installed tree may be moved; torch stays where it is.
include(CMakePackageConfigHelpers)

# What users link is a wrapper: a program that only calls torch::jit::load on a fused file uses no symbol of Tailor's, and
# most distributions' linkers drop such a library, and its ops with it.
add_library(Tailor::library ALIAS tailor)  # its name once installed, which the next line needs
add_library(tailor_linked INTERFACE)
target_link_libraries(tailor_linked INTERFACE
  -Wl,--push-state,--no-as-needed,$<TARGET_FILE:Tailor::library>,--pop-state tailor)
set_target_properties(tailor PROPERTIES EXPORT_NAME library)
set_target_properties(tailor_linked PROPERTIES EXPORT_NAME tailor)

# Both find torch where it was at build time. Named here because INSTALL_RPATH_USE_LINK_PATH leaves out what lies in the
# build tree, as a torch that was fetched does.
set_target_properties(tailor tailor_command PROPERTIES
  INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR};${TAILOR_TORCH_ROOT}/lib")
install(TARGETS tailor tailor_linked tailor_command EXPORT TailorExports)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/passes/include/tailor DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

set(folder ${CMAKE_INSTALL_LIBDIR}/cmake/Tailor)
install(EXPORT TailorExports NAMESPACE Tailor:: DESTINATION ${folder})
configure_package_config_file(tools/cmake/TailorConfig.cmake.in TailorConfig.cmake INSTALL_DESTINATION ${folder}
  NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(TailorConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/TailorConfig.cmake ${PROJECT_BINARY_DIR}/TailorConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/tools/cmake/TailorTorch.cmake DESTINATION ${folder})
