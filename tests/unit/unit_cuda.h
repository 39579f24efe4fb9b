// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_TESTS_UNIT_UNIT_CUDA_H_
#define VOXCONV_TESTS_UNIT_UNIT_CUDA_H_

#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "voxconv/backends/cuda/cuda_backend.h"
#include "voxconv/core/backend.h"

namespace voxconv {

// A CUDA backend of a test's own, and a context on it that records into `profile`. It is null if
// there is no device.
struct UnitCuda {
  static std::unique_ptr<UnitCuda> Create(int64_t memory_limit = 0) {
    auto backend = CudaBackend::Create({.memory_limit = memory_limit});
    if (!backend.ok()) return nullptr;
    auto unit = std::make_unique<UnitCuda>();
    unit->backend = *std::move(backend);
    unit->context = {unit->backend.get(), &unit->backend->main_stream(), &unit->profile};
    return unit;
  }

  std::unique_ptr<CudaBackend> backend;
  Profile profile;
  ExecutionContext context;
};

// First line of a test that needs a GPU.
#define VOXCONV_NEED_CUDA(name)                              \
  const std::unique_ptr<UnitCuda> name = UnitCuda::Create(); \
  if (name == nullptr) GTEST_SKIP() << "no CUDA device on this machine"

}  // namespace voxconv

#endif  // VOXCONV_TESTS_UNIT_UNIT_CUDA_H_
