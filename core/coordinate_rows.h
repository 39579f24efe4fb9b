// SPDX-License-Identifier: Apache-2.0
// The two layouts in which a mapping can read coordinates: the rows of the set, or four arrays.
#ifndef VOXCONV_CORE_COORDINATE_ROWS_H_
#define VOXCONV_CORE_COORDINATE_ROWS_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/check.h"
#include "voxconv/core/coordinate_set.h"
#include "voxconv/core/mapping.h"
#include "voxconv/core/options.h"

namespace voxconv {

// Views of [N] rows in either layout. Coordinates are in units of the finest voxel. The rows are in
// the memory of the set's backend, which the views do not own. Trivially copyable, so that kernels
// take them by value.
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

// Copies a set's rows into four arrays, [4, N], in the backend's memory: 16 bytes a row. Each
// backend has one such function. Queued on the context's stream. O(N). Errors of AllocateArray.
using SplitRows = absl::StatusOr<Array<int32_t>> (*)(const Array<Coordinate>& rows,
                                                     const ExecutionContext& context);

// A set's rows in one of the layouts. Refers to the set, which must outlive it. Copies share the
// four arrays.
class CoordinateRows {
 public:
  // The set's own rows, interleaved.
  explicit CoordinateRows(const CoordinateSet& set) : set_(&set) {}
  // Planar rows: `planes` holds the set's rows as four arrays, [4, N].
  CoordinateRows(const CoordinateSet& set, Array<int32_t> planes)
      : set_(&set), planar_(true), planes_(std::move(planes)) {}

  const CoordinateSet& set() const { return *set_; }
  int64_t size() const { return set_->size(); }
  bool planar() const { return planar_; }
  // Bytes of the four arrays; 0 for interleaved rows.
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

// Adds a mapping's option "coords", which says which layout its kernels read.
OptionSchema& AddCoordsOption(OptionSchema& schema);
// Whether that option asks for planar rows.
bool PlanarCoords(const Options& options);

// A mapping whose index is built of coordinate rows in either layout, with options "coords"
// (AddCoordsOption) and "symmetric". A plugin overrides BuildOfRows and QueryRows; the rows are
// split here, once for a set that is both input and output.
class RowsMapping : public Mapping {
 public:
  const Options& options() const final { return options_; }

 protected:
  // `split` is the backend's.
  RowsMapping(Options options, SplitRows split);

  // Builds the index of `inputs`. Queued on the context's stream. Never null with OK.
  virtual absl::StatusOr<std::unique_ptr<MapIndex>> BuildOfRows(
      const CoordinateRows& inputs, const ExecutionContext& context) const = 0;
  // Does all lookups of one problem in an index of BuildOfRows. Outputs are read from `outputs`. If
  // `symmetric`, half of the offsets are looked up and their pairs are mirrored. Queued on the
  // context's stream.
  virtual absl::StatusOr<KernelMap> QueryRows(const MapIndex& index, const MapProblem& problem,
                                              const CoordinateRows& outputs, bool symmetric,
                                              const ExecutionContext& context) const = 0;

 private:
  absl::StatusOr<std::unique_ptr<MapIndex>> DoBuildIndex(
      const CoordinateSet& inputs, const ExecutionContext& context) const final;
  absl::StatusOr<KernelMap> DoQuery(const MapIndex& index, const MapProblem& problem,
                                    const ExecutionContext& context) const final;

  Options options_;
  SplitRows split_;
  bool symmetric_;
  bool planar_;
};

}  // namespace voxconv

#endif  // VOXCONV_CORE_COORDINATE_ROWS_H_
