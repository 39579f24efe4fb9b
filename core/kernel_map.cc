// SPDX-License-Identifier: Apache-2.0
#include "voxconv/core/kernel_map.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/core/map_ops.h"

namespace voxconv {
namespace {

absl::Status CheckCounts(const KernelMap& map) {
  if (!map.counts_known()) {
    if (map.form() == MapForm::kPairs) {
      return InvalidMap("the pairs are not counted; pairs need that");
    }
    return map.num_offsets() >= 0 ? absl::OkStatus()
                                  : InvalidMap("offset_ptr must have an entry an offset and one");
  }
  const std::vector<int64_t>& ptr = map.offset_ptr();
  if (ptr.front() != 0) {
    return InvalidMap(absl::StrCat("offset_ptr starts with ", ptr.front(), "; it must with 0"));
  }
  for (size_t k = 0; k + 1 < ptr.size(); ++k) {
    if (ptr[k] > ptr[k + 1]) {
      return InvalidMap(absl::StrCat("offset_ptr descends at offset ", k));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPairs(const KernelMap& map, absl::Span<const int32_t> in,
                        absl::Span<const int32_t> out) {
  std::vector<int> last_offset(map.num_inputs(), -1);  // under which the input row has occurred
  for (int k = 0; k < map.num_offsets(); ++k) {
    for (int64_t i = map.offset_ptr()[k]; i < map.offset_ptr()[k + 1]; ++i) {
      if (in[i] < 0 || in[i] >= map.num_inputs() || out[i] < 0 || out[i] >= map.num_outputs()) {
        return InvalidMap(absl::StrCat("pair ", i, " (", in[i], ", ", out[i], ") of offset ", k,
                                       " is outside ", map.num_inputs(), " inputs and ",
                                       map.num_outputs(), " outputs"));
      }
      if (i > map.offset_ptr()[k] && out[i] <= out[i - 1]) {
        return InvalidMap(
            absl::StrCat("pair ", i, " of offset ", k, " does not ascend by output row"));
      }
      if (std::exchange(last_offset[in[i]], k) == k) {
        return InvalidMap(absl::StrCat("pair ", i, " is the second of input row ", in[i],
                                       " under offset ", k, "; allowed is one"));
      }
    }
  }
  return absl::OkStatus();
}

// What the flags promise: dataflows multiply the identity offset's rows without looking at its
// pairs, and mirror the grouping of a symmetric map.
absl::Status CheckFlags(const KernelMap& map) {
  const int identity = map.identity_offset();
  if (identity < -1 || identity >= map.num_offsets()) {
    return InvalidMap(
        absl::StrCat("identity offset ", identity, "; allowed are -1..", map.num_offsets() - 1));
  }
  if (identity >= 0 &&
      (map.num_inputs() != map.num_outputs() || map.num_pairs(identity) != map.num_outputs())) {
    return InvalidMap(absl::StrCat("identity offset ", identity, " has ", map.num_pairs(identity),
                                   " pairs of ", map.num_inputs(), " inputs and ",
                                   map.num_outputs(), " outputs; all three must be equal"));
  }
  const int last = map.num_offsets() - 1;
  for (int k = 0; map.symmetric() && k <= last; ++k) {
    if (map.num_pairs(k) != map.num_pairs(last - k)) {
      return InvalidMap(absl::StrCat("symmetric, but offsets ", k, " and ", last - k, " have ",
                                     map.num_pairs(k), " and ", map.num_pairs(last - k), " pairs"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTableMasks(const KernelMap& map, absl::Span<const int32_t> table,
                             absl::Span<const uint32_t> masks) {
  const int words = (map.num_offsets() + 31) / 32;
  for (int64_t row = 0; row < map.num_outputs(); ++row) {
    for (int k = 0; k < 32 * words; ++k) {
      const int32_t entry = k < map.num_offsets() ? table[row * map.num_offsets() + k] : -1;
      VOXCONV_RETURN_IF_ERROR(CheckMaskBit(row, k, masks[row * words + k / 32], k % 32, entry));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckArrays(const KernelMap& map, const ExecutionContext& context) {
  if (map.form() == MapForm::kPairs) {
    VOXCONV_ASSIGN_OR_RETURN(auto in, CopyToHost(map.pairs().in.array(), context));
    VOXCONV_ASSIGN_OR_RETURN(auto out, CopyToHost(map.pairs().out.array(), context));
    return CheckPairs(map, in, out);
  }
  if (map.form() == MapForm::kLookup) {
    VOXCONV_ASSIGN_OR_RETURN(const KernelMap found,
                             context.backend->map_ops().To(MapForm::kNeighbourTable, map, context));
    return CheckArrays(found, context);
  }
  VOXCONV_ASSIGN_OR_RETURN(auto table, CopyToHost(map.table().table.array(), context));
  VOXCONV_RETURN_IF_ERROR(CheckTableEntries(map, "table", table, /*positions=*/false));
  if (map.table().masks.empty()) return absl::OkStatus();
  VOXCONV_ASSIGN_OR_RETURN(auto masks, CopyToHost(map.table().masks.array(), context));
  return CheckTableMasks(map, table, masks);
}

struct ByteCounter {
  int64_t operator()(const PairList& pairs) const { return pairs.in.bytes() + pairs.out.bytes(); }
  int64_t operator()(const NeighbourTable& table) const {
    return table.table.bytes() + table.masks.bytes();
  }
  int64_t operator()(const NeighbourLookupPtr& lookup) const { return lookup->bytes(); }
  int64_t operator()(std::monostate) const { return 0; }
};

}  // namespace

absl::string_view ToString(MapForm form) {
  switch (form) {
    case MapForm::kPairs:
      return "pairs";
    case MapForm::kNeighbourTable:
      return "neighbour_table";
    case MapForm::kLookup:
      return "lookup";
    case MapForm::kNone:
      return "none";
  }
  return "?";
}

absl::Status InvalidMap(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("kernel map: ", what));
}

absl::Status CheckArraySize(absl::string_view name, int64_t size, int64_t expected) {
  if (size == expected) return absl::OkStatus();
  return InvalidMap(absl::StrCat(name, " has ", size, " entries instead of ", expected));
}

absl::Status CheckMaskBit(int64_t row, int k, uint32_t word, int bit, int32_t entry) {
  if (((word >> bit) & 1) == static_cast<uint32_t>(entry >= 0)) return absl::OkStatus();
  return InvalidMap(absl::StrCat("mask of row ", row, " is wrong at offset ", k));
}

absl::Status CheckTableEntries(const KernelMap& map, absl::string_view name,
                               absl::Span<const int32_t> table, bool positions) {
  const int num_offsets = map.num_offsets();
  std::vector<int64_t> count(num_offsets, 0);
  // Positions of different offsets differ, input rows may be the same.
  std::vector<bool> seen(positions ? map.num_pairs() : map.num_inputs() * num_offsets);
  for (size_t i = 0; i < table.size(); ++i) {
    const int k = static_cast<int>(i % num_offsets);
    const int64_t low = positions ? map.offset_ptr()[k] : 0;
    const int64_t high = positions ? map.offset_ptr()[k + 1] : map.num_inputs();
    if (table[i] == -1) continue;
    if (table[i] < low || table[i] >= high) {
      return InvalidMap(
          absl::StrCat(name, " entry ", i, " is ", table[i], ", outside ", low, "..", high));
    }
    const int64_t value = positions ? table[i] : int64_t{table[i]} * num_offsets + k;
    if (seen[value]) {
      return InvalidMap(absl::StrCat(name, " entry ", i, " is ", table[i],
                                     " as another entry of offset ", k, "; all must differ"));
    }
    seen[value] = true;
    ++count[k];
  }
  for (int k = 0; k < num_offsets; ++k) {
    if (count[k] != map.num_pairs(k)) {
      return InvalidMap(absl::StrCat(name, " has ", count[k], " pairs of offset ", k,
                                     " instead of ", map.num_pairs(k)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<PairBuffers> PairBuffers::Allocate(int64_t size, const ExecutionContext& context) {
  PairBuffers pairs;
  VOXCONV_ASSIGN_OR_RETURN(pairs.in, AllocateArray<int32_t>(size, context));
  VOXCONV_ASSIGN_OR_RETURN(pairs.out, AllocateArray<int32_t>(size, context));
  return pairs;
}

KernelMap::KernelMap() : KernelMap(0, 0, {0}, PairList()) {}

KernelMap::KernelMap(int64_t num_inputs, int64_t num_outputs, std::vector<int64_t> offset_ptr,
                     Storage storage)
    : num_inputs_(num_inputs),
      num_outputs_(num_outputs),
      num_offsets_(static_cast<int>(offset_ptr.size()) - 1),
      counts_(std::make_shared<Counts>(Counts{std::move(offset_ptr), nullptr})),
      storage_(std::move(storage)) {}

KernelMap::KernelMap(int64_t num_inputs, int64_t num_outputs, int num_offsets, NeighbourTable table)
    : num_inputs_(num_inputs),
      num_outputs_(num_outputs),
      num_offsets_(num_offsets),
      counts_(std::make_shared<Counts>()),
      storage_(std::move(table)) {}

KernelMap::KernelMap(int64_t num_inputs, int64_t num_outputs, int num_offsets,
                     NeighbourLookupPtr lookup)
    : num_inputs_(num_inputs),
      num_outputs_(num_outputs),
      num_offsets_(num_offsets),
      counts_(std::make_shared<Counts>()),
      storage_(std::move(lookup)) {}

KernelMap KernelMap::WithStorage(Storage storage) const {
  KernelMap map = *this;
  map.storage_ = std::move(storage);
  return map;
}

KernelMap KernelMap::Transposed(Storage storage) const {
  KernelMap map = WithStorage(std::move(storage));
  std::swap(map.num_inputs_, map.num_outputs_);
  return map;
}

int64_t KernelMap::bytes() const { return std::visit(ByteCounter{}, storage_); }

absl::Status KernelMap::StartCounting(const ExecutionContext& context) const {
  if (counts_known() || counts_->pending != nullptr) return absl::OkStatus();
  if (form() != MapForm::kNeighbourTable && form() != MapForm::kLookup) {
    return absl::FailedPreconditionError(
        "kernel map: its pairs were not counted, and its arrays "
        "were left out");
  }
  MapOps& ops = context.backend->map_ops();
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap table, ops.To(MapForm::kNeighbourTable, *this, context));
  VOXCONV_ASSIGN_OR_RETURN(counts_->pending, ops.StartCounting(table, context));
  return absl::OkStatus();
}

absl::Status KernelMap::EnsureCounts(const ExecutionContext& context) const {
  if (counts_known()) return absl::OkStatus();
  VOXCONV_RETURN_IF_ERROR(StartCounting(context));
  const std::shared_ptr<PendingCounts> pending = std::exchange(counts_->pending, nullptr);
  VOXCONV_ASSIGN_OR_RETURN(counts_->offset_ptr, pending->Take());
  VOXCONV_CHECK(static_cast<int>(counts_->offset_ptr.size()) == num_offsets_ + 1);
  return absl::OkStatus();
}

absl::Status KernelMap::CheckSizes() const {
  if (form() == MapForm::kNone) return InvalidMap("its arrays were left out");
  if (form() == MapForm::kLookup && std::get<NeighbourLookupPtr>(storage_) == nullptr) {
    return InvalidMap("its lookup is null");
  }
  VOXCONV_RETURN_IF_ERROR(CheckCounts(*this));
  if (form() == MapForm::kLookup) return absl::OkStatus();
  if (form() == MapForm::kPairs) {
    VOXCONV_RETURN_IF_ERROR(CheckArraySize("in", pairs().in.size(), num_pairs()));
    return CheckArraySize("out", pairs().out.size(), num_pairs());
  }
  if (num_offsets_ > 0 && num_outputs_ > INT64_MAX / num_offsets_) {
    return InvalidMap(
        absl::StrCat("a table of ", num_outputs_, " x ", num_offsets_, " entries is past 2^63"));
  }
  VOXCONV_RETURN_IF_ERROR(
      CheckArraySize("table", table().table.size(), num_outputs_ * num_offsets_));
  if (table().masks.empty()) return absl::OkStatus();
  const int64_t words = (num_offsets_ + 31) / 32;
  return CheckArraySize("masks", table().masks.size(), num_outputs_ * words);
}

absl::Status KernelMap::Validate(const ExecutionContext& context) const {
  // First, since counting reads the table.
  VOXCONV_RETURN_IF_ERROR(CheckSizes());
  VOXCONV_RETURN_IF_ERROR(EnsureCounts(context));
  VOXCONV_RETURN_IF_ERROR(CheckFlags(*this));
  return CheckArrays(*this, context);
}

}  // namespace voxconv
