#include "backends/cuda/convert_kernel_map.h"

#include <utility>

#include "backends/cuda/cuda_backend.h"
#include "core/status_macros.h"

namespace voxconv {
namespace {

// The same map in another layout, its counts known or not as before.
KernelMap WithStorage(const KernelMap& map, const LayoutRequest& layout,
                      KernelMap::Storage storage) {
  KernelMap result = map.counts_known() ? KernelMap(map.num_inputs(), map.num_outputs(),
                                                    map.offset_ptr(), layout, std::move(storage))
                                        : KernelMap(map.num_inputs(), map.num_outputs(),
                                                    map.num_offsets(), layout, std::move(storage));
  result.set_identity_offset(map.identity_offset());
  result.set_symmetric(map.symmetric());
  return result;
}

template <typename T>
absl::StatusOr<Array<T>> CopyOnDevice(const Array<T>& from, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(Array<T> copy, AllocateArray<T>(from.size(), context));
  VOXCONV_RETURN_IF_ERROR(context.backend->Copy(copy.data(), copy.space(), from.data(),
                                                from.space(), from.bytes(), *context.stream));
  return copy;
}

// Between table layouts: the table is shared, nothing is counted, nothing waits.
absl::StatusOr<KernelMap> FromTable(const KernelMap& map, const LayoutRequest& request,
                                    const ExecutionContext& context) {
  if (request.layout == MapLayout::kMaskSorted) {
    VOXCONV_ASSIGN_OR_RETURN(MaskSorted sorted, ToMaskSorted(map, request, context));
    return WithStorage(map, request, std::move(sorted));
  }
  if (map.layout().layout == MapLayout::kNeighbourTable) {
    return WithStorage(map, request, NeighbourTable(map.As<NeighbourTable>()));
  }
  const MaskSorted& sorted = map.As<MaskSorted>();
  NeighbourTable table{.table = sorted.table, .masks = {}};
  if (map.layout().splits == 1) table.masks = sorted.masks;
  return WithStorage(map, request, std::move(table));
}

absl::StatusOr<KernelMap> ToPairs(const KernelMap& map, const ExecutionContext& context) {
  PairList pairs;
  if (NeighboursOf(map) != nullptr) {
    VOXCONV_ASSIGN_OR_RETURN(pairs, TableToPairs(map, context));
  } else if (map.layout().layout == MapLayout::kDenseTables) {
    VOXCONV_ASSIGN_OR_RETURN(pairs, DenseTablesToPairs(map, context));
  } else {
    VOXCONV_ASSIGN_OR_RETURN(pairs, CodedCsrToPairs(map, context));
  }
  return WithStorage(map, {MapLayout::kPairs}, std::move(pairs));
}

absl::StatusOr<KernelMap> FromPairs(const KernelMap& map, const LayoutRequest& request,
                                    const ExecutionContext& context) {
  switch (request.layout) {
    case MapLayout::kPairs: {
      const PairList& pairs = map.As<PairList>();
      PairList copy;
      VOXCONV_ASSIGN_OR_RETURN(copy.in, CopyOnDevice(pairs.in, context));
      VOXCONV_ASSIGN_OR_RETURN(copy.out, CopyOnDevice(pairs.out, context));
      return WithStorage(map, request, std::move(copy));
    }
    case MapLayout::kNeighbourTable: {
      VOXCONV_ASSIGN_OR_RETURN(NeighbourTable table, PairsToTable(map, context));
      return WithStorage(map, request, std::move(table));
    }
    case MapLayout::kDenseTables: {
      VOXCONV_ASSIGN_OR_RETURN(DenseTables tables, PairsToDenseTables(map, context));
      return WithStorage(map, request, std::move(tables));
    }
    case MapLayout::kCodedCsr: {
      VOXCONV_ASSIGN_OR_RETURN(CodedCsr codes, PairsToCodedCsr(map, context));
      return WithStorage(map, request, std::move(codes));
    }
    case MapLayout::kMaskSorted: {
      VOXCONV_ASSIGN_OR_RETURN(NeighbourTable table, PairsToTable(map, context));
      const KernelMap view = WithStorage(map, {MapLayout::kNeighbourTable}, std::move(table));
      return FromTable(view, request, context);
    }
  }
  return absl::InternalError("unknown layout");
}

}  // namespace

const SharedArray<int32_t>* NeighboursOf(const KernelMap& map) {
  if (map.layout().layout == MapLayout::kNeighbourTable) return &map.As<NeighbourTable>().table;
  if (map.layout().layout == MapLayout::kMaskSorted) return &map.As<MaskSorted>().table;
  return nullptr;
}

absl::StatusOr<KernelMap> CudaBackend::ConvertKernelMap(const KernelMap& map,
                                                        const LayoutRequest& request,
                                                        const ExecutionContext& context) {
  StageScope scope(context, Stage::kConvert);
  const bool to_table =
      request.layout == MapLayout::kNeighbourTable || request.layout == MapLayout::kMaskSorted;
  if (to_table && NeighboursOf(map) != nullptr) return FromTable(map, request, context);
  VOXCONV_RETURN_IF_ERROR(map.EnsureCounts(context));
  if (map.layout().layout == MapLayout::kPairs) return FromPairs(map, request, context);
  VOXCONV_ASSIGN_OR_RETURN(KernelMap pairs, ToPairs(map, context));
  if (request.layout == MapLayout::kPairs) return pairs;
  return FromPairs(pairs, request, context);
}

absl::StatusOr<KernelMap> CudaBackend::TransposeKernelMap(const KernelMap& map,
                                                          const ExecutionContext& context) {
  if (!map.counts_known()) {
    StageScope scope(context, Stage::kConvert);
    VOXCONV_ASSIGN_OR_RETURN(NeighbourTable table, TransposeTable(map, context));
    KernelMap result(map.num_outputs(), map.num_inputs(), map.num_offsets(),
                     {MapLayout::kNeighbourTable}, std::move(table));
    result.set_identity_offset(map.identity_offset());
    result.set_symmetric(map.symmetric());
    return result;
  }
  if (map.layout().layout != MapLayout::kPairs) {
    VOXCONV_ASSIGN_OR_RETURN(KernelMap pairs, ConvertKernelMap(map, {}, context));
    return TransposeKernelMap(pairs, context);
  }
  StageScope scope(context, Stage::kConvert);
  VOXCONV_ASSIGN_OR_RETURN(PairList pairs, TransposePairs(map, context));
  KernelMap result(map.num_outputs(), map.num_inputs(), map.offset_ptr(), {}, std::move(pairs));
  result.set_identity_offset(map.identity_offset());
  result.set_symmetric(map.symmetric());
  return result;
}

absl::StatusOr<std::vector<int64_t>> CudaBackend::CountPairs(const KernelMap& map,
                                                             const ExecutionContext& context) {
  VOXCONV_CHECK(NeighboursOf(map) != nullptr);
  VOXCONV_ASSIGN_OR_RETURN(SharedArray<uint32_t> masks, RowMasks(map, context));
  return CountMaskBits(masks, map.num_outputs(), map.num_offsets(), context);
}

}  // namespace voxconv
