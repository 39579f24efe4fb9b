// SPDX-License-Identifier: Apache-2.0
// Reads values from JSON that people write, and checks them.
#ifndef VOXCONV_MEASURE_JSON_READER_H_
#define VOXCONV_MEASURE_JSON_READER_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "voxconv/measure/json_file.h"

namespace voxconv::measure {

// Reads one object of a document. The first mistake is kept in `error`, such as "key 'inputs[2].x'
// is "far"; allowed are numbers". Values that are read after a mistake are the fallbacks. A key
// whose value is null counts as absent.
class JsonReader {
 public:
  // Refuses a value that is not an object, and keys that are not among `keys`. `path` is the path
  // of the object, empty for the document. `object` and `error` must outlive the reader.
  JsonReader(const Json& object, std::string path, absl::Span<const char* const> keys,
             absl::Status& error);
  // The same, and any key is allowed.
  JsonReader(const Json& object, std::string path, absl::Status& error);

  bool Has(const char* key) const { return Find(key) != nullptr; }
  const Json* Find(const char* key) const;

  // Without a fallback the key is required.
  std::string Text(const char* key, const std::optional<std::string>& fallback = std::nullopt);
  std::string OneOf(const char* key, absl::Span<const std::string> allowed,
                    const std::optional<std::string>& fallback = std::nullopt);
  int64_t Integer(const char* key, int64_t least, int64_t most,
                  const std::optional<int64_t>& fallback = std::nullopt);
  std::optional<double> Number(const char* key);
  bool Flag(const char* key, bool fallback);
  std::vector<std::string> Texts(const char* key);
  // One integer or three.
  std::optional<std::string> Triple(const char* key);
  // The object under a required key; an empty one where it is missing.
  const Json& Object(const char* key);
  // Calls `each` with every element of an array and the element's path. Refuses a value that is not
  // an array. Does nothing if the key is absent.
  void Each(const char* key,
            const std::function<void(const Json& element, const std::string& path)>& each);

  std::string PathOf(const char* key) const;
  // Keeps "key 'PATH' is VALUE; allowed ...".
  void Refuse(const char* key, absl::string_view allowed);
  absl::Status& error() { return error_; }

 private:
  const Json& object_;
  std::string path_;
  absl::Status& error_;
};

// Does what JsonReader::Refuse does, for a value that is not the value of a key, such as an element
// of an array. An empty path stands for the document.
void RefuseValue(const std::string& path, const Json& value, absl::string_view allowed,
                 absl::Status& error);

}  // namespace voxconv::measure

#endif  // VOXCONV_MEASURE_JSON_READER_H_
