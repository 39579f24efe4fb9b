// SPDX-License-Identifier: Apache-2.0
// Says in words where an output is wrong, so that whoever wrote the dataflow knows where to look.
#ifndef VOXCONV_VERIFY_DIFFERENCE_H_
#define VOXCONV_VERIFY_DIFFERENCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "voxconv/verify/problem.h"

namespace voxconv::verify {

// What a wrong output was computed of. Refers to what it is made of.
struct LayerData {
  const Problem& problem;
  int64_t c_in = 0;
  absl::Span<const float> features;  // [N_in, C_in]
  absl::Span<const float> weights;   // [K * C_in, C_out]
};

// An output, [rows, channels], and what it must be.
struct Difference {
  int64_t channels = 1;
  absl::Span<const float> output;
  absl::Span<const double> expected;
  std::vector<int64_t> wrong;  // the elements that are wrong, ascending; one at least
  int64_t worst = 0;           // the one that is furthest off
};

// "row 5 (0, 3, 4, 5), channel 2 is 1.5": the worst element, and the voxel of its row if `layer` is
// given.
std::string WorstElement(const Difference& difference, const LayerData* layer);

// How many elements and rows are wrong, and the pattern where there is one: the last rows, rows
// that nothing wrote, a block of channels, the products of one kernel offset, negated offsets.
// Begins with the count. O(elements + pairs) where `layer` is given.
std::string DescribePattern(const Difference& difference, const LayerData* layer);

}  // namespace voxconv::verify

#endif  // VOXCONV_VERIFY_DIFFERENCE_H_
