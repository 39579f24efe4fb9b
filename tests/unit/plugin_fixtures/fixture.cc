// SPDX-License-Identifier: Apache-2.0
// Plugin libraries that are wrong in one way each, and one that is right; VOXCONV_FIXTURE_<CASE>
// chooses. They register under the name of their case, so that the test can tell them apart.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

#include "voxconv/core/plugin_api.h"

namespace {

// As little of a plugin as the registry takes; it is never created.
[[maybe_unused]] absl::Status RegisterStub(voxconv::Registry& registry, std::string name) {
  return registry.dataflows().Register(
      {.name = std::move(name), .summary = "test fixture"}, voxconv::BackendKind::kCpu,
      [](voxconv::Options) -> absl::StatusOr<std::unique_ptr<const voxconv::Dataflow>> {
        return absl::UnimplementedError("test fixture");
      });
}

[[maybe_unused]] absl::Status Register(voxconv::Registry& registry) {
#if defined(VOXCONV_FIXTURE_REGISTER_FAILS)
  // Leaves something behind, which the loader has to take back.
  if (absl::Status status = RegisterStub(registry, "left_behind"); !status.ok()) return status;
  return absl::UnavailableError("the fixture refuses to register");
#elif defined(VOXCONV_FIXTURE_REGISTERS_NOTHING)
  static_cast<void>(registry);
  return absl::OkStatus();
#elif defined(VOXCONV_FIXTURE_THROWS)
  static_cast<void>(registry);
  throw std::runtime_error("the fixture throws");
#elif defined(VOXCONV_FIXTURE_EXITS)
  static_cast<void>(registry);
  std::exit(0);
#elif defined(VOXCONV_FIXTURE_BAD_DEFAULT)
  voxconv::OptionSchema options;
  options.Int("block", 9, 1, 4, "");
  return registry.mappings().Describe({.name = "bad", .options = options});
#elif defined(VOXCONV_FIXTURE_DOUBLE_NAME)
  voxconv::OptionSchema options;
  options.Int("block", 1, 1, 4, "").Bool("block", true, "");
  return registry.mappings().Describe({.name = "bad", .options = options});
#elif defined(VOXCONV_FIXTURE_THROWS_INT)
  static_cast<void>(registry);
  throw 42;
#else
  return RegisterStub(registry, "fixture");
#endif
}

}  // namespace

#if defined(VOXCONV_FIXTURE_ABORTS)
__attribute__((constructor)) static void AbortOnLoad() {
  std::fputs("the fixture aborts\n", stderr);
  std::abort();
}
#endif

#if defined(VOXCONV_FIXTURE_NO_SYMBOL)
extern "C" void some_other_symbol() {}
#elif defined(VOXCONV_FIXTURE_UNDEFINED_SYMBOL)
extern "C" void voxconv_nobody_defines_this();
extern "C" const VoxconvPluginInfo* voxconv_plugin_info() {
  voxconv_nobody_defines_this();
  return nullptr;
}
#elif defined(VOXCONV_FIXTURE_NULL_INFO)
extern "C" const VoxconvPluginInfo* voxconv_plugin_info() { return nullptr; }
#elif defined(VOXCONV_FIXTURE_WRONG_ABI)
extern "C" const VoxconvPluginInfo* voxconv_plugin_info() {
  // The loader must not look past the version: the other members would not be there.
  static const uint32_t kVersionOnly = VOXCONV_PLUGIN_ABI_VERSION + 41;
  return reinterpret_cast<const VoxconvPluginInfo*>(&kVersionOnly);
}
#elif defined(VOXCONV_FIXTURE_WRONG_STAMP)
extern "C" const VoxconvPluginInfo* voxconv_plugin_info() {
  static constexpr VoxconvPluginInfo kInfo = {
      VOXCONV_PLUGIN_ABI_VERSION, "voxconv 0.0.0, another", "wrong_stamp", &Register,
      VOXCONV_CODE_TARGET,        VOXCONV_COMPILED_FOR};
  return &kInfo;
}
#elif defined(VOXCONV_FIXTURE_WRONG_PROCESSOR)
extern "C" const VoxconvPluginInfo* voxconv_plugin_info() {
  static constexpr VoxconvPluginInfo kInfo = {VOXCONV_PLUGIN_ABI_VERSION,
                                              VOXCONV_BUILD_STAMP,
                                              "wrong_processor",
                                              &Register,
                                              "AVX-4096",
                                              "AVX-4096"};
  return &kInfo;
}
#elif defined(VOXCONV_FIXTURE_INCOMPLETE)
extern "C" const VoxconvPluginInfo* voxconv_plugin_info() {
  static constexpr VoxconvPluginInfo kInfo = {
      VOXCONV_PLUGIN_ABI_VERSION, VOXCONV_BUILD_STAMP, "incomplete", nullptr,
      VOXCONV_CODE_TARGET,        VOXCONV_COMPILED_FOR};
  return &kInfo;
}
#elif defined(VOXCONV_FIXTURE_INFO_THROWS)
extern "C" const VoxconvPluginInfo* voxconv_plugin_info() {
  throw std::runtime_error("the info throws");
}
#elif defined(VOXCONV_FIXTURE_IN_NAMESPACE)
namespace fixture {
VOXCONV_PLUGIN(fixture, Register)
}  // namespace fixture
#else
VOXCONV_PLUGIN(fixture, Register)
#endif
