#ifndef VOXCONV_MEASURE_INTERRUPT_H_
#define VOXCONV_MEASURE_INTERRUPT_H_

#include <csignal>

namespace voxconv::measure {

// While one lives, the first Ctrl-C (SIGINT) only raises a flag, so that long work stops between
// two runs and keeps what it has; a second one ends the program as usual. One at a time (checked).
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
