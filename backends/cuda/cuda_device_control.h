// SPDX-License-Identifier: Apache-2.0
// Empties and limits the L2 cache of a GPU for measurements.
#ifndef VOXCONV_BACKENDS_CUDA_CUDA_DEVICE_CONTROL_H_
#define VOXCONV_BACKENDS_CUDA_CUDA_DEVICE_CONTROL_H_

#include <cstdint>
#include <string>

#include "voxconv/backends/cuda/cuda_backend.h"
#include "voxconv/core/buffer.h"
#include "voxconv/core/device_control.h"

namespace voxconv {

class CudaDeviceControl final : public DeviceControl {
 public:
  // `cuda` must outlive the control.
  explicit CudaDeviceControl(CudaBackend& cuda);
  // Gives a limited cache back.
  ~CudaDeviceControl() override;
  CudaDeviceControl(const CudaDeviceControl&) = delete;
  CudaDeviceControl& operator=(const CudaDeviceControl&) = delete;

  absl::StatusOr<std::string> BusId() const override;
  int64_t CacheBytes() const override { return cache_bytes_; }
  // Writes twice the cache's size.
  absl::Status EmptyCache(const ExecutionContext& context) override;
  // Sets a part of the L2 cache aside for persisting accesses, and fills it by them. Other accesses
  // use that part only while it is unused (CUDA programming guide, L2 set-aside cache).
  absl::StatusOr<int64_t> LimitCache(int64_t bytes, const ExecutionContext& context) override;

 private:
  CudaBackend& cuda_;
  int64_t cache_bytes_ = 0;
  int64_t most_set_aside_ = 0;
  int64_t widest_window_ = 0;
  Buffer scratch_, pinned_;
};

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_CUDA_DEVICE_CONTROL_H_
