// SPDX-License-Identifier: Apache-2.0
// The .npz half of io/npy.h: a zip archive of .npy members, through libzip.
#include <zip.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/file_bytes.h"
#include "voxconv/io/npy.h"
#include "voxconv/io/output_file.h"

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

struct SourceFreer {
  void operator()(zip_source_t* source) const { zip_source_free(source); }
};
using Source = std::unique_ptr<zip_source_t, SourceFreer>;

// All bytes of a source in memory.
absl::StatusOr<std::string> ReadSource(zip_source_t* source) {
  zip_stat_t stat;
  zip_stat_init(&stat);
  const auto failed = [&] {
    return absl::InternalError(
        absl::StrCat("no archive: ", zip_error_strerror(zip_source_error(source))));
  };
  if (zip_source_stat(source, &stat) != 0 || (stat.valid & ZIP_STAT_SIZE) == 0 ||
      zip_source_open(source) != 0) {
    return failed();
  }
  std::string bytes(stat.size, '\0');
  const zip_int64_t read = zip_source_read(source, bytes.data(), bytes.size());
  zip_source_close(source);
  if (read < 0 || static_cast<zip_uint64_t>(read) != stat.size) return failed();
  return bytes;
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
// expand to, or that is more than `left` bytes. Takes the member's size from `left`.
absl::StatusOr<std::string> ReadMember(zip_t* archive, zip_uint64_t archive_size,
                                       zip_uint64_t index, absl::string_view name,
                                       const NpzOptions& options, int64_t& left) {
  zip_stat_t stat;
  zip_stat_init(&stat);
  constexpr zip_uint64_t kNeeded = ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE;
  if (zip_stat_index(archive, index, 0, &stat) != 0 || (stat.valid & kNeeded) != kNeeded ||
      stat.comp_size > archive_size || stat.size / kMaxExpansion > stat.comp_size) {
    return absl::DataLossError(absl::StrCat(name, ": the archive gives no credible size"));
  }
  if (stat.size > static_cast<zip_uint64_t>(std::max<int64_t>(0, left))) {
    return absl::ResourceExhaustedError(absl::StrCat(
        name, ": unpacks to ", stat.size, " bytes from ", stat.comp_size, "; npz_limit_mib allows ",
        options.max_bytes >> 20, " MiB for the whole archive"));
  }
  left -= static_cast<int64_t>(stat.size);
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

// The members that are .npy arrays: the name of the array, and the member's bytes.
using Members = std::vector<std::pair<std::string, std::string>>;

// The members that `options` asks for. With `names_alone`, their bytes are not read.
absl::StatusOr<Members> ReadMembers(absl::string_view bytes, absl::string_view name,
                                    const NpzOptions& options, bool names_alone = false) {
  const absl::StatusOr<Archive> archive = OpenBytes(bytes, name);
  if (!archive.ok()) return archive.status();
  const zip_int64_t count = zip_get_num_entries(archive->get(), 0);
  Members members;
  std::set<std::string> seen;
  // Stored members take no more than the archive.
  int64_t left = std::max(options.max_bytes, static_cast<int64_t>(bytes.size()));
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
    const bool wanted = options.only.empty() || std::find(options.only.begin(), options.only.end(),
                                                          array_name) != options.only.end();
    if (!wanted) continue;
    members.emplace_back(std::string(array_name), "");
    if (names_alone) continue;
    VOXCONV_ASSIGN_OR_RETURN(members.back().second, ReadMember(archive->get(), bytes.size(), index,
                                                               member_name, options, left));
  }
  return members;
}

std::string MemberName(absl::string_view archive, absl::string_view array) {
  return absl::StrCat(archive, "[", array, ".npy]");
}

}  // namespace

