// SPDX-License-Identifier: Apache-2.0
#include "voxconv/core/library_probe.h"

#include <elf.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace voxconv {
namespace {

// No exit status of ordinary programs: the work was done.
constexpr int kDone = 113;

template <typename T>
bool ReadAt(std::ifstream& file, uint64_t offset, T& value) {
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(reinterpret_cast<char*>(&value), sizeof(value));
  return file.good();
}

// offset + count * size, or all ones where that is past 64 bits.
uint64_t EndOf(uint64_t offset, uint64_t count, uint64_t size) {
  uint64_t bytes = 0, end = 0;
  if (__builtin_mul_overflow(count, size, &bytes) || __builtin_add_overflow(offset, bytes, &end)) {
    return UINT64_MAX;
  }
  return end;
}

// In the child: nothing here reaches the terminal but by the pipe, and no core file is written.
void Detach(int error_output) {
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTERM, SIGINT}) {
    ::signal(signal, SIG_DFL);
  }
  const rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  dup2(error_output, STDERR_FILENO);
  const int nowhere = open("/dev/null", O_WRONLY);
  if (nowhere >= 0) dup2(nowhere, STDOUT_FILENO);
}

// Reads what the child prints until it ends or `deadline` has come. Then it is killed. Returns
// waitpid's status.
int WaitFor(pid_t child, int pipe, std::chrono::steady_clock::time_point deadline,
            std::string& printed, bool& late) {
  constexpr int kPollMilliseconds = 20;
  constexpr size_t kMostPrinted = 1 << 16;
  bool open = true;
  while (true) {
    pollfd readable = {pipe, POLLIN, 0};
    if (open) {
      poll(&readable, 1, kPollMilliseconds);
    } else {
      usleep(kPollMilliseconds * 1000);
    }
    if (readable.revents != 0) {
      std::array<char, 4096> block;
      const ssize_t count = read(pipe, block.data(), block.size());
      if (count > 0 && printed.size() < kMostPrinted) printed.append(block.data(), count);
      open = count > 0;
      if (open) continue;
    }
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) return status;
    if (std::chrono::steady_clock::now() < deadline) continue;
    late = true;
    kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
  }
}

std::string LastLine(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  return std::string(absl::StripAsciiWhitespace(lines.back()));
}

}  // namespace

absl::Status CheckWholeElf(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const auto size = static_cast<uint64_t>(std::max<std::streamoff>(file.tellg(), 0));
  std::array<char, EI_NIDENT> ident = {};
  if (!ReadAt(file, 0, ident) || std::memcmp(ident.data(), ELFMAG, SELFMAG) != 0) {
    return absl::InvalidArgumentError(
        "no shared library (*.so): it does not begin as an ELF file does");
  }
  if (ident[EI_CLASS] != ELFCLASS64) return absl::OkStatus();  // the loader says more of these
  const auto cut = [&](uint64_t needed) {
    return absl::InvalidArgumentError(absl::StrCat("it is cut short: its ELF headers speak of ",
                                                   needed, " bytes, and the file has ", size));
  };
  Elf64_Ehdr header;
  if (!ReadAt(file, 0, header)) return cut(sizeof(header));
  uint64_t needed = EndOf(header.e_phoff, header.e_phnum, header.e_phentsize);
  if (header.e_shoff != 0) {
    needed = std::max(needed, EndOf(header.e_shoff, header.e_shnum, header.e_shentsize));
  }
  if (needed > size) return cut(needed);
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    const uint64_t at = EndOf(header.e_phoff, i, header.e_phentsize);
    if (!ReadAt(file, at, segment)) return cut(EndOf(at, 1, sizeof(segment)));
    needed = std::max(needed, EndOf(segment.p_offset, 1, segment.p_filesz));
  }
  return needed > size ? cut(needed) : absl::OkStatus();
}

absl::Status TryInChild(const std::string& what, const std::function<void()>& work,
                        std::chrono::seconds limit) {
  std::array<int, 2> ends = {-1, -1};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return absl::OkStatus();
  const pid_t child = fork();
  if (child == 0) {
    Detach(ends[1]);
    work();
    _exit(kDone);
  }
  close(ends[1]);
  std::string printed;
  bool late = false;
  int status = 0;
  if (child > 0) {
    status = WaitFor(child, ends[0], std::chrono::steady_clock::now() + limit, printed, late);
  }
  close(ends[0]);
  if (child < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == kDone)) return absl::OkStatus();
  if (late) {
    return absl::InternalError(absl::StrCat(what, " does not end within ", limit.count(), " s"));
  }
  const std::string last = LastLine(printed);
  return absl::InternalError(absl::StrCat(what, " ends the process: it ", EndOfProcess(status),
                                          last.empty() ? "" : absl::StrCat(" (", last, ")")));
}

std::string EndOfProcess(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return absl::StrCat("is killed by signal ", signal, " (", strsignal(signal), ")");
  }
  return absl::StrCat("ends with exit status ", WEXITSTATUS(status));
}

}  // namespace voxconv
