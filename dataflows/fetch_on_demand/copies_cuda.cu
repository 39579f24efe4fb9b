// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cuda/cuda_backend.h"
#include "voxconv/backends/cuda/cuda_gemm.h"
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/device_tensor.h"
#include "voxconv/dataflows/fetch_on_demand/copies.h"

namespace voxconv {
namespace {

// to[i] = from[index[i]], rows of `packs` packs.
template <typename P>
__global__ void CopyRows(const P* __restrict__ from, const int32_t* __restrict__ index,
                         int64_t rows, int64_t packs, P* __restrict__ to) {
  for (int64_t i = FirstRow(); i < rows; i += RowStride()) {
    const P* source = from + index[i] * packs;
    for (int64_t c = threadIdx.x; c < packs; c += blockDim.x) to[i * packs + c] = source[c];
  }
}

// to[index[i]] += from[i]. No index occurs twice.
template <int V>
__global__ void AddRows(const Pack<float, V>* __restrict__ from, const int32_t* __restrict__ index,
                        int64_t rows, int64_t packs, Pack<float, V>* __restrict__ to) {
  for (int64_t i = FirstRow(); i < rows; i += RowStride()) {
    Pack<float, V>* target = to + index[i] * packs;
    for (int64_t c = threadIdx.x; c < packs; c += blockDim.x) {
      Pack<float, V> sum = target[c];
      const Pack<float, V> more = from[i * packs + c];
#pragma unroll
      for (int v = 0; v < V; ++v) sum.v[v] += more.v[v];
      target[c] = sum;
    }
  }
}

absl::Status Copy(const CopiedProducts& args, const int32_t* in, int64_t pairs,
                  const ExecutionContext& context) {
  return WithPack(StorageOf(args.precision), args.c_in, {args.input, args.rows},
                  [&]<typename T, int V>() -> absl::Status {
                    using P = Pack<T, V>;
                    const int64_t packs = args.c_in / V;
                    const RowLaunch launch(pairs, packs, context);
                    VOXCONV_LAUNCH(CopyRows<P>, launch.grid, launch.block, 0, context,
                                   static_cast<const P*>(args.input), in, pairs, packs,
                                   static_cast<P*>(args.rows));
                    return absl::OkStatus();
                  });
}

template <int V>
absl::Status AddPacks(const CopiedProducts& args, const int32_t* out, int64_t pairs,
                      const ExecutionContext& context) {
  using P = Pack<float, V>;
  const int64_t packs = args.c_out / V;
  const RowLaunch launch(pairs, packs, context);
  VOXCONV_LAUNCH(AddRows<V>, launch.grid, launch.block, 0, context,
                 reinterpret_cast<const P*>(args.products), out, pairs, packs,
                 reinterpret_cast<P*>(args.sum));
  return absl::OkStatus();
}

absl::Status Add(const CopiedProducts& args, const int32_t* out, int64_t pairs,
                 const ExecutionContext& context) {
  const bool wide = args.c_out % 4 == 0 && Aligned({args.products, args.sum}, 16);
  return wide ? AddPacks<4>(args, out, pairs, context) : AddPacks<1>(args, out, pairs, context);
}

}  // namespace

absl::Status AddCopiedProductsCuda(const KernelMap& map, const CopiedProducts& args,
                                   const ExecutionContext& context) {
  const int64_t matrix_bytes = args.c_in * args.c_out * SizeOf(StorageOf(args.precision));
  for (int k = 0; k < map.num_offsets(); ++k) {
    const int64_t pairs = map.num_pairs(k);
    if (pairs == 0) continue;
    const int64_t first = map.offset_ptr()[k];
    VOXCONV_RETURN_IF_ERROR(Copy(args, map.pairs().in.data() + first, pairs, context));
    GemmArgs gemm{.m = pairs, .n = args.c_out, .k = args.c_in};
    gemm.a = args.rows;
    gemm.b = static_cast<const char*>(args.weights) + k * matrix_bytes;
    gemm.c = args.products;
    gemm.precision = args.precision;
    gemm.c_dtype = DType::kF32;
    VOXCONV_RETURN_IF_ERROR(AsCuda(context).gemm().Run(gemm, context));
    VOXCONV_RETURN_IF_ERROR(Add(args, map.pairs().out.data() + first, pairs, context));
  }
  return absl::OkStatus();
}

}  // namespace voxconv
