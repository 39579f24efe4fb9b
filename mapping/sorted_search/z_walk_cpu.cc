#include "mapping/sorted_search/z_walk_cpu.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "backends/cpu/pair_collector.h"

namespace voxconv {
namespace {

// Offsets found by one walk; a taller column of offsets takes several.
constexpr int kMaxHeight = 8;

// The offsets of one walk, ascending by z.
using Column = std::vector<int>;

std::vector<Column> MakeColumns(const ConvGeometry& geometry, bool symmetric) {
  std::vector<int> offsets(NumProbedOffsets(geometry, symmetric));
  for (size_t k = 0; k < offsets.size(); ++k) offsets[k] = static_cast<int>(k);
  const auto position = [&](int k) {
    const Int3& d = geometry.InputOffset(k);
    return std::array<int32_t, 3>{d.x, d.y, d.z};
  };
  std::sort(offsets.begin(), offsets.end(),
            [&](int a, int b) { return position(a) < position(b); });
  std::vector<Column> columns;
  for (size_t i = 0; i < offsets.size(); ++i) {
    const auto [x, y, z] = position(offsets[i]);
    const bool same = i > 0 && position(offsets[i - 1])[0] == x && position(offsets[i - 1])[1] == y;
    if (!same || columns.back().size() == kMaxHeight) columns.emplace_back();
    columns.back().push_back(offsets[i]);
  }
  return columns;
}

// A column's walk over queries [begin, end).
struct Walk {
  const uint64_t* source;
  int64_t source_size;
  const uint64_t* queries;
  int64_t begin, end;
  uint64_t delta;                         // of the lowest offset
  std::array<uint64_t, kMaxHeight> rise;  // of the others above it
  std::array<Int3, kMaxHeight> offset;
};

// `kDense`: between two offsets there is room for one voxel at most, so that each step up is a
// comparison and no loop. `kChecked`: sums may leave the coordinate range.
template <int kHeight, bool kDense, bool kChecked>
void RunWalk(const Walk& walk, PairSlot* slots) {
  const uint64_t* const source = walk.source;
  std::array<int32_t*, kHeight> in, out;
  std::array<int64_t, kHeight> count{};
  for (int j = 0; j < kHeight; ++j) {
    in[j] = slots[j].in;
    out[j] = slots[j].out;
  }
  int64_t base = LowerBound(source, 0, walk.source_size, walk.queries[walk.begin] + walk.delta);
  for (int64_t query = walk.begin; query < walk.end; ++query) {
    const uint64_t lowest = walk.queries[query] + walk.delta;
    // Most steps of the merge are 0 to 2 long, at random: taken without branches.
    base += source[base] < lowest;
    base += source[base] < lowest;
    if (source[base] < lowest) base = Gallop(source, base, walk.source_size, lowest);
    int64_t position = base;
    for (int j = 0; j < kHeight; ++j) {
      const uint64_t key = lowest + walk.rise[j];
      if constexpr (kDense) {
        if (j > 0) position += source[position] < key;
      } else {
        while (source[position] < key) ++position;
      }
      in[j][count[j]] = static_cast<int32_t>(position);
      out[j][count[j]] = static_cast<int32_t>(query);
      bool hit = source[position] == key;
      if (kChecked) hit = hit && IsNeighbour(key, walk.queries[query], walk.offset[j]);
      count[j] += hit;
    }
  }
  for (int j = 0; j < kHeight; ++j) slots[j].count = count[j];
}

using WalkFunction = void (*)(const Walk&, PairSlot*);

template <int... kHeights>
WalkFunction FunctionFor(int height, bool dense, bool checked,
                         std::integer_sequence<int, kHeights...>) {
  static constexpr WalkFunction kDense[] = {RunWalk<kHeights + 1, true, false>...};
  static constexpr WalkFunction kSparse[] = {RunWalk<kHeights + 1, false, false>...};
  static constexpr WalkFunction kChecked[] = {RunWalk<kHeights + 1, false, true>...};
  return (checked ? kChecked : dense ? kDense : kSparse)[height - 1];
}

}  // namespace

absl::StatusOr<KernelMap> ZWalkSearch(const SortedSearch& search, const SortedKeys& outputs,
                                      const ExecutionContext& context) {
  const ConvGeometry& geometry = search.problem.geometry;
  const std::vector<Column> columns = MakeColumns(geometry, search.symmetric);
  const bool checked = !search.problem.outputs.StaysInRange(geometry.input_offsets());
  const int32_t spacing = search.problem.inputs.tensor_stride().z;
  const auto probe = [&](int c, int64_t begin, int64_t end, absl::Span<PairSlot> slots) {
    const Column& column = columns[c];
    const int height = static_cast<int>(column.size());
    Walk walk{search.source.keys.data(), search.source.size(), outputs.keys.data(), begin, end};
    walk.delta = KeyDelta(geometry.InputOffset(column[0]));
    bool dense = true;
    for (int j = 0; j < height; ++j) {
      walk.offset[j] = geometry.InputOffset(column[j]);
      walk.rise[j] = KeyDelta(walk.offset[j]) - walk.delta;
      dense = dense && (j == 0 || walk.offset[j].z - walk.offset[j - 1].z <= spacing);
    }
    FunctionFor(height, dense, checked, std::make_integer_sequence<int, kMaxHeight>())(
        walk, slots.data());
  };
  return CollectPairGroups(search.problem, search.symmetric, columns, probe,
                           {search.source.row_at(), outputs.row_at()}, context);
}

}  // namespace voxconv