absl::StatusOr<NpzArrays> ParseNpz(absl::string_view bytes, absl::string_view name,
                                   const NpzOptions& options) {
  VOXCONV_ASSIGN_OR_RETURN(Members members, ReadMembers(bytes, name, options));
  NpzArrays arrays;
  absl::Status left_out;
  for (auto& [array_name, member] : members) {
    absl::StatusOr<NpyArray> array = ParseNpy(member, MemberName(name, array_name));
    if (options.supported_only && absl::IsInvalidArgument(array.status())) {
      left_out.Update(array.status());
      continue;
    }
    if (!array.ok()) return array.status();
    arrays.emplace_back(array_name, *std::move(array));
    member = std::string();
  }
  if (arrays.empty() && !left_out.ok()) return left_out;
  return arrays;
}

absl::StatusOr<NpzArrays> ReadNpz(const std::string& path, const NpzOptions& options) {
  const absl::StatusOr<std::string> bytes = ReadFileBytes(path);
  if (!bytes.ok()) return bytes.status();
  return ParseNpz(*bytes, path, options);
}

absl::StatusOr<std::vector<std::string>> ListNpz(const std::string& path) {
  VOXCONV_ASSIGN_OR_RETURN(const std::string bytes, ReadFileBytes(path));
  return ListNpzOf(bytes, path);
}

absl::StatusOr<std::vector<std::string>> ListNpzOf(absl::string_view bytes,
                                                   absl::string_view name) {
  VOXCONV_ASSIGN_OR_RETURN(const Members members,
                           ReadMembers(bytes, name, {}, /*names_alone=*/true));
  std::vector<std::string> names;
  for (const auto& [array_name, member] : members) names.push_back(array_name);
  return names;
}

absl::StatusOr<std::vector<std::string>> ReadNpzText(const std::string& path,
                                                     absl::string_view array) {
  VOXCONV_ASSIGN_OR_RETURN(const std::string bytes, ReadFileBytes(path));
  VOXCONV_ASSIGN_OR_RETURN(const Members members,
                           ReadMembers(bytes, path, {.only = {std::string(array)}}));
  if (members.empty()) return std::vector<std::string>();
  return ParseNpyText(members[0].second, MemberName(path, array));
}

absl::StatusOr<std::string> SerializeNpz(const NpzArrays& arrays) {
  if (arrays.empty()) return absl::InvalidArgumentError("no arrays to write");
  NpzArrays::size_type index = 0;
  std::vector<std::string> members(arrays.size());  // outlives the archive, which reads from it
  for (const auto& [name, array] : arrays) {
    if (name.empty() || FindArray(arrays, name) != &array) {
      return absl::InvalidArgumentError(
          absl::StrCat("array name '", name, "' is empty or repeated"));
    }
    absl::StatusOr<std::string> bytes = SerializeNpy(array);
    if (!bytes.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": ", bytes.status().message()));
    }
    members[index++] = *std::move(bytes);
  }
  zip_error_t error;
  zip_error_init(&error);
  const Source memory(zip_source_buffer_create(nullptr, 0, 0, &error));
  zip_t* opened = nullptr;
  if (memory != nullptr) {
    zip_source_keep(memory.get());  // the archive takes one of the two references
    opened = zip_open_from_source(memory.get(), ZIP_TRUNCATE, &error);
    if (opened == nullptr) zip_source_free(memory.get());
  }
  if (opened == nullptr) {
    return absl::InternalError(absl::StrCat("no archive: ", TakeErrorMessage(error)));
  }
  Archive archive(opened);
  for (NpzArrays::size_type i = 0; i < arrays.size(); ++i) {
    const std::string file_name = absl::StrCat(arrays[i].first, ".npy");
    if (absl::Status status = AddMember(archive.get(), file_name, members[i]); !status.ok()) {
      return status;
    }
  }
  if (zip_close(archive.get()) != 0) {
    return absl::InternalError(absl::StrCat("no archive: ", zip_strerror(archive.get())));
  }
  static_cast<void>(archive.release());  // zip_close freed it
  std::vector<std::string>().swap(members);
  return ReadSource(memory.get());
}

absl::Status WriteNpz(const std::string& path, const NpzArrays& arrays) {
  const absl::StatusOr<std::string> bytes = SerializeNpz(arrays);
  if (!bytes.ok()) return StatusAt(path, bytes.status());
  return WriteFileBytes(path, *bytes);
}

}  // namespace voxconv
