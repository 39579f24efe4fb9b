// SPDX-License-Identifier: Apache-2.0
// Open addressing (sector_probing.cuh) of bricks: the voxels of 2 x 2 x 2 places of the lattice
// that rows lie on. A slot has a brick's key, a bit for each of its cells that has a row, and room
// for eight rows.
//
// A kernel of 3 or less reaches eight bricks from any row, and fewer from many, so a row's 27
// lookups take eight searches: eight lanes of a warp make them side by side, and then a lane for
// each offset reads its cell from them.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/numeric/bits.h"
#include "voxconv/backends/cuda/coordinate_rows.cuh"
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/neighbour_query.cuh"
#include "voxconv/core/coordinate_key.h"
#include "voxconv/mapping/hash/hash_table_cuda.h"
#include "voxconv/mapping/hash/sector_probing.cuh"

namespace voxconv {
namespace {

using sector_probing::Probes;

constexpr int kThreads = 256;
constexpr int kCells = 8;
// Slots there can be: a number of 31 bits. Still one and more for each of the most rows.
constexpr int64_t kMaxCapacity = int64_t{1} << 31;

// Bits 0, 2 and 4 of a number, next to each other.
__device__ inline int Compact(int bits) { return (bits & 1) | (bits >> 1 & 2) | (bits >> 2 & 4); }

// The bits of a packed key that tell a brick's cells apart, one for each axis.
struct CellBits {
  int x, y, z;

  constexpr uint64_t mask() const { return uint64_t{1} << x | uint64_t{1} << y | uint64_t{1} << z; }
  // As bits 4, 2 and 0.
  __device__ int Spread(uint64_t key) const {
    return static_cast<int>((key >> x & 1) << 4 | (key >> y & 1) << 2 | (key >> z & 1));
  }
};

struct Table {
  Probes probes;
  CellBits cells;
  uint64_t* keys;   // [capacity]
  uint32_t* masks;  // [capacity], by slot: bit c is set if cell c has a row
  int32_t* rows;    // [capacity, kCells], written where the bit is set

  __device__ int Find(uint64_t brick) const {
    const auto* const sectors = reinterpret_cast<const ulonglong2*>(keys);
    return static_cast<int>(sector_probing::FindSlot(probes, sectors, brick));
  }
  __device__ int32_t Row(int slot, int cell) const {
    return __ldg(rows + int64_t{slot} * kCells + cell);
  }
};

// One lookup, for QueryNeighbours.
struct Lookup {
  Table table;

