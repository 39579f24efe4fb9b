# SPDX-License-Identifier: Apache-2.0
# Decides whether the CUDA backend is built: VOXCONV_HAVE_CUDA, VOXCONV_CUDA_VERSION. The language
# is enabled only where there is something to compile with it.
#
# VOXCONV_CUDA=AUTO builds it where a toolkit is found, ON insists, OFF does not look.
# CMAKE_CUDA_ARCHITECTURES (or the environment variable CUDAARCHS) overrides the default, 90a-real.
set(VOXCONV_HAVE_CUDA OFF)
set(VOXCONV_CUDA_VERSION none)
set(VOXCONV_HAVE_SM90A OFF)
set(reason "VOXCONV_CUDA=OFF")
if(NOT VOXCONV_CUDA STREQUAL "OFF")
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
    set(CMAKE_CUDA_ARCHITECTURES 90a-real CACHE STRING "GPU architectures to compile for")
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  find_package(CUDAToolkit QUIET)
  if(NOT CMAKE_CUDA_COMPILER OR NOT CUDAToolkit_FOUND)
    set(reason "no CUDA toolkit found; put nvcc in PATH or set CUDACXX")
  elseif(NOT EXISTS ${PROJECT_SOURCE_DIR}/backends/cuda/CMakeLists.txt)
    set(reason "toolkit ${CUDAToolkit_VERSION} found, but there is no CUDA backend yet")
  else()
    enable_language(CUDA)
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25.1 does not know nvcc's C++20 yet
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    endif()
    # core's constexpr functions (keys, offsets) are device functions too; line tables cost nothing
    # and let profilers name the source.
    string(APPEND CMAKE_CUDA_FLAGS " --expt-relaxed-constexpr --extended-lambda -lineinfo")
    # The program takes 11 MB instead of 61 MB. It starts 0.15 s later, once.
    if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.8)
      string(APPEND CMAKE_CUDA_FLAGS " --compress-mode=size")
    endif()
    set(VOXCONV_HAVE_CUDA ON)
    if("90a" IN_LIST CMAKE_CUDA_ARCHITECTURES OR "90a-real" IN_LIST CMAKE_CUDA_ARCHITECTURES)
      set(VOXCONV_HAVE_SM90A ON)
    endif()
    set(VOXCONV_CUDA_VERSION ${CUDAToolkit_VERSION})
    set(reason "toolkit ${CUDAToolkit_VERSION}, architectures ${CMAKE_CUDA_ARCHITECTURES}")
  endif()
endif()
if(VOXCONV_CUDA STREQUAL "ON" AND NOT VOXCONV_HAVE_CUDA)
  message(FATAL_ERROR "VOXCONV_CUDA=ON: ${reason}")
endif()
message(STATUS "voxconv: CUDA ${VOXCONV_HAVE_CUDA} (${reason})")
