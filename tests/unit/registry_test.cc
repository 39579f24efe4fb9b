// SPDX-License-Identifier: Apache-2.0
#include "voxconv/core/registry.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace voxconv {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr BackendKind kCpu = BackendKind::kCpu;
constexpr BackendKind kCuda = BackendKind::kCuda;

OptionSchema Schema() {
  OptionSchema schema;
  schema.Enum("variant", {"naive", "full"}, "naive", "")
      .Bool("symmetric", false, "")
      .Int("block", 256, 1, 4096, "");
  return schema;
}

class NoOutputCoords final : public OutputCoords {
 public:
  explicit NoOutputCoords(Options options) : options_(std::move(options)) {}
  const Options& options() const override { return options_; }
  Support DoSupports(const ConvGeometry&) const override { return Support::Yes(); }

 protected:
  absl::StatusOr<CoordinateSetPtr> DoCompute(const CoordinateSet&, const ConvGeometry&,
                                             const ExecutionContext&) const override {
    return absl::UnimplementedError("");
  }

 private:
  Options options_;
};

using Family = PluginFamily<OutputCoords>;

// Refuses block=`refused`.
Family::Factory NoFactory(int64_t refused = 13) {
  return [refused](Options options) -> absl::StatusOr<std::unique_ptr<const OutputCoords>> {
    if (options.GetInt("block") == refused) return absl::UnimplementedError("refused");
    return std::make_unique<NoOutputCoords>(std::move(options));
  };
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(RegistryTest, NamesAreUniqueAndListedInOrder) {
  Family family("output_coords");
  ASSERT_TRUE(family.Register({.name = "zeta", .options = Schema()}, kCpu, NoFactory()).ok());
  ASSERT_TRUE(family.Register({.name = "alpha", .options = Schema()}, kCpu, NoFactory()).ok());
  EXPECT_EQ(family.Register({.name = "zeta"}, kCpu, NoFactory()).code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(family.Register({.name = "Zeta-2"}, kCpu, NoFactory()).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(family.entries().begin()->first, "alpha");
  EXPECT_THAT(Message(family.Create("beta", kCpu).status()),
              AllOf(HasSubstr("'beta'"), HasSubstr("alpha, zeta")));
  EXPECT_THAT(Message(family.Create("zeta:block=0", kCpu).status()),
              AllOf(HasSubstr("zeta"), HasSubstr("1..4096")));
  EXPECT_EQ(*family.Canonical("zeta:block=256,variant=full"), "zeta:variant=full");
  const absl::StatusOr<std::string> in_full = family.InFull("zeta:variant=full");
  ASSERT_TRUE(in_full.ok()) << in_full.status();
  EXPECT_THAT(*in_full, AllOf(HasSubstr("variant=full"), HasSubstr("block=256")));
  EXPECT_EQ(*family.InFull(*in_full), *in_full);
  EXPECT_FALSE(family.InFull("beta").ok());
}

TEST(RegistryTest, VariantsAreTheProductOfEnumsAndBoolsAndTheExtraOnes) {
  Family family("output_coords");
  ASSERT_TRUE(
      family
          .Register({.name = "a", .options = Schema(), .extra_variants = {"block=1", "block=13"}},
                    kCpu, NoFactory())
          .ok());
  EXPECT_THAT(family.Variants(kCpu), ElementsAre("a", "a:symmetric=true", "a:variant=full",
                                                 "a:variant=full,symmetric=true", "a:block=1"));
  EXPECT_THAT(family.EnumVariants(kCpu), ElementsAre("a", "a:variant=full"));
}

TEST(RegistryTest, AVariantWithWhichTheFactoryThrowsIsKept) {
  const auto throws_where = [](const std::string& variant) -> Family::Factory {
    return [variant](Options options) -> absl::StatusOr<std::unique_ptr<const OutputCoords>> {
      if (variant.empty() || options.GetEnum("variant") == variant) throw std::runtime_error("no");
      return std::make_unique<NoOutputCoords>(std::move(options));
    };
  };
  Family family("output_coords");
  ASSERT_TRUE(family.Register({.name = "a", .options = Schema()}, kCpu, throws_where("full")).ok());
  ASSERT_TRUE(family.Register({.name = "b", .options = Schema()}, kCpu, throws_where("")).ok());
  EXPECT_THAT(family.EnumVariants(kCpu), ElementsAre("a", "a:variant=full"));
  EXPECT_THAT(family.Unusable(kCpu), SizeIs(1));
}

TEST(RegistryTest, RefusesMoreVariantsThanCanBeListed) {
  for (const int bools : {12, 13, 24, 200}) {
    OptionSchema schema;
    schema.Int("block", 1, 1, 2, "");
    for (int i = 0; i < bools; ++i) schema.Bool("option" + std::to_string(i), false, "");
    Family family("output_coords");
    const absl::Status status =
        family.Register({.name = "many", .options = schema}, kCpu, NoFactory());
    EXPECT_EQ(status.ok(), bools == 12) << status;
    if (status.ok()) continue;
    EXPECT_THAT(Message(status),
                AllOf(HasSubstr("'many'"), HasSubstr("more than 4096"), HasSubstr("'option12'")));
  }
}

TEST(RegistryTest, APluginIsMadeByTheFactoryOfItsBackend) {
  Family family("output_coords");
  ASSERT_TRUE(
      family.Describe({.name = "a", .options = Schema(), .extra_variants = {"block=13"}}).ok());
  EXPECT_EQ(Message(family.Create("a", kCpu).status()),
            "output_coords a: it has no implementation for backend cpu; it has none");
  ASSERT_TRUE(family.Implement("a", kCuda, NoFactory()).ok());
  const absl::Status missing = family.Create("a", kCpu).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(Message(missing),
            "output_coords a: it has no implementation for backend cpu; it has cuda");
  EXPECT_THAT(family.Variants(kCpu), IsEmpty());
  ASSERT_THAT(family.Unusable(kCpu), SizeIs(1));
  EXPECT_EQ(family.Unusable(kCpu)[0].second, missing);
  EXPECT_THAT(family.Unusable(kCuda), IsEmpty());
  // Of another backend another variant may be refused.
  ASSERT_TRUE(family.Implement("a", kCpu, NoFactory(/*refused=*/256)).ok());
  EXPECT_THAT(family.Variants(kCpu), ElementsAre("a:block=13"));
  EXPECT_THAT(family.Variants(kCuda), SizeIs(4));
}

TEST(RegistryTest, ImplementRefusesWhatIsNotDescribedOrThereAlready) {
  Family family("output_coords");
  EXPECT_EQ(family.Implement("a", kCpu, NoFactory()),
            absl::NotFoundError("output_coords plugin 'a' is implemented, but not described"));
  ASSERT_TRUE(family.Register({.name = "a", .options = Schema()}, kCpu, NoFactory()).ok());
  EXPECT_EQ(
      family.Implement("a", kCpu, NoFactory()),
      absl::AlreadyExistsError("output_coords plugin 'a' is implemented for backend cpu already"));
  EXPECT_EQ(family.Implement("a", kCuda, nullptr),
            absl::InvalidArgumentError("output_coords plugin 'a' has no factory"));
}

TEST(RegistryTest, AThirdBackendSharesWhatAnotherOneHas) {
  constexpr BackendKind kThird("third");
  Family family("output_coords");
  ASSERT_TRUE(family.Register({.name = "cpu", .options = Schema()}, kCpu, NoFactory()).ok());
  ASSERT_TRUE(family.Register({.name = "cuda", .options = Schema()}, kCuda, NoFactory()).ok());
  ASSERT_TRUE(family.Register({.name = "own", .options = Schema()}, kCpu, NoFactory()).ok());
  ASSERT_TRUE(family.Implement("own", kThird, NoFactory(/*refused=*/7)).ok());
  family.Share(kCpu, kThird);
  EXPECT_TRUE(family.Create("cpu", kThird).ok());
  EXPECT_THAT(Message(family.Create("cuda", kThird).status()),
              HasSubstr("no implementation for backend third; it has cuda"));
  // What the backend has of its own stays.
  EXPECT_FALSE(family.Create("own:block=7", kThird).ok());
  EXPECT_TRUE(family.Create("own:block=13", kThird).ok());
  // What is registered afterwards is not shared.
  ASSERT_TRUE(family.Register({.name = "late", .options = Schema()}, kCpu, NoFactory()).ok());
  EXPECT_FALSE(family.Create("late", kThird).ok());
}

std::string RegistrationError(std::string name, OptionSchema schema) {
  Registry registry;
  return Message(registry.output_coords().Register(
      {.name = std::move(name), .options = std::move(schema)}, kCpu, NoFactory()));
}

TEST(RegistryTest, RefusesOptionsThatCannotBeWrittenOrDoNotHold) {
  const auto error = [](OptionSchema schema) { return RegistrationError("p", std::move(schema)); };
  EXPECT_EQ(error(Schema()), "");
  EXPECT_EQ(error(OptionSchema().Int("block", 5, 10, 20, "")),
            "output_coords plugin 'p': default of option block='5': allowed are 10..20");
  EXPECT_THAT(error(OptionSchema().Int("block", 5, 20, 10, "")), HasSubstr("20..10"));
  EXPECT_THAT(error(OptionSchema().Float("f", 2, 0, 1, "")), HasSubstr("f='2': allowed are 0..1"));
  EXPECT_THAT(error(OptionSchema().Enum("v", {"a", "b"}, "c", "")), HasSubstr("v='c'"));
  EXPECT_THAT(error(OptionSchema().Enum("v", {}, "", "")), HasSubstr("option v has no choices"));
  EXPECT_THAT(error(OptionSchema().Enum("v", {"a", "a"}, "a", "")),
              HasSubstr("'a' more than once"));
  EXPECT_THAT(error(OptionSchema().Enum("v", {"a,b", "c"}, "c", "")),
              AllOf(HasSubstr("option v"), HasSubstr("'a,b'")));
  EXPECT_THAT(error(OptionSchema().Bool("a=b", true, "")), HasSubstr("'a=b'"));
  EXPECT_THAT(error(OptionSchema().Bool("", true, "")), HasSubstr("option name ''"));
  EXPECT_THAT(error(OptionSchema().Bool("x", true, "").Int("x", 1, 0, 2, "")),
              HasSubstr("option x is declared more than once"));
}

TEST(RegistryTest, RefusesVerifysOwnNameAndAMissingFactory) {
  EXPECT_THAT(RegistrationError("reference", {}), HasSubstr("'reference'"));
  Registry registry;
  EXPECT_THAT(Message(registry.mappings().Register({.name = "p"}, kCpu, nullptr)),
              HasSubstr("mapping plugin 'p' has no factory"));
}

TEST(RegistryTest, FactoriesThatReturnNullOrThrowAreErrors) {
  Registry registry;
  auto& family = registry.mappings();
  using Made = absl::StatusOr<std::unique_ptr<const Mapping>>;
  ASSERT_TRUE(
      family.Register({.name = "null"}, kCpu, [](const Options&) -> Made { return nullptr; }).ok());
  ASSERT_TRUE(family
                  .Register({.name = "throws"}, kCpu,
                            [](const Options&) -> Made { throw std::runtime_error("boom"); })
                  .ok());
  ASSERT_TRUE(
      family.Register({.name = "throws_int"}, kCpu, [](const Options&) -> Made { throw 42; }).ok());
  EXPECT_EQ(family.Create("null", kCpu).status(),
            absl::InternalError("mapping null: its factory returned null"));
  EXPECT_EQ(family.Create("throws", kCpu).status(),
            absl::InternalError("mapping throws: exception: boom"));
  EXPECT_EQ(family.Create("throws_int", kCpu).status(),
            absl::InternalError("mapping throws_int: exception of an unknown type"));
  EXPECT_THAT(family.Variants(kCpu), IsEmpty());
  EXPECT_THAT(family.Unusable(kCpu), SizeIs(3));
}

// What only one backend has can stand in a spec that runs on both.
TEST(RegistryTest, OptionsOfOneBackend) {
  Family family("output_coords");
  ASSERT_TRUE(family.Describe({.name = "x", .options = Schema()}).ok());
  for (const BackendKind backend : {kCpu, kCuda}) {
    ASSERT_TRUE(family.Implement("x", backend, NoFactory()).ok());
  }
  const std::string spec = "x:cuda.block=32,symmetric=true";
  const auto on_cuda = family.Create(spec, kCuda);
  ASSERT_TRUE(on_cuda.ok()) << on_cuda.status();
  EXPECT_EQ((*on_cuda)->options().GetInt("block"), 32);
  const auto on_cpu = family.Create(spec, kCpu);
  ASSERT_TRUE(on_cpu.ok()) << on_cpu.status();
  EXPECT_EQ((*on_cpu)->options().GetInt("block"), 256);
  EXPECT_EQ(*family.Canonical(spec), "x:symmetric=true,cuda.block=32");
  EXPECT_EQ(*family.Canonical("x:cuda.block=32"), "x:cuda.block=32");
  EXPECT_EQ(*family.Canonical("x:cuda.block=256"), "x");
  EXPECT_EQ(*family.InFull(*family.InFull(spec)),
            "x:variant=naive,symmetric=true,block=256,cuda.block=32");
  const auto in_full = family.Create(*family.InFull(spec), kCuda);
  ASSERT_TRUE(in_full.ok()) << in_full.status();
  EXPECT_EQ((*in_full)->options().GetInt("block"), 32);
  EXPECT_THAT(Message(family.Canonical("x:cuda.block=0").status()),
              HasSubstr("on cuda: option block='0': allowed are 1..4096"));
  EXPECT_THAT(Message(family.Canonical("x:cuda.blocks=1").status()),
              HasSubstr("option 'blocks' is unknown"));
  EXPECT_THAT(Message(family.Create("x:block=2,cuda.block=3", kCuda).status()),
              HasSubstr("given more than once"));
  EXPECT_THAT(Message(family.Canonical("x:tpu.block=3").status()),
              HasSubstr("option 'tpu.block' is unknown"));
}

}  // namespace
}  // namespace voxconv
