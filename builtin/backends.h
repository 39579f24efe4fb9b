// SPDX-License-Identifier: Apache-2.0
// The backends compiled into this program, by kind.
#ifndef VOXCONV_BUILTIN_BACKENDS_H_
#define VOXCONV_BUILTIN_BACKENDS_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "voxconv/core/backend.h"

namespace voxconv {

struct BackendChoice {
  BackendKind kind = BackendKind::kCpu;
  int device = 0;            // CUDA
  int threads = 0;           // CPU; 0: all cores
  int64_t memory_limit = 0;  // bytes; 0: none
};

// Makes a backend, which the caller owns. kUnimplemented for CUDA in a program that was built
// without it. Otherwise the errors of CpuBackend::Create and CudaBackend::Create.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const BackendChoice& choice);

}  // namespace voxconv

#endif  // VOXCONV_BUILTIN_BACKENDS_H_
