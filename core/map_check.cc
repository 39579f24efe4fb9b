// SPDX-License-Identifier: Apache-2.0
#include "voxconv/core/map_check.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "voxconv/core/map_ops.h"
#include "voxconv/core/status_macros.h"

namespace voxconv {
namespace {

// 64 bits, so that an offset added to a coordinate cannot wrap.
using Place = std::tuple<int64_t, int64_t, int64_t, int64_t>;

Place PlaceOf(const Coordinate& c, const Int3& offset) {
  return {c.b, int64_t{c.x} + offset.x, int64_t{c.y} + offset.y, int64_t{c.z} + offset.z};
}

// Rows of one set, and the same in ascending order of place with their numbers. They lie side by
// side: a walk through numbers alone would miss the cache at every step of a large set.
struct SortedRows {
  std::vector<Coordinate> rows;
  std::vector<Coordinate> ascending;
  std::vector<int32_t> order;  // the row of ascending[i]

  Place at(size_t i, const Int3& offset) const { return PlaceOf(ascending[i], offset); }
};

bool Before(const Coordinate& p, const Coordinate& q) {
  return std::tie(p.b, p.x, p.y, p.z) < std::tie(q.b, q.x, q.y, q.z);
}

absl::StatusOr<SortedRows> Sorted(const CoordinateSet& set, const ExecutionContext& context) {
  SortedRows sorted;
  VOXCONV_ASSIGN_OR_RETURN(sorted.rows, CopyToHost(set.rows(), context));
  sorted.order.resize(sorted.rows.size());
  std::iota(sorted.order.begin(), sorted.order.end(), 0);
  sorted.ascending = sorted.rows;
  // Most sets are sorted already.
  if (std::is_sorted(sorted.rows.begin(), sorted.rows.end(), Before)) return sorted;
  std::vector<std::pair<Coordinate, int32_t>> numbered;
  numbered.reserve(sorted.rows.size());
  for (const int32_t row : sorted.order) numbered.emplace_back(sorted.rows[row], row);
  std::sort(numbered.begin(), numbered.end(),
            [](const auto& p, const auto& q) { return Before(p.first, q.first); });
  for (size_t i = 0; i < numbered.size(); ++i) {
    std::tie(sorted.ascending[i], sorted.order[i]) = numbered[i];
  }
  return sorted;
}

// Of each output the input that it meets under `offset`, or -1. Adding one offset to all outputs
// keeps their order, so that one walk along both sets finds all of them.
void FindPartners(const SortedRows& inputs, const SortedRows& outputs, const Int3& offset,
                  std::vector<int32_t>& partners) {
  std::fill(partners.begin(), partners.end(), -1);
  size_t i = 0;
  for (size_t o = 0; o < outputs.order.size(); ++o) {
    const Place wanted = outputs.at(o, offset);
    while (i < inputs.order.size() && inputs.at(i, {}) < wanted) ++i;
    if (i == inputs.order.size()) return;
    if (inputs.at(i, {}) == wanted) partners[outputs.order[o]] = inputs.order[i];
  }
}

// The pairs of one map on the host, held against the coordinates that they stand for.
class HeldPairs {
 public:
  HeldPairs(const ConvGeometry& geometry, const SortedRows& inputs, const SortedRows& outputs,
            const std::vector<int32_t>& in, const std::vector<int32_t>& out,
            const std::vector<int64_t>& offset_ptr)
      : geometry_(geometry),
        inputs_(inputs),
        outputs_(outputs),
        in_(in),
        out_(out),
        offset_ptr_(offset_ptr),
        partners_(outputs.rows.size()) {}

  absl::Status Check() {
    for (int k = 0; k < geometry_.num_offsets(); ++k) {
      const absl::Status status = CheckOffset(k, geometry_.InputOffset(k));
      if (status.ok()) continue;
      return absl::InternalError(
          absl::StrCat("the kernel map is wrong: ", status.message(),
                       MatchesNegated() ? "; the map matches with offsets negated" : ""));
    }
    return absl::OkStatus();
  }

