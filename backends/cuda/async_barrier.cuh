// SPDX-License-Identifier: Apache-2.0
// Barriers in shared memory that count threads, copies and bytes (mbarrier), and copies of whole
// tiles by the tensor memory accelerator (TMA). Each function is one PTX instruction. They need
// compute capability 9.0.
#ifndef VOXCONV_BACKENDS_CUDA_ASYNC_BARRIER_CUH_
#define VOXCONV_BACKENDS_CUDA_ASYNC_BARRIER_CUH_

#include <cuda.h>

#include <cstdint>

namespace voxconv {

// Initialises a barrier. A phase ends after `arrivals` arrivals and all announced bytes. The first
// phase has parity 0. All threads see the initial state after FenceBarriers and a barrier of the
// block.
__device__ __forceinline__ void InitBarrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(arrivals)
               : "memory");
}
__device__ __forceinline__ void FenceBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
}
__device__ __forceinline__ void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}
// Arrives, and makes the phase also wait for `bytes` of tile copies.
__device__ __forceinline__ void ArriveExpecting(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(barrier), "r"(bytes)
               : "memory");
}
// Arrives when all asynchronous copies that this thread has queued are done.
__device__ __forceinline__ void ArriveAfterCopies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];\n" ::"r"(barrier) : "memory");
}
// Waits until the phase of parity `parity` has ended. The phase before the first counts as ended.
__device__ __forceinline__ void AwaitPhase(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  do {
    asm volatile(
        "{\n"
        ".reg .pred ended;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
        "selp.u32 %0, 1, 0, ended;\n"
        "}\n"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (done == 0);
}

// A slot of a ring, and the parity of the slot's phase.
template <int kSlots>
struct RingSlot {
  int slot = 0;
  uint32_t parity = 0;

  __device__ void Advance() {
    if (++slot < kSlots) return;
    slot = 0;
    parity ^= 1;
  }
  __device__ void Advance(int slots) {
    for (slot += slots; slot >= kSlots; slot -= kSlots) parity ^= 1;
  }
};

// Copies the box of `map` at element (x, y, z) to shared memory. x runs fastest. The barrier counts
// the bytes.
__device__ __forceinline__ void CopyBox(uint32_t to, const CUtensorMap& map, int x, int y, int z,
                                        uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3, %4}], [%5];\n" ::"r"(to),
      "l"(&map), "r"(x), "r"(y), "r"(z), "r"(barrier)
      : "memory");
}

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_ASYNC_BARRIER_CUH_
