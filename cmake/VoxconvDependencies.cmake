# SPDX-License-Identifier: Apache-2.0
# Every third-party package, found in one place. All of them install from
# Debian 12 and Ubuntu 24.04 packages (see scripts/install_dependencies).
find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(TBB REQUIRED)
find_package(hwy REQUIRED)
find_package(Boost REQUIRED COMPONENTS program_options)
find_package(nlohmann_json REQUIRED)
find_package(libzip REQUIRED)

set(VOXCONV_HAVE_OPEN3D OFF)
set(VOXCONV_HAVE_OPENMP OFF)
if(NOT VOXCONV_OPEN3D STREQUAL "OFF")
  find_package(Open3D QUIET)
  if(Open3D_FOUND)
    set(VOXCONV_HAVE_OPEN3D ON)
    # It is the compiler's default. Said again, it would keep the precompiled headers from use.
    get_target_property(definitions Open3D::Open3D INTERFACE_COMPILE_DEFINITIONS)
    list(REMOVE_ITEM definitions _GLIBCXX_USE_CXX11_ABI=1)
    set_property(TARGET Open3D::Open3D PROPERTY INTERFACE_COMPILE_DEFINITIONS ${definitions})
    find_package(OpenMP QUIET COMPONENTS CXX)  # for hash:variant=open3d alone
    if(OpenMP_CXX_FOUND)
      set(VOXCONV_HAVE_OPENMP ON)
    endif()
  elseif(VOXCONV_OPEN3D STREQUAL "ON")
    message(FATAL_ERROR "VOXCONV_OPEN3D=ON: Open3D was not found (Debian: libopen3d-dev)")
  endif()
endif()
message(STATUS "voxconv: Open3D ${VOXCONV_HAVE_OPEN3D}")

if(VOXCONV_TESTS)
  find_package(GTest REQUIRED)
endif()
find_package(benchmark REQUIRED)
