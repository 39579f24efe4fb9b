// SPDX-License-Identifier: Apache-2.0
// The two layouts of a kernel map that gather and scatter read. For each row of features, a layout
// gives the kernel offsets under which the row has a pair, and the position of each such pair in
// the canonical pair list. The buffers hold pairs in the order of that list.
#ifndef VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_POSITION_LAYOUTS_H_
#define VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_POSITION_LAYOUTS_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "voxconv/core/dataflow.h"
#include "voxconv/core/kernel_map.h"

namespace voxconv {

enum class PositionLayout { kDenseTables, kCodedCsr };

// The layout's key in MapNeed::layout: "dense_tables" or "coded_csr".
absl::string_view KeyOf(PositionLayout layout);

// Positions in the canonical pair list, -1 = none (TorchSparse, Minuet). in_table[p * K + k] is the
// position of the pair of input p under offset k. out_table[q * K + k] is that of output q. The
// tables lie in the memory of the backend that made them.
struct DenseTableArrays {
  Array<int32_t> in_table;   // [N_in, K]
  Array<int32_t> out_table;  // [N_out, K]
};

// PCEngine's coded CSR (Section 4): code = k + K * position. Input row p has the codes in_code[i]
// for i in [in_ptr[p], in_ptr[p + 1]). They ascend by k. Output rows have the same form. The arrays
// lie in the memory of the backend that made them.
struct CodedCsrArrays {
  Array<int32_t> in_ptr, out_ptr;     // [N_in + 1], [N_out + 1]
  Array<uint32_t> in_code, out_code;  // [number of pairs]
};

// DenseTables and CodedCsr own their arrays. They keep the sizes, counts and flags of their map,
// but none of its arrays. ToPairs works on a host copy.
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

// The functions of one backend that make the arrays from canonical pairs. They queue their work on
// the context's stream. O(K * (N_in + N_out) + pairs).
struct PositionLayoutMaker {
  absl::StatusOr<DenseTableArrays> (*dense_tables)(const KernelMap&, const ExecutionContext&);
  absl::StatusOr<CodedCsrArrays> (*coded_csr)(const KernelMap&, const ExecutionContext&);
};
PositionLayoutMaker CpuPositionLayouts();
PositionLayoutMaker CudaPositionLayouts();  // Only builds with CUDA have it.

// Makes the layout `key` of a map of canonical pairs. kInvalidArgument for dense tables of 2^31
// pairs or more, and for coded CSR with K * pairs of 2^32 or more.
absl::StatusOr<std::shared_ptr<const PreparedMap>> MakePositionLayout(
    const PositionLayoutMaker& maker, absl::string_view key, const KernelMap& map,
    const ExecutionContext& context);

// kInvalidArgument unless `map` has the layout.
absl::Status CheckPositionLayout(const PreparedMap& map, PositionLayout layout);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_POSITION_LAYOUTS_H_
