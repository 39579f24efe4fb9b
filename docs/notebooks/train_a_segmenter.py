# SPDX-License-Identifier: Apache-2.0

# %% [markdown]
# # Train a segmenter
# The command `voxconv train` trains MinkUNet42 on synthetic frames: a floor, boxes and balls. Python makes
# the frames, and runs the trained network.

# %%
# %matplotlib inline
import json
import os
import pathlib
import subprocess
import tempfile

import matplotlib.pyplot as plt
import numpy as np
import voxconv
from voxconv import interop

NAMES = ["nothing", "floor", "box", "ball"]


def frame(seed):
    """xyz [N, 3] and labels [N]."""
    random = np.random.default_rng(seed)
    floor = np.c_[random.uniform(0, 16, (1500, 2)), np.zeros(1500)]
    parts, labels = [floor], [np.full(len(floor), 1)]
    for kind in (2, 2, 3, 3):
        where = np.append(random.uniform(3, 13, 2), 2)
        points = random.standard_normal((400, 3))
        points /= np.abs(points).max(1, keepdims=True) if kind == 2 else np.linalg.norm(
            points, axis=1, keepdims=True)
        parts.append(where + 2 * points)
        labels.append(np.full(len(points), kind))
    return np.concatenate(parts).astype(np.float32), np.concatenate(labels).astype(np.int32)


folder = pathlib.Path(tempfile.mkdtemp())
paths = []
for seed in range(12):
    xyz, label = frame(seed)
    paths.append(str(folder / f"frame{seed}.npz"))
    np.savez(paths[-1], xyz=xyz, label=label, class_names=np.array(NAMES))

# %%
command = [
    os.environ.get("VOXCONV", "voxconv"), "train", "--network", "minkunet42", "--width", "0.25",
    "--data", ",".join(paths[:10]), "--test-data", ",".join(paths[10:]), "--voxel-size", "0.5",
    "--in-channels", "4", "--batch", "2", "--optimizer", "adamw", "--rate", "0.01", "--epochs", "4",
    "--out", str(folder / "run"),
]
done = subprocess.run(command, capture_output=True, text=True)
print(done.stdout[-1500:], done.stderr[-500:])
assert done.returncode == 0

# %% [markdown]
# The loss of each step:

# %%
steps = [json.loads(line) for line in (folder / "run" / "steps.jsonl").read_text().splitlines()]
plt.figure(figsize=(5, 3))
plt.plot([step["loss"] for step in steps])
plt.xlabel("step")
plt.ylabel("loss")
plt.show()

# %% [markdown]
# The checkpoint has the parameters under the network's names, and the optimiser's moments beside them.
# A frame that was not trained on, coloured by its labels and by the prediction:

# %%
network = voxconv.networks.minkunet42(in_channels=4, classes=3, width=0.25)
arrays = interop.read_weights(folder / "run" / "checkpoint.safetensors")
network.load({name: arrays[name] for name in network.parameter_shapes})

xyz, label = frame(100)
columns = np.c_[np.ones(len(xyz)), label].astype(np.float32)
x = voxconv.voxelize(xyz, columns, voxel_size=0.5)  # x, y, z, 1 and the mean label
truth = np.rint(x.features[:, 4]) - 1
y = network(voxconv.SparseTensor(x.coords, np.ascontiguousarray(x.features[:, :4])))
prediction = y.features.argmax(axis=1)
accuracy = (prediction == truth).mean()

figure = plt.figure(figsize=(9, 4))
for place, (title, values) in enumerate([("labels", truth), ("prediction", prediction)], start=1):
    axes = figure.add_subplot(1, 2, place, projection="3d")
    axes.scatter(*x.coords[:, 1:].T, c=values, cmap="viridis", s=3)
    axes.set_title(title)
plt.show()
assert accuracy > 0.6
print(f"{100 * accuracy:.1f} % of {len(x)} voxels")
