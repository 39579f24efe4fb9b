// SPDX-License-Identifier: Apache-2.0
// Rows of a large output, held against the exact sums.
#ifndef VOXCONV_VERIFY_SAMPLED_ROWS_H_
#define VOXCONV_VERIFY_SAMPLED_ROWS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "voxconv/verify/oracle.h"

namespace voxconv::verify {

// At most `limit` rows of `rows`, at least 2: the first, the last, and others at even distances.
// Ascending.
std::vector<int64_t> SpreadRows(int64_t rows, int64_t limit);

struct SampleCheck {
  int64_t rows = 0;
  double error = 0;  // norm-wise
};

// Checks every feature of SpreadRows of `output`, [N_out, C_out], against its bound
// (verify/bounds.h). `map` is the layer's, checked before. As many rows are taken as the reference
// does in about a tenth of a second, 50 .. 1000. kInternal names a row that is wrong.
absl::StatusOr<SampleCheck> CheckSampledRows(const reference::KernelMap& map,
                                             const Operands& operands, const Execution& execution,
                                             const std::vector<float>& output);

}  // namespace voxconv::verify

#endif  // VOXCONV_VERIFY_SAMPLED_ROWS_H_
