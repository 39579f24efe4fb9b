// SPDX-License-Identifier: Apache-2.0
// Plugins that throw or return null: every call gives an error that names the plugin and the
// method.
#include "voxconv/core/plugin_call.h"

#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "unit_cpu.h"
#include "voxconv/core/convolution.h"
#include "voxconv/core/registry.h"

namespace voxconv {
namespace {

using ::testing::HasSubstr;

// The method that throws, or that returns null where `null`.
struct Fault {
  std::string method;
  bool null = false;

  bool Throws(const std::string& here) const {
    if (here == method && !null) throw std::runtime_error("boom");
    return here == method;
  }
};

struct EmptyIndex final : MapIndex {
  int64_t bytes() const override { return 0; }
};

class BadMapping final : public Mapping {
 public:
  BadMapping(Options options, Fault fault)
      : options_(std::move(options)), fault_(std::move(fault)) {}
  const Options& options() const override { return options_; }

 protected:
  Support DoSupports(const ConvGeometry&) const override {
    fault_.Throws("DoSupports");
    return Support::Yes();
  }
  absl::StatusOr<std::unique_ptr<MapIndex>> DoBuildIndex(const CoordinateSet&,
                                                         const ExecutionContext&) const override {
    if (fault_.Throws("DoBuildIndex")) return std::unique_ptr<MapIndex>();
    return std::make_unique<EmptyIndex>();
  }
  absl::StatusOr<KernelMap> DoQuery(const MapIndex&, const MapProblem&,
                                    const ExecutionContext&) const override {
    fault_.Throws("DoQuery");
    return KernelMap();
  }

 private:
  Options options_;
  Fault fault_;
};

class BadDataflow final : public Dataflow {
 public:
  BadDataflow(Options options, Fault fault)
      : options_(std::move(options)), fault_(std::move(fault)) {}
  const Options& options() const override { return options_; }

 protected:
  Capability DoCapability(Pass, const ConvShape&) const override {
    fault_.Throws("DoCapability");
    return {};
  }
  MapNeed DoNeededMap(Pass, const ConvShape&) const override {
    fault_.Throws("DoNeededMap");
    return {.layout = "own"};
  }
  absl::StatusOr<std::shared_ptr<const PreparedMap>> DoPrepare(
      const KernelMap& map, const MapNeed&, const ExecutionContext&) const override {
    if (fault_.Throws("DoPrepare")) return std::shared_ptr<const PreparedMap>();
    return std::make_shared<const PreparedMap>(map);
  }
  absl::StatusOr<std::unique_ptr<DataflowPlan>> DoPlan(Pass, const PreparedMap&, const ConvShape&,
                                                       const ExecutionContext&) const override {
    if (fault_.Throws("DoPlan")) return std::unique_ptr<DataflowPlan>();
    return std::make_unique<DataflowPlan>();
  }
  absl::Status DoForward(const DataflowPlan&, const PreparedMap&, const ForwardArgs&,
                         const Workspace&, const ExecutionContext&) const override {
    fault_.Throws("DoForward");
    return absl::OkStatus();
  }

 private:
  Options options_;
  Fault fault_;
};

class BadCoords final : public OutputCoords {
 public:
  BadCoords(Options options, Fault fault)
      : options_(std::move(options)), fault_(std::move(fault)) {}
  const Options& options() const override { return options_; }

 protected:
  Support DoSupports(const ConvGeometry&) const override {
    fault_.Throws("DoSupports");
    return Support::Yes();
  }
  absl::StatusOr<CoordinateSetPtr> DoCompute(const CoordinateSet&, const ConvGeometry&,
                                             const ExecutionContext&) const override {
    fault_.Throws("DoCompute");
    return CoordinateSetPtr();
  }

 private:
  Options options_;
  Fault fault_;
};

template <typename Plugin, typename Bad>
std::unique_ptr<const Plugin> Make(const std::string& family, const Fault& fault) {
  PluginFamily<Plugin> plugins(family);
  const absl::Status status =
      plugins.Register({.name = "bad"}, BackendKind::kCpu,
                       [fault](Options options) -> absl::StatusOr<std::unique_ptr<const Plugin>> {
                         return std::make_unique<Bad>(std::move(options), fault);
                       });
  VOXCONV_CHECK(status.ok());
  return *plugins.Create("bad", BackendKind::kCpu);
}

class PluginCallTest : public ::testing::Test {
 protected:
  PluginCallTest()
      : rows_(*CoordinateSet::Create({{0, 1, 2, 3}}, {1, 1, 1}, cpu_.context)),
        geometry_(*ConvGeometry::Create({})) {}

  absl::Status Map(const Fault& fault) {
    const auto mapping = Make<Mapping, BadMapping>("mapping", fault);
    return QueryKernelMap(*mapping, {*rows_, *rows_, geometry_}, cpu_.context).status();
  }
  absl::Status Run(const Fault& fault) {
    const auto dataflow = Make<Dataflow, BadDataflow>("dataflow", fault);
    const KernelMap map(1, 1, std::vector<int64_t>(geometry_.num_offsets() + 1, 0),
                        PairList(*PairBuffers::Allocate(0, cpu_.context)));
    const Tensor x = *Tensor::FromHost({1.0f}, 1, 1, cpu_.context, DType::kF32);
    const Tensor w = *Tensor::FromHost(std::vector<float>(geometry_.num_offsets()),
                                       geometry_.num_offsets(), 1, cpu_.context, DType::kF32);
    Workspace workspace;
    return RunConvolution(*dataflow, map, x.view(), w.view(), Precision::kF32, workspace,
                          cpu_.context)
        .status();
  }

