// SPDX-License-Identifier: Apache-2.0
#include "voxconv/verify/crash_report.h"

#include <unistd.h>

#include <utility>

namespace voxconv::verify {
namespace {

void Write(const char* text, size_t size) {
  while (size > 0) {
    const ssize_t written = write(STDERR_FILENO, text, size);
    if (written <= 0) return;
    text += written;
    size -= written;
  }
}

}  // namespace

const std::string* volatile CrashReport::case_id_ = nullptr;
std::string CrashReport::rerun_;
std::array<struct sigaction, CrashReport::kSignals.size()> CrashReport::before_ = {};

CrashReport::CrashReport(std::string rerun) {
  rerun_ = std::move(rerun);
  struct sigaction action = {};
  action.sa_handler = &CrashReport::Handle;
  action.sa_flags = SA_ONSTACK;
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &before_[i]);
}

CrashReport::~CrashReport() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  case_id_ = nullptr;
}

void CrashReport::SetCase(const std::string& id) { case_id_ = &id; }

// Nothing here but what is safe in a signal handler.
void CrashReport::Handle(int signal) {
  constexpr char kWords[] = "voxconv verify: crashed in the case ";
  if (const std::string* id = case_id_; id != nullptr) {
    Write(kWords, sizeof(kWords) - 1);
    Write(id->data(), id->size());
    Write("\n", 1);
    if (!rerun_.empty()) {
      Write("  ", 2);
      Write(rerun_.data(), rerun_.size());
      Write("'", 1);
      Write(id->data(), id->size());
      Write("'\n", 2);
    }
  }
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  raise(signal);  // taken as soon as this returns
}

}  // namespace voxconv::verify
