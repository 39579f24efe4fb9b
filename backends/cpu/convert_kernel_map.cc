// Conversions between the layouts of a kernel map. Every conversion goes from the canonical pairs
// or the neighbour table, whichever the source is nearer to.
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/parallel.h"
#include "backends/cpu/rarest_order.h"
#include "core/kernel_map.h"

namespace voxconv {
namespace {

constexpr int64_t kRowsPerTask = 4096;

// The same map in another layout.
KernelMap WithStorage(const KernelMap& map, const LayoutRequest& layout,
                      KernelMap::Storage storage) {
  KernelMap result(map.num_inputs(), map.num_outputs(), map.offset_ptr(), layout,
                   std::move(storage));
  result.set_identity_offset(map.identity_offset());
  result.set_symmetric(map.symmetric());
  return result;
}

absl::Status CheckTableSize(int64_t rows, int num_offsets) {
  if (num_offsets > 0 && rows > INT64_MAX / 8 / num_offsets) {
    return absl::InvalidArgumentError(
        absl::StrCat("kernel map: a table of ", rows, " x ", num_offsets, " entries is too large"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Array<int32_t>> EmptyTable(int64_t rows, int num_offsets,
                                          const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(CheckTableSize(rows, num_offsets));
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> table,
                           AllocateArray<int32_t>(rows * num_offsets, context));
  ParallelRanges(context, table.size(), kRowsPerTask * 16, [&](int64_t begin, int64_t end) {
    std::fill(table.data() + begin, table.data() + end, -1);
  });
  return table;
}

// Calls body(k, i) for each pair position i of each offset k whose output row is in [begin, end).
// Output rows ascend within an offset, so each offset contributes one run.
template <typename Body>
void ForPairsOfOutputs(const KernelMap& map, const PairList& pairs, int64_t begin, int64_t end,
                       const Body& body) {
  const int32_t* out = pairs.out.data();
  for (int k = 0; k < map.num_offsets(); ++k) {
    const int32_t* last = out + map.offset_ptr()[k + 1];
    const int32_t* it = std::lower_bound(out + map.offset_ptr()[k], last, begin);
    for (; it != last && *it < end; ++it) body(k, it - out);
  }
}

absl::StatusOr<NeighbourTable> PairsToTable(const KernelMap& map, const ExecutionContext& context) {
  const PairList& pairs = map.As<PairList>();
  const int num_offsets = map.num_offsets();
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> result,
                           EmptyTable(map.num_outputs(), num_offsets, context));
  int32_t* table = result.data();
  ParallelRanges(context, map.num_outputs(), kRowsPerTask, [&](int64_t begin, int64_t end) {
    ForPairsOfOutputs(map, pairs, begin, end, [&](int k, int64_t i) {
      table[int64_t{pairs.out.data()[i]} * num_offsets + k] = pairs.in.data()[i];
    });
  });
  return NeighbourTable{.table = std::move(result), .masks = {}};
}

absl::StatusOr<PairList> TableToPairs(const KernelMap& map, const ExecutionContext& context) {
  const int32_t* table = map.As<NeighbourTable>().table.data();
  const int num_offsets = map.num_offsets();
  PairList pairs;
  VOXCONV_ASSIGN_OR_RETURN(pairs.in, AllocateArray<int32_t>(map.num_pairs(), context));
  VOXCONV_ASSIGN_OR_RETURN(pairs.out, AllocateArray<int32_t>(map.num_pairs(), context));
  ParallelRanges(context, num_offsets, 1, [&](int64_t k, int64_t) {
    int64_t next = map.offset_ptr()[k];
    for (int64_t row = 0; row < map.num_outputs(); ++row) {
      const int32_t in = table[row * num_offsets + k];
      if (in < 0) continue;
      pairs.in.data()[next] = in;
      pairs.out.data()[next++] = static_cast<int32_t>(row);
    }
  });
  return pairs;
}

absl::StatusOr<DenseTables> PairsToDenseTables(const KernelMap& map,
                                               const ExecutionContext& context) {
  if (map.num_pairs() > INT32_MAX) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kernel map: ", map.num_pairs(), " pairs; dense tables hold at most ", INT32_MAX));
  }
  const PairList& pairs = map.As<PairList>();
  const int num_offsets = map.num_offsets();
  DenseTables result;
  VOXCONV_ASSIGN_OR_RETURN(result.in_table, EmptyTable(map.num_inputs(), num_offsets, context));
  VOXCONV_ASSIGN_OR_RETURN(result.out_table, EmptyTable(map.num_outputs(), num_offsets, context));
  // Each (row, offset) entry is written at most once, so offsets may run concurrently.
  ParallelRanges(context, num_offsets, 1, [&](int64_t k, int64_t) {
    for (int64_t i = map.offset_ptr()[k]; i < map.offset_ptr()[k + 1]; ++i) {
      const int32_t position = static_cast<int32_t>(i);
      result.in_table.data()[int64_t{pairs.in.data()[i]} * num_offsets + k] = position;
      result.out_table.data()[int64_t{pairs.out.data()[i]} * num_offsets + k] = position;
    }
  });
  return result;
}

// One side of the coded CSR: a counting sort of the pairs by `row_of`, offsets ascending in a row.
absl::Status EncodeRows(const KernelMap& map, const int32_t* row_of, int64_t rows,
                        Array<int64_t>& ptr, Array<uint32_t>& code,
                        const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(ptr, AllocateArray<int64_t>(rows + 1, context));
  VOXCONV_ASSIGN_OR_RETURN(code, AllocateArray<uint32_t>(map.num_pairs(), context));
  std::fill(ptr.data(), ptr.data() + rows + 1, 0);
  for (int64_t i = 0; i < map.num_pairs(); ++i) ++ptr.data()[row_of[i] + 1];
  std::partial_sum(ptr.data(), ptr.data() + rows + 1, ptr.data());
  // Filling moves each row's begin to its end; the shift below moves all back by one row.
  const uint32_t num_offsets = map.num_offsets();
  for (uint32_t k = 0; k < num_offsets; ++k) {
    for (int64_t i = map.offset_ptr()[k]; i < map.offset_ptr()[k + 1]; ++i) {
      code.data()[ptr.data()[row_of[i]]++] = k + num_offsets * static_cast<uint32_t>(i);
    }
  }
  std::copy_backward(ptr.data(), ptr.data() + rows, ptr.data() + rows + 1);
  ptr.data()[0] = 0;
  return absl::OkStatus();
}

absl::StatusOr<CodedCsr> PairsToCodedCsr(const KernelMap& map, const ExecutionContext& context) {
  if (map.num_pairs() > 0 && map.num_pairs() > int64_t{UINT32_MAX} / map.num_offsets()) {
    return absl::InvalidArgumentError(absl::StrCat("kernel map: ", map.num_offsets(), " offsets x ",
                                                   map.num_pairs(),
                                                   " pairs; coded CSR holds codes below 2^32"));
  }
  const PairList& pairs = map.As<PairList>();
  CodedCsr result;
  VOXCONV_RETURN_IF_ERROR(
      EncodeRows(map, pairs.in.data(), map.num_inputs(), result.in_ptr, result.in_code, context));
  VOXCONV_RETURN_IF_ERROR(EncodeRows(map, pairs.out.data(), map.num_outputs(), result.out_ptr,
                                     result.out_code, context));
  return result;
}

// Rank of `code` in the sequence of reflected Gray codes.
uint32_t GrayRank(uint32_t code) {
  for (int shift = 16; shift > 0; shift /= 2) code ^= code >> shift;
  return code;
}

// The sort key of a row's mask, most significant word first. Of a mask longer than 64 bits only
// the first 64 offsets order the rows: order is a matter of speed, not of results.
uint64_t MaskSortKey(const uint32_t* mask, int words, MaskOrder order) {
  uint64_t key = mask[0];
  if (words > 1) key |= uint64_t{mask[1]} << 32;
  if (order != MaskOrder::kGray) return key;
  if (words == 1) return GrayRank(static_cast<uint32_t>(key));
  for (int shift = 32; shift > 0; shift /= 2) key ^= key >> shift;
  return key;
}

class MaskSorter {
 public:
  MaskSorter(const KernelMap& map, const LayoutRequest& request, const ExecutionContext& context)
      : map_(map), request_(request), context_(context) {}

  absl::StatusOr<MaskSorted> Run(SharedArray<int32_t> table) {
    MaskSorted result;
    result.table = std::move(table);
    int longest = 1;
    VOXCONV_ASSIGN_OR_RETURN(result.split_ptr, SplitOffsets(map_.num_offsets(), request_.splits));
    for (int s = 0; s < request_.splits; ++s) {
      longest = std::max(longest, result.split_ptr[s + 1] - result.split_ptr[s]);
    }
    result.words = (longest + 31) / 32;
    const int64_t rows = map_.num_outputs();
    VOXCONV_ASSIGN_OR_RETURN(
        Array<uint32_t> masks,
        AllocateArray<uint32_t>(request_.splits * rows * result.words, context_));
    VOXCONV_ASSIGN_OR_RETURN(result.row_order,
                             AllocateArray<int32_t>(request_.splits * rows, context_));
    for (int s = 0; s < request_.splits; ++s) {
      uint32_t* split_masks = masks.data() + s * rows * result.words;
      FillMasks(result, s, split_masks);
      VOXCONV_RETURN_IF_ERROR(OrderRows(result, s, split_masks));
    }
    result.masks = std::move(masks);
    return result;
  }

 private:
  void FillMasks(const MaskSorted& result, int s, uint32_t* masks) const {
    const int64_t rows = map_.num_outputs();
    const int32_t first = result.split_ptr[s], last = result.split_ptr[s + 1];
    ParallelRanges(context_, rows, kRowsPerTask, [&](int64_t begin, int64_t end) {
      std::fill(masks + begin * result.words, masks + end * result.words, 0);
      for (int64_t row = begin; row < end; ++row) {
        const int32_t* entry = result.table.data() + row * map_.num_offsets();
        for (int32_t k = first; k < last; ++k) {
          const int bit = k - first;
          masks[row * result.words + bit / 32] |= static_cast<uint32_t>(entry[k] >= 0) << bit % 32;
        }
      }
    });
  }

  absl::Status OrderRows(MaskSorted& result, int s, const uint32_t* masks) const {
    const int64_t rows = map_.num_outputs();
    int32_t* order = result.row_order.data() + s * rows;
    std::iota(order, order + rows, 0);
    if (request_.mask_order == MaskOrder::kNone) return absl::OkStatus();
    VOXCONV_ASSIGN_OR_RETURN(Array<uint64_t> key_of_row, AllocateArray<uint64_t>(rows, context_));
    uint64_t* keys = key_of_row.data();
    const int num_offsets = result.split_ptr[s + 1] - result.split_ptr[s];
    if (request_.mask_order == MaskOrder::kRarest) {
      MakeRarestKeys(masks, rows, result.words, num_offsets, keys);
    } else {
      for (int64_t row = 0; row < rows; ++row) {
        keys[row] = MaskSortKey(masks + row * result.words, result.words, request_.mask_order);
      }
    }
    // Stable, so that rows of one mask stay in order and neighbours in memory.
    std::stable_sort(order, order + rows, [&](int32_t a, int32_t b) { return keys[a] < keys[b]; });
    return absl::OkStatus();
  }

  const KernelMap& map_;
  const LayoutRequest& request_;
  const ExecutionContext& context_;
};

absl::StatusOr<KernelMap> FromPairs(const KernelMap& map, const LayoutRequest& request,
                                    const ExecutionContext& context) {
  switch (request.layout) {
    case MapLayout::kPairs: {
      const PairList& pairs = map.As<PairList>();
      PairList copy;
      VOXCONV_ASSIGN_OR_RETURN(copy.in, CopyToBackend<int32_t>(pairs.in.host(), context));
      VOXCONV_ASSIGN_OR_RETURN(copy.out, CopyToBackend<int32_t>(pairs.out.host(), context));
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
      MaskSorter sorter(map, request, context);
      VOXCONV_ASSIGN_OR_RETURN(MaskSorted sorted, sorter.Run(std::move(table.table)));
      return WithStorage(map, request, std::move(sorted));
    }
  }
  return absl::InternalError("unknown layout");
}

// The map's own neighbour table, where its layout has one.
const SharedArray<int32_t>* TableOf(const KernelMap& map) {
  if (map.layout().layout == MapLayout::kNeighbourTable) return &map.As<NeighbourTable>().table;
  if (map.layout().layout == MapLayout::kMaskSorted) return &map.As<MaskSorted>().table;
  return nullptr;
}

// Canonical pairs of any layout. The position tables and codes name every pair's position, so the
// pairs are read off in one pass over the inputs and one over the outputs.
absl::StatusOr<KernelMap> ToPairs(const KernelMap& map, const ExecutionContext& context) {
  const LayoutRequest request{MapLayout::kPairs};
  if (const SharedArray<int32_t>* table = TableOf(map)) {
    const KernelMap view = WithStorage(map, {MapLayout::kNeighbourTable},
                                       NeighbourTable{.table = *table, .masks = {}});
    VOXCONV_ASSIGN_OR_RETURN(PairList pairs, TableToPairs(view, context));
    return WithStorage(map, request, std::move(pairs));
  }
  PairList pairs;
  VOXCONV_ASSIGN_OR_RETURN(pairs.in, AllocateArray<int32_t>(map.num_pairs(), context));
  VOXCONV_ASSIGN_OR_RETURN(pairs.out, AllocateArray<int32_t>(map.num_pairs(), context));
  if (map.layout().layout == MapLayout::kDenseTables) {
    const auto read = [&](const Array<int32_t>& table, int32_t* rows) {
      for (int64_t i = 0; i < table.size(); ++i) {
        if (table.data()[i] >= 0)
          rows[table.data()[i]] = static_cast<int32_t>(i / map.num_offsets());
      }
    };
    read(map.As<DenseTables>().in_table, pairs.in.data());
    read(map.As<DenseTables>().out_table, pairs.out.data());
  } else {
    const auto read = [&](const Array<int64_t>& ptr, const Array<uint32_t>& code, int32_t* rows) {
      for (int64_t row = 0; row + 1 < ptr.size(); ++row) {
        for (int64_t i = ptr.data()[row]; i < ptr.data()[row + 1]; ++i) {
          rows[code.data()[i] / map.num_offsets()] = static_cast<int32_t>(row);
        }
      }
    };
    const CodedCsr& codes = map.As<CodedCsr>();
    read(codes.in_ptr, codes.in_code, pairs.in.data());
    read(codes.out_ptr, codes.out_code, pairs.out.data());
  }
  return WithStorage(map, request, std::move(pairs));
}

}  // namespace

absl::StatusOr<KernelMap> CpuBackend::ConvertKernelMap(const KernelMap& map,
                                                       const LayoutRequest& request,
                                                       const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(map.CheckSizes());  // the loops below go by them
  StageScope scope(context, Stage::kConvert);
  VOXCONV_RETURN_IF_ERROR(map.EnsureCounts(context));
  if (map.layout().layout == MapLayout::kPairs) return FromPairs(map, request, context);
  if (request.layout == MapLayout::kMaskSorted && TableOf(map) != nullptr) {
    MaskSorter sorter(map, request, context);
    VOXCONV_ASSIGN_OR_RETURN(MaskSorted sorted, sorter.Run(*TableOf(map)));
    return WithStorage(map, request, std::move(sorted));
  }
  VOXCONV_ASSIGN_OR_RETURN(KernelMap pairs, ToPairs(map, context));
  if (request.layout == MapLayout::kPairs) return pairs;
  return FromPairs(pairs, request, context);
}

absl::StatusOr<KernelMap> CpuBackend::TransposeKernelMap(const KernelMap& map,
                                                         const ExecutionContext& context) {
  if (map.layout().layout != MapLayout::kPairs) {
    VOXCONV_ASSIGN_OR_RETURN(KernelMap pairs, ConvertKernelMap(map, {}, context));
    return TransposeKernelMap(pairs, context);
  }
  VOXCONV_RETURN_IF_ERROR(map.CheckSizes());
  StageScope scope(context, Stage::kConvert);
  const PairList& pairs = map.As<PairList>();
  PairList swapped;
  VOXCONV_ASSIGN_OR_RETURN(swapped.in, AllocateArray<int32_t>(map.num_pairs(), context));
  VOXCONV_ASSIGN_OR_RETURN(swapped.out, AllocateArray<int32_t>(map.num_pairs(), context));
  // (input row, output row) of every pair, in one word.
  VOXCONV_ASSIGN_OR_RETURN(Array<uint64_t> words,
                           AllocateArray<uint64_t>(map.num_pairs(), context));
  ParallelRanges(context, map.num_offsets(), 1, [&](int64_t k, int64_t) {
    const int64_t begin = map.offset_ptr()[k], end = map.offset_ptr()[k + 1];
    uint64_t* word = words.data();
    for (int64_t i = begin; i < end; ++i) {
      word[i] = static_cast<uint64_t>(pairs.in.data()[i]) << 32 |
                static_cast<uint32_t>(pairs.out.data()[i]);
    }
    // An input row occurs at most once an offset too, so sorting by it gives a total order.
    if (!std::is_sorted(word + begin, word + end)) std::sort(word + begin, word + end);
    for (int64_t i = begin; i < end; ++i) {
      swapped.out.data()[i] = static_cast<int32_t>(word[i] >> 32);
      swapped.in.data()[i] = static_cast<int32_t>(word[i] & UINT32_MAX);
    }
  });
  KernelMap result(map.num_outputs(), map.num_inputs(), map.offset_ptr(), {}, std::move(swapped));
  result.set_identity_offset(map.identity_offset());
  result.set_symmetric(map.symmetric());
  return result;
}

absl::StatusOr<std::vector<int64_t>> CpuBackend::CountPairs(const KernelMap& map,
                                                            const ExecutionContext&) {
  const SharedArray<int32_t>* table = TableOf(map);
  VOXCONV_CHECK(table != nullptr);
  const int num_offsets = map.num_offsets();
  std::vector<int64_t> offset_ptr(num_offsets + 1, 0);
  for (int64_t i = 0; i < table->size(); ++i) {
    if (table->data()[i] >= 0) ++offset_ptr[i % num_offsets + 1];
  }
  std::partial_sum(offset_ptr.begin(), offset_ptr.end(), offset_ptr.begin());
  return offset_ptr;
}

}  // namespace voxconv
