# SPDX-License-Identifier: Apache-2.0
# Plugins in shared libraries, and programs that load them. The same file serves this source tree
# and the installed package.
#
# voxconv's libraries are static. A plugin links none of them: it leaves their symbols undefined,
# and the program that loads it provides them, so that there is one copy of everything.

# voxconv's own inner loops are compiled for several instruction sets, of which the program chooses
# one. A plugin is compiled for one: that of the machine that builds it. Without it, a plugin has
# vectors of 16 bytes and no multiply-adds, and seems slower than it is. A plugin for the machine
# that builds it may not run on others: voxconv then refuses it.
set(VOXCONV_PLUGIN_ARCHITECTURE native CACHE STRING
    "What plugins are compiled for: native, another value of -march (x86-64-v3), or OFF for none")

# voxconv_plugin(name sources...)
# Builds <name>.so for VOXCONV_PLUGIN_ARCHITECTURE, optimised where no build type is chosen. Only voxconv_plugin_info is visible outside; other libraries that the plugin
# needs are added with target_link_libraries and should be shared ones. Sources may be CUDA's, where
# the language is enabled, and take the flags of voxconv's own.
function(voxconv_plugin name)
  add_library(${name} MODULE ${ARGN})
  target_link_libraries(${name} PRIVATE voxconv::plugin_sdk)
  target_compile_features(${name} PRIVATE cxx_std_20)
  set_target_properties(${name} PROPERTIES
    PREFIX "" CXX_EXTENSIONS OFF CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON)
  # The standard as an option: CMake 3.25.1 does not know nvcc's C++20 yet, and nvcc takes it once.
  set_property(TARGET ${name} PROPERTY CUDA_STANDARD)
  set_property(TARGET ${name} PROPERTY CUDA_EXTENSIONS)
  target_compile_options(${name} PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;--expt-relaxed-constexpr;--extended-lambda>")
  if(VOXCONV_PLUGIN_ARCHITECTURE)
    target_compile_options(${name} PRIVATE
      "$<$<COMPILE_LANGUAGE:CXX>:-march=${VOXCONV_PLUGIN_ARCHITECTURE}>")
  endif()
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    target_compile_options(${name} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-O3>")
    target_compile_definitions(${name} PRIVATE NDEBUG)
  endif()
  if(TARGET CUDA::toolkit)  # its headers, which those of backends/cuda include
    target_link_libraries(${name} PRIVATE CUDA::toolkit)
  endif()
endfunction()

# voxconv_enable_plugins(executable)
# Lets the executable load plugins: it contains all of core and the backends, used or not, and
# exports their symbols.
function(voxconv_enable_plugins executable)
  target_link_libraries(${executable} PRIVATE voxconv::core voxconv::backend_cpu)
  set(whole "\"$<TARGET_FILE:voxconv::core>\" \"$<TARGET_FILE:voxconv::backend_cpu>\"")
  if(TARGET voxconv::backend_cuda)
    target_link_libraries(${executable} PRIVATE voxconv::backend_cuda)
    string(APPEND whole " \"$<TARGET_FILE:voxconv::backend_cuda>\"")
  endif()
  # As an option of its own: $<LINK_LIBRARY:WHOLE_ARCHIVE,...> also applies where a library comes
  # again as the dependency of another, and then everything in it is defined twice. Here the
  # archives come whole before all else, and nothing is left to take from their later mentions.
  target_link_options(${executable} PRIVATE
    "SHELL:LINKER:--push-state,--whole-archive ${whole} LINKER:--pop-state")
  set_target_properties(${executable} PROPERTIES ENABLE_EXPORTS ON)
endfunction()
