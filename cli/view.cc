// SPDX-License-Identifier: Apache-2.0
// voxconv view: a cloud, or the output of a layer, as a page for a browser.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "voxconv/cli/command.h"
#include "voxconv/cli/input_options.h"
#include "voxconv/cli/network_options.h"
#include "voxconv/cli/output_path.h"
#include "voxconv/cli/session.h"
#include "voxconv/cli/standard_output.h"
#include "voxconv/io/output_file.h"
#include "voxconv/measure/checked_maps.h"
#include "voxconv/measure/defaults.h"
#include "voxconv/measure/network_features.h"
#include "voxconv/networks/executor.h"
#include "voxconv/networks/models.h"
#include "voxconv/view/cloud_view.h"
#include "voxconv/view/page.h"

namespace voxconv::cli {
namespace {

po::options_description ViewOptions(const measure::Defaults& defaults) {
  po::options_description options("View");
  options.add_options()                                                                        //
      ("out", po::value<std::string>(), "the page, such as cloud.html; - is standard output")  //
      ("points", po::value<int64_t>()->default_value(1000000),
       "the most voxels that the page shows; a larger set is thinned out evenly")  //
      ("mapping", po::value<std::string>()->default_value(defaults.single_layer.mapping),
       "spec of the mapping that counts the neighbours");
  return options;
}

po::options_description LayerOptions() {
  po::options_description options("Layer of a network");
  options.add_options()  //
      ("network", po::value<std::string>(),
       absl::StrCat("also run this network: ", absl::StrJoin(ModelNames(), ", ")).c_str())  //
      ("layer", po::value<std::string>(),
       "the layers whose outputs are shown: NAME[,NAME...], as the table of `run` names them; "
       "default: the last layer")  //
      ("channel", po::value<std::string>(),
       "channels of the layers to colour by, such as 0,3, besides norm and largest channel");
  AddNetworkOptions(options);
  return options;
}

// Options of a network without one.
absl::Status CheckNetworkOptions(const po::variables_map& values) {
  if (values.count("network") != 0) return absl::OkStatus();
  for (const char* name :
       {"layer", "channel", "width", "in-channels", "classes", "grid", "weights", "seed"}) {
    if (values.count(name) == 0 || values[name].defaulted()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", name, ": has no meaning without --network"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ParsePoints(const po::variables_map& values) {
  constexpr int64_t kMostPoints = 20000000;  // a page of 2 GB
  const int64_t points = values["points"].as<int64_t>();
  if (points >= 1 && points <= kMostPoints) return points;
  return absl::InvalidArgumentError(
      absl::StrCat("--points ", points, ": allowed are 1 .. ", kMostPoints));
}

absl::StatusOr<std::vector<int64_t>> ParseChannels(const po::variables_map& values) {
  std::vector<int64_t> channels;
  if (values.count("channel") == 0) return channels;
  const std::string& text = values["channel"].as<std::string>();
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    int64_t channel = 0;
    if (!absl::SimpleAtoi(part, &channel)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--channel ", text, ": '", part, "' is no whole number; allowed are such as 0,3"));
    }
    if (std::find(channels.begin(), channels.end(), channel) != channels.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--channel ", text, ": ", channel, " is named twice; allowed is once"));
    }
    channels.push_back(channel);
  }
  return channels;
}

// The outputs of the named layers. The maps of plugins from libraries are checked before a dataflow
// reads rows by them.
absl::StatusOr<std::vector<view::VoxelSet>> RunLayers(const po::variables_map& values,
                                                      const measure::Defaults& defaults,
                                                      const VoxelizedCloud& cloud,
                                                      Session& session) {
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<int64_t> channels, ParseChannels(values));
  VOXCONV_ASSIGN_OR_RETURN(NetworkGraph graph, BuildNetwork(values));
  VOXCONV_ASSIGN_OR_RETURN(const LayerChoice choice, defaults.LayersOn(session.backend().kind()));
  const ExecutionContext context = session.Context();
  PrintChannels(cloud, graph.in_channels());
  VOXCONV_ASSIGN_OR_RETURN(const SparseTensor input,
                           MakeSparseTensor(cloud, graph.in_channels(), context));
  const std::string network = graph.name(), last = graph.node(graph.output()).name;
  std::vector<std::string> layers = {last};
  if (values.count("layer") != 0) layers = absl::StrSplit(values["layer"].as<std::string>(), ',');
  VOXCONV_RETURN_IF_ERROR(measure::CheckLayers(layers));
  VOXCONV_ASSIGN_OR_RETURN(const Registry checked,
                           measure::WithCheckedMaps(session.registry(), measure::IsLoadedMapping));
  const RunConfig config{.planner = std::make_shared<FixedPlanner>(choice),
                         .parallel_maps = false,
                         .profile_stages = false,
                         .keep_layers = layers};
  VOXCONV_ASSIGN_OR_RETURN(const auto runner, NetworkRunner::Create(std::move(graph), config,
                                                                    checked, session.backend()));
  VOXCONV_ASSIGN_OR_RETURN(const RunResult result, runner->Run(input.view()));
  std::vector<view::VoxelSet> sets;
  for (const std::string& layer : layers) {
    const SparseTensor& tensor = layer == last ? result.output : result.kept.at(layer);
    VOXCONV_ASSIGN_OR_RETURN(view::VoxelSet set, view::ViewLayer(absl::StrCat(network, " ", layer),
                                                                 tensor, channels, context));
    sets.push_back(std::move(set));
  }
  return sets;
}

std::vector<std::string> Notes(const po::variables_map& values, const VoxelizedCloud& cloud) {
  std::vector<std::string> notes = {
      absl::StrFormat("%d voxels of %d points", cloud.size(), cloud.points)};
  if (values.count("network") != 0 && values.count("weights") == 0) {
    notes.push_back(absl::StrCat("The network's parameters are random (seed ",
                                 values["seed"].as<uint64_t>(), ")."));
  }
  return notes;
}

// The cloud, coloured by features and neighbours. The outputs of layers come first: they were asked
// for.
absl::StatusOr<std::vector<view::VoxelSet>> MakeSets(const po::variables_map& values,
                                                     const measure::Defaults& defaults,
                                                     const VoxelizedCloud& cloud,
                                                     Session& session) {
  VOXCONV_ASSIGN_OR_RETURN(const auto mapping,
                           session.registry().mappings().Create(values["mapping"].as<std::string>(),
                                                                session.backend().kind()));
  VOXCONV_ASSIGN_OR_RETURN(const CoordinateSetPtr coordinates,
                           MakeCoordinates(cloud, session.Context()));
  view::VoxelSet input = view::ViewCloud("input", cloud);
  VOXCONV_ASSIGN_OR_RETURN(view::Colouring neighbours,
                           view::CountNeighbours(*mapping, coordinates, session.Context()));
  input.colourings.push_back(std::move(neighbours));
  std::vector<view::VoxelSet> sets;
  if (values.count("network") != 0) {
    VOXCONV_ASSIGN_OR_RETURN(sets, RunLayers(values, defaults, cloud, session));
  }
  sets.push_back(std::move(input));
  return sets;
}

// A line for each set, which tells how many of its voxels are shown.
std::string Describe(const view::VoxelSet& set) {
  return absl::StrCat(set.name, ": ", set.size(), " of ", set.of, " voxels",
                      set.size() < set.of ? ", spread evenly (--points)" : "", ", coloured by ",
                      absl::StrJoin(set.colourings, ", ",
                                    [](std::string* text, const view::Colouring& colouring) {
                                      absl::StrAppend(text, colouring.name);
                                    }),
                      "\n");
}

absl::Status CheckPage(const po::variables_map& values) {
  const std::string out = OutOf(values);
  if (out.empty()) {
    return absl::InvalidArgumentError("--out is missing: the page's path, such as cloud.html");
  }
  if (out == kStandardOutput) return absl::OkStatus();
  VOXCONV_RETURN_IF_ERROR(
      CheckOutputs(GivenPaths(values, {"input", "weights"}), GivenPaths(values, {"out"})));
  return CheckWriteFile(out);
}

}  // namespace

absl::Status RunView(const std::vector<std::string>& args) {
  VOXCONV_ASSIGN_OR_RETURN(const measure::Defaults defaults, measure::LoadDefaults());
  po::options_description options = ViewOptions(defaults);
  options.add(LayerOptions()).add(InputOptions()).add(SessionOptions());
  po::positional_options_description positional;
  positional.add("input", 1);
  VOXCONV_ASSIGN_OR_RETURN(
      const po::variables_map values,
      ParseArguments("view FILE|scene:NAME --out PAGE.html [OPTIONS]", options, positional, args));
  VOXCONV_RETURN_IF_ERROR(CheckNetworkOptions(values));
  VOXCONV_ASSIGN_OR_RETURN(const int64_t points, ParsePoints(values));
  VOXCONV_RETURN_IF_ERROR(CheckPage(values));
  StandardOutput output(values);
  VOXCONV_ASSIGN_OR_RETURN(const view::Scripts scripts, view::LoadScripts());
  VOXCONV_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, Session::Open(values));
  VOXCONV_ASSIGN_OR_RETURN(const VoxelizedCloud cloud, LoadInput(values));
  VOXCONV_ASSIGN_OR_RETURN(std::vector<view::VoxelSet> sets,
                           MakeSets(values, defaults, cloud, *session));
  for (view::VoxelSet& set : sets) view::Sample(points, set);
  VOXCONV_ASSIGN_OR_RETURN(
      const std::string page,
      view::MakePage(absl::StrCat("voxconv: ", values["input"].as<std::string>()),
                     Notes(values, cloud), sets, scripts));
  VOXCONV_RETURN_IF_ERROR(output.WriteFiles({{OutOf(values), page}}));
  for (const view::VoxelSet& set : sets) std::cout << Describe(set);
  std::cout << absl::StrFormat("%s: %.1f MB\n", OutOf(values),
                               static_cast<double>(page.size()) / 1e6);
  return absl::OkStatus();
}

}  // namespace voxconv::cli
