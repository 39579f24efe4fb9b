// The .npz half of io/npy.h: a zip archive of .npy members, through libzip.
#include <zip.h>

#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "io/file_bytes.h"
#include "io/npy.h"

namespace voxconv {
namespace {

// Deflate expands by less than 1032: a member that claims more lies about its size, and is refused
// before memory is reserved for it.
constexpr zip_uint64_t kMaxExpansion = 1032;

struct ArchiveDiscarder {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};
using Archive = std::unique_ptr<zip_t, ArchiveDiscarder>;

struct MemberCloser {
  void operator()(zip_file_t* member) const { zip_fclose(member); }
};
using Member = std::unique_ptr<zip_file_t, MemberCloser>;

std::string TakeErrorMessage(zip_error_t& error) {
  std::string message = zip_error_strerror(&error);
  zip_error_fini(&error);
  return message;
}

absl::StatusOr<Archive> OpenBytes(absl::string_view bytes, absl::string_view name) {
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* source = zip_source_buffer_create(bytes.data(), bytes.size(), 0, &error);
  zip_t* archive = nullptr;
  if (source != nullptr) {
    archive = zip_open_from_source(source, ZIP_RDONLY, &error);
    if (archive == nullptr) zip_source_free(source);
  }
  if (archive == nullptr) {
    return absl::DataLossError(
        absl::StrCat(name, ": is not a readable .npz archive: ", TakeErrorMessage(error)));
  }
  zip_error_fini(&error);
  return Archive(archive);
}

// The sizes are the archive's own claims: nothing is allocated that its `archive_size` bytes cannot
// expand to.
absl::StatusOr<std::string> ReadMember(zip_t* archive, zip_uint64_t archive_size,
                                       zip_uint64_t index, absl::string_view name) {
  zip_stat_t stat;
  zip_stat_init(&stat);
  constexpr zip_uint64_t kNeeded = ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE;
  if (zip_stat_index(archive, index, 0, &stat) != 0 || (stat.valid & kNeeded) != kNeeded ||
      stat.comp_size > archive_size || stat.size / kMaxExpansion > stat.comp_size) {
    return absl::DataLossError(absl::StrCat(name, ": the archive gives no credible size"));
  }
  const Member member(zip_fopen_index(archive, index, 0));
  if (member == nullptr) {
    return absl::DataLossError(absl::StrCat(name, ": ", zip_strerror(archive)));
  }
  std::string bytes(stat.size, '\0');
  zip_uint64_t read = 0;
  while (read < stat.size) {
    const zip_int64_t step = zip_fread(member.get(), bytes.data() + read, stat.size - read);
    if (step <= 0) break;
    read += static_cast<zip_uint64_t>(step);
  }
  // The checksum is compared when the member's end is read, hence one more read.
  char extra;
  if (read != stat.size || zip_fread(member.get(), &extra, 1) != 0) {
    return absl::DataLossError(absl::StrCat(name, ": damaged: ", zip_file_strerror(member.get())));
  }
  return bytes;
}

absl::Status AddMember(zip_t* archive, const std::string& file_name, const std::string& bytes) {
  const auto failed = [&] {
    return absl::UnavailableError(absl::StrCat(file_name, ": ", zip_strerror(archive)));
  };
  zip_source_t* source = zip_source_buffer(archive, bytes.data(), bytes.size(), 0);
  if (source == nullptr) return failed();
  const zip_int64_t index = zip_file_add(archive, file_name.c_str(), source, ZIP_FL_ENC_UTF_8);
  if (index < 0) {
    zip_source_free(source);
    return failed();
  }
  const zip_uint64_t member = static_cast<zip_uint64_t>(index);
  // Stored, with the oldest date that zip knows (1980-01-01), as NumPy does: the same arrays then
  // give the same archive.
  if (zip_set_file_compression(archive, member, ZIP_CM_STORE, 0) != 0 ||
      zip_file_set_dostime(archive, member, 0, (1 << 5) | 1, 0) != 0) {
    return failed();
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<NpzArrays> ParseNpz(absl::string_view bytes, absl::string_view name) {
  const absl::StatusOr<Archive> archive = OpenBytes(bytes, name);
  if (!archive.ok()) return archive.status();
  const zip_int64_t count = zip_get_num_entries(archive->get(), 0);
  NpzArrays arrays;
  std::set<std::string> seen;
  for (zip_int64_t i = 0; i < count; ++i) {
    const zip_uint64_t index = static_cast<zip_uint64_t>(i);
    const char* file_name = zip_get_name(archive->get(), index, 0);
    if (file_name == nullptr) {
      return absl::DataLossError(absl::StrCat(name, ": member ", i, " has no readable name"));
    }
    const std::string member_name = absl::StrCat(name, "[", file_name, "]");
    absl::string_view array_name = file_name;
    if (!absl::ConsumeSuffix(&array_name, ".npy")) {
      return absl::InvalidArgumentError(absl::StrCat(member_name, ": is not a .npy array"));
    }
    if (!seen.insert(std::string(array_name)).second) {
      return absl::InvalidArgumentError(absl::StrCat(member_name, ": appears twice"));
    }
    const absl::StatusOr<std::string> member =
        ReadMember(archive->get(), bytes.size(), index, member_name);
    if (!member.ok()) return member.status();
    absl::StatusOr<NpyArray> array = ParseNpy(*member, member_name);
    if (!array.ok()) return array.status();
    arrays.emplace_back(std::string(array_name), *std::move(array));
  }
  return arrays;
}

absl::StatusOr<NpzArrays> ReadNpz(const std::string& path) {
  const absl::StatusOr<std::string> bytes = ReadFileBytes(path);
  if (!bytes.ok()) return bytes.status();
  return ParseNpz(*bytes, path);
}

absl::Status WriteNpz(const std::string& path, const NpzArrays& arrays) {
  if (arrays.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": no arrays to write"));
  }
  NpzArrays::size_type index = 0;
  std::vector<std::string> members(arrays.size());  // outlives the archive, which reads from it
  for (const auto& [name, array] : arrays) {
    if (name.empty() || FindArray(arrays, name) != &array) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": array name '", name, "' is empty or repeated"));
    }
    absl::StatusOr<std::string> bytes = SerializeNpy(array);
    if (!bytes.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": ", bytes.status().message()));
    }
    members[index++] = *std::move(bytes);
  }
  int code = 0;
  Archive archive(zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &code));
  if (archive == nullptr) {
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    return absl::UnavailableError(
        absl::StrCat(path, ": cannot be written: ", TakeErrorMessage(error)));
  }
  for (NpzArrays::size_type i = 0; i < arrays.size(); ++i) {
    const std::string file_name = absl::StrCat(arrays[i].first, ".npy");
    if (absl::Status status = AddMember(archive.get(), file_name, members[i]); !status.ok()) {
      return status;
    }
  }
  if (zip_close(archive.get()) != 0) {
    return absl::UnavailableError(
        absl::StrCat(path, ": cannot be written: ", zip_strerror(archive.get())));
  }
  static_cast<void>(archive.release());  // zip_close freed it
  return absl::OkStatus();
}

}  // namespace voxconv
