// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/interrupt.h"

#include "voxconv/core/check.h"

namespace voxconv::measure {
namespace {

volatile std::sig_atomic_t interrupt_seen = 0;
bool guard_lives = false;

void NoteInterrupt(int) { interrupt_seen = 1; }

}  // namespace

InterruptGuard::InterruptGuard() {
  VOXCONV_CHECK(!guard_lives);
  guard_lives = true;
  interrupt_seen = 0;
  struct sigaction action {};
  action.sa_handler = NoteInterrupt;
  // SA_RESETHAND: the second signal meets the default action.
  action.sa_flags = SA_RESTART | SA_RESETHAND;
  sigaction(SIGINT, &action, &previous_);
}

InterruptGuard::~InterruptGuard() {
  sigaction(SIGINT, &previous_, nullptr);
  guard_lives = false;
}

bool InterruptGuard::interrupted() const { return interrupt_seen != 0; }

}  // namespace voxconv::measure
