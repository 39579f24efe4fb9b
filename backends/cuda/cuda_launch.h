// SPDX-License-Identifier: Apache-2.0
// Kernel launches and CUB calls, checked. For .cu files.
#ifndef VOXCONV_BACKENDS_CUDA_CUDA_LAUNCH_H_
#define VOXCONV_BACKENDS_CUDA_CUDA_LAUNCH_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "voxconv/backends/cuda/cuda_backend.h"
#include "voxconv/backends/cuda/cuda_check.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/integer.h"
#include "voxconv/core/status_macros.h"

namespace voxconv {

// The grid of blocks of `block` threads that has one thread for each item. There must be at most
// 2^31 - 1 blocks.
inline dim3 GridFor(int64_t items, int block) {
  return dim3(static_cast<unsigned>(CeilDiv(items, block)));
}

// Lets the kernel use all the shared memory that a block can have. Asks the driver once for each
// kernel.
inline cudaError_t AllowLargeSharedMemory(const void* kernel, CudaBackend& cuda) {
  if (cuda.large_kernels().contains(kernel)) return cudaSuccess;
  cudaFuncAttributes attributes{};
  cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  if (error != cudaSuccess) return error;
  error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           cuda.max_shared_memory() - static_cast<int>(attributes.sharedSizeBytes));
  if (error == cudaSuccess) cuda.large_kernels().insert(kernel);
  return error;
}

// Bytes of dynamic shared memory that a kernel may use without AllowLargeSharedMemory. The limit is
// 48 KiB, of which our kernels use up to 8 KiB statically.
constexpr size_t kSharedMemoryWithoutLeave = 40 * 1024;

// How many blocks of the kernel a multiprocessor holds at once. Asks the driver once for each
// kernel and size.
inline absl::StatusOr<int> ResidentBlocks(const void* kernel, int threads, size_t shared_bytes,
                                          const ExecutionContext& context) {
  CudaBackend& cuda = AsCuda(context);
  cuda.MakeCurrent();
  int& blocks = cuda.resident_blocks(kernel, threads, shared_bytes);
  if (blocks > 0) return blocks;
  if (shared_bytes > kSharedMemoryWithoutLeave) {
    VOXCONV_RETURN_IF_CUDA_ERROR(AllowLargeSharedMemory(kernel, cuda));
  }
  VOXCONV_RETURN_IF_CUDA_ERROR(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared_bytes));
  return blocks;
}

// Whether the kernel can start before the kernel in front of it has ended, and wait for it. This
// needs code for compute capability 9.0 or more. Asks the driver once for each kernel.
inline bool StartsEarly(const void* kernel, CudaBackend& cuda) {
  if (cuda.compute_capability() < 90) return false;
  const auto [known, inserted] = cuda.early_kernels().try_emplace(kernel, false);
  if (!inserted) return known->second;
  cudaFuncAttributes attributes{};
  known->second =
      cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess && attributes.ptxVersion >= 90;
  (void)cudaGetLastError();  // a kernel that does not start early needs no leave
  return known->second;
}

// The number of this thread in a one-dimensional grid.
__device__ inline int64_t GlobalThread() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }

// Queues kernel<<<grid, block, shared_bytes>>>(args...) on the context's stream. Does not
// synchronise it. An empty grid queues nothing. Raises the kernel's limit of dynamic shared memory
// if needed. Adds one to Counters::launches. `early`: the kernel calls the functions of
// grid_dependency.cuh, so that it may start early. Returns the error of the launch.
template <typename... Params, typename... Args>
cudaError_t LaunchKernel(void (*kernel)(Params...), bool early, dim3 grid, dim3 block,
                         size_t shared_bytes, const ExecutionContext& context, Args&&... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return cudaSuccess;
  const void* const address = reinterpret_cast<const void*>(kernel);
  CudaBackend& cuda = AsCuda(context);
  cuda.NoteLaunch(*context.stream, address);
  if (shared_bytes > kSharedMemoryWithoutLeave) {
    const cudaError_t error = AllowLargeSharedMemory(address, cuda);
    if (error != cudaSuccess) return error;
  }
  if (Counters* counters = context.counters()) ++counters->launches;
  if (!early || !StartsEarly(address, cuda)) {
    kernel<<<grid, block, shared_bytes, CudaStreamOf(context)>>>(std::forward<Args>(args)...);
    return cudaGetLastError();
  }
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = CudaStreamOf(context);
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...);
}

// LaunchKernel, for functions that return a status.
#define VOXCONV_LAUNCH(kernel, grid, block, shared_bytes, context, ...)                      \
  VOXCONV_RETURN_IF_CUDA_ERROR(::voxconv::LaunchKernel(kernel, /*early=*/false, grid, block, \
                                                       shared_bytes, context, __VA_ARGS__))

// The same for a kernel that calls LetNextKernelIn and AwaitEarlierKernels.
#define VOXCONV_LAUNCH_EARLY(kernel, grid, block, shared_bytes, context, ...)               \
  VOXCONV_RETURN_IF_CUDA_ERROR(::voxconv::LaunchKernel(kernel, /*early=*/true, grid, block, \
                                                       shared_bytes, context, __VA_ARGS__))

// Queues a CUB device algorithm on the context's stream. Calls `call(temp, temp_bytes)` twice:
// first to learn the size of the temporary storage, then to queue the work. `call` must pass both
// arguments and the context's stream on to CUB. Does not synchronise. kResourceExhausted if the
// memory for the temporary storage does not suffice.
template <typename Call>
absl::Status RunCub(const ExecutionContext& context, const Call& call) {
  AsCuda(context).MakeCurrent();  // whose device the temporary storage is for
  size_t bytes = 0;
  VOXCONV_RETURN_IF_CUDA_ERROR(call(static_cast<void*>(nullptr), bytes));
  // One byte at least: null would be taken for another question about the size.
  VOXCONV_ASSIGN_OR_RETURN(
      Buffer temp,
      context.backend->Allocate(static_cast<int64_t>(bytes > 0 ? bytes : 1), *context.stream));
  static constexpr char kThisCall = 0;
  AsCuda(context).NoteLaunch(*context.stream, &kThisCall);
  VOXCONV_RETURN_IF_CUDA_ERROR(call(temp.data(), bytes));
  if (Counters* counters = context.counters()) ++counters->launches;
  return absl::OkStatus();
}

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_CUDA_LAUNCH_H_
