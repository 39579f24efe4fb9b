// SPDX-License-Identifier: Apache-2.0
// How the learning rate changes over the steps of a training.
#ifndef VOXCONV_TRAINING_RATE_SCHEDULE_H_
#define VOXCONV_TRAINING_RATE_SCHEDULE_H_

#include <cstdint>

#include "absl/status/status.h"

namespace voxconv {

// kCosine: half a cosine from the highest rate to the final one (Loshchilov and Hutter, 2017).
enum class Decay { kNone, kCosine };

struct RateSchedule {
  double rate = 0.1;      // the highest
  int64_t warm_up = 0;    // steps over which the rate grows in a line from rate / warm_up to rate
  int64_t steps = 0;      // of the whole training; kCosine only
  double final_rate = 0;  // kCosine: the rate after the last step
  Decay decay = Decay::kNone;
};

// kInvalidArgument names a value that is not allowed.
absl::Status CheckSchedule(const RateSchedule& schedule);

// The rate of step `step`, from 0 on. Steps past the end have the final rate. O(1).
double RateAt(const RateSchedule& schedule, int64_t step);

}  // namespace voxconv

#endif  // VOXCONV_TRAINING_RATE_SCHEDULE_H_
