# SPDX-License-Identifier: Apache-2.0
# A sanitized plugin would need the flags that the package does not carry.
if(VOXCONV_INSTALL AND NOT VOXCONV_SANITIZE)
  set(nvcc)
  if(VOXCONV_HAVE_CUDA)
    set(nvcc ${CMAKE_CUDA_COMPILER})
  endif()
  add_test(NAME installed_plugin_test
           COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/installed_plugin_test.sh ${PROJECT_SOURCE_DIR}
                   ${PROJECT_BINARY_DIR} ${CMAKE_CXX_COMPILER} ${CMAKE_BUILD_TYPE} "${nvcc}"
                   "${CMAKE_CUDA_ARCHITECTURES}")
  set_tests_properties(installed_plugin_test PROPERTIES TIMEOUT 900 LABELS contract)
endif()
