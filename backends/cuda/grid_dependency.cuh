// Kernels whose blocks take their places while the kernel before still runs (programmatic dependent
// launch, compute capability 9.0 on). For .cu files.
#ifndef VOXCONV_BACKENDS_CUDA_GRID_DEPENDENCY_CUH_
#define VOXCONV_BACKENDS_CUDA_GRID_DEPENDENCY_CUH_

namespace voxconv {

// Both by all threads, at the start of a kernel launched with VOXCONV_LAUNCH_EARLY; they do nothing
// in other launches and on older devices.

// Lets the next kernel's blocks in as soon as there is room for them.
__device__ __forceinline__ void LetNextKernelIn() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

// Waits until all earlier kernels of the stream have ended and their stores are seen. Before it a
// kernel must not touch memory that any other work reads or writes.
__device__ __forceinline__ void AwaitEarlierKernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_GRID_DEPENDENCY_CUH_
