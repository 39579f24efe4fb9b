#include "io/file_bytes.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace voxconv {
namespace {

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, FileCloser>;

absl::Status OpenError(const std::string& path, int error) {
  const std::string message = absl::StrCat(path, ": cannot be opened: ", std::strerror(error));
  return error == EACCES || error == EPERM ? absl::PermissionDeniedError(message)
                                           : absl::UnavailableError(message);
}

}  // namespace

absl::Status CheckIsFile(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    return absl::NotFoundError(absl::StrCat(path, ": no such file"));
  }
  if (error) return absl::UnavailableError(absl::StrCat(path, ": ", error.message()));
  if (std::filesystem::is_directory(status)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is a directory, expected a file"));
  }
  if (!std::filesystem::is_regular_file(status)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a regular file"));
  }
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) return absl::UnavailableError(absl::StrCat(path, ": ", error.message()));
  if (size == 0) return absl::InvalidArgumentError(absl::StrCat(path, ": the file is empty"));
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadFileBytes(const std::string& path) {
  if (absl::Status status = CheckIsFile(path); !status.ok()) return status;
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) return absl::UnavailableError(absl::StrCat(path, ": ", error.message()));
  const File file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) return OpenError(path, errno);
  std::string bytes(size, '\0');
  const std::size_t read = std::fread(bytes.data(), 1, bytes.size(), file.get());
  if (read != bytes.size()) {
    return absl::UnavailableError(
        absl::StrCat(path, ": read ", read, " bytes of ", size, ": the file changed or failed"));
  }
  return bytes;
}

absl::Status CheckWriteFile(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a regular file"));
  }
  const std::string temporary = absl::StrCat(path, ".partial");
  if (File(std::fopen(temporary.c_str(), "wb")) == nullptr) return OpenError(path, errno);
  std::filesystem::remove(temporary, error);
  return absl::OkStatus();
}

absl::Status WriteFileBytes(const std::string& path, absl::string_view bytes) {
  const std::string temporary = absl::StrCat(path, ".partial");
  File file(std::fopen(temporary.c_str(), "wb"));
  if (file == nullptr) return OpenError(temporary, errno);
  bool written = std::fwrite(bytes.data(), 1, bytes.size(), file.get()) == bytes.size();
  written = std::fclose(file.release()) == 0 && written;
  std::error_code error;
  if (written) std::filesystem::rename(temporary, path, error);
  if (written && !error) return absl::OkStatus();
  std::error_code ignored;
  std::filesystem::remove(temporary, ignored);
  return absl::UnavailableError(
      absl::StrCat(path, ": cannot be written: ", error ? error.message() : "short write"));
}

}  // namespace voxconv
