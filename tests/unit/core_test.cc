// Options, registry, geometry, coordinates and kernel maps by hand-made cases.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/cpu/cpu_backend.h"
#include "core/coordinate_key.h"
#include "core/coordinate_set.h"
#include "core/fnv.h"
#include "core/geometry.h"
#include "core/options.h"
#include "core/random.h"
#include "core/registry.h"

namespace voxconv {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

OptionSchema Schema() {
  OptionSchema schema;
  schema.Enum("variant", {"naive", "full"}, "naive", "")
      .Bool("symmetric", false, "")
      .Int("block", 256, 1, 4096, "")
      .Float("epsilon", 0.1, 0, 1, "");
  return schema;
}

// The published test vectors.
TEST(FnvTest, HashesAreFnv1a) {
  EXPECT_EQ(HashFnv1a(""), 0xcbf29ce484222325);
  EXPECT_EQ(HashFnv1a("a"), 0xaf63dc4c8601ec8c);
  EXPECT_EQ(HashFnv1a("foobar"), 0x85944171f73967e8);
  Fnv1a words;
  words.AddWord(0x00636261);
  EXPECT_EQ(words.value(), HashFnv1a(absl::string_view("abc\0", 4)));
}

// The 10,000th draw of mt19937_64 is fixed by the C++ standard, and with it what is made of draws.
TEST(RandomTest, DrawsAreTheStandardEngines) {
  Random random(std::mt19937_64::default_seed);
  for (int i = 1; i < 10000; ++i) random.Uniform();
  EXPECT_EQ(random.Uniform(), static_cast<double>(9981545732273789042u >> 11) * 0x1p-53);
}

std::string ErrorOf(absl::string_view text) {
  const auto options = Options::Parse(Schema(), text);
  return options.ok() ? "no error" : std::string(options.status().message());
}

TEST(OptionsTest, DefaultsAndRoundTrip) {
  const auto defaults = Options::Parse(Schema(), "");
  ASSERT_TRUE(defaults.ok());
  EXPECT_EQ(defaults->ToString(), "variant=naive,symmetric=false,block=256,epsilon=0.1");
  EXPECT_EQ(defaults->ToShortString(), "");
  const auto options = Options::Parse(Schema(), "epsilon=3.0e-1,block=0017,symmetric=true");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->ToShortString(), "symmetric=true,block=17,epsilon=0.3");
  EXPECT_EQ(options->GetInt("block"), 17);
  EXPECT_EQ(options->GetFloat("epsilon"), 0.3);
  EXPECT_EQ(options->GetEnum("variant"), "naive");
  EXPECT_TRUE(options->GetBool("symmetric"));
  EXPECT_EQ(*Options::Parse(Schema(), options->ToString()), *options);
  EXPECT_EQ(*Options::Parse(Schema(), options->ToShortString()), *options);
}

TEST(OptionsTest, RefusalsNameKeyValueAndWhatIsAllowed) {
  EXPECT_THAT(ErrorOf("variant=fast"), AllOf(HasSubstr("variant='fast'"), HasSubstr("naive|full")));
  EXPECT_THAT(ErrorOf("block=0"), AllOf(HasSubstr("block='0'"), HasSubstr("1..4096")));
  EXPECT_THAT(ErrorOf("block=1e3"), HasSubstr("1..4096"));
  EXPECT_THAT(ErrorOf("block=99999999999999999999"), HasSubstr("1..4096"));
  EXPECT_THAT(ErrorOf("epsilon=nan"), HasSubstr("0..1"));
  EXPECT_THAT(ErrorOf("symmetric=1"), HasSubstr("true|false"));
  EXPECT_THAT(ErrorOf("speed=1"), AllOf(HasSubstr("'speed'"), HasSubstr("variant, symmetric")));
  EXPECT_THAT(ErrorOf("block=1,block=2"), HasSubstr("more than once"));
  EXPECT_THAT(ErrorOf("block"), HasSubstr("key=value"));
  EXPECT_THAT(ErrorOf("block=1,"), HasSubstr("key=value"));
  EXPECT_FALSE(ParsePluginSpec(":variant=full").ok());
}

