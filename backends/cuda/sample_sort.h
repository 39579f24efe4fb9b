// SPDX-License-Identifier: Apache-2.0
// A sort of few keys, by samples. device_primitives.h calls it; others call that.
#ifndef VOXCONV_BACKENDS_CUDA_SAMPLE_SORT_H_
#define VOXCONV_BACKENDS_CUDA_SAMPLE_SORT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "voxconv/backends/cuda/sample_sort_plan.h"
#include "voxconv/core/backend.h"

namespace voxconv {

// For 1 <= plan.size <= SampleSortPlan::kMaxSize keys in device memory. SortByKey in
// device_primitives.h explains the arguments. Queues one kernel or three on the context's stream
// and does not synchronise it. kResourceExhausted if the temporary memory does not suffice.
absl::Status SampleSort(const uint32_t* keys, uint32_t* sorted_keys, const int32_t* values,
                        int32_t* sorted_values, const SampleSortPlan& plan,
                        const ExecutionContext& context);
absl::Status SampleSort(const uint64_t* keys, uint64_t* sorted_keys, const int32_t* values,
                        int32_t* sorted_values, const SampleSortPlan& plan,
                        const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_SAMPLE_SORT_H_
