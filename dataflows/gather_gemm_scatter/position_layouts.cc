// SPDX-License-Identifier: Apache-2.0
#include "voxconv/dataflows/gather_gemm_scatter/position_layouts.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace voxconv {
namespace {

absl::Status CheckPositionTable(const KernelMap& map, absl::string_view name,
                                const Array<int32_t>& table, int64_t rows,
                                const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(CheckArraySize(name, table.size(), rows * map.num_offsets()));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<int32_t> host, CopyToHost(table, context));
  return CheckTableEntries(map, name, host, /*positions=*/true);
}

absl::Status CheckRowPointers(const KernelMap& map, absl::string_view name,
                              absl::Span<const int32_t> ptr) {
  if (ptr.front() != 0 || ptr.back() != map.num_pairs()) {
    return InvalidMap(
        absl::StrCat(name, " row pointers do not span the ", map.num_pairs(), " pairs"));
  }
  for (size_t row = 0; row + 1 < ptr.size(); ++row) {
    if (ptr[row] > ptr[row + 1]) {
      return InvalidMap(absl::StrCat(name, " row pointers descend at row ", row));
    }
  }
  return absl::OkStatus();
}

// One side of a coded CSR on the host.
struct HostCodes {
  std::vector<int32_t> ptr;
  std::vector<uint32_t> codes;
};

// The pointers are checked before any code is read: a later descent may hide behind a pointer past
// the end.
absl::StatusOr<HostCodes> CopyCodes(const KernelMap& map, absl::string_view name,
                                    const Array<int32_t>& ptr, const Array<uint32_t>& codes,
                                    int64_t rows, const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(CheckArraySize(name, ptr.size(), rows + 1));
  VOXCONV_RETURN_IF_ERROR(CheckArraySize(name, codes.size(), map.num_pairs()));
  HostCodes host;
  VOXCONV_ASSIGN_OR_RETURN(host.ptr, CopyToHost(ptr, context));
  VOXCONV_ASSIGN_OR_RETURN(host.codes, CopyToHost(codes, context));
  VOXCONV_RETURN_IF_ERROR(CheckRowPointers(map, name, host.ptr));
  return host;
}

absl::Status CheckCodes(const KernelMap& map, absl::string_view name, const HostCodes& host) {
  const uint32_t num_offsets = map.num_offsets();
  for (size_t row = 0; row + 1 < host.ptr.size(); ++row) {
    for (int64_t i = host.ptr[row]; i < host.ptr[row + 1]; ++i) {
      const uint32_t code = host.codes[i], k = code % num_offsets;
      const int64_t position = code / num_offsets;
      if (position < map.offset_ptr()[k] || position >= map.offset_ptr()[k + 1] ||
          (i > host.ptr[row] && k <= host.codes[i - 1] % num_offsets)) {
        return InvalidMap(absl::StrCat(name, " code ", code, " of row ", row, " is wrong"));
      }
    }
  }
  return absl::OkStatus();
}

// The rows of the pairs on one side, found one by one. A position that is never set stays -1.
class RowsOfPairs {
 public:
  explicit RowsOfPairs(int64_t num_pairs) : rows_(num_pairs, -1) {}

  absl::Status Set(int64_t position, int64_t row) {
    if (position >= static_cast<int64_t>(rows_.size())) {
      return InvalidMap(absl::StrCat("row ", row, " names pair ", position, " of ", rows_.size()));
    }
    rows_[position] = static_cast<int32_t>(row);
    return absl::OkStatus();
  }
  const std::vector<int32_t>& rows() const { return rows_; }

 private:
  std::vector<int32_t> rows_;
};

absl::StatusOr<RowsOfPairs> RowsOfTable(const KernelMap& map, const Array<int32_t>& table,
                                        const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<int32_t> host, CopyToHost(table, context));
  RowsOfPairs rows(map.num_pairs());
  for (size_t i = 0; i < host.size(); ++i) {
    if (host[i] < 0) continue;
    VOXCONV_RETURN_IF_ERROR(rows.Set(host[i], static_cast<int64_t>(i) / map.num_offsets()));
  }
  return rows;
}

absl::StatusOr<RowsOfPairs> RowsOfCodes(const KernelMap& map, const HostCodes& host) {
  RowsOfPairs rows(map.num_pairs());
  for (size_t row = 0; row + 1 < host.ptr.size(); ++row) {
    for (int64_t i = host.ptr[row]; i < host.ptr[row + 1]; ++i) {
      VOXCONV_RETURN_IF_ERROR(
          rows.Set(host.codes[i] / map.num_offsets(), static_cast<int64_t>(row)));
    }
  }
  return rows;
}

absl::StatusOr<KernelMap> PairsOf(const KernelMap& map, const RowsOfPairs& in,
                                  const RowsOfPairs& out, const ExecutionContext& context) {
  PairBuffers pairs;
  VOXCONV_ASSIGN_OR_RETURN(pairs.in, CopyToBackend<int32_t>(in.rows(), context));
  VOXCONV_ASSIGN_OR_RETURN(pairs.out, CopyToBackend<int32_t>(out.rows(), context));
  return map.WithStorage(PairList(std::move(pairs)));
}

}  // namespace

