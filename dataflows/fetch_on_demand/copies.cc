// SPDX-License-Identifier: Apache-2.0
#include "voxconv/dataflows/fetch_on_demand/copies.h"

#include <algorithm>

namespace voxconv {
namespace {

// True: MinkowskiEngine copies. The numbers are the engine's.
bool MinkowskiCopies(int64_t c_in, int64_t c_out, int64_t num_inputs) {
  if (c_in == 32 && c_out == 64 && num_inputs <= 490537) return false;
  if (c_out <= 20) return false;
  if (c_out <= 40) return num_inputs > 295625 && c_in > 12;
  if (c_in <= 20) return false;
  return num_inputs > 74556 || c_out > 112;
}

}  // namespace

bool CopiesRows(CopyRule rule, int64_t c_in, int64_t c_out, int64_t num_inputs) {
  switch (rule) {
    case CopyRule::kNever:
      return false;
    case CopyRule::kMinkowski:
      return MinkowskiCopies(c_in, c_out, num_inputs);
    case CopyRule::kAlways:
      return true;
  }
  return false;
}

// Copies and products are written and read once, and the outputs are read and written once a pair.
CopyPlan::CopyPlan(const KernelMap& map, const ConvShape& shape, bool counts_launches) {
  int64_t most = 0, offsets = 0;
  for (int k = 0; k < map.num_offsets(); ++k) {
    most = std::max(most, map.num_pairs(k));
    offsets += map.num_pairs(k) > 0;
  }
  constexpr int64_t kFloat = sizeof(float);
  const int64_t size = SizeOf(shape.types.input);
  const int64_t pairs = map.num_pairs();
  const int64_t outputs = map.num_outputs() * shape.c_out;
  work_.true_pairs = work_.padded_pairs = pairs;
  work_.bytes_read = pairs * (2 * shape.c_in * size + 2 * shape.c_out * kFloat + 8) +
                     offsets * shape.c_in * shape.c_out * size;
  work_.bytes_written = pairs * (shape.c_in * size + 2 * shape.c_out * kFloat) + outputs * kFloat;
  if (counts_launches) work_.launches = offsets;
  rows_slot_ = booking_.Book(most * shape.c_in * size);
  products_slot_ = booking_.Book<float>(most * shape.c_out);
  if (SizeOf(shape.types.output) < kFloat) {
    sum_slot_ = booking_.Book<float>(outputs);
    work_.bytes_read += outputs * kFloat;
    work_.bytes_written += outputs * SizeOf(shape.types.output);
  }
  kernel_ = "copies rows, products offset by offset";
}

}  // namespace voxconv
