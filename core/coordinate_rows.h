// The coordinates of a set as a mapping reads them: in its own rows or as four arrays.
#ifndef VOXCONV_CORE_COORDINATE_ROWS_H_
#define VOXCONV_CORE_COORDINATE_ROWS_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "core/backend.h"
#include "core/check.h"
#include "core/coordinate_set.h"
#include "core/mapping.h"
#include "core/options.h"

namespace voxconv {

// Views of both layouts, [N] rows in voxels of the set's tensor stride (core/coordinate_set.h), in
// the memory of the set's backend. Trivially copyable: kernels take them by value.
struct InterleavedRows {  // b0 x0 y0 z0 b1 x1 ...
  const Coordinate* rows;
  constexpr Coordinate operator[](int64_t i) const { return rows[i]; }
};
struct PlanarRows {  // b0 b1 ... | x0 x1 ... | y0 y1 ... | z0 z1 ... (Luo & Lai, Section III-A)
  const int32_t* values;
  int64_t size;
  constexpr Coordinate operator[](int64_t i) const {
    return {values[i], values[size + i], values[2 * size + i], values[3 * size + i]};
  }
};

// Makes the four arrays of a set's rows, [4, N], in the backend's memory. O(N), 16 bytes a row.
// Queued on the context's stream. Each backend has one.
using SplitRows = absl::StatusOr<Array<int32_t>> (*)(const Array<Coordinate>& rows,
                                                     const ExecutionContext& context);

// Refers to the set; shares ownership of the arrays, if it has any.
class CoordinateRows {
 public:
  // The set's own, interleaved.
  explicit CoordinateRows(const CoordinateSet& set) : set_(&set) {}
  // Planar: `planes` holds the set's rows as four arrays, [4, N].
  CoordinateRows(const CoordinateSet& set, Array<int32_t> planes)
      : set_(&set), planar_(true), planes_(std::move(planes)) {}

  const CoordinateSet& set() const { return *set_; }
  int64_t size() const { return set_->size(); }
  bool planar() const { return planar_; }
  // Beside the set's own.
  int64_t bytes() const { return planes_.bytes(); }

  // visitor(InterleavedRows) or visitor(PlanarRows); both must return the same type.
  template <typename Visitor>
  auto Visit(const Visitor& visitor) const {
    if (planar_) return visitor(PlanarRows{planes_.data(), size()});
    return visitor(InterleavedRows{set_->rows().data()});
  }

 private:
  const CoordinateSet* set_;
  bool planar_ = false;
  SharedArray<int32_t> planes_;
};

// A mapping's option "coords", which says what its kernels read.
OptionSchema& AddCoordsOption(OptionSchema& schema);
bool PlanarCoords(const Options& options);

// The set's rows as they are, or split by `split` if `planar`.
absl::StatusOr<CoordinateRows> RowsOf(const CoordinateSet& set, bool planar, SplitRows split,
                                      const ExecutionContext& context);

// An index and the rows that it was built of, which serve a query of the same set.
class IndexOfRows final : public MapIndex {
 public:
  IndexOfRows(CoordinateRows rows, SplitRows split, std::unique_ptr<MapIndex> index)
      : rows_(std::move(rows)), split_(split), index_(std::move(index)) {}

  int64_t bytes() const override { return index_->bytes() + rows_.bytes(); }
  const MapIndex& index() const { return *index_; }
  // Of the layout of the index' own. Records Stage::kIndexBuild for what it splits.
  absl::StatusOr<CoordinateRows> RowsOf(const CoordinateSet& set,
                                        const ExecutionContext& context) const;

 private:
  CoordinateRows rows_;
  SplitRows split_;
  std::unique_ptr<MapIndex> index_;
};

}  // namespace voxconv

#endif  // VOXCONV_CORE_COORDINATE_ROWS_H_
