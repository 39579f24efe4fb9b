# SPDX-License-Identifier: Apache-2.0
# Headers to include/voxconv/<folder>, static libraries, and the package that
# find_package(voxconv) reads: targets voxconv::voxconv, voxconv::core, voxconv::backend_cpu, ...
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/voxconv)

get_property(libraries GLOBAL PROPERTY VOXCONV_LIBRARIES)
get_property(folders GLOBAL PROPERTY VOXCONV_FOLDERS)
install(TARGETS ${libraries} voxconv_library voxconv_plugin_sdk EXPORT voxconvTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT voxconvTargets NAMESPACE voxconv:: DESTINATION ${package_dir})

foreach(folder IN LISTS folders)
  cmake_path(GET folder PARENT_PATH parent)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder} DESTINATION include/voxconv/${parent}
          FILES_MATCHING PATTERN *.h)
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/library/voxconv.h DESTINATION include/voxconv)
if(VOXCONV_HAVE_CUDA)  # what the CUDA backend's headers include and plugins' kernels use
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/backends/cuda DESTINATION include/voxconv/backends
          FILES_MATCHING PATTERN *.cuh)
endif()
install(FILES ${PROJECT_BINARY_DIR}/generated/voxconv/core/version.h
              ${PROJECT_BINARY_DIR}/generated/voxconv/core/interface_stamp.h
        DESTINATION include/voxconv/core)

if(TARGET voxconv)
  install(TARGETS voxconv RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  # The program writes them from its own options.
  foreach(shell bash zsh)
    install(CODE "execute_process(COMMAND \"$<TARGET_FILE:voxconv>\" completion ${shell}
      OUTPUT_FILE \"${PROJECT_BINARY_DIR}/completion.${shell}\" COMMAND_ERROR_IS_FATAL ANY)")
  endforeach()
  install(FILES ${PROJECT_BINARY_DIR}/completion.bash RENAME voxconv
          DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${PROJECT_BINARY_DIR}/completion.zsh RENAME _voxconv
          DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
endif()

configure_package_config_file(
  ${CMAKE_CURRENT_LIST_DIR}/voxconvConfig.cmake.in ${PROJECT_BINARY_DIR}/voxconvConfig.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change anything.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/voxconvConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/voxconvConfig.cmake
              ${PROJECT_BINARY_DIR}/voxconvConfigVersion.cmake
              ${CMAKE_CURRENT_LIST_DIR}/VoxconvPlugin.cmake
        DESTINATION ${package_dir})