  UnitCpu cpu_{1};
  CoordinateSetPtr rows_;
  ConvGeometry geometry_;
};

TEST_F(PluginCallTest, ExceptionsOfAMappingNameIt) {
  for (const std::string method : {"DoSupports", "DoBuildIndex", "DoQuery"}) {
    const absl::Status status = Map({method});
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_EQ(status.message(), "mapping bad: " + method + ": exception: boom");
  }
}

TEST_F(PluginCallTest, ExceptionsOfADataflowNameIt) {
  for (const std::string method :
       {"DoCapability", "DoNeededMap", "DoPrepare", "DoPlan", "DoForward"}) {
    const absl::Status status = Run({method});
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_EQ(status.message(), "dataflow bad: " + method + ": exception: boom");
  }
}

TEST_F(PluginCallTest, NullsNameThePlugin) {
  EXPECT_EQ(Map({"DoBuildIndex", true}).message(), "mapping bad: DoBuildIndex: returned null");
  EXPECT_EQ(Run({"DoPrepare", true}).message(), "dataflow bad: DoPrepare: returned null");
  EXPECT_EQ(Run({"DoPlan", true}).message(), "dataflow bad: DoPlan: returned null");
  EXPECT_THAT(std::string(Map({"nothing"}).message()),
              HasSubstr("mapping bad: DoQuery: the kernel map has 0 inputs"));
}

TEST_F(PluginCallTest, OutputCoordsAreNamedInAChain) {
  const auto thrower = Make<OutputCoords, BadCoords>("output_coords", {"DoCompute"});
  const auto nulls = Make<OutputCoords, BadCoords>("output_coords", {"nothing"});
  EXPECT_EQ(thrower->Compute(*rows_, geometry_, cpu_.context).status().message(),
            "output_coords bad: DoCompute: exception: boom");
  EXPECT_EQ(nulls->Compute(*rows_, geometry_, cpu_.context).status().message(),
            "output_coords bad: DoCompute: returned null");
  auto pending = thrower->Begin(*rows_, {geometry_}, cpu_.context);
  ASSERT_TRUE(pending.ok());
  EXPECT_THAT(
      std::string(OutputCoords::Finish(*std::move(pending), cpu_.context).status().message()),
      HasSubstr("output_coords bad: PendingCoordinates::Finish: exception: boom"));
  const auto asked = Make<OutputCoords, BadCoords>("output_coords", {"DoSupports"});
  EXPECT_EQ(asked->Supports(geometry_).ToStatus().message(),
            "output_coords bad: DoSupports: exception: boom");
}

TEST_F(PluginCallTest, TheCallOfAThreadIsKnown) {
  EXPECT_EQ(CurrentPluginCall().label, nullptr);
  const auto mapping = Make<Mapping, BadMapping>("mapping", {"nothing"});
  const absl::Status status = CallPlugin(*mapping, "Outer", [&]() -> absl::Status {
    CallPlugin(*mapping, "Inner", []() -> absl::Status { throw 42; }).IgnoreError();
    EXPECT_EQ(*CurrentPluginCall().label, "mapping bad");
    EXPECT_STREQ(CurrentPluginCall().method, "Outer");
    throw std::bad_alloc();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "mapping bad: Outer: exception: out of memory");
  EXPECT_EQ(CurrentPluginCall().label, nullptr);
}

// Reads an option that its schema does not have.
absl::Status CreateReading(const std::function<void(const Options&)>& read) {
  OptionSchema schema;
  schema.Int("block", 1, 1, 2, "").Bool("fast", true, "");
  PluginFamily<Mapping> family("mapping");
  const absl::Status status =
      family.Register({.name = "bad", .options = schema}, BackendKind::kCpu,
                      [&](Options options) -> absl::StatusOr<std::unique_ptr<const Mapping>> {
                        read(options);
                        return std::make_unique<BadMapping>(std::move(options), Fault());
                      });
  if (!status.ok()) return status;
  return family.Create("bad", BackendKind::kCpu).status();
}

TEST_F(PluginCallTest, AnOptionThatTheSchemaLacksIsNamedWithThePlugin) {
  EXPECT_TRUE(CreateReading([](const Options& o) { o.GetInt("block"); }).ok());
  EXPECT_EQ(CreateReading([](const Options& o) { o.GetInt("blok"); }).message(),
            "mapping bad: exception: option 'blok' is read, and the plugin's schema has none of "
            "that name");
  EXPECT_EQ(CreateReading([](const Options& o) { o.GetInt("fast"); }).message(),
            "mapping bad: exception: option 'fast' is read as int; by the plugin's schema it is "
            "bool");
}

}  // namespace
}  // namespace voxconv
