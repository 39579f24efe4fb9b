// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "voxconv/backends/cuda/cuda_device_control.h"
#include "voxconv/backends/cuda/cuda_launch.h"

namespace voxconv {
namespace {

constexpr int kBlock = 256;

// Reads all of `data`. The sum keeps the compiler from leaving the loads out; nobody reads it.
__global__ void ReadAll(const uint4* data, int64_t count, uint32_t* sum) {
  uint32_t own = 0;
  for (int64_t i = GlobalThread(); i < count; i += int64_t{gridDim.x} * kBlock) {
    const uint4 value = data[i];
    own += value.x + value.y + value.z + value.w;
  }
  if (own == 0xffffffffU) *sum = own;
}

int64_t Attribute(cudaDeviceAttr attribute, int device) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, attribute, device) == cudaSuccess) return value;
  (void)cudaGetLastError();
  return 0;
}

}  // namespace

CudaDeviceControl::CudaDeviceControl(CudaBackend& cuda)
    : cuda_(cuda),
      cache_bytes_(Attribute(cudaDevAttrL2CacheSize, cuda.device().index)),
      most_set_aside_(Attribute(cudaDevAttrMaxPersistingL2CacheSize, cuda.device().index)),
      widest_window_(Attribute(cudaDevAttrMaxAccessPolicyWindowSize, cuda.device().index)) {}

CudaDeviceControl::~CudaDeviceControl() {
  if (pinned_.bytes() == 0) return;
  cuda_.MakeCurrent();
  (void)cudaCtxResetPersistingL2Cache();
  (void)cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, 0);
}

absl::StatusOr<std::string> CudaDeviceControl::BusId() const {
  std::array<char, 32> text{};
  VOXCONV_RETURN_IF_CUDA_ERROR(
      cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), cuda_.device().index));
  return std::string(text.data());
}

absl::Status CudaDeviceControl::EmptyCache(const ExecutionContext& context) {
  const int64_t bytes = 2 * cache_bytes_;
  if (scratch_.bytes() < bytes) {
    VOXCONV_ASSIGN_OR_RETURN(scratch_, context.backend->Allocate(bytes, *context.stream));
  }
  return context.backend->FillBytes(scratch_.data(), 0, bytes, *context.stream);
}

absl::StatusOr<int64_t> CudaDeviceControl::LimitCache(int64_t bytes,
                                                      const ExecutionContext& context) {
  const int64_t set_aside = cache_bytes_ - bytes;
  const int64_t most = std::min(most_set_aside_, widest_window_);
  if (set_aside <= 0 || set_aside > most) {
    return absl::InvalidArgumentError(absl::StrCat(
        bytes, " bytes of the L2 cache: this device has ", cache_bytes_, " and can keep up to ",
        most, " of them back; allowed are ", cache_bytes_ - most, " .. ", cache_bytes_ - 1));
  }
  cuda_.MakeCurrent();
  VOXCONV_RETURN_IF_CUDA_ERROR(
      cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, static_cast<size_t>(set_aside)));
  size_t granted = 0;
  VOXCONV_RETURN_IF_CUDA_ERROR(cudaDeviceGetLimit(&granted, cudaLimitPersistingL2CacheSize));
  VOXCONV_ASSIGN_OR_RETURN(
      pinned_, context.backend->Allocate(static_cast<int64_t>(granted) + 16, *context.stream));
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(pinned_.data(), 0, pinned_.bytes(), *context.stream));
  VOXCONV_RETURN_IF_ERROR(context.stream->Synchronize());

  cudaLaunchAttribute window{};
  window.id = cudaLaunchAttributeAccessPolicyWindow;
  window.val.accessPolicyWindow.base_ptr = pinned_.data();
  window.val.accessPolicyWindow.num_bytes = granted;
  window.val.accessPolicyWindow.hitRatio = 1;
  window.val.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
  window.val.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(8 * cuda_.num_multiprocessors()));
  config.blockDim = dim3(kBlock);
  config.stream = CudaStreamOf(context);
  config.attrs = &window;
  config.numAttrs = 1;
  const auto* data = static_cast<const uint4*>(pinned_.data());
  auto* sum = reinterpret_cast<uint32_t*>(static_cast<char*>(pinned_.data()) + granted);
  const auto count = static_cast<int64_t>(granted / sizeof(uint4));
  constexpr int kReads = 4;  // the first read replaces lines that others have just used
  for (int i = 0; i < kReads; ++i) {
    cuda_.NoteLaunch(*context.stream, reinterpret_cast<const void*>(ReadAll));
    VOXCONV_RETURN_IF_CUDA_ERROR(cudaLaunchKernelEx(&config, ReadAll, data, count, sum));
  }
  VOXCONV_RETURN_IF_ERROR(context.stream->Synchronize());
  return cache_bytes_ - static_cast<int64_t>(granted);
}

}  // namespace voxconv
