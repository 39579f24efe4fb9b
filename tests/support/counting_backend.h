// SPDX-License-Identifier: Apache-2.0
// A backend of a third kind, for tests: the CPU's memory and operators under another name.
#ifndef VOXCONV_TESTS_SUPPORT_COUNTING_BACKEND_H_
#define VOXCONV_TESTS_SUPPORT_COUNTING_BACKEND_H_

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/core/registry.h"

namespace voxconv {

// Runs what is written for the CPU (ShareWithCounting), and counts what it is asked for.
class CountingBackend final : public CpuBackend {
 public:
  static constexpr BackendKind kKind{"counting"};

  explicit CountingBackend(int threads) : CpuBackend({.threads = threads}) {}

  BackendKind kind() const override { return kKind; }
  absl::StatusOr<Buffer> Allocate(int64_t bytes, Stream& stream) override;
  absl::Status Copy(void* to, MemorySpace to_space, const void* from, MemorySpace from_space,
                    int64_t bytes, Stream& stream) override;
  absl::Status FillBytes(void* data, uint8_t value, int64_t bytes, Stream& stream) override;

  int64_t allocations() const { return allocations_; }
  int64_t copies() const { return copies_; }
  int64_t fills() const { return fills_; }

 private:
  std::atomic<int64_t> allocations_ = 0;
  std::atomic<int64_t> copies_ = 0;
  std::atomic<int64_t> fills_ = 0;
};

// Every plugin of the registry that runs on the CPU runs on CountingBackend from now on.
void ShareWithCounting(Registry& registry);

}  // namespace voxconv

#endif  // VOXCONV_TESTS_SUPPORT_COUNTING_BACKEND_H_
