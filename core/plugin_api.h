// SPDX-License-Identifier: Apache-2.0
// What a plugin in a shared library exports. A plugin writes one line,
//
//   VOXCONV_PLUGIN(binary_tree, voxconv::RegisterBinaryTree)
//
// at global scope or in a named namespace in one of its .cc files; see docs/plugin_guide.md.
#ifndef VOXCONV_CORE_PLUGIN_API_H_
#define VOXCONV_CORE_PLUGIN_API_H_

#include <cstdint>

#include "absl/base/config.h"
#include "absl/status/status.h"
#include "voxconv/core/interface_stamp.h"
#include "voxconv/core/registry.h"
#include "voxconv/core/version.h"

// Counts incompatible changes of VoxconvPluginInfo itself; what lies behind the register function
// is covered by the build stamp.
#define VOXCONV_PLUGIN_ABI_VERSION 2

#define VOXCONV_STRINGIFY_INNER(x) #x
#define VOXCONV_STRINGIFY(x) VOXCONV_STRINGIFY_INNER(x)

#if defined(__clang__)
#define VOXCONV_COMPILER                                             \
  "Clang " VOXCONV_STRINGIFY(__clang_major__) "." VOXCONV_STRINGIFY( \
      __clang_minor__) "." VOXCONV_STRINGIFY(__clang_patchlevel__)
#else
#define VOXCONV_COMPILER                                                                          \
  "GCC " VOXCONV_STRINGIFY(__GNUC__) "." VOXCONV_STRINGIFY(__GNUC_MINOR__) "." VOXCONV_STRINGIFY( \
      __GNUC_PATCHLEVEL__)
#endif

#if defined(_LIBCPP_VERSION)
#define VOXCONV_STANDARD_LIBRARY "libc++ " VOXCONV_STRINGIFY(_LIBCPP_VERSION)
#else
#define VOXCONV_STANDARD_LIBRARY "libstdc++ " VOXCONV_STRINGIFY(_GLIBCXX_RELEASE)
#endif

// Host and plugin pass C++ objects to each other, so whatever decides their layout is in here, as
// seen by the compiler of the file that includes this header. The headers themselves are in it by a
// hash, since classes change between two versions.
#define VOXCONV_BUILD_STAMP                                                              \
  "voxconv " VOXCONV_VERSION ", " VOXCONV_COMPILER ", " VOXCONV_STANDARD_LIBRARY         \
  ", Abseil " VOXCONV_STRINGIFY(ABSL_LTS_RELEASE_VERSION) ", CUDA " VOXCONV_CUDA_VERSION \
                                                          ", headers " VOXCONV_INTERFACE_STAMP

// The widest vectors that the compiler may use in a file. Two plugins that were compiled for
// different ones cannot be compared by their times.
#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define VOXCONV_CODE_TARGET "AVX-512"
#elif defined(__AVX2__) && defined(__FMA__)
#define VOXCONV_CODE_TARGET "AVX2"
#elif defined(__AVX__)
#define VOXCONV_CODE_TARGET "AVX"
#elif defined(__SSE2__)
#define VOXCONV_CODE_TARGET "SSE2"
#elif defined(__ARM_FEATURE_SVE)
#define VOXCONV_CODE_TARGET "SVE"
#elif defined(__ARM_NEON)
#define VOXCONV_CODE_TARGET "NEON"
#else
#define VOXCONV_CODE_TARGET "scalar"
#endif
#if defined(__OPTIMIZE__)
#define VOXCONV_COMPILED_FOR VOXCONV_CODE_TARGET
#else
#define VOXCONV_COMPILED_FOR VOXCONV_CODE_TARGET ", not optimised"
#endif

extern "C" {

// abi_version stays the first member for ever: the others are read only if it agrees.
struct VoxconvPluginInfo {
  uint32_t abi_version;     // VOXCONV_PLUGIN_ABI_VERSION
  const char* build_stamp;  // VOXCONV_BUILD_STAMP
  const char* name;         // names the library in messages
  // Registers one plugin or more, of any family. Must not throw.
  absl::Status (*register_plugins)(voxconv::Registry& registry);
  const char* code_target;   // VOXCONV_CODE_TARGET: what the processor must have
  const char* compiled_for;  // VOXCONV_COMPILED_FOR: for people
};

// The one symbol that a plugin library exports.
__attribute__((visibility("default"))) const VoxconvPluginInfo* voxconv_plugin_info();

}  // extern "C"

#define VOXCONV_PLUGIN(plugin_name, register_function)                                    \
  /* In a namespace this declares the function anew, without what is said of it above. */ \
  extern "C" __attribute__((visibility("default"))) const VoxconvPluginInfo*              \
  voxconv_plugin_info() {                                                                 \
    static constexpr VoxconvPluginInfo kInfo = {                                          \
        VOXCONV_PLUGIN_ABI_VERSION, VOXCONV_BUILD_STAMP, #plugin_name,                    \
        &register_function,         VOXCONV_CODE_TARGET, VOXCONV_COMPILED_FOR};           \
    return &kInfo;                                                                        \
  }

#endif  // VOXCONV_CORE_PLUGIN_API_H_
