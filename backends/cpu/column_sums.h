// SPDX-License-Identifier: Apache-2.0
// Sums over the rows of a matrix whose order does not depend on the number of threads.
#ifndef VOXCONV_BACKENDS_CPU_COLUMN_SUMS_H_
#define VOXCONV_BACKENDS_CPU_COLUMN_SUMS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "voxconv/backends/cpu/parallel.h"

namespace voxconv {

// Sums in f64 over blocks of rows. add(row, sums) adds what row `row` gives to `sums`, [size]. The
// sums of blocks are added in the order of the rows. O(rows * size).
template <typename Add>
std::vector<double> SumRows(const ExecutionContext& context, int64_t rows, int64_t size,
                            const Add& add) {
  const int64_t grain = RowsPerTask(size);
  const int64_t blocks = (rows + grain - 1) / grain;
  std::vector<double> partial(std::max<int64_t>(blocks, 1) * size, 0.0);
  ParallelRanges(context, rows, grain, [&](int64_t begin, int64_t end) {
    double* sums = partial.data() + begin / grain * size;
    for (int64_t row = begin; row < end; ++row) add(row, sums);
  });
  for (int64_t block = 1; block < blocks; ++block) {
    for (int64_t c = 0; c < size; ++c) partial[c] += partial[block * size + c];
  }
  partial.resize(size);
  return partial;
}

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_COLUMN_SUMS_H_