 private:
  bool MatchesNegated() {
    for (int k = 0; k < geometry_.num_offsets(); ++k) {
      const Int3& d = geometry_.InputOffset(k);
      if (!CheckOffset(k, {-d.x, -d.y, -d.z}).ok()) return false;
    }
    return true;
  }

  std::string Input(int32_t row) const {
    return absl::StrCat("input ", row, " ", ToString(inputs_.rows[row]));
  }
  std::string Output(int64_t row) const {
    return absl::StrCat("output ", row, " ", ToString(outputs_.rows[row]));
  }
  static std::string ToString(const Coordinate& c) {
    return absl::StrCat("(", c.b, ", ", c.x, ", ", c.y, ", ", c.z, ")");
  }

  // The pairs of offset k, which must be those that meet under `offset`.
  absl::Status CheckOffset(int k, const Int3& offset) {
    FindPartners(inputs_, outputs_, offset, partners_);
    const int64_t last = offset_ptr_[k + 1];
    int64_t i = offset_ptr_[k];
    for (int64_t o = 0; o < static_cast<int64_t>(partners_.size()); ++o) {
      const bool listed = i < last && out_[i] == o;
      if (partners_[o] < 0 && !listed) continue;
      if (listed && in_[i] == partners_[o]) {
        ++i;
        continue;
      }
      return absl::InternalError(absl::StrCat(
          "under offset ", k, " (", offset.x, ", ", offset.y, ", ", offset.z, ") ", Output(o), " ",
          listed ? absl::StrCat("meets ", Input(in_[i])) : std::string("has no pair"),
          "; by the definition it ",
          partners_[o] < 0 ? std::string("has none")
                           : absl::StrCat("meets ", Input(partners_[o]))));
    }
    if (i == last) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("pair ", i, " (", Input(in_[i]), ", ", Output(out_[i]),
                                            ") of offset ", k,
                                            " is a second one of its output, or out of order"));
  }

  const ConvGeometry& geometry_;
  const SortedRows &inputs_, &outputs_;
  const std::vector<int32_t>&in_, &out_;
  const std::vector<int64_t>& offset_ptr_;
  std::vector<int32_t> partners_;
};

absl::Status CheckRows(const std::vector<int32_t>& rows, int64_t size, const char* name) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] >= 0 && rows[i] < size) continue;
    return absl::InternalError(absl::StrCat("the kernel map is wrong: pair ", i, " has ", name,
                                            " row ", rows[i], "; allowed are rows 0 .. ",
                                            size - 1));
  }
  return absl::OkStatus();
}

int64_t RoundedDown(int64_t value, int64_t to) {
  const int64_t rest = value % to;
  return value - (rest < 0 ? rest + to : rest);
}

// Whether the voxel lies on the lattice and in the bounds of the layer's outputs.
bool IsOutput(const ConvGeometry& geometry, const Place& place) {
  const auto [b, x, y, z] = place;
  const Int3& t = geometry.output_tensor_stride();
  if (x % t.x != 0 || y % t.y != 0 || z % t.z != 0) return false;
  const std::optional<Box>& bounds = geometry.params().output_bounds;
  if (!bounds.has_value()) return true;
  const auto within = [](int64_t value, int64_t lo, int64_t hi) {
    return lo <= value && value <= hi;
  };
  return within(x / t.x, bounds->lo.x, bounds->hi.x) &&
         within(y / t.y, bounds->lo.y, bounds->hi.y) && within(z / t.z, bounds->lo.z, bounds->hi.z);
}

