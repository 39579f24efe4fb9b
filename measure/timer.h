// SPDX-License-Identifier: Apache-2.0
// Wall time.
#ifndef VOXCONV_MEASURE_TIMER_H_
#define VOXCONV_MEASURE_TIMER_H_

#include <chrono>

namespace voxconv::measure {

// Measures the time since its construction. Does not wait for a stream: synchronise the stream
// before you read the time.
class Timer {
 public:
  double Seconds() const { return std::chrono::duration<double>(Since()).count(); }
  double Milliseconds() const { return std::chrono::duration<double, std::milli>(Since()).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::duration Since() const { return Clock::now() - start_; }

  Clock::time_point start_ = Clock::now();
};

}  // namespace voxconv::measure

#endif  // VOXCONV_MEASURE_TIMER_H_
