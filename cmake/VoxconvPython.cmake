# SPDX-License-Identifier: Apache-2.0
# Decides whether the Python package's extension is built: VOXCONV_HAVE_PYTHON, and the imported
# functions of nanobind.
#
# VOXCONV_PYTHON_MODULE=AUTO builds it where a Python from 3.10 on has its headers and nanobind, ON
# insists, OFF does not look. The Python of scripts/python_environment goes before others, unless
# Python_EXECUTABLE names one.
set(VOXCONV_HAVE_PYTHON OFF)
set(reason "VOXCONV_PYTHON_MODULE=OFF")
if(NOT VOXCONV_PYTHON_MODULE STREQUAL "OFF")
  set(environment ${PROJECT_SOURCE_DIR}/build/python/bin/python)
  if(NOT DEFINED Python_EXECUTABLE AND EXISTS ${environment})
    set(Python_EXECUTABLE ${environment})
  endif()
  find_package(Python 3.10 QUIET
               COMPONENTS Interpreter Development.Module ${SKBUILD_SABI_COMPONENT})
  if(NOT Python_FOUND)
    set(reason "no Python from 3.10 on with its headers was found (Debian: python3-dev)")
  else()
    execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
                    OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE
                    RESULT_VARIABLE status ERROR_QUIET)
    if(status EQUAL 0)
      find_package(nanobind 3.1 CONFIG QUIET)
    endif()
    if(nanobind_FOUND)
      set(VOXCONV_HAVE_PYTHON ON)
      set(reason "${Python_EXECUTABLE} ${Python_VERSION}, nanobind ${nanobind_VERSION}")
    else()
      set(reason "${Python_EXECUTABLE} has no nanobind from 3.1 on; run scripts/python_environment")
    endif()
  endif()
endif()
if(VOXCONV_PYTHON_MODULE STREQUAL "ON" AND NOT VOXCONV_HAVE_PYTHON)
  message(FATAL_ERROR "VOXCONV_PYTHON_MODULE=ON: ${reason}")
endif()
message(STATUS "voxconv: Python ${VOXCONV_HAVE_PYTHON} (${reason})")
