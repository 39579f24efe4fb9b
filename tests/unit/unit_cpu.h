// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_TESTS_UNIT_UNIT_CPU_H_
#define VOXCONV_TESTS_UNIT_UNIT_CPU_H_

#include <cstdint>
#include <memory>

#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/core/backend.h"

namespace voxconv {

// A CPU backend of a test's own, and a context on it that records into `profile`.
struct UnitCpu {
  explicit UnitCpu(int threads, int64_t memory_limit = 0)
      : backend(*CpuBackend::Create({.threads = threads, .memory_limit = memory_limit})),
        context{backend.get(), &backend->main_stream(), &profile} {}

  std::unique_ptr<CpuBackend> backend;
  Profile profile;
  ExecutionContext context;
};

}  // namespace voxconv

#endif  // VOXCONV_TESTS_UNIT_UNIT_CPU_H_
