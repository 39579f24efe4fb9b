// SPDX-License-Identifier: Apache-2.0
// Products of a warpgroup (four warps): wgmma, compute capability 9.0 with the architecture's own
// features (sm_90a) alone. Operands are tiles in shared memory, swizzled by 128 bytes; the sums are
// spread over the registers of the warpgroup as m16n8 fragments are over a warp's.
#ifndef VOXCONV_BACKENDS_CUDA_WARPGROUP_MMA_CUH_
#define VOXCONV_BACKENDS_CUDA_WARPGROUP_MMA_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define VOXCONV_WARPGROUP_MMA 1
#else
#define VOXCONV_WARPGROUP_MMA 0
#endif

namespace voxconv {

#if VOXCONV_WARPGROUP_MMA

// Names a tile at shared-memory address `address` (PTX ISA, matrix descriptor). Rows of 128 bytes
// whose 16-byte columns are swizzled by the row's index modulo 8, eight rows after the next. Or
// rows of 64 bytes, swizzled by half the row's index modulo 4. `atom_bytes`: from one row's bytes
// of the contiguous dimension to the next. To move the tile by some bytes, add bytes / 16 to its
// name.
__device__ __forceinline__ uint32_t SwizzledTile(uint32_t address, uint32_t atom_bytes) {
  return (address & 0x3FFFF) >> 4 | (atom_bytes >> 4) << 16;
}
// The whole descriptor. Its upper half is the same for all tiles with rows of kRowBytes.
template <int kRowBytes = 128>
__device__ __forceinline__ uint64_t TileDescriptor(uint32_t tile) {
  static_assert(kRowBytes == 128 || kRowBytes == 64);
  constexpr uint64_t kSwizzle = kRowBytes == 128 ? 1 : 2;
  constexpr uint64_t kEightRowBytes = 8 * kRowBytes;
  return kSwizzle << 62 | kEightRowBytes >> 4 << 32 | tile;
}

// Call this before the first product of a batch. The products then see earlier writes to registers
// and shared memory.
__device__ __forceinline__ void BeginProducts() {
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}
__device__ __forceinline__ void CommitProducts() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}
// Waits until at most kPending batches of this warpgroup are unfinished.
template <int kPending>
__device__ __forceinline__ void WaitProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kPending) : "memory");
}
// Makes this thread's ordinary stores and copies to shared memory visible to products.
__device__ __forceinline__ void ShowToProducts() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

// Computes d[64, kN] += a[64, 16] * b[16, kN] for the tiles `a` and `b`. kN is contiguous in b. The
// depth is contiguous in a, or the 64 rows are contiguous if kRowsFirst. The rows of `a` have
// kRowBytes bytes, those of `b` 128.
template <typename Element, int kN, bool kRowsFirst>
__device__ __forceinline__ void MultiplyTiles(float (&d)[kN / 2], uint64_t a, uint64_t b);
template <typename Element, int kN, bool kRowsFirst = false, int kRowBytes = 128>
__device__ __forceinline__ void WarpgroupMma(float (&d)[kN / 2], uint32_t a, uint32_t b) {
  MultiplyTiles<Element, kN, kRowsFirst>(d, TileDescriptor<kRowBytes>(a), TileDescriptor(b));
}
// Computes d[64, kN] += a[64, 8] * b[8, kN] in tf32. Each warp holds its 16 rows of `a` in the
// registers of an m16n8k8 product. `b` is a tile whose depth is contiguous, which tf32 requires.
// Without kAdds, d is overwritten.
template <int kN, bool kAdds = true>
__device__ __forceinline__ void WarpgroupMmaTf32(float (&d)[kN / 2], const uint32_t (&a)[4],
                                                 uint32_t b);

// The instruction for one width and both element types; `name` is PTX's for the type.
#define VOXCONV_WARPGROUP_MMA_OF(N, Type, ...)             \
  VOXCONV_WARPGROUP_MMA_16(N, Type, false, 0, __VA_ARGS__) \
  VOXCONV_WARPGROUP_MMA_16(N, Type, true, 1, __VA_ARGS__)
