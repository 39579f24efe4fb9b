// SPDX-License-Identifier: Apache-2.0
#include "voxconv/dataflows/gather_gemm_scatter/schedule.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/core/check.h"

namespace voxconv {
namespace {

int64_t RoundUp(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

class Scheduler {
 public:
  Scheduler(absl::Span<const int64_t> offset_ptr, int identity_offset, int64_t max_rows)
      : offset_ptr_(offset_ptr), max_rows_(max_rows) {
    schedule_.identity_offset = identity_offset;
  }

  absl::Status Add(absl::Span<const int> offsets, int64_t padded_rows) {
    const int64_t matrices = static_cast<int64_t>(offsets.size());
    const int64_t slice = std::min(padded_rows, max_rows_ / matrices);
    if (slice == 0) {
      return absl::ResourceExhaustedError(absl::StrCat("the buffers hold ", max_rows_,
                                                       " rows; a batch of ", matrices,
                                                       " matrices needs at least ", matrices));
    }
    for (int64_t first = 0; first < padded_rows; first += slice) {
      AddSlice(offsets, first, std::min(slice, padded_rows - first));
    }
    return absl::OkStatus();
  }

  Schedule Finish() && {
    ClosePass();
    return std::move(schedule_);
  }

 private:
  // Rows [first, first + rows) of every matrix of a matmul.
  void AddSlice(absl::Span<const int> offsets, int64_t first, int64_t rows) {
    if (pass_.rows + rows * static_cast<int64_t>(offsets.size()) > max_rows_) ClosePass();
    Matmul matmul{{offsets.begin(), offsets.end()}, pass_.rows, rows};
    pass_.windows.resize(offset_ptr_.size() - 1);
    for (int k : offsets) {
      PairWindow& window = pass_.windows[k];
      VOXCONV_CHECK(window.begin == window.end);  // an offset has one window a pass
      window.begin = std::min(offset_ptr_[k] + first, offset_ptr_[k + 1]);
      window.end = std::min(offset_ptr_[k] + first + rows, offset_ptr_[k + 1]);
      window.base = pass_.rows;
      const int64_t pairs = window.end - window.begin;
      if (pairs < rows) pass_.padding.push_back({window.base + pairs, rows - pairs});
      pass_.rows += rows;
      pass_.pairs += pairs;
    }
    pass_.matmuls.push_back(std::move(matmul));
  }

  void ClosePass() {
    if (pass_.rows == 0) return;
    for (size_t k = 0; k < pass_.windows.size(); ++k) {
      if (pass_.windows[k].begin < pass_.windows[k].end) {
        pass_.offsets.push_back(static_cast<int>(k));
      }
    }
    schedule_.buffer_rows = std::max(schedule_.buffer_rows, pass_.rows);
    schedule_.passes.push_back(std::exchange(pass_, BufferPass()));
  }

  absl::Span<const int64_t> offset_ptr_;
  int64_t max_rows_;
  BufferPass pass_;
  Schedule schedule_;
};

}  // namespace

absl::StatusOr<Schedule> MakeSchedule(absl::Span<const int64_t> offset_ptr, int identity_offset,
                                      absl::Span<const OffsetGroup> groups, int64_t max_rows) {
  const bool ragged = !groups.empty() && groups.front().ragged;
  // Slices of padded rows must stay multiples.
  if (ragged && max_rows >= kRaggedRows) max_rows -= max_rows % kRaggedRows;
  Scheduler scheduler(offset_ptr, identity_offset, max_rows);
  for (const OffsetGroup& group : groups) {
    if (group.batched) {
      if (absl::Status s = scheduler.Add(group.offsets, group.max_pairs); !s.ok()) return s;
      continue;
    }
    for (const int& k : group.offsets) {
      const int64_t pairs = offset_ptr[k + 1] - offset_ptr[k];
      const int64_t rows = group.ragged ? RoundUp(pairs, kRaggedRows) : pairs;
      if (absl::Status s = scheduler.Add({&k, 1}, rows); !s.ok()) {
        return s;
      }
    }
  }
  return std::move(scheduler).Finish();
}

}  // namespace voxconv
