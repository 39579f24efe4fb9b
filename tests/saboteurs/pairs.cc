// SPDX-License-Identifier: Apache-2.0
#include "tests/saboteurs/pairs.h"

#include <algorithm>
#include <utility>

#include "voxconv/core/map_ops.h"

namespace voxconv::testing {

void Pairs::DropEvery(int64_t period) {
  Pairs kept{.num_inputs = num_inputs, .num_outputs = num_outputs, .offset_ptr = {0}};
  for (int k = 0; k < num_offsets(); ++k) {
    for (int64_t i = offset_ptr[k]; i < offset_ptr[k + 1]; ++i) {
      if (i % period == period - 1) continue;
      kept.in.push_back(in[i]);
      kept.out.push_back(out[i]);
    }
    kept.offset_ptr.push_back(static_cast<int64_t>(kept.in.size()));
  }
  *this = std::move(kept);
}

void Pairs::DropLast() {
  if (in.empty()) return;
  in.pop_back();
  out.pop_back();
  for (int64_t& end : offset_ptr) end = std::min(end, static_cast<int64_t>(in.size()));
}

void Pairs::ReorderOffsets(const std::vector<int>& order) {
  Pairs ordered{.num_inputs = num_inputs, .num_outputs = num_outputs, .offset_ptr = {0}};
  for (const int k : order) {
    ordered.in.insert(ordered.in.end(), in.begin() + offset_ptr[k], in.begin() + offset_ptr[k + 1]);
    ordered.out.insert(ordered.out.end(), out.begin() + offset_ptr[k],
                       out.begin() + offset_ptr[k + 1]);
    ordered.offset_ptr.push_back(static_cast<int64_t>(ordered.in.size()));
  }
  *this = std::move(ordered);
}

absl::StatusOr<KernelMap> Changed(const KernelMap& map, const std::function<void(Pairs&)>& change,
                                  bool keep_marks, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap right,
                           context.backend->map_ops().To(MapForm::kPairs, map, context));
  Pairs pairs{.num_inputs = map.num_inputs(),
              .num_outputs = map.num_outputs(),
              .offset_ptr = right.offset_ptr()};
  VOXCONV_ASSIGN_OR_RETURN(pairs.in, CopyToHost(right.pairs().in.array(), context));
  VOXCONV_ASSIGN_OR_RETURN(pairs.out, CopyToHost(right.pairs().out.array(), context));
  change(pairs);
  PairBuffers list;
  VOXCONV_ASSIGN_OR_RETURN(list.in, CopyToBackend<int32_t>(pairs.in, context));
  VOXCONV_ASSIGN_OR_RETURN(list.out, CopyToBackend<int32_t>(pairs.out, context));
  KernelMap changed(pairs.num_inputs, pairs.num_outputs, pairs.offset_ptr,
                    PairList(std::move(list)));
  if (keep_marks) {
    changed.set_identity_offset(map.identity_offset());
    changed.set_symmetric(map.symmetric());
  }
  // The copies read host memory that ends here.
  VOXCONV_RETURN_IF_ERROR(context.stream->Synchronize());
  return changed;
}

}  // namespace voxconv::testing