#define VOXCONV_WARPGROUP_MMA_16(N, Type, kRowsFirst, rows_first, name, registers, a, b, ...)   \
  template <>                                                                                   \
  __device__ __forceinline__ void MultiplyTiles<Type, N, kRowsFirst>(                           \
      float(&d)[N / 2], uint64_t tile_a, uint64_t tile_b) {                                     \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." name "." name " {" registers \
                 "}, %" #a ", %" #b ", 1, 1, 1, " #rows_first ", 1;\n"                          \
                 : __VA_ARGS__                                                                  \
                 : "l"(tile_a), "l"(tile_b));                                                   \
  }
#define VOXCONV_WARPGROUP_MMA_TF32_OF(N, ...)         \
  VOXCONV_WARPGROUP_MMA_TF32(N, true, 1, __VA_ARGS__) \
  VOXCONV_WARPGROUP_MMA_TF32(N, false, 0, __VA_ARGS__)
#define VOXCONV_WARPGROUP_MMA_TF32(N, kAdds, adds, registers, a0, a1, a2, a3, b, ...)              \
  template <>                                                                                      \
  __device__ __forceinline__ void WarpgroupMmaTf32<N, kAdds>(                                      \
      float(&d)[N / 2], const uint32_t(&a)[4], uint32_t tile_b) {                                  \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k8.f32.tf32.tf32 {" registers "}, {%" #a0 \
                 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b ", " #adds ", 1, 1;\n"                    \
                 : __VA_ARGS__                                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(TileDescriptor(tile_b)));       \
  }
#define VOXCONV_SUMS_8(i)                                                                     \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define VOXCONV_SUMS_32(i) \
  VOXCONV_SUMS_8(i), VOXCONV_SUMS_8(i + 8), VOXCONV_SUMS_8(i + 16), VOXCONV_SUMS_8(i + 24)
#define VOXCONV_REGISTERS_32                                               \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define VOXCONV_REGISTERS_48 \
  VOXCONV_REGISTERS_32       \
  ", "                       \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define VOXCONV_REGISTERS_64 \
  VOXCONV_REGISTERS_48       \
  ", "                       \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define VOXCONV_REGISTERS_128                                                                  \
  VOXCONV_REGISTERS_64                                                                         \
  ", "                                                                                         \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "           \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "           \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, "     \
  "%111, "                                                                                     \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, " \
  "%127"
VOXCONV_WARPGROUP_MMA_OF(64, __half, "f16", VOXCONV_REGISTERS_32, 32, 33, VOXCONV_SUMS_32(0))
VOXCONV_WARPGROUP_MMA_OF(64, __nv_bfloat16, "bf16", VOXCONV_REGISTERS_32, 32, 33,
                         VOXCONV_SUMS_32(0))
VOXCONV_WARPGROUP_MMA_OF(96, __half, "f16", VOXCONV_REGISTERS_48, 48, 49, VOXCONV_SUMS_32(0),
                         VOXCONV_SUMS_8(32), VOXCONV_SUMS_8(40))
VOXCONV_WARPGROUP_MMA_OF(96, __nv_bfloat16, "bf16", VOXCONV_REGISTERS_48, 48, 49,
                         VOXCONV_SUMS_32(0), VOXCONV_SUMS_8(32), VOXCONV_SUMS_8(40))
VOXCONV_WARPGROUP_MMA_OF(128, __half, "f16", VOXCONV_REGISTERS_64, 64, 65, VOXCONV_SUMS_32(0),
                         VOXCONV_SUMS_32(32))
VOXCONV_WARPGROUP_MMA_OF(128, __nv_bfloat16, "bf16", VOXCONV_REGISTERS_64, 64, 65,
                         VOXCONV_SUMS_32(0), VOXCONV_SUMS_32(32))
VOXCONV_WARPGROUP_MMA_OF(256, __half, "f16", VOXCONV_REGISTERS_128, 128, 129, VOXCONV_SUMS_32(0),
                         VOXCONV_SUMS_32(32), VOXCONV_SUMS_32(64), VOXCONV_SUMS_32(96))
VOXCONV_WARPGROUP_MMA_OF(256, __nv_bfloat16, "bf16", VOXCONV_REGISTERS_128, 128, 129,
                         VOXCONV_SUMS_32(0), VOXCONV_SUMS_32(32), VOXCONV_SUMS_32(64),
                         VOXCONV_SUMS_32(96))
VOXCONV_WARPGROUP_MMA_TF32_OF(64, VOXCONV_REGISTERS_32, 32, 33, 34, 35, 36, VOXCONV_SUMS_32(0))
VOXCONV_WARPGROUP_MMA_TF32_OF(96, VOXCONV_REGISTERS_48, 48, 49, 50, 51, 52, VOXCONV_SUMS_32(0),
                              VOXCONV_SUMS_8(32), VOXCONV_SUMS_8(40))
VOXCONV_WARPGROUP_MMA_TF32_OF(128, VOXCONV_REGISTERS_64, 64, 65, 66, 67, 68, VOXCONV_SUMS_32(0),
                              VOXCONV_SUMS_32(32))
VOXCONV_WARPGROUP_MMA_TF32_OF(256, VOXCONV_REGISTERS_128, 128, 129, 130, 131, 132,
                              VOXCONV_SUMS_32(0), VOXCONV_SUMS_32(32), VOXCONV_SUMS_32(64),
                              VOXCONV_SUMS_32(96))
#undef VOXCONV_WARPGROUP_MMA_OF
#undef VOXCONV_WARPGROUP_MMA_16
#undef VOXCONV_WARPGROUP_MMA_TF32_OF
#undef VOXCONV_WARPGROUP_MMA_TF32
#undef VOXCONV_SUMS_8
#undef VOXCONV_SUMS_32
#undef VOXCONV_REGISTERS_32
#undef VOXCONV_REGISTERS_48
#undef VOXCONV_REGISTERS_64
#undef VOXCONV_REGISTERS_128

#endif  // VOXCONV_WARPGROUP_MMA

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_WARPGROUP_MMA_CUH_
