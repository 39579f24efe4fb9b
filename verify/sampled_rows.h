// SPDX-License-Identifier: Apache-2.0
// Rows of a large output, held against the exact sums.
#ifndef VOXCONV_VERIFY_SAMPLED_ROWS_H_
#define VOXCONV_VERIFY_SAMPLED_ROWS_H_

#include <cstdint>
#include <memory>
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

// The exact sums of SpreadRows of an output, for any number of runs that make it. As many rows are
// taken as the reference does in about a tenth of a second, 50 .. 1000.
class RowSample {
 public:
  // `map` is the layer's, checked before. Nothing is kept of the arguments.
  RowSample(const reference::KernelMap& map, const Operands& operands);

  // Checks every feature of the rows of `output`, [N_out, C_out], against its bound
  // (verify/bounds.h). kInternal names a row that is wrong.
  absl::StatusOr<SampleCheck> Check(const Execution& execution,
                                    const std::vector<float>& output) const;

 private:
  int64_t num_outputs_ = 0;
  std::vector<int64_t> rows_;
  std::unique_ptr<const reference::KernelMap> map_;  // that makes these rows alone
  std::unique_ptr<const ExactConvolution> exact_;    // refers to the map
};

}  // namespace voxconv::verify

#endif  // VOXCONV_VERIFY_SAMPLED_ROWS_H_
