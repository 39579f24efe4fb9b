// SPDX-License-Identifier: Apache-2.0
#include "voxconv/verify/sampled_rows.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/reference_cpu/layers.h"

namespace voxconv::verify {
namespace {

constexpr double kProducts = 5e7;  // of the reference on one core: about a tenth of a second
constexpr int64_t kFewestRows = 50, kMostRows = 1000;

// The part of a convolution that makes some of its output rows.
struct Part {
  reference::KernelMap map;
  Operands operands;
};

Part PartOf(const reference::KernelMap& map, const Operands& operands,
            const std::vector<int64_t>& rows) {
  Part part{{.num_offsets = map.num_offsets, .offset_ptr = {0}, .in = {}, .out = {}},
            {.shape = operands.shape,
             .precision = operands.precision,
             .features = {},
             .weights = operands.weights}};
  std::vector<int32_t> new_row(operands.shape.num_outputs, -1);
  for (size_t i = 0; i < rows.size(); ++i) new_row[rows[i]] = static_cast<int32_t>(i);
  std::vector<int32_t> new_input(operands.shape.num_inputs, -1);
  int32_t inputs = 0;
  const int64_t c_in = operands.shape.c_in;
  for (int k = 0; k < map.num_offsets; ++k) {
    for (int64_t i = map.offset_ptr[k]; i < map.offset_ptr[k + 1]; ++i) {
      if (new_row[map.out[i]] < 0) continue;
      int32_t& input = new_input[map.in[i]];
      if (input < 0) {
        input = inputs++;
        const auto first = operands.features.begin() + map.in[i] * c_in;
        part.operands.features.insert(part.operands.features.end(), first, first + c_in);
      }
      part.map.in.push_back(input);
      part.map.out.push_back(new_row[map.out[i]]);
    }
    part.map.offset_ptr.push_back(static_cast<int64_t>(part.map.in.size()));
  }
  part.operands.shape.num_inputs = inputs;
  part.operands.shape.num_outputs = static_cast<int64_t>(rows.size());
  return part;
}

// The first row with an element that is past its bound, or -1. Written so that a NaN is past it.
int64_t FirstWrongRow(const std::vector<float>& output, const Expected& expected) {
  for (size_t i = 0; i < output.size(); ++i) {
    if (std::abs(output[i] - expected.values[i]) <= expected.tolerances[i].element) continue;
    return static_cast<int64_t>(i) / expected.channels;
  }
  return -1;
}

}  // namespace

std::vector<int64_t> SpreadRows(int64_t rows, int64_t limit) {
  std::vector<int64_t> spread(std::min(rows, limit));
  const auto last = static_cast<int64_t>(spread.size()) - 1;
  for (int64_t i = 0; i <= last; ++i) spread[i] = last == 0 ? 0 : i * (rows - 1) / last;
  return spread;
}

RowSample::RowSample(const reference::KernelMap& map, const Operands& operands)
    : num_outputs_(operands.shape.num_outputs) {
  const double products = static_cast<double>(map.num_offsets) *
                          static_cast<double>(operands.shape.c_in * operands.shape.c_out);
  rows_ = SpreadRows(
      num_outputs_, std::clamp(static_cast<int64_t>(kProducts / products), kFewestRows, kMostRows));
  Part part = PartOf(map, operands, rows_);
  map_ = std::make_unique<reference::KernelMap>(std::move(part.map));
  exact_ = std::make_unique<ExactConvolution>(*map_, std::move(part.operands));
}

absl::StatusOr<SampleCheck> RowSample::Check(const Execution& execution,
                                             const std::vector<float>& output) const {
  const int64_t channels = exact_->operands().shape.c_out;
  if (static_cast<int64_t>(output.size()) != num_outputs_ * channels) {
    return absl::InternalError(absl::StrCat("the output has ", output.size(), " elements; ",
                                            num_outputs_, " rows of ", channels, " are needed"));
  }
  const Expected expected = exact_->Expect(execution);
  std::vector<float> sampled;
  sampled.reserve(rows_.size() * channels);
  for (const int64_t row : rows_) {
    const auto first = output.begin() + row * channels;
    sampled.insert(sampled.end(), first, first + channels);
  }
  if (const absl::Status held = CheckOutput(sampled, expected); !held.ok()) {
    const int64_t wrong = FirstWrongRow(sampled, expected);
    if (wrong < 0) return held;
    return StatusAt(absl::StrCat("output row ", rows_[wrong], " of ", num_outputs_, ", sample ",
                                 wrong, " of ", rows_.size()),
                    held);
  }
  return SampleCheck{static_cast<int64_t>(rows_.size()),
                     reference::RelativeError(sampled, expected.values)};
}

}  // namespace voxconv::verify
