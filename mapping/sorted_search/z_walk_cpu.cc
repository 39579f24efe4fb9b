// SPDX-License-Identifier: Apache-2.0
#include "voxconv/mapping/sorted_search/z_walk_cpu.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "voxconv/backends/cpu/pair_collector.h"

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

// A column's walk.
struct Walk {
  const uint64_t* source;
  int64_t source_size;
  const uint64_t* queries;
  uint64_t delta;                         // of the lowest offset
  std::array<uint64_t, kMaxHeight> rise;  // of the others above it
  std::array<Int3, kMaxHeight> offset;

  // The key of the lowest offset.
  uint64_t Key(int64_t query) const { return queries[query] + delta; }
  int64_t Base(int64_t query) const { return LowerBound(source, 0, source_size, Key(query)); }
};

// Queries whose bases are found before their pairs are: few enough for the L1 cache.
constexpr int64_t kChunk = 2048;
// The merge is a chain of dependent loads and comparisons; this many run at once, on equal parts of
// a chunk, to fill the time that each would wait.
constexpr int kLanes = 4;
// Source keys a query from which on skipping them costs less than passing them.
constexpr int64_t kGallopRatio = 8;

// One lane of the merge of queries with the source. A step advances one side, without a branch:
// which one is as good as random.
struct Merge {
  int64_t query, source;

  void Step(const Walk& walk, int64_t begin, int32_t* base) {
    const bool below = walk.source[source] < walk.Key(query);
    base[query - begin] = static_cast<int32_t>(source);
    source += below;
    query += !below;
  }
};

// base[i] = Base(begin + i) for the queries [begin, end), the first's being `position`.
void GallopToBases(const Walk& walk, int64_t begin, int64_t end, int64_t position, int32_t* base) {
  for (int64_t query = begin; query < end; ++query) {
    const uint64_t key = walk.Key(query);
    if (walk.source[position] < key) {
      position = Gallop(walk.source, position, walk.source_size, key);
    }
    base[query - begin] = static_cast<int32_t>(position);
  }
}

// The same, by passing every source key on the way.
void MergeToBases(const Walk& walk, int64_t begin, int64_t end, int32_t* base) {
  std::array<Merge, kLanes> lanes;
  std::array<int64_t, kLanes> stop;
  // Steps that every lane takes at least: those to its last query's base.
  int64_t steps = INT64_MAX;
  for (int i = 0; i < kLanes; ++i) {
    const int64_t first = begin + (end - begin) * i / kLanes;
    stop[i] = begin + (end - begin) * (i + 1) / kLanes;
    const int64_t last = std::max(first, stop[i] - 1);
    lanes[i] = {first, walk.Base(first)};
    steps = std::min(steps, last - first + walk.Base(last) - lanes[i].source);
  }
  for (; steps > 0; --steps) {
    for (Merge& lane : lanes) lane.Step(walk, begin, base);
  }
  for (int i = 0; i < kLanes; ++i) {
    while (lanes[i].query < stop[i]) lanes[i].Step(walk, begin, base);
  }
}

// base[i] = Base(begin + i) for the queries [begin, end), at most kChunk.
void FindBases(const Walk& walk, int64_t begin, int64_t end, int32_t* base) {
  const int64_t first = walk.Base(begin);
  if (walk.Base(end - 1) - first > kGallopRatio * (end - begin)) {
    GallopToBases(walk, begin, end, first, base);
  } else {
    MergeToBases(walk, begin, end, base);
  }
}

// Keeps of the queries [begin, end) those with a source key in the column's reach, and their
// bases; returns their number.
int64_t KeepCandidates(const Walk& walk, int64_t begin, int64_t end, uint64_t reach, int32_t* base,
                       int32_t* query) {
  int64_t count = 0;
  for (int64_t i = 0; i < end - begin; ++i) {
    const int32_t position = base[i];
    const bool near = walk.source[position] - walk.Key(begin + i) <= reach;
    base[count] = position;
    query[count] = static_cast<int32_t>(begin + i);
    count += near;
  }
  return count;
}

// `kDense`: between two offsets there is room for one voxel at most, so that each step up is a
// comparison and no loop. `kChecked`: sums may leave the coordinate range.
template <int kHeight, bool kDense, bool kChecked>
void RunWalk(const Walk& walk, int64_t begin, int64_t end, PairSlot* slots) {
  std::array<int32_t, kChunk> bases, queries;
  std::array<int32_t*, kHeight> in, out;
  for (int j = 0; j < kHeight; ++j) {
    in[j] = slots[j].in;
    out[j] = slots[j].out;
  }
  for (int64_t chunk = begin; chunk < end; chunk += kChunk) {
    const int64_t chunk_end = std::min(end, chunk + kChunk);
    FindBases(walk, chunk, chunk_end, bases.data());
    const int64_t candidates = KeepCandidates(walk, chunk, chunk_end, walk.rise[kHeight - 1],
                                              bases.data(), queries.data());
    for (int64_t i = 0; i < candidates; ++i) {
      const uint64_t lowest = walk.Key(queries[i]);
      int32_t position = bases[i];
      for (int j = 0; j < kHeight; ++j) {
        const uint64_t key = lowest + walk.rise[j];
        if constexpr (kDense) {
          if (j > 0) position += walk.source[position] < key;
        } else {
          while (walk.source[position] < key) ++position;
        }
        *in[j] = position;
        *out[j] = queries[i];
        bool hit = walk.source[position] == key;
        if (kChecked) hit = hit && IsNeighbour(key, walk.queries[queries[i]], walk.offset[j]);
        in[j] += hit;
        out[j] += hit;
      }
    }
  }
  for (int j = 0; j < kHeight; ++j) slots[j].count = in[j] - slots[j].in;
}

using WalkFunction = void (*)(const Walk&, int64_t begin, int64_t end, PairSlot*);

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
    Walk walk{search.source.keys.data(), search.source.size(), outputs.keys.data()};
    walk.delta = KeyDelta(geometry.InputOffset(column[0]));
    bool dense = true;
    for (int j = 0; j < height; ++j) {
      walk.offset[j] = geometry.InputOffset(column[j]);
      walk.rise[j] = KeyDelta(walk.offset[j]) - walk.delta;
      dense = dense && (j == 0 || walk.offset[j].z - walk.offset[j - 1].z <= spacing);
    }
    FunctionFor(height, dense, checked, std::make_integer_sequence<int, kMaxHeight>())(
        walk, begin, end, slots.data());
  };
  return CollectPairGroups(search.problem, search.symmetric, columns, probe,
                           {search.source.row_at(), outputs.row_at()}, context);
}

}  // namespace voxconv
