// SPDX-License-Identifier: Apache-2.0
#include "voxconv/cli/command_child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "voxconv/cli/exit_guard.h"
#include "voxconv/cli/self_command.h"
#include "voxconv/core/library_probe.h"
#include "voxconv/core/plugin_loader.h"

namespace voxconv::cli {
namespace {

using experiment::kLineFile;
using experiment::LineProgram;

constexpr absl::string_view kEnded = "ended ";

bool begun = false;

constexpr std::array kPassedOn = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
volatile pid_t signalled_child = 0;

// A terminal gives its signals to all processes in the foreground; the child has them already.
void PassOn(int signal, siginfo_t* info, void*) {
  if (info->si_code <= 0) kill(signalled_child, signal);
}

// Passes signals on to the child as long as it lives.
class SignalPasser {
 public:
  explicit SignalPasser(pid_t child) {
    signalled_child = child;
    struct sigaction action = {};
    action.sa_sigaction = &PassOn;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    for (size_t i = 0; i < kPassedOn.size(); ++i) {
      sigaction(kPassedOn[i], nullptr, &before_[i]);
      // What nohup and shells have the child ignore stays ignored.
      if (before_[i].sa_handler != SIG_IGN) sigaction(kPassedOn[i], &action, nullptr);
    }
  }
  ~SignalPasser() {
    for (size_t i = 0; i < kPassedOn.size(); ++i) sigaction(kPassedOn[i], &before_[i], nullptr);
  }
  SignalPasser(const SignalPasser&) = delete;
  SignalPasser& operator=(const SignalPasser&) = delete;

 private:
  std::array<struct sigaction, kPassedOn.size()> before_ = {};
};

// The child's core file, if there is one, tells more than that of this process.
void EndBySignal(int signal) {
  const rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  ::signal(signal, SIG_DFL);
  raise(signal);
}

}  // namespace

absl::StatusOr<std::unique_ptr<LineProgram>> StartChild(const std::string& name,
                                                        const std::vector<std::string>& args) {
  std::vector<std::string> command = args;
  command.insert(command.begin(), name);
  return LineProgram::Start(SelfCommand(kChildArgument, command));
}

absl::Status BeginChild() {
  // Programs that this one starts in turn must not hold the file.
  if (fcntl(kLineFile, F_SETFD, FD_CLOEXEC) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(kChildArgument, ": only this program itself starts its children"));
  }
  begun = true;
  ExitGuard::TellTo(kLineFile);
  return absl::OkStatus();
}

bool IsChild() { return begun; }

void TellParent(absl::string_view line) {
  if (!begun) return;
  const std::string text = absl::StrCat(absl::StrReplaceAll(line, {{"\n", " "}}), "\n");
  // One call, so that no line is half written where the process is killed. Where the parent is
  // gone, this process is killed, too.
  if (write(kLineFile, text.data(), text.size()) < 0) return;
}

void TellEndOfCommand(int exit_code) { TellParent(absl::StrCat(kEnded, exit_code)); }

bool IsEndOfCommand(absl::string_view line, int& exit_code) {
  return absl::ConsumePrefix(&line, kEnded) && absl::SimpleAtoi(line, &exit_code);
}

bool LoadsPlugins(const std::vector<std::string>& args) {
  const char* paths = std::getenv(kPluginPathVariable);
  return (paths != nullptr && *paths != '\0') ||
         std::any_of(args.begin(), args.end(), [](const std::string& argument) {
           return argument == "--plugin" || absl::StartsWith(argument, "--plugin=");
         });
}

int RunInChild(const std::string& name, const std::vector<std::string>& args) {
  const auto child = StartChild(name, args);
  if (!child.ok()) {
    std::cerr << "voxconv " << name << ": " << child.status().message() << "\n";
    return 1;
  }
  std::optional<int> ended;
  bool told = false;
  int status = 0;
  {
    const SignalPasser passer((*child)->pid());
    constexpr auto kNever = std::chrono::steady_clock::time_point::max();
    for (std::string line; (*child)->Next(kNever, line) == LineProgram::Event::kLine;) {
      if (int code = 0; IsEndOfCommand(line, code)) {
        ended = code;
      } else {
        std::cerr << line << std::endl;
        told = true;
      }
    }
    status = (*child)->Stop();
  }
  if (WIFSIGNALED(status)) EndBySignal(WTERMSIG(status));
  if (ended.has_value() && WIFEXITED(status)) return *ended != 0 ? *ended : WEXITSTATUS(status);
  if (!told) {
    std::cerr << "voxconv " << name << ": the process " << EndOfProcess(status)
              << " before the command was done; a plugin must not end it" << std::endl;
  }
  return 1;
}

}  // namespace voxconv::cli