absl::string_view KeyOf(PositionLayout layout) {
  return layout == PositionLayout::kDenseTables ? "dense_tables" : "coded_csr";
}

int64_t DenseTables::bytes() const {
  return map().bytes() + arrays_.in_table.bytes() + arrays_.out_table.bytes();
}

absl::Status DenseTables::Validate(const ExecutionContext& context) const {
  VOXCONV_RETURN_IF_ERROR(
      CheckPositionTable(map(), "in_table", arrays_.in_table, map().num_inputs(), context));
  return CheckPositionTable(map(), "out_table", arrays_.out_table, map().num_outputs(), context);
}

absl::StatusOr<KernelMap> DenseTables::ToPairs(const ExecutionContext& context) const {
  VOXCONV_ASSIGN_OR_RETURN(const RowsOfPairs in, RowsOfTable(map(), arrays_.in_table, context));
  VOXCONV_ASSIGN_OR_RETURN(const RowsOfPairs out, RowsOfTable(map(), arrays_.out_table, context));
  return PairsOf(map(), in, out, context);
}

int64_t CodedCsr::bytes() const {
  return map().bytes() + arrays_.in_ptr.bytes() + arrays_.out_ptr.bytes() +
         arrays_.in_code.bytes() + arrays_.out_code.bytes();
}

absl::Status CodedCsr::Validate(const ExecutionContext& context) const {
  VOXCONV_ASSIGN_OR_RETURN(
      const HostCodes in,
      CopyCodes(map(), "in", arrays_.in_ptr, arrays_.in_code, map().num_inputs(), context));
  VOXCONV_RETURN_IF_ERROR(CheckCodes(map(), "in", in));
  VOXCONV_ASSIGN_OR_RETURN(
      const HostCodes out,
      CopyCodes(map(), "out", arrays_.out_ptr, arrays_.out_code, map().num_outputs(), context));
  return CheckCodes(map(), "out", out);
}

absl::StatusOr<KernelMap> CodedCsr::ToPairs(const ExecutionContext& context) const {
  VOXCONV_ASSIGN_OR_RETURN(
      const HostCodes in_codes,
      CopyCodes(map(), "in", arrays_.in_ptr, arrays_.in_code, map().num_inputs(), context));
  VOXCONV_ASSIGN_OR_RETURN(
      const HostCodes out_codes,
      CopyCodes(map(), "out", arrays_.out_ptr, arrays_.out_code, map().num_outputs(), context));
  VOXCONV_ASSIGN_OR_RETURN(const RowsOfPairs in, RowsOfCodes(map(), in_codes));
  VOXCONV_ASSIGN_OR_RETURN(const RowsOfPairs out, RowsOfCodes(map(), out_codes));
  return PairsOf(map(), in, out, context);
}

absl::StatusOr<std::shared_ptr<const PreparedMap>> MakePositionLayout(
    const PositionLayoutMaker& maker, absl::string_view key, const KernelMap& map,
    const ExecutionContext& context) {
  if (key == KeyOf(PositionLayout::kDenseTables)) {
    if (map.num_pairs() > INT32_MAX) {
      return InvalidMap(
          absl::StrCat(map.num_pairs(), " pairs; dense tables hold at most ", INT32_MAX));
    }
    VOXCONV_ASSIGN_OR_RETURN(DenseTableArrays arrays, maker.dense_tables(map, context));
    return std::make_shared<const DenseTables>(map, std::move(arrays));
  }
  if (key == KeyOf(PositionLayout::kCodedCsr)) {
    if (map.num_pairs() > 0 && map.num_pairs() > int64_t{UINT32_MAX} / map.num_offsets()) {
      return InvalidMap(absl::StrCat(map.num_offsets(), " offsets x ", map.num_pairs(),
                                     " pairs; coded CSR holds codes below 2^32"));
    }
    if (map.num_pairs() > INT32_MAX) {
      return InvalidMap(
          absl::StrCat(map.num_pairs(), " pairs; coded CSR holds at most ", INT32_MAX));
    }
    VOXCONV_ASSIGN_OR_RETURN(CodedCsrArrays arrays, maker.coded_csr(map, context));
    return std::make_shared<const CodedCsr>(map, std::move(arrays));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("gather_gemm_scatter: map layout '", key, "'; it makes ",
                   KeyOf(PositionLayout::kDenseTables), " and ", KeyOf(PositionLayout::kCodedCsr)));
}

absl::Status CheckPositionLayout(const PreparedMap& map, PositionLayout layout) {
  const bool has = layout == PositionLayout::kDenseTables
                       ? dynamic_cast<const DenseTables*>(&map) != nullptr
                       : dynamic_cast<const CodedCsr*>(&map) != nullptr;
  if (has) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "gather_gemm_scatter: the map was not prepared in the layout '", KeyOf(layout), "'"));
}

}  // namespace voxconv
