// SPDX-License-Identifier: Apache-2.0
// Plugin specs and option strings: whatever parses must print back to itself.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "voxconv/core/options.h"

namespace {

const voxconv::OptionSchema& Schema() {
  static const auto* schema = [] {
    auto* s = new voxconv::OptionSchema;
    s->Enum("variant", {"naive", "full"}, "naive", "").Bool("symmetric", false, "");
    s->Int("block", 256, 1, 4096, "").Float("epsilon", 0.5, 0, 1, "");
    return s;
  }();
  return *schema;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto spec = voxconv::ParsePluginSpec(text);
  if (!spec.ok()) return 0;
  const auto options = voxconv::Options::Parse(Schema(), spec->options);
  if (!options.ok()) return 0;
  for (const std::string& printed : {options->ToString(), options->ToShortString()}) {
    const auto again = voxconv::Options::Parse(Schema(), printed);
    if (!again.ok() || !(*again == *options)) std::abort();
  }
  return 0;
}
