// SPDX-License-Identifier: Apache-2.0
#include "voxconv/cli/exit_guard.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "voxconv/core/plugin_call.h"

namespace voxconv::cli {
namespace {

constexpr std::array kSignals = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

const std::string* volatile guarded_command = nullptr;
volatile int told_file = STDERR_FILENO;
// A handler has no stack of its own where a plugin's recursion has used up the thread's.
alignas(16) std::array<char, 1 << 16> signal_stack;

// Safe in a signal handler.
void Write(const char* text, size_t size) {
  while (size > 0) {
    const ssize_t written = write(told_file, text, size);
    if (written <= 0) return;
    text += written;
    size -= written;
  }
}
void Write(const char* text) { Write(text, std::strlen(text)); }
void Write(const std::string& text) { Write(text.data(), text.size()); }

// "voxconv COMMAND: WHAT in PLUGIN: METHOD". Safe in a signal handler.
void Tell(const char* what) {
  Write("voxconv ");
  Write(*guarded_command);
  Write(": ");
  Write(what);
  if (const PluginCall call = CurrentPluginCall(); call.label != nullptr) {
    Write(" in ");
    Write(*call.label);
    Write(": ");
    Write(call.method);
  }
  Write("\n");
}

// Called by exit() and quick_exit().
void EndEarly() {
  if (guarded_command == nullptr) return;
  std::cout.flush();
  std::fflush(stdout);
  Tell("ended by exit() before it was done");
  std::_Exit(1);
}

void HandleSignal(int signal) {
  if (guarded_command != nullptr) Tell("crashed");
  ::signal(signal, SIG_DFL);
  raise(signal);  // taken as soon as this returns
}

}  // namespace

ExitGuard::ExitGuard(const std::string& command) {
  static const bool registered = std::atexit(EndEarly) == 0 && std::at_quick_exit(EndEarly) == 0;
  static_cast<void>(registered);
  guarded_command = new std::string(command);  // outlives this object: a handler may read it
  const stack_t stack = {
      .ss_sp = signal_stack.data(), .ss_flags = 0, .ss_size = sizeof(signal_stack)};
  sigaltstack(&stack, nullptr);
  struct sigaction action = {};
  action.sa_handler = &HandleSignal;
  action.sa_flags = SA_ONSTACK;
  for (const int signal : kSignals) sigaction(signal, &action, nullptr);
}

void ExitGuard::TellTo(int file) { told_file = file; }

ExitGuard::~ExitGuard() {
  const std::string* const command = guarded_command;
  guarded_command = nullptr;
  delete command;
}

}  // namespace voxconv::cli