  __device__ int32_t operator()(const Coordinate&, uint64_t key) const {
    const int slot = table.Find(key & ~table.cells.mask());
    const int cell = Compact(table.cells.Spread(key));
    const bool found = slot >= 0 && (__ldg(table.masks + slot) >> cell & 1) != 0;
    return found ? table.Row(slot, cell) : -1;
  }
};

__global__ void __launch_bounds__(kThreads)
    InsertKernel(const InterleavedRows inputs, int64_t size, const Table table) {
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= size) return;
  const uint64_t key = PackKey(LoadRow(inputs, row));
  const int64_t slot = sector_probing::ClaimSlot(
      table.probes, reinterpret_cast<unsigned long long*>(table.keys), key & ~table.cells.mask());
  const int cell = Compact(table.cells.Spread(key));
  atomicOr(table.masks + slot, 1u << cell);
  table.rows[slot * kCells + cell] = static_cast<int32_t>(row);
}

constexpr int kMaxWindowOffsets = 32;
constexpr int kWindowPlaces = 3;  // of offsets along an axis

// Offsets that reach at most two bricks along each axis. Places are counted along each axis from
// the first offset's, in the unit of the lattice. A place of three axes has two bits for each: x
// are bits 4 and 5, z bits 0 and 1.
struct Window {
  int64_t num_rows;
  int num_offsets;                   // K
  uint64_t first;                    // from a row's key to that at place 0
  uint64_t step_x, step_y, step_z;   // from a brick's key to the next one's
  int last;                          // the place of the largest offset on each axis
  uint8_t place[kMaxWindowOffsets];  // by offset
};

constexpr int kLanesOfRow = 8;  // one for each brick
constexpr int kRowsOfWarp = 32 / kLanesOfRow;
constexpr int kRowsOfBlock = kThreads / kLanesOfRow;

// What a lane has found for its row: the brick that is the lane's.
struct Found {
  int place;      // the cell that place 0 is of the first brick, as a place
  int slot;       // or -1
  uint32_t mask;  // of the slot, or 0
};

__device__ inline Found FindBrick(const Table& table, const Coordinate& row, const Window& window) {
  const int brick = static_cast<int>(threadIdx.x) % kLanesOfRow;
  const uint64_t key = PackKey(row) + window.first;
  const int place = table.cells.Spread(key);
  Found found{place, -1, 0};
  // Not a brick that no offset reaches.
  if ((brick & ~Compact((place + window.last) >> 1)) != 0) return found;
  found.slot =
      table.Find((key & ~table.cells.mask()) + ((brick & 4) != 0 ? window.step_x : 0) +
                 ((brick & 2) != 0 ? window.step_y : 0) + ((brick & 1) != 0 ? window.step_z : 0));
  if (found.slot >= 0) found.mask = __ldg(table.masks + found.slot);
  return found;
}

// The neighbour table and masks of kRowsOfWarp rows by each warp.
__global__ void __launch_bounds__(kThreads)
    WindowKernel(const Table table, const InterleavedRows outputs,
                 const __grid_constant__ Window window, int32_t* to, uint32_t* masks) {
  constexpr unsigned kAllLanes = ~0u;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t first = int64_t{blockIdx.x} * kRowsOfBlock + warp * kRowsOfWarp;
  const int64_t row = first + lane / kLanesOfRow;
  Found found{0, -1, 0};
  if (row < window.num_rows) found = FindBrick(table, LoadRow(outputs, row), window);
  __syncwarp();
  const bool has_offset = lane < window.num_offsets;
  const int offset_place = has_offset ? window.place[lane] : 0;
  uint32_t mask = 0;  // of row first + lane
#pragma unroll
  for (int r = 0; r < kRowsOfWarp; ++r) {
    const int place = __shfl_sync(kAllLanes, found.place, r * kLanesOfRow) + offset_place;
    const int from = r * kLanesOfRow + Compact(place >> 1), cell = Compact(place);
    const uint32_t brick_mask = __shfl_sync(kAllLanes, found.mask, from);
    const int slot = __shfl_sync(kAllLanes, found.slot, from);
    const bool hit = has_offset && (brick_mask >> cell & 1) != 0;
    const int32_t entry = hit ? table.Row(slot, cell) : -1;
    const uint32_t hits = __ballot_sync(kAllLanes, hit);
    if (lane == r) mask = hits;
    if (has_offset && first + r < window.num_rows) {
      to[(first + r) * window.num_offsets + lane] = entry;
    }
  }
  if (lane < kRowsOfWarp && first + lane < window.num_rows) masks[first + lane] = mask;
}

// The places of offsets along one axis, `unit` apart. Empty if they are too many or lie between
// places of the lattice.
class AxisPlaces {
 public:
  AxisPlaces(absl::Span<const Int3> offsets, int axis, int unit_bits)
      : axis_(axis), unit_(int32_t{1} << unit_bits), first_(offsets[0][axis]) {
    for (const Int3& offset : offsets) first_ = std::min(first_, offset[axis]);
    for (const Int3& offset : offsets) {
      fits_ = fits_ && offset[axis] % unit_ == 0;
      last_ = std::max(last_, PlaceOf(offset));
    }
    fits_ = fits_ && first_ % unit_ == 0 && last_ < kWindowPlaces;
  }
  bool fits() const { return fits_; }
  int32_t first() const { return first_; }
  int last() const { return last_; }
  int PlaceOf(const Int3& offset) const { return (offset[axis_] - first_) / unit_; }

 private:
  int axis_;
  int32_t unit_;
  int32_t first_;
  int last_ = 0;
  bool fits_ = true;
};

// nullopt if there are more offsets, or they reach farther, than a window takes.
std::optional<Window> WindowOf(absl::Span<const Int3> offsets, const Int3& unit_bits) {
  if (offsets.empty() || offsets.size() > kMaxWindowOffsets) return std::nullopt;
  const AxisPlaces x(offsets, 0, unit_bits.x), y(offsets, 1, unit_bits.y),
      z(offsets, 2, unit_bits.z);
  if (!x.fits() || !y.fits() || !z.fits()) return std::nullopt;
  Window window{};
  window.num_offsets = static_cast<int>(offsets.size());
  window.first = KeyDelta({x.first(), y.first(), z.first()});
  window.step_x = KeyDelta({2 << unit_bits.x, 0, 0});
  window.step_y = KeyDelta({0, 2 << unit_bits.y, 0});
  window.step_z = KeyDelta({0, 0, 2 << unit_bits.z});
  window.last = x.last() << 4 | y.last() << 2 | z.last();
  for (size_t k = 0; k < offsets.size(); ++k) {
    window.place[k] = static_cast<uint8_t>(x.PlaceOf(offsets[k]) << 4 | y.PlaceOf(offsets[k]) << 2 |
                                           z.PlaceOf(offsets[k]));
  }
  return window;
}

class BrickTable final : public HashTableCuda {
 public:
  BrickTable(const Table& table, const Int3& unit_bits, Array<uint64_t> slots, Array<int32_t> rows)
      : table_(table), unit_bits_(unit_bits), slots_(std::move(slots)), rows_(std::move(rows)) {}

