// SPDX-License-Identifier: Apache-2.0
#include "voxconv/verify/difference.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

namespace voxconv::verify {
namespace {

// Fewer elements than these may fit a pattern of their sums by chance.
constexpr size_t kFewestElements = 8;
// Rows whose sums are looked at.
constexpr size_t kMostPatternRows = 2000;
// Of a sum, for the rounding of 16-bit outputs.
constexpr double kPatternCloseness = 0.01;

std::string VoxelText(const Coordinate& c) {
  return absl::StrCat("(", c.b, ", ", c.x, ", ", c.y, ", ", c.z, ")");
}

// The pairs of some output rows: (offset, input row).
class PairsOfRows {
 public:
  PairsOfRows(const reference::KernelMap& map, const std::vector<int64_t>& rows) {
    for (const int64_t row : rows) pairs_.try_emplace(row);
    for (int k = 0; k < map.num_offsets; ++k) {
      for (int64_t i = map.offset_ptr[k]; i < map.offset_ptr[k + 1]; ++i) {
        const auto found = pairs_.find(map.out[i]);
        if (found != pairs_.end()) found->second.emplace_back(k, map.in[i]);
      }
    }
  }
  const std::vector<std::pair<int, int32_t>>& of(int64_t row) const { return pairs_.at(row); }

 private:
  absl::flat_hash_map<int64_t, std::vector<std::pair<int, int32_t>>> pairs_;
};

// What the wrong elements tell of the sums behind them.
class SumPatterns {
 public:
  SumPatterns(const Difference& difference, const LayerData& layer,
              const std::vector<int64_t>& rows)
      : difference_(difference),
        layer_(layer),
        num_offsets_(layer.problem.map.num_offsets),
        pairs_(layer.problem.map, rows) {
    const std::set<int64_t> known(rows.begin(), rows.end());
    for (const int64_t i : difference.wrong) {
      if (known.contains(i / difference.channels)) elements_.push_back(i);
    }
  }

  // The only offset whose products are missing in every wrong element.
  std::optional<int> LostOffset() const {
    for (int k = 0; k < num_offsets_; ++k) {
      if (ForAll([&](int64_t i) {
            const double product = ProductOf(i, k, k).value_or(0);
            return product != 0 && Close(i, difference_.expected[i] - product);
          })) {
        return k;
      }
    }
    return std::nullopt;
  }

  // Whether every wrong element is what the weights of offset K-1-k in the place of k give.
  bool IsNegated() const {
    return ForAll([&](int64_t i) {
      double sum = 0;
      for (const auto& [k, row] : pairs_.of(i / difference_.channels)) {
        sum += *ProductOf(i, k, num_offsets_ - 1 - k);
      }
      return Close(i, sum);
    });
  }

 private:
  template <typename Holds>
  bool ForAll(const Holds& holds) const {
    return elements_.size() >= kFewestElements &&
           std::all_of(elements_.begin(), elements_.end(), holds);
  }

  bool Close(int64_t i, double value) const {
    const double scale = std::max(std::abs(difference_.expected[i]), std::abs(value));
    return std::abs(difference_.output[i] - value) <= kPatternCloseness * scale;
  }

  // The product of element i's input under offset k with the weights of offset `weights`. Nothing
  // if the row has no pair there.
  std::optional<double> ProductOf(int64_t i, int k, int weights) const {
    const auto& pairs = pairs_.of(i / difference_.channels);
    const auto pair = std::find_if(pairs.begin(), pairs.end(),
                                   [k](const auto& candidate) { return candidate.first == k; });
    if (pair == pairs.end()) return std::nullopt;
    const int64_t c_out = difference_.channels;
    const float* x = layer_.features.data() + pair->second * layer_.c_in;
    const float* w = layer_.weights.data() + weights * layer_.c_in * c_out + i % c_out;
    double sum = 0;
    for (int64_t c = 0; c < layer_.c_in; ++c) sum += double{x[c]} * double{w[c * c_out]};
    return sum;
  }

  const Difference& difference_;
  const LayerData& layer_;
  const int num_offsets_;
  PairsOfRows pairs_;
  std::vector<int64_t> elements_;
};

std::vector<int64_t> WrongRows(const Difference& difference) {
  std::vector<int64_t> rows;
  for (const int64_t i : difference.wrong) {
    const int64_t row = i / difference.channels;
    if (rows.empty() || rows.back() != row) rows.push_back(row);
  }
  return rows;
}

// "; the last 16 rows": which rows are wrong, if not all of them.
std::string RowPattern(const std::vector<int64_t>& rows, int64_t num_rows) {
  const auto count = static_cast<int64_t>(rows.size());
  if (count == num_rows || rows.back() - rows.front() + 1 != count) return "";
  const std::string number = count == 1 ? "row" : absl::StrCat(count, " rows");
  if (rows.back() == num_rows - 1) return absl::StrCat("; the last ", number);
  if (count == 1) return "";
  if (rows.front() == 0) return absl::StrCat("; the first ", number);
  return absl::StrCat("; rows ", rows.front(), " .. ", rows.back());
}

// "; channels 4 .. 7": which channels are wrong, if not all of them.
std::string ChannelPattern(const Difference& difference) {
  std::set<int64_t> channels;
  for (const int64_t i : difference.wrong) channels.insert(i % difference.channels);
  const auto count = static_cast<int64_t>(channels.size());
  const int64_t first = *channels.begin(), last = *channels.rbegin();
  if (count == difference.channels || last - first + 1 != count) return "";
  if (first == last) return absl::StrCat("; channel ", first, " alone");
  return absl::StrCat("; channels ", first, " .. ", last);
}

std::string SumPattern(const Difference& difference, const LayerData& layer,
                       std::vector<int64_t> rows) {
  if (rows.size() > kMostPatternRows) rows.resize(kMostPatternRows);
  const SumPatterns patterns(difference, layer, rows);
  if (const std::optional<int> k = patterns.LostOffset(); k.has_value()) {
    const Int3& offset = layer.problem.geometry.InputOffset(*k);
    return absl::StrCat("; the products of offset ", *k, " (", offset.x, ", ", offset.y, ", ",
                        offset.z, ") are missing");
  }
  return patterns.IsNegated() ? "; it matches with offsets negated" : "";
}

}  // namespace

std::string WorstElement(const Difference& difference, const LayerData* layer) {
  const int64_t row = difference.worst / difference.channels;
  const std::string voxel =
      layer == nullptr ? "" : absl::StrCat(" ", VoxelText(layer->problem.outputs[row]));
  return absl::StrCat("row ", row, voxel, ", channel ", difference.worst % difference.channels,
                      " is ", difference.output[difference.worst]);
}

std::string DescribePattern(const Difference& difference, const LayerData* layer) {
  const auto num_rows = static_cast<int64_t>(difference.output.size()) / difference.channels;
  const std::vector<int64_t> rows = WrongRows(difference);
  std::string text = absl::StrCat(difference.wrong.size(), " of ", difference.output.size(),
                                  " elements differ, in ", rows.size(), " of ", num_rows, " rows",
                                  RowPattern(rows, num_rows), ChannelPattern(difference));
  const bool all_nan = std::all_of(difference.wrong.begin(), difference.wrong.end(),
                                   [&](int64_t i) { return std::isnan(difference.output[i]); });
  if (all_nan) {
    absl::StrAppend(&text, "; all of these are NaN, which is what nothing has written to");
  } else if (layer != nullptr) {
    absl::StrAppend(&text, SumPattern(difference, *layer, rows));
  }
  return text;
}

}  // namespace voxconv::verify
