# SPDX-License-Identifier: Apache-2.0
# Compiler settings shared by every target of the project.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

foreach(toggle VOXCONV_CUDA VOXCONV_OPEN3D VOXCONV_PYTHON_MODULE)
  if(NOT ${toggle} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "${toggle}=${${toggle}}: allowed are AUTO, ON and OFF")
  endif()
endforeach()

find_program(VOXCONV_CCACHE ccache)
if(VOXCONV_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # With paths relative to the source tree, the presets' builds share what they have in common.
  # ccache asks for this sloppiness before it takes precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
      CCACHE_SLOPPINESS=pch_defines,time_macros ${VOXCONV_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()

# Warnings belong to our own code only; dependencies come in as SYSTEM includes.
add_library(voxconv_warnings INTERFACE)
target_compile_options(voxconv_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings;-Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers,-Wno-unused-parameter>
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wundef;-Werror;-Wno-missing-field-initializers>)

if(VOXCONV_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${VOXCONV_SANITIZE}>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=all>)
  add_link_options(-fsanitize=${VOXCONV_SANITIZE})
endif()
