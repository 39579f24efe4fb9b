// The two layouts of a kernel map that gather and scatter read. Both tell, for each row of
// features, under which kernel offsets it has a pair, and where that pair stands in the canonical
// list. The buffers hold pairs in the order of that list.
#ifndef VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_POSITION_LAYOUTS_H_
#define VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_POSITION_LAYOUTS_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/dataflow.h"
#include "core/kernel_map.h"

namespace voxconv {

enum class PositionLayout { kDenseTables, kCodedCsr };

// MapNeed::layout: "dense_tables" or "coded_csr".
absl::string_view KeyOf(PositionLayout layout);

// Positions in the canonical pair list, -1 = none: in_table[p * K + k], out_table[q * K + k]
// (TorchSparse, Minuet).
struct DenseTableArrays {
  Array<int32_t> in_table;   // [N_in, K]
  Array<int32_t> out_table;  // [N_out, K]
};

// PCEngine's coded CSR (Section 4): code = k + K * position. Input row p has the codes at
// [in_ptr[p], in_ptr[p + 1]), which ascend by k. Outputs likewise.
struct CodedCsrArrays {
  Array<int64_t> in_ptr, out_ptr;     // [N_in + 1], [N_out + 1]
  Array<uint32_t> in_code, out_code;  // [number of pairs]
};

// Both keep sizes, counts and flags of their map, and none of its arrays. ToPairs works on a host
// copy.
class DenseTables final : public PreparedMap {
 public:
  DenseTables(const KernelMap& map, DenseTableArrays arrays)
      : PreparedMap(map.WithoutArrays()), arrays_(std::move(arrays)) {}

  const DenseTableArrays& arrays() const { return arrays_; }
  int64_t bytes() const override;
  absl::Status Validate(const ExecutionContext& context) const override;
  absl::StatusOr<KernelMap> ToPairs(const ExecutionContext& context) const override;

 private:
  DenseTableArrays arrays_;
};

class CodedCsr final : public PreparedMap {
 public:
  CodedCsr(const KernelMap& map, CodedCsrArrays arrays)
      : PreparedMap(map.WithoutArrays()), arrays_(std::move(arrays)) {}

  const CodedCsrArrays& arrays() const { return arrays_; }
  int64_t bytes() const override;
  absl::Status Validate(const ExecutionContext& context) const override;
  absl::StatusOr<KernelMap> ToPairs(const ExecutionContext& context) const override;

 private:
  CodedCsrArrays arrays_;
};

// What turns canonical pairs into the arrays on one backend. Queues on the context's stream.
// O(K * (N_in + N_out) + pairs).
struct PositionLayoutMaker {
  absl::StatusOr<DenseTableArrays> (*dense_tables)(const KernelMap&, const ExecutionContext&);
  absl::StatusOr<CodedCsrArrays> (*coded_csr)(const KernelMap&, const ExecutionContext&);
};
PositionLayoutMaker CpuPositionLayouts();
PositionLayoutMaker CudaPositionLayouts();  // only in builds with CUDA

// The layout `key` of a map of canonical pairs. kInvalidArgument for 2^31 pairs or more in dense
// tables, and for K * pairs of 2^32 or more in coded CSR.
absl::StatusOr<std::shared_ptr<const PreparedMap>> MakePositionLayout(
    const PositionLayoutMaker& maker, absl::string_view key, const KernelMap& map,
    const ExecutionContext& context);

// kInvalidArgument unless `map` has the layout.
absl::Status CheckPositionLayout(const PreparedMap& map, PositionLayout layout);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_POSITION_LAYOUTS_H_