  int64_t bytes() const override { return slots_.bytes() + rows_.bytes(); }

  absl::StatusOr<KernelMap> Query(const MapProblem& problem, const CoordinateRows& outputs,
                                  bool symmetric, const ExecutionContext& context) const override {
    VOXCONV_CHECK(!outputs.planar());
    const absl::Span<const Int3> offsets = problem.geometry.input_offsets();
    std::optional<Window> window = WindowOf(offsets, unit_bits_);
    // Bricks beside rows at the end of the range may have keys of others, which no offset reads.
    if (!window.has_value() || symmetric || !problem.outputs.StaysInRange(offsets)) {
      return QueryNeighbours(Lookup{table_}, problem, symmetric, context);
    }
    window->num_rows = problem.outputs.size();
    VOXCONV_ASSIGN_OR_RETURN(NeighbourArrays arrays, AllocateNeighbours(problem, context));
    VOXCONV_LAUNCH(WindowKernel, GridFor(window->num_rows, kRowsOfBlock), kThreads, 0, context,
                   table_, InterleavedRows{problem.outputs.rows().data()}, *window,
                   arrays.table.data(), arrays.masks.data());
    if (Counters* counters = context.counters()) {
      counters->queries += window->num_rows * kLanesOfRow;
    }
    return MakeNeighbourMap(problem, std::move(arrays));
  }

 private:
  Table table_;
  Int3 unit_bits_;
  Array<uint64_t> slots_;  // keys, then masks
  Array<int32_t> rows_;
};

// Low bits that all coordinates of an axis have in common, less where a key has no room for them.
int UnitBits(int32_t stride) {
  return std::min(absl::countr_zero(static_cast<uint32_t>(stride)), kKeyAxisBits - 2);
}

}  // namespace

absl::StatusOr<HashTableCudaPtr> BuildBricksCuda(const CoordinateSet& inputs, double load_factor,
                                                 const ExecutionContext& context) {
  // There are at most as many bricks as rows. At least one slot stays empty and ends every search.
  const auto wanted = static_cast<uint64_t>(static_cast<double>(inputs.size()) / load_factor) + 1;
  const int64_t capacity = std::min(
      static_cast<int64_t>(absl::bit_ceil(std::max<uint64_t>(wanted, sector_probing::kSector))),
      kMaxCapacity);
  const Int3& stride = inputs.tensor_stride();
  const Int3 unit_bits{UnitBits(stride.x), UnitBits(stride.y), UnitBits(stride.z)};
  VOXCONV_ASSIGN_OR_RETURN(Array<uint64_t> slots,
                           AllocateArray<uint64_t>(capacity + capacity / 2, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> rows, AllocateArray<int32_t>(capacity * kCells, context));
  const Table table{
      .probes = {static_cast<uint32_t>(capacity / sector_probing::kSector - 1),
                 unit_bits.z + 1 + sector_probing::kSectorBits},
      .cells = {2 * kKeyAxisBits + unit_bits.x, kKeyAxisBits + unit_bits.y, unit_bits.z},
      .keys = slots.data(),
      .masks = reinterpret_cast<uint32_t*>(slots.data() + capacity),
      .rows = rows.data()};
  static_assert(kEmptyKey == 0);
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(slots.data(), 0, slots.bytes(), *context.stream));
  VOXCONV_LAUNCH(InsertKernel, GridFor(inputs.size(), kThreads), kThreads, 0, context,
                 InterleavedRows{inputs.rows().data()}, inputs.size(), table);
  return std::make_unique<BrickTable>(table, unit_bits, std::move(slots), std::move(rows));
}

}  // namespace voxconv