class NoOutputCoords final : public OutputCoords {
 public:
  explicit NoOutputCoords(Options options) : options_(std::move(options)) {}
  const Options& options() const override { return options_; }
  Support Supports(const ConvGeometry&, BackendKind) const override { return Support::Yes(); }
  absl::StatusOr<CoordinateSetPtr> Compute(const CoordinateSet&, const ConvGeometry&,
                                           const ExecutionContext&) const override {
    return absl::UnimplementedError("");
  }

 private:
  Options options_;
};

PluginFamily<OutputCoords>::Factory NoFactory() {
  return [](Options options) -> absl::StatusOr<std::unique_ptr<const OutputCoords>> {
    if (options.GetInt("block") == 13) return absl::UnimplementedError("no thirteen");
    return std::make_unique<NoOutputCoords>(std::move(options));
  };
}

TEST(RegistryTest, NamesAreUniqueAndListedInOrder) {
  Registry registry;
  auto& family = registry.output_coords();
  ASSERT_TRUE(family.Register({.name = "zeta", .options = Schema()}, NoFactory()).ok());
  ASSERT_TRUE(family.Register({.name = "alpha", .options = Schema()}, NoFactory()).ok());
  EXPECT_EQ(family.Register({.name = "zeta"}, NoFactory()).code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(family.Register({.name = "Zeta-2"}, NoFactory()).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(family.entries().begin()->first, "alpha");
  EXPECT_THAT(std::string(family.Create("beta").status().message()),
              AllOf(HasSubstr("'beta'"), HasSubstr("alpha, zeta")));
  EXPECT_THAT(std::string(family.Create("zeta:block=0").status().message()),
              AllOf(HasSubstr("zeta"), HasSubstr("1..4096")));
  EXPECT_EQ(*family.Canonical("zeta:block=256,variant=full"), "zeta:variant=full");
}

TEST(RegistryTest, VariantsAreTheProductOfEnumsAndBoolsAndTheExtraOnes) {
  Registry registry;
  auto& family = registry.output_coords();
  ASSERT_TRUE(
      family
          .Register({.name = "a", .options = Schema(), .extra_variants = {"block=1", "block=13"}},
                    NoFactory())
          .ok());
  EXPECT_THAT(family.Variants(), ElementsAre("a", "a:symmetric=true", "a:variant=full",
                                             "a:variant=full,symmetric=true", "a:block=1"));
}

std::string RegistrationError(std::string name, OptionSchema schema) {
  Registry registry;
  return std::string(
      registry.output_coords()
          .Register({.name = std::move(name), .options = std::move(schema)}, NoFactory())
          .message());
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
  EXPECT_THAT(std::string(registry.mappings().Register({.name = "p"}, nullptr).message()),
              HasSubstr("mapping plugin 'p' has no factory"));
}

TEST(RegistryTest, FactoriesThatReturnNullOrThrowAreErrors) {
  Registry registry;
  auto& family = registry.mappings();
  using Made = absl::StatusOr<std::unique_ptr<const Mapping>>;
  ASSERT_TRUE(family.Register({.name = "null"}, [](Options) -> Made { return nullptr; }).ok());
  ASSERT_TRUE(
      family.Register({.name = "throws"}, [](Options) -> Made { throw std::runtime_error("boom"); })
          .ok());
  ASSERT_TRUE(family.Register({.name = "throws_int"}, [](Options) -> Made { throw 42; }).ok());
  EXPECT_EQ(family.Create("null").status(),
            absl::InternalError("mapping null: its factory returned null"));
  EXPECT_EQ(family.Create("throws").status(),
            absl::InternalError("mapping throws: exception: boom"));
  EXPECT_EQ(family.Create("throws_int").status(),
            absl::InternalError("mapping throws_int: exception of an unknown type"));
  EXPECT_THAT(family.Variants(), ::testing::IsEmpty());
  EXPECT_THAT(family.Unusable(), ::testing::SizeIs(3));
}

TEST(CoordinateKeyTest, OrderPreservingAndReversible) {
  const std::vector<Coordinate> ascending = {
      {0, kMinCoordinate, kMinCoordinate, kMinCoordinate},
      {0, -1, 5, 7},
      {0, 0, kMinCoordinate, 0},
      {0, 0, 0, -1},
      {0, 0, 0, 0},
      {1, kMinCoordinate, 0, 0},
      {kMaxBatch, kMaxCoordinate, kMaxCoordinate, kMaxCoordinate}};
  for (size_t i = 0; i < ascending.size(); ++i) {
    EXPECT_EQ(UnpackKey(PackKey(ascending[i])), ascending[i]);
    if (i > 0) {
      EXPECT_LT(PackKey(ascending[i - 1]), PackKey(ascending[i]));
    }
  }
  const Int3 d = {-3, 4, -5};
  EXPECT_EQ(PackKey({2, 10, -20, 30}) + KeyDelta(d), PackKey({2, 7, -16, 25}));
  EXPECT_NE(PackKey(ascending[0]), kEmptyKey);
}

GeometryParams Strided(Int3 kernel, Int3 stride) {
  return {.kind = ConvKind::kStrided, .kernel = kernel, .stride = stride};
}

TEST(GeometryTest, OffsetsAreOrderedWithZFastest) {
  const auto geometry = ConvGeometry::Create({.kernel = {3, 1, 2}, .dilation = {2, 1, 3}});
  ASSERT_TRUE(geometry.ok());
  ASSERT_EQ(geometry->num_offsets(), 6);
  EXPECT_EQ(geometry->KernelOffset(0), (Int3{-2, 0, 0}));
  EXPECT_EQ(geometry->KernelOffset(1), (Int3{-2, 0, 3}));
  EXPECT_EQ(geometry->KernelOffset(5), (Int3{2, 0, 3}));
  EXPECT_FALSE(geometry->symmetric());
  EXPECT_EQ(geometry->center(), 2);
}

TEST(GeometryTest, OddSubmanifoldIsSymmetric) {
  const auto geometry = ConvGeometry::Create({.input_tensor_stride = {4, 4, 4}});
  ASSERT_TRUE(geometry.ok());
  EXPECT_TRUE(geometry->symmetric());
  EXPECT_EQ(geometry->center(), 13);
  for (int k = 0; k < 27; ++k) {
    const Int3 d = geometry->InputOffset(k);
    EXPECT_EQ(geometry->InputOffset(26 - k), (Int3{-d.x, -d.y, -d.z}));
  }
  EXPECT_EQ(geometry->InputOffset(0), (Int3{-4, -4, -4}));
}

TEST(GeometryTest, InverseNegatesTheOffsetsOfStrided) {
  GeometryParams params = Strided({3, 3, 3}, {2, 2, 2});
  params.rule = OutputRule::kDilate;
  params.padding = {1, 0, -1};
  const auto strided = ConvGeometry::Create(params);
  ASSERT_TRUE(strided.ok());
  EXPECT_EQ(strided->output_tensor_stride(), (Int3{2, 2, 2}));
  EXPECT_EQ(strided->InputOffset(0), (Int3{-2, -1, 0}));
  const auto inverse = ConvGeometry::InverseOf(*strided);
  ASSERT_TRUE(inverse.ok()) << inverse.status();
  EXPECT_EQ(inverse->input_tensor_stride(), (Int3{2, 2, 2}));
  EXPECT_EQ(inverse->output_tensor_stride(), (Int3{1, 1, 1}));
  EXPECT_EQ(inverse->InputOffset(0), (Int3{2, 1, 0}));
  EXPECT_FALSE(ConvGeometry::InverseOf(*inverse).ok());
}

TEST(GeometryTest, RefusesWhatItCannotMean) {
  const auto error = [](GeometryParams params) {
    const auto geometry = ConvGeometry::Create(params);
    return geometry.ok() ? std::string("no error") : std::string(geometry.status().message());
  };
  EXPECT_THAT(error({.kernel = {0, 3, 3}}), HasSubstr("kernel 0x3x3"));
  EXPECT_THAT(error({.kernel = {100, 100, 100}}), HasSubstr("32768"));
  EXPECT_THAT(error({.kernel = {100000, 100000, 100000}}), HasSubstr("32768"));
  EXPECT_THAT(error({.stride = {2, 2, 2}}), HasSubstr("stride 2"));
  EXPECT_THAT(error({.dilation = {1, 0, 1}}), HasSubstr("dilation 1x0x1"));
  EXPECT_THAT(error({.padding = {1, 1, 1}}), HasSubstr("padding 1"));
  EXPECT_THAT(error({.dilation = {50000, 1, 1}}), HasSubstr("coordinate range"));
  GeometryParams transposed = Strided({2, 2, 2}, {2, 2, 2});
  transposed.kind = ConvKind::kTransposed;
  EXPECT_THAT(error(transposed), HasSubstr("divide"));
}

class CoordinateSetTest : public ::testing::Test {
 protected:
  CoordinateSetTest() : backend_(*CpuBackend::Create({.threads = 1})) {}
  ExecutionContext context() { return {backend_.get(), &backend_->main_stream()}; }
  std::string ErrorOf(std::vector<Coordinate> rows, Int3 stride = {1, 1, 1}) {
    const auto set = CoordinateSet::Create(rows, stride, context());
    return set.ok() ? "no error" : std::string(set.status().message());
  }
  std::unique_ptr<CpuBackend> backend_;
};

TEST_F(CoordinateSetTest, KnowsBoundsBatchesAndOrder) {
  const std::vector<Coordinate> rows = {{0, -4, 2, 6}, {2, 8, -2, 0}};
  const auto set = CoordinateSet::Create(rows, {2, 2, 2}, context());
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ((*set)->bounds(), (Box{{-4, -2, 0}, {8, 2, 6}}));
  EXPECT_EQ((*set)->num_batches(), 3);
  EXPECT_TRUE((*set)->sorted());
  EXPECT_TRUE((*set)->StaysInRange({{1, 1, 1}}));
  EXPECT_FALSE((*set)->StaysInRange({{0, 0, 0}, {kMaxCoordinate, 0, 0}}));
  const auto reversed = CoordinateSet::Create({rows[1], rows[0]}, {2, 2, 2}, context());
  ASSERT_TRUE(reversed.ok());
  EXPECT_FALSE((*reversed)->sorted());
  EXPECT_NE((*reversed)->id(), (*set)->id());
}

TEST_F(CoordinateSetTest, RefusesBadRows) {
  EXPECT_THAT(ErrorOf({{0, 1, 2, 3}, {0, 1, 2, 4}, {0, 1, 2, 3}}),
              AllOf(HasSubstr("row 2"), HasSubstr("row 0")));
  EXPECT_THAT(ErrorOf({{-1, 0, 0, 0}}), HasSubstr("batch -1"));
  EXPECT_THAT(ErrorOf({{512, 0, 0, 0}}), HasSubstr("batch 512"));
  EXPECT_THAT(ErrorOf({{0, 0, -131073, 0}}), HasSubstr("y = -131073"));
  EXPECT_THAT(ErrorOf({{0, 2, 2, 3}}, {2, 2, 2}), HasSubstr("z = 3"));
  EXPECT_THAT(ErrorOf({}, {0, 1, 1}), HasSubstr("tensor stride 0x1x1"));
  EXPECT_EQ(ErrorOf({}), "no error");
}

TEST_F(CoordinateSetTest, MemoryLimitIsAStatus) {
  auto small = CpuBackend::Create({.threads = 1, .memory_limit = 100});
  ASSERT_TRUE(small.ok());
  const ExecutionContext limited = {small->get(), &(*small)->main_stream()};
  const std::vector<Coordinate> rows(10);
  const auto set = CopyToBackend<Coordinate>(rows, limited);
  EXPECT_EQ(set.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(set.status().message()), AllOf(HasSubstr("160"), HasSubstr("100")));
  EXPECT_FALSE(CpuBackend::Create({.threads = -1}).ok());
  EXPECT_FALSE(CpuBackend::Create({.memory_limit = -1}).ok());
}

// 8,000 bytes of pairs: the result fits the limit, the scratch beside it does not.
TEST_F(CoordinateSetTest, ScratchOfConversionsCountsAgainstTheLimit) {
  auto small = CpuBackend::Create({.threads = 1, .memory_limit = 20000});
  ASSERT_TRUE(small.ok());
  const ExecutionContext limited = {small->get(), &(*small)->main_stream()};
  std::vector<int32_t> rows(1000);
  for (int32_t i = 0; i < 1000; ++i) rows[i] = i;
  PairList pairs{*CopyToBackend<int32_t>(rows, limited), *CopyToBackend<int32_t>(rows, limited)};
  const KernelMap map(1000, 1000, {0, 1000}, {}, std::move(pairs));
  EXPECT_EQ((*small)->TransposeKernelMap(map, limited).status().code(),
            absl::StatusCode::kResourceExhausted);
  const auto sorted =
      (*small)->ConvertKernelMap(map, {MapLayout::kMaskSorted, MaskOrder::kMask}, limited);
  EXPECT_EQ(sorted.status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(CoordinateSetTest, ValidateFindsWrongMaps) {
  const auto make = [&](std::vector<int32_t> in, std::vector<int32_t> out,
                        std::vector<int64_t> offset_ptr) {
    PairList pairs{*CopyToBackend<int32_t>(in, context()), *CopyToBackend<int32_t>(out, context())};
    return KernelMap(3, 3, std::move(offset_ptr), {}, std::move(pairs)).Validate(context());
  };
  EXPECT_TRUE(make({0, 1, 2}, {0, 1, 1}, {0, 2, 3}).ok());
  EXPECT_FALSE(make({0, 1, 2}, {1, 0, 1}, {0, 2, 3}).ok());  // does not ascend
  EXPECT_FALSE(make({0, 1, 3}, {0, 1, 1}, {0, 2, 3}).ok());  // no such input
  EXPECT_FALSE(make({0, 1}, {0, 1}, {0, 2, 3}).ok());        // pairs missing
  EXPECT_FALSE(make({0, 1, 2}, {0, 1, 1}, {0, 2, 1}).ok());  // pointers descend
}

// Sizes are looked at before anything reads by them: a table is counted before it is checked.
TEST_F(CoordinateSetTest, ValidateFindsTablesOfTheWrongSize) {
  using Counts = std::vector<int64_t>;
  const auto make = [&](int64_t entries, std::vector<uint32_t> masks, Counts offset_ptr) {
    NeighbourTable table{
        .table = *CopyToBackend<int32_t>(std::vector<int32_t>(entries, 0), context()),
        .masks = *CopyToBackend<uint32_t>(masks, context())};
    const LayoutRequest layout{MapLayout::kNeighbourTable};
    const KernelMap map = offset_ptr.empty()
                              ? KernelMap(2, 2, /*num_offsets=*/3, layout, std::move(table))
                              : KernelMap(2, 2, std::move(offset_ptr), layout, std::move(table));
    return std::string(map.Validate(context()).message());
  };
  EXPECT_EQ(make(6, {}, {}), "");
  EXPECT_EQ(make(6, {7, 7}, {0, 2, 4, 6}), "");
  EXPECT_THAT(make(3, {}, {}), HasSubstr("table has 3 entries instead of 6"));
  EXPECT_THAT(make(6, {7}, {}), HasSubstr("masks has 1 entries instead of 2"));
  EXPECT_THAT(make(6, {7, 6}, {}), HasSubstr("mask of row 1 is wrong at offset 0"));
  EXPECT_THAT(make(6, {7, 15}, {}), HasSubstr("mask of row 1 is wrong at offset 3"));
  EXPECT_THAT(make(6, {}, {0, 2, 4}), HasSubstr("table has 6 entries instead of 4"));
  EXPECT_THAT(make(6, {}, {0, 2, 4, 7}), HasSubstr("instead of 3"));
}

TEST_F(CoordinateSetTest, ValidateFindsStorageOfAnotherLayout) {
  const KernelMap table(0, 0, {0}, {MapLayout::kNeighbourTable}, PairList());
  EXPECT_THAT(std::string(table.Validate(context()).message()),
              AllOf(HasSubstr("neighbour_table"), HasSubstr("pairs")));
  const KernelMap uncounted(0, 0, /*num_offsets=*/1, {}, PairList());
  EXPECT_THAT(std::string(uncounted.Validate(context()).message()), HasSubstr("not counted"));
}

// The flags of a saved map come from its geometry, its pairs from the file: a dataflow would read
// inputs that are not there.
TEST_F(CoordinateSetTest, ValidateFindsFlagsThatDoNotHold) {
  const auto make = [&](int64_t inputs, std::vector<int32_t> rows, std::vector<int64_t> offset_ptr,
                        int identity, bool symmetric) {
    PairList pairs{*CopyToBackend<int32_t>(rows, context()),
                   *CopyToBackend<int32_t>(rows, context())};
    KernelMap map(inputs, 2, std::move(offset_ptr), {}, std::move(pairs));
    map.set_identity_offset(identity);
    map.set_symmetric(symmetric);
    return map.Validate(context());
  };
  EXPECT_TRUE(make(2, {0, 1}, {0, 0, 2, 2}, 1, true).ok());
  EXPECT_FALSE(make(2, {0}, {0, 0, 1, 1}, 1, true).ok());        // a row does not meet itself
  EXPECT_FALSE(make(3, {0, 1}, {0, 0, 2, 2}, 1, false).ok());    // other inputs than outputs
  EXPECT_FALSE(make(2, {0, 1}, {0, 0, 2, 2}, 3, false).ok());    // no such offset
  EXPECT_FALSE(make(2, {0, 0, 1}, {0, 1, 3, 3}, 1, true).ok());  // no mirrored pair
}

// A pointer past the codes must not be followed, though the last one is right.
TEST_F(CoordinateSetTest, ValidateReadsNoCodesPastTheirEnd) {
  const std::vector<int64_t> wild = {0, 1 << 20, 1};
  const std::vector<int64_t> right = {0, 1, 1};
  const std::vector<uint32_t> code = {0};
  CodedCsr csr{*CopyToBackend<int64_t>(wild, context()), *CopyToBackend<int64_t>(right, context()),
               *CopyToBackend<uint32_t>(code, context()),
               *CopyToBackend<uint32_t>(code, context())};
  const KernelMap map(2, 2, {0, 1}, {MapLayout::kCodedCsr}, std::move(csr));
  EXPECT_THAT(std::string(map.Validate(context()).message()), HasSubstr("descend at row 1"));
}

TEST_F(CoordinateSetTest, ValidateFindsSplitsThatDoNotFitTheirWords) {
  const auto make = [&](std::vector<int32_t> split_ptr) {
    const std::vector<int32_t> table(40, -1), order = {0};
    const std::vector<uint32_t> masks = {0};
    MaskSorted sorted{.table = *CopyToBackend<int32_t>(table, context()),
                      .masks = *CopyToBackend<uint32_t>(masks, context()),
                      .row_order = *CopyToBackend<int32_t>(order, context()),
                      .words = 1,
                      .split_ptr = std::move(split_ptr)};
    return KernelMap(1, 1, std::vector<int64_t>(41, 0), {MapLayout::kMaskSorted}, std::move(sorted))
        .Validate(context());
  };
  EXPECT_THAT(std::string(make({0, 40}).message()), HasSubstr("fit 1 words"));
  EXPECT_THAT(std::string(make({0, 20}).message()), HasSubstr("span the 40 offsets"));
}

}  // namespace
}  // namespace voxconv
