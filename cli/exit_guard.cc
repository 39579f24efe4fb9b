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
const std::string* volatile loaded_libraries = nullptr;
volatile int told_file = STDERR_FILENO;
volatile pid_t telling_process = 0;
// A handler has no stack of its own where a plugin's recursion has used up the thread's.
alignas(16) std::array<char, 1 << 16> signal_stack;

// Safe in a signal handler.
void Write(const char* text, size_t size) {
  // A copy of this process, in which a library is tried, tells its own parent.
  const int file = getpid() == telling_process ? told_file : STDERR_FILENO;
  while (size > 0) {
    const ssize_t written = write(file, text, size);
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
  } else if (loaded_libraries != nullptr) {
    Write("; loaded are ");
    Write(*loaded_libraries);
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

// The handlers that were there before, such as a sanitizer's.
std::array<struct sigaction, kSignals.size()> handlers_before;

void RestoreHandlers() {
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &handlers_before[i], nullptr);
  }
}

void HandleSignal(int signal) {
  if (guarded_command != nullptr) Tell("crashed");
  RestoreHandlers();
  raise(signal);  // taken as soon as this returns
}

// Gives handlers a stack of their own, unless they have one.
void SetSignalStack() {
  stack_t stack = {};
  if (sigaltstack(nullptr, &stack) != 0 || (stack.ss_flags & SS_DISABLE) == 0) return;
  stack.ss_sp = signal_stack.data();
  stack.ss_size = signal_stack.size();
  stack.ss_flags = 0;
  sigaltstack(&stack, nullptr);
}

}  // namespace

ExitGuard::ExitGuard(const std::string& command) {
  static const bool kRegistered = std::atexit(EndEarly) == 0 && std::at_quick_exit(EndEarly) == 0;
  static_cast<void>(kRegistered);
  guarded_command = new std::string(command);
  SetSignalStack();
  struct sigaction action = {};
  action.sa_handler = &HandleSignal;
  action.sa_flags = SA_ONSTACK;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &action, &handlers_before[i]);
  }
}

// Never freed: what ends the program may come late.
void ExitGuard::NameLibraries(const std::string& libraries) {
  loaded_libraries = new std::string(libraries);
}

void ExitGuard::TellTo(int file) {
  told_file = file;
  telling_process = getpid();
}

ExitGuard::~ExitGuard() {
  RestoreHandlers();
  const std::string* const command = guarded_command;
  guarded_command = nullptr;
  delete command;
}

}  // namespace voxconv::cli
