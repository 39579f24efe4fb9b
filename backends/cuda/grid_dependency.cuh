// Kernels whose blocks take their places while the kernel before still runs (programmatic dependent
// launch, compute capability 9.0 on). For .cu files.
#ifndef VOXCONV_BACKENDS_CUDA_GRID_DEPENDENCY_CUH_
#define VOXCONV_BACKENDS_CUDA_GRID_DEPENDENCY_CUH_

namespace voxconv {

// Of kernels launched with VOXCONV_LAUNCH_EARLY, at their start; they do nothing in other launches
// and on older devices. Before AwaitEarlierKernels a kernel stores nothing to global memory, and
// reads there only what cannot be in the making: kernels before the last may still be running. At
// least one thread of each grid must wait, since the kernels after it rely on that; threads that it
// hands work to through shared memory need not.

// Lets the next kernel's blocks in as soon as there is room for them. By all threads.
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

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_GRID_DEPENDENCY_CUH_
