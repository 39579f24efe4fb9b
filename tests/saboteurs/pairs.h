// SPDX-License-Identifier: Apache-2.0
// The pairs of a kernel map on the host, as a fault changes them.
#ifndef VOXCONV_TESTS_SABOTEURS_PAIRS_H_
#define VOXCONV_TESTS_SABOTEURS_PAIRS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/kernel_map.h"

namespace voxconv::testing {

// Pair i of offset k meets in[i] with out[i]: offset_ptr[k] <= i < offset_ptr[k + 1].
struct Pairs {
  int64_t num_inputs = 0, num_outputs = 0;
  std::vector<int64_t> offset_ptr;
  std::vector<int32_t> in, out;

  int num_offsets() const { return static_cast<int>(offset_ptr.size()) - 1; }
  // Removes every `period`-th pair, the first of them at `period` - 1.
  void DropEvery(int64_t period);
  // Removes the last pair, if there is one.
  void DropLast();
  // Offset k gets the pairs of offset order[k].
  void ReorderOffsets(const std::vector<int>& order);
};

// The map, which has any form, with its pairs changed, as canonical pairs. `keep_marks`: the
// identity offset and the symmetry of `map` are kept; otherwise the new map claims neither.
// Synchronises the stream.
absl::StatusOr<KernelMap> Changed(const KernelMap& map, const std::function<void(Pairs&)>& change,
                                  bool keep_marks, const ExecutionContext& context);

}  // namespace voxconv::testing

#endif  // VOXCONV_TESTS_SABOTEURS_PAIRS_H_
