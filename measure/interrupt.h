// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_MEASURE_INTERRUPT_H_
#define VOXCONV_MEASURE_INTERRUPT_H_

#include <csignal>

namespace voxconv::measure {

// While an object of this class lives, the first Ctrl-C (SIGINT) only sets a flag, so that long
// work can stop between two runs and keep its results. The second one ends the program as usual.
// Only one object may live at a time (checked).
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  bool interrupted() const;

 private:
  struct sigaction previous_ {};
};

}  // namespace voxconv::measure

#endif  // VOXCONV_MEASURE_INTERRUPT_H_
