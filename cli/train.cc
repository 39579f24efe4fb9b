// SPDX-License-Identifier: Apache-2.0
// voxconv train and voxconv eval: a network on a labelled data set.
#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <iostream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "voxconv/cli/command.h"
#include "voxconv/cli/input_options.h"
#include "voxconv/cli/network_options.h"
#include "voxconv/cli/session.h"
#include "voxconv/cli/standard_output.h"
#include "voxconv/cli/train_checks.h"
#include "voxconv/measure/defaults.h"
#include "voxconv/networks/initialize.h"
#include "voxconv/networks/models.h"
#include "voxconv/training/checkpoint.h"
#include "voxconv/training/run/training_run.h"

namespace voxconv::cli {
namespace {

using Clock = std::chrono::steady_clock;

po::options_description DataOptions(bool training) {
  po::options_description options("Data");
  options.add_options()  //
      ("data", po::value<std::string>(),
       "the data set: an .npz file of voxel models or meshes; .npz files of labelled frames, "
       "separated by commas; a folder like that of SemanticKITTI; or a folder with one folder for "
       "each class")  //
      ("samples", po::value<int64_t>()->default_value(DatasetOptions().samples),
       "meshes: points drawn on the surface of each");
  if (training) {
    options.add_options()  //
        ("test-data", po::value<std::string>(),
         "the data set to test with; default: the test split of --data");
  }
  options.add_options()  //
      ("voxel-size", po::value<double>()->default_value(1.0),
       "edge of a voxel in the unit of the data; voxel models have cells of 1")  //
      ("unit-sphere", po::bool_switch(),
       "scale every cloud into the unit sphere before it is voxelised")  //
      ("centre", po::bool_switch(),
       "move the centre of every cloud's bounding box to the origin; the augmentation rotates, "
       "flips "
       "and scales about the origin; --unit-sphere does the same")  //
      ("order", po::value<std::string>()->default_value("scan"),
       "order of a cloud's rows: scan, in which a voxel's first point decides; sorted by x, y, z; "
       "shuffled; morton, along the Z-order curve")  //
      ("in-channels", po::value<int64_t>()->default_value(4),
       "input channels: x, y, z and the features of the data; missing ones are 1")  //
      ("no-xyz", po::bool_switch(), "features do not begin with x, y and z")        //
      ("batch", po::value<int64_t>()->default_value(8), "clouds in a batch")        //
      ("workers", po::value<int>()->default_value(2),
       "threads that load batches ahead of the device; 0: none");
  return options;
}

// Dropout is for training alone.
po::options_description NetworkOptions(bool training) {
  po::options_description options("Network");
  options.add_options()  //
      ("network", po::value<std::string>()->default_value("minkunet42"),
       absl::StrCat("the network: ", absl::StrJoin(TrainableNames(), ", ")).c_str())  //
      ("width", po::value<double>()->default_value(1.0),
       "factor on every channel count; all counts must stay whole numbers")  //
      ("levels", po::value<int>()->default_value(3),
       "networks of H-CNN: how often the resolution is halved");
  if (training) {
    options.add_options()  //
        ("dropout", po::value<double>()->default_value(0),
         "share of the values before the last layer that training sets to 0");
  }
  options.add_options()  //
      ("dtype", po::value<std::string>()->default_value("f32"),
       "dtype of features and weights: f32; on CUDA also tf32, f16, bf16. Parameters, statistics "
       "and the optimiser are f32")                                                         //
      ("mapping", po::value<std::string>(), "spec of the mapping; default: that of run")    //
      ("dataflow", po::value<std::string>(), "spec of the dataflow; default: that of run")  //
      ("output-coords", po::value<std::string>(),
       "spec of the output coordinates; default: that of run");
  return options;
}

po::options_description TrainOptions() {
  po::options_description options("Training");
  options.add_options()  //
      ("out", po::value<std::string>(),
       "folder of the run; if it has a checkpoint of the same run, the run goes on from there")  //
      ("epochs", po::value<int64_t>()->default_value(10), "times that all clouds are seen")      //
      ("optimizer", po::value<std::string>()->default_value("sgd"), "sgd or adamw")              //
      ("rate", po::value<double>()->default_value(0.1, "0.1"), "the highest learning rate")      //
      ("warm-up", po::value<int64_t>()->default_value(0),
       "steps over which the learning rate grows to --rate")  //
      ("decay", po::value<std::string>()->default_value("cosine"),
       "how the learning rate falls to 0 afterwards: cosine or none")           //
      ("momentum", po::value<double>()->default_value(0.9, "0.9"), "of SGD")    //
      ("weight-decay", po::value<double>()->default_value(1e-4), "of weights")  //
      ("clip", po::value<double>()->default_value(0),
       "largest norm of the gradients; a larger one is scaled down to it; 0: no limit")  //
      ("loss", po::value<std::string>()->default_value("cross_entropy"),
       "cross_entropy, lovasz (Lovasz-softmax over a batch), or "
       "cross_entropy+lovasz, their sum")  //
      ("smoothing", po::value<double>()->default_value(0),
       "label smoothing of the cross-entropy, in [0, 1)")  //
      ("class-weights", po::value<std::string>(),
       "weights of the classes in the cross-entropy: a list with commas, one for each class, or "
       "balanced, which is inverse to the frequency of each class in the training labels")  //
      ("rotate", po::value<double>()->default_value(0),
       "augmentation: greatest rotation about z, in degrees")  //
      ("rotate-any", po::bool_switch(),
       "augmentation: any rotation, uniform over all of them")  //
      ("flip", po::value<double>()->default_value(0),
       "augmentation: probability that x, and that y, changes its sign")                     //
      ("scale", po::value<double>()->default_value(0), "augmentation: factor of 1 -+ this")  //
      ("shift", po::value<double>()->default_value(0),
       "augmentation: greatest shift of x, y and z, in the unit of the data (with --unit-sphere, "
       "in "
       "radii)")  //
      ("jitter", po::value<double>()->default_value(0),
       "augmentation: noise of each coordinate, as a standard deviation")  //
      ("drop-points", po::value<double>()->default_value(0),
       "augmentation: up to this share of the points is left out")  //
      ("checkpoint-steps", po::value<int64_t>()->default_value(0),
       "steps between two checkpoints, in addition to one after each epoch; 0: none")  //
      ("activation-memory", po::value<int64_t>()->default_value(0),
       "MiB that activations and their gradients may take; what does not fit is computed a second "
       "time, with the same bits; 0: no limit")  //
      ("seed", po::value<uint64_t>()->default_value(1),
       "of the parameters, the order of the clouds and the augmentation");
  return options;
}

absl::StatusOr<std::string> Required(const po::variables_map& values, const char* name) {
  if (values.count(name) != 0) return values[name].as<std::string>();
  return absl::InvalidArgumentError(absl::StrCat("--", name, ": it is missing"));
}

// An error for an option that is given and not used.
absl::Status RefuseGiven(const po::variables_map& values, const char* name, absl::string_view why) {
  if (values.count(name) == 0 || values[name].defaulted()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--", name, ": has no meaning ", why));
}

absl::Status CheckHcnnOptions(const po::variables_map& values) {
  const std::string& network = values["network"].as<std::string>();
  if (absl::StartsWith(network, "hcnn_")) return absl::OkStatus();
  return RefuseGiven(values, "levels",
                     absl::StrCat("with --network ", network, ", only with those of H-CNN"));
}

absl::Status CheckTrainOptions(const po::variables_map& values) {
  if (values["optimizer"].as<std::string>() != "sgd") {
    VOXCONV_RETURN_IF_ERROR(RefuseGiven(values, "momentum", "without --optimizer sgd"));
  }
  if (values["rotate-any"].as<bool>()) {
    VOXCONV_RETURN_IF_ERROR(RefuseGiven(values, "rotate", "together with --rotate-any"));
  }
  return CheckFolder("--out", values["out"].as<std::string>());
}

absl::Status CheckSamples(const po::variables_map& values,
                          std::initializer_list<const Dataset*> sets) {
  for (const Dataset* set : sets) {
    if (set->draws_points()) return absl::OkStatus();
  }
  return RefuseGiven(values, "samples", "for data without meshes");
}

absl::StatusOr<LoaderConfig> ParseLoader(const po::variables_map& values) {
  VOXCONV_RETURN_IF_ERROR(CheckAtLeast(values, "batch", 1, 4096));
  VOXCONV_RETURN_IF_ERROR(CheckAtLeast(values, "in-channels", 1, 65536));
  const int workers = values["workers"].as<int>();
  if (workers < 0 || workers > 64) {
    return absl::InvalidArgumentError(absl::StrCat("--workers ", workers, ": allowed are 0 to 64"));
  }
  LoaderConfig config{.batch = values["batch"].as<int64_t>(),
                      .channels = values["in-channels"].as<int64_t>(),
                      .unit_sphere = values["unit-sphere"].as<bool>(),
                      .centre = values["centre"].as<bool>(),
                      .workers = workers};
  if (config.unit_sphere && config.centre) {
    return absl::InvalidArgumentError("--centre has no meaning with --unit-sphere, which centres");
  }
  VOXCONV_RETURN_IF_ERROR(CheckVoxelSize(values));
  config.voxelize.size.fill(values["voxel-size"].as<double>());
  config.voxelize.xyz_features = !values["no-xyz"].as<bool>();
  VOXCONV_ASSIGN_OR_RETURN(config.voxelize.order, ParseOrderOption(values));
  return config;
}

absl::StatusOr<DatasetOptions> ParseDatasetOptions(const po::variables_map& values) {
  VOXCONV_RETURN_IF_ERROR(CheckAtLeast(values, "samples", 1, 100'000'000));
  return DatasetOptions{.samples = values["samples"].as<int64_t>()};
}

absl::StatusOr<NetworkGraph> BuildGraph(const po::variables_map& values, int64_t classes,
                                        uint64_t seed) {
  VOXCONV_ASSIGN_OR_RETURN(
      NetworkGraph graph,
      MakeTrainable(
          values["network"].as<std::string>(),
          {.width = values["width"].as<double>(),
           .in_channels = values["in-channels"].as<int64_t>(),
           .classes = classes,
           .levels = values["levels"].as<int>(),
           .dropout = values.count("dropout") == 0 ? 0 : values["dropout"].as<double>()}));
  InitializeParameters(graph, seed);
  return graph;
}

absl::StatusOr<LayerChoice> ParseLayerChoice(const po::variables_map& values, BackendKind backend) {
  VOXCONV_ASSIGN_OR_RETURN(const measure::Defaults defaults, measure::LoadDefaults());
  VOXCONV_ASSIGN_OR_RETURN(LayerChoice choice, defaults.LayersOn(backend));
  if (values.count("mapping") != 0) choice.mapping = values["mapping"].as<std::string>();
  if (values.count("dataflow") != 0) choice.dataflow = values["dataflow"].as<std::string>();
  if (values.count("output-coords") != 0) {
    choice.output_coords = values["output-coords"].as<std::string>();
  }
  return choice;
}

absl::StatusOr<RunConfig> ParseRunConfig(const po::variables_map& values, const LayerChoice& choice,
                                         BackendKind backend) {
  RunConfig run{.planner = std::make_shared<FixedPlanner>(choice)};
  VOXCONV_ASSIGN_OR_RETURN(run.precision, ParseNetworkDtype(values, backend));
  return run;
}

absl::StatusOr<OptimizerConfig> ParseOptimizer(const po::variables_map& values,
                                               Precision precision) {
  const std::string& kind = values["optimizer"].as<std::string>();
  if (kind != "sgd" && kind != "adamw") {
    return absl::InvalidArgumentError(
        absl::StrCat("--optimizer ", kind, ": allowed are sgd and adamw"));
  }
  OptimizerConfig config{.kind = kind == "sgd" ? OptimizerKind::kSgd : OptimizerKind::kAdamW,
                         .momentum = values["momentum"].as<double>(),
                         .weight_decay = values["weight-decay"].as<double>(),
                         .max_norm = values["clip"].as<double>()};
  if (precision == Precision::kF16) {  // gradients below 6e-8 would be 0
    config.loss_scale = 65536;
    config.scale_growth_interval = 2000;
  }
  return config;
}

// What decides a run, with the plugins and the backend, whose sums have an order of their own. How
// many threads it has does not.
std::string SettingsOf(const po::variables_map& values, const LayerChoice& choice,
                       BackendKind backend) {
  std::vector<std::string> settings = {absl::StrCat("backend=", ToString(backend)),
                                       absl::StrCat("mapping=", choice.mapping),
                                       absl::StrCat("dataflow=", choice.dataflow),
                                       absl::StrCat("output-coords=", choice.output_coords)};
  for (const char* name :
       {"network", "data", "test-data", "dtype", "optimizer", "decay", "loss", "order"}) {
    if (values.count(name) == 0) continue;
    settings.push_back(absl::StrCat(name, "=", values[name].as<std::string>()));
  }
  for (const char* name :
       {"width", "voxel-size", "rate", "momentum", "weight-decay", "clip", "smoothing", "dropout",
        "rotate", "flip", "scale", "shift", "jitter", "drop-points"}) {
    settings.push_back(absl::StrFormat("%s=%.17g", name, values[name].as<double>()));
  }
  for (const char* name : {"in-channels", "batch", "epochs", "warm-up", "samples"}) {
    settings.push_back(absl::StrCat(name, "=", values[name].as<int64_t>()));
  }
  for (const char* name : {"unit-sphere", "centre", "no-xyz", "rotate-any"}) {
    settings.push_back(absl::StrCat(name, "=", values[name].as<bool>()));
  }
  if (values.count("class-weights") != 0) {
    settings.push_back(absl::StrCat("class-weights=", values["class-weights"].as<std::string>()));
  }
  settings.push_back(absl::StrCat("levels=", values["levels"].as<int>()));
  settings.push_back(absl::StrCat("seed=", values["seed"].as<uint64_t>()));
  return absl::StrJoin(settings, " ");
}

absl::StatusOr<TrainingRunConfig> ParseTrainingRun(const po::variables_map& values,
                                                   BackendKind backend) {
  VOXCONV_RETURN_IF_ERROR(CheckTrainingNumbers(values));
  const std::string& decay = values["decay"].as<std::string>();
  if (decay != "cosine" && decay != "none") {
    return absl::InvalidArgumentError(
        absl::StrCat("--decay ", decay, ": allowed are cosine and none"));
  }
  TrainingRunConfig config{.epochs = values["epochs"].as<int64_t>()};
  VOXCONV_ASSIGN_OR_RETURN(config.folder, Required(values, "out"));
  VOXCONV_ASSIGN_OR_RETURN(config.test, ParseLoader(values));
  config.train = config.test;
  config.train.shuffle = true;
  config.train.seed = values["seed"].as<uint64_t>();
  const double flip = values["flip"].as<double>();
  config.train.augmentation = {.rotation = values["rotate"].as<double>(),
                               .any_rotation = values["rotate-any"].as<bool>(),
                               .flip = {flip, flip, 0},
                               .scale = values["scale"].as<double>(),
                               .shift = values["shift"].as<double>(),
                               .jitter = values["jitter"].as<double>(),
                               .drop_points = values["drop-points"].as<double>()};
  VOXCONV_ASSIGN_OR_RETURN(const LayerChoice choice, ParseLayerChoice(values, backend));
  VOXCONV_ASSIGN_OR_RETURN(config.training.run, ParseRunConfig(values, choice, backend));
  VOXCONV_ASSIGN_OR_RETURN(config.training.optimizer,
                           ParseOptimizer(values, config.training.run.precision));
  VOXCONV_ASSIGN_OR_RETURN(config.training.loss.kind,
                           ParseLossKind(values["loss"].as<std::string>()));
  config.training.loss.smoothing = values["smoothing"].as<double>();
  if (config.training.loss.kind == LossKind::kLovasz) {
    constexpr absl::string_view kWhy = "with --loss lovasz, which has no cross-entropy";
    VOXCONV_RETURN_IF_ERROR(RefuseGiven(values, "smoothing", kWhy));
    VOXCONV_RETURN_IF_ERROR(RefuseGiven(values, "class-weights", kWhy));
  }
  VOXCONV_ASSIGN_OR_RETURN(config.training.loss.class_weights, ParseClassWeights(values));
  config.training.activation_limit = values["activation-memory"].as<int64_t>() << 20;
  config.training.dropout_seed = values["seed"].as<uint64_t>();
  config.rate = {.rate = values["rate"].as<double>(),
                 .warm_up = values["warm-up"].as<int64_t>(),
                 .decay = decay == "cosine" ? Decay::kCosine : Decay::kNone};
  config.checkpoint_steps = values["checkpoint-steps"].as<int64_t>();
  config.settings = SettingsOf(values, choice, backend);
  return config;
}

void PrintConfusion(const Confusion& confusion, const Dataset& dataset) {
  std::vector<std::vector<std::string>> table = {{"class", "rows", "right", "IoU"}};
  for (int64_t label = 0; label < confusion.classes(); ++label) {
    int64_t rows = confusion.not_finite(label);
    for (int64_t c = 0; c < confusion.classes(); ++c) rows += confusion.count(label, c);
    const double iou = confusion.IntersectionOverUnion(label);
    table.push_back({dataset.class_names()[label], absl::StrCat(rows),
                     absl::StrCat(confusion.count(label, label)),
                     iou == iou ? absl::StrFormat("%.1f %%", 100 * iou) : "-"});
  }
  std::cout << FormatTable(table);
  std::cout << absl::StrFormat("accuracy %.2f %%, mean IoU %.2f %%, of %d rows\n",
                               100 * confusion.Accuracy(),
                               100 * confusion.MeanIntersectionOverUnion(), confusion.total());
  if (confusion.not_finite() == 0) return;
  std::cout << absl::StrFormat("the logits of %d rows are not finite; they count as wrong\n",
                               confusion.not_finite());
}

// The most that steps of a run held.
class PeakMemory {
 public:
  void Add(const TrainingMemory& step) {
    peak_.parameters = std::max(peak_.parameters, step.parameters + step.optimizer);
    peak_.activations = std::max(peak_.activations, step.activations);
    peak_.maps = std::max(peak_.maps, step.maps);
    peak_.peak = std::max(peak_.peak, step.peak);
  }
  void Print() const {
    if (peak_.parameters == 0) return;  // no step was left to do
    const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
    std::cout << absl::StrFormat(
        "memory of a step: activations and their gradients %.1f MiB at most, maps %.1f MiB, "
        "parameters and optimizer %.1f MiB; in all %.1f MiB, all of the backend %.1f MiB at most\n",
        mib(peak_.activations), mib(peak_.maps), mib(peak_.parameters),
        mib(peak_.activations + peak_.maps + peak_.parameters), mib(peak_.peak));
  }

 private:
  TrainingMemory peak_;
};

// Prints a line an epoch, with the time that is left.
class EpochPrinter {
 public:
  explicit EpochPrinter(int64_t epochs) : epochs_(epochs) {}

  void Print(const EpochReport& report) {
    ++done_;
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    const double left =
        seconds / static_cast<double>(done_) * static_cast<double>(epochs_ - report.epoch);
    std::cout << absl::StrFormat("epoch %d of %d: loss %.4f", report.epoch, epochs_, report.loss);
    if (report.test.classes() > 0) {
      std::cout << absl::StrFormat(", test accuracy %.2f %%, mean IoU %.2f %%",
                                   100 * report.test.Accuracy(),
                                   100 * report.test.MeanIntersectionOverUnion());
    }
    if (report.test.not_finite() > 0) {
      std::cout << absl::StrFormat(" (the logits of %d of %d rows are not finite, so wrong)",
                                   report.test.not_finite(), report.test.total());
    }
    if (report.skipped_steps > 0) {
      std::cout << absl::StrFormat("; %d steps skipped, whose gradients were not finite",
                                   report.skipped_steps);
    }
    std::cout << absl::StrFormat("; %.0f s, about %.0f s left\n", seconds, left) << std::flush;
  }

 private:
  int64_t epochs_;
  int64_t done_ = 0;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace

absl::Status RunTrain(const std::vector<std::string>& args) {
  po::options_description options;
  options.add(DataOptions(/*training=*/true)).add(NetworkOptions(/*training=*/true));
  options.add(TrainOptions()).add(SessionOptions());
  VOXCONV_ASSIGN_OR_RETURN(
      const po::variables_map values,
      ParseArguments("train --network NAME --data SET --out FOLDER [options]", options, {}, args));
  VOXCONV_ASSIGN_OR_RETURN(const std::string data, Required(values, "data"));
  VOXCONV_RETURN_IF_ERROR(Required(values, "out").status());
  VOXCONV_RETURN_IF_ERROR(CheckHcnnOptions(values));
  VOXCONV_RETURN_IF_ERROR(CheckTrainOptions(values));
  VOXCONV_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, Session::Open(values));
  Backend& backend = session->backend();
  VOXCONV_ASSIGN_OR_RETURN(TrainingRunConfig config, ParseTrainingRun(values, backend.kind()));
  const std::string test_data =
      values.count("test-data") != 0 ? values["test-data"].as<std::string>() : data;
  VOXCONV_ASSIGN_OR_RETURN(const DatasetOptions read, ParseDatasetOptions(values));
  VOXCONV_ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> train, OpenDataset(data, "train", read));
  VOXCONV_ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> test,
                           OpenDataset(test_data, "test", read));
  VOXCONV_RETURN_IF_ERROR(CheckSamples(values, {train.get(), test.get()}));
  VOXCONV_RETURN_IF_ERROR(FitToData(values, *train, config));
  VOXCONV_ASSIGN_OR_RETURN(const NetworkGraph graph,
                           BuildGraph(values, train->classes(), values["seed"].as<uint64_t>()));
  std::cout << absl::StrFormat("%s, %d parameters, on %s: %d clouds to train, %d to test; %s\n",
                               graph.name(), graph.num_parameters(), data, train->size(),
                               test->size(), backend.DeviceName())
            << std::flush;
  EpochPrinter printer(config.epochs);
  Progress progress("training", config.epochs * BatchLoader::CountBatches(*train, config.train));
  PeakMemory memory;
  const TrainingObserver observer{
      .step =
          [&](const StepReport& report) {
            progress.Step(report.step);
            memory.Add(report.memory);
          },
      .epoch = [&](const EpochReport& report) { printer.Print(report); }};
  VOXCONV_ASSIGN_OR_RETURN(
      const NetworkGraph trained,
      RunTraining(graph, config, *train, test.get(), session->registry(), backend, observer));
  memory.Print();
  VOXCONV_ASSIGN_OR_RETURN(const Confusion confusion,
                           Evaluate(trained, config.training.run, config.test, *test,
                                    session->registry(), backend, NonFiniteLogits::kCounted));
  PrintConfusion(confusion, *test);
  return absl::OkStatus();
}

absl::Status RunEval(const std::vector<std::string>& args) {
  po::options_description options, own("Evaluation");
  own.add_options()  //
      ("weights", po::value<std::string>(),
       "the network's parameters: a safetensors file, such as the checkpoint of a run")  //
      ("split", po::value<std::string>()->default_value("test"), "train or test");
  options.add(DataOptions(/*training=*/false))
      .add(NetworkOptions(/*training=*/false))
      .add(own)
      .add(SessionOptions());
  VOXCONV_ASSIGN_OR_RETURN(
      const po::variables_map values,
      ParseArguments("eval --network NAME --data SET --weights FILE [options]", options, {}, args));
  VOXCONV_ASSIGN_OR_RETURN(const std::string data, Required(values, "data"));
  VOXCONV_ASSIGN_OR_RETURN(const std::string weights, Required(values, "weights"));
  VOXCONV_RETURN_IF_ERROR(CheckHcnnOptions(values));
  VOXCONV_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, Session::Open(values));
  VOXCONV_ASSIGN_OR_RETURN(const LoaderConfig loader, ParseLoader(values));
  VOXCONV_ASSIGN_OR_RETURN(const LayerChoice choice,
                           ParseLayerChoice(values, session->backend().kind()));
  VOXCONV_ASSIGN_OR_RETURN(const RunConfig run,
                           ParseRunConfig(values, choice, session->backend().kind()));
  VOXCONV_ASSIGN_OR_RETURN(const DatasetOptions read, ParseDatasetOptions(values));
  VOXCONV_ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> dataset,
                           OpenDataset(data, values["split"].as<std::string>(), read));
  VOXCONV_RETURN_IF_ERROR(CheckSamples(values, {dataset.get()}));
  VOXCONV_ASSIGN_OR_RETURN(NetworkGraph graph, BuildGraph(values, dataset->classes(), 1));
  VOXCONV_RETURN_IF_ERROR(LoadParameters(weights, graph));
  VOXCONV_ASSIGN_OR_RETURN(const Confusion confusion,
                           Evaluate(graph, run, loader, *dataset, session->registry(),
                                    session->backend(), NonFiniteLogits::kRefused));
  PrintConfusion(confusion, *dataset);
  return absl::OkStatus();
}

}  // namespace voxconv::cli
