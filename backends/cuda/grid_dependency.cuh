// SPDX-License-Identifier: Apache-2.0
// Kernels whose blocks start while the kernel before still runs (programmatic dependent launch,
// from compute capability 9.0 on). Only .cu files include this header.
#ifndef VOXCONV_BACKENDS_CUDA_GRID_DEPENDENCY_CUH_
#define VOXCONV_BACKENDS_CUDA_GRID_DEPENDENCY_CUH_

namespace voxconv {

// Kernels launched with VOXCONV_LAUNCH_EARLY call these functions at their start. The functions do
// nothing in other launches and on older devices. Before AwaitEarlierKernels a kernel stores
// nothing to global memory, and reads there only what no running kernel can write. All earlier
// kernels may still be running. At least one thread of each grid must wait, because the kernels
// after it rely on that. A thread that gets its work from such a thread through shared memory need
// not wait.

// Lets the next kernel's blocks start as soon as there is room for them. All threads must call it.
__device__ __forceinline__ void LetNextKernelIn() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

// Waits until all earlier kernels of the stream have ended and their stores are seen.
__device__ __forceinline__ void AwaitEarlierKernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

// Calls both functions. Kernels that have nothing to do before they wait begin with it. All threads
// must call it.
__device__ __forceinline__ void OverlapLaunches() {
  LetNextKernelIn();
  AwaitEarlierKernels();
}

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_GRID_DEPENDENCY_CUH_