// By the definition: the inputs rounded down to the lattice, or every voxel of it that meets an
// input under some offset.
std::vector<Place> OutputsOf(const ConvGeometry& geometry, const std::vector<Coordinate>& inputs) {
  std::vector<Place> outputs;
  const GeometryParams& params = geometry.params();
  if (params.kind == ConvKind::kStrided && params.rule == OutputRule::kQuantize) {
    const Int3& t = geometry.output_tensor_stride();
    for (const Coordinate& c : inputs) {
      outputs.emplace_back(c.b, RoundedDown(c.x, t.x), RoundedDown(c.y, t.y),
                           RoundedDown(c.z, t.z));
    }
  } else {
    for (int k = 0; k < geometry.num_offsets(); ++k) {
      const Int3& d = geometry.InputOffset(k);
      for (const Coordinate& c : inputs) {
        const Place place = PlaceOf(c, {-d.x, -d.y, -d.z});
        if (IsOutput(geometry, place)) outputs.push_back(place);
      }
    }
  }
  std::sort(outputs.begin(), outputs.end());
  outputs.erase(std::unique(outputs.begin(), outputs.end()), outputs.end());
  return outputs;
}

}  // namespace

absl::Status CheckOutputsOnAllRows(const ConvGeometry& geometry, const CoordinateSet& inputs,
                                   const CoordinateSet& outputs, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<Coordinate> from, CopyToHost(inputs.rows(), context));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<Coordinate> rows, CopyToHost(outputs.rows(), context));
  const std::vector<Place> wanted = OutputsOf(geometry, from);
  for (size_t i = 0; i < std::min(rows.size(), wanted.size()); ++i) {
    if (PlaceOf(rows[i], {}) == wanted[i]) continue;
    const auto& [b, x, y, z] = wanted[i];
    return absl::InternalError(absl::StrCat("the output coordinates are wrong: row ", i, " is (",
                                            rows[i].b, ", ", rows[i].x, ", ", rows[i].y, ", ",
                                            rows[i].z, "); by the definition it is (", b, ", ", x,
                                            ", ", y, ", ", z, ")"));
  }
  if (rows.size() == wanted.size()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("the output coordinates are wrong: there are ",
                                          rows.size(), " rows; by the definition there are ",
                                          wanted.size()));
}

absl::Status CheckMapOnAllRows(const KernelMap& map, const MapProblem& problem,
                               const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(CheckQueriedMap(map, problem));
  // A table is looked at before its entries are taken for rows. Pairs are looked at below, which
  // tells more of them.
  if (map.form() != MapForm::kPairs) {
    if (const absl::Status valid = map.Validate(context); !valid.ok()) {
      return absl::InternalError(absl::StrCat("the kernel map is wrong: ", valid.message()));
    }
  }
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap pairs,
                           context.backend->map_ops().To(MapForm::kPairs, map, context));
  VOXCONV_ASSIGN_OR_RETURN(const auto in, CopyToHost(pairs.pairs().in.array(), context));
  VOXCONV_ASSIGN_OR_RETURN(const auto out, CopyToHost(pairs.pairs().out.array(), context));
  VOXCONV_RETURN_IF_ERROR(CheckRows(in, problem.inputs.size(), "input"));
  VOXCONV_RETURN_IF_ERROR(CheckRows(out, problem.outputs.size(), "output"));
  VOXCONV_ASSIGN_OR_RETURN(const SortedRows inputs, Sorted(problem.inputs, context));
  SortedRows other;
  const bool same = &problem.inputs == &problem.outputs;
  if (!same) {
    VOXCONV_ASSIGN_OR_RETURN(other, Sorted(problem.outputs, context));
  }
  const SortedRows& outputs = same ? inputs : other;
  VOXCONV_RETURN_IF_ERROR(
      HeldPairs(problem.geometry, inputs, outputs, in, out, pairs.offset_ptr()).Check());
  // What the map says of itself, such as its identity offset.
  const absl::Status valid = map.Validate(context);
  if (valid.ok()) return valid;
  return absl::InternalError(absl::StrCat("the kernel map is wrong: ", valid.message()));
}

}  // namespace voxconv
