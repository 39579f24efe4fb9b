// SPDX-License-Identifier: Apache-2.0
// The fixed parts of the page. Its script is plain JavaScript on top of three.js.
#ifndef VOXCONV_VIEW_PAGE_PARTS_H_
#define VOXCONV_VIEW_PAGE_PARTS_H_

namespace voxconv::view {

// The policy forbids the page to load anything.
inline constexpr char kPageHead[] = R"html(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:">
<link rel="icon" href="data:,">
<style>
html, body { margin: 0; height: 100%; overflow: hidden; font: 13px/1.4 sans-serif; color: #222; }
canvas { display: block; width: 100%; height: 100%; }
#panel { position: absolute; top: 8px; left: 8px; max-width: 24em; background: #fffd;
         padding: 8px 12px; border: 1px solid #ccc; border-radius: 4px; overflow-wrap: anywhere; }
#panel h1 { font-size: 14px; margin: 0 0 4px; }
#panel p { margin: 4px 0; }
#panel select { max-width: 100%; }
#bar { height: 12px; }
#ends { display: flex; justify-content: space-between; font-variant-numeric: tabular-nums; }
#error { color: #a00; }
</style>
)html";

inline constexpr char kPageBody[] = R"html(</head><body>
<canvas id="cloud"></canvas>
<div id="panel">
<h1 id="title"></h1><div id="notes"></div>
<p><label>colour <select id="colouring"></select></label></p>
<div id="bar"></div><div id="ends"><span id="low"></span><span id="high"></span></div>
<p><label>size <input id="size" type="range" min="0.2" max="3" step="0.1" value="1"></label></p>
<p id="count"></p><p id="picked">Drag to turn, scroll to zoom, click a voxel for its value.</p>
<p id="error"></p>
</div>
)html";

inline constexpr char kPageScript[] = R"js("use strict";
const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);
const STOPS = [[68, 1, 84], [71, 45, 123], [59, 82, 139], [44, 114, 142], [33, 145, 140],
               [40, 174, 128], [94, 201, 98], [173, 220, 48], [253, 231, 37]];  // viridis
const GREY = [160, 160, 160];

function bytesOf(text) {
  const binary = atob(text), bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; ++i) bytes[i] = binary.charCodeAt(i);
  return bytes.buffer;
}

// Where most values lie: a few far ones must not leave all others in one colour.
function rangeOf(values) {
  const step = Math.max(1, Math.floor(values.length / 100000)), some = [];
  for (let i = 0; i < values.length; i += step) if (Number.isFinite(values[i])) some.push(values[i]);
  if (some.length === 0) return {low: 0, high: 0, cut: false};
  some.sort((a, b) => a - b);
  const at = (share) => some[Math.min(some.length - 1, Math.floor(share * some.length))];
  const all = {low: some[0], high: some[some.length - 1], cut: false};
  const most = {low: at(0.01), high: at(0.99), cut: true};
  return most.high > most.low && most.high - most.low < 0.5 * (all.high - all.low) ? most : all;
}

function coloursOf(values, range) {
  const colours = new Uint8Array(3 * values.length), span = range.high - range.low;
  for (let i = 0; i < values.length; ++i) {
    let colour = GREY;
    if (Number.isFinite(values[i])) {
      const share = span > 0 ? Math.min(1, Math.max(0, (values[i] - range.low) / span)) : 0.5;
      const place = share * (STOPS.length - 1), stop = Math.min(STOPS.length - 2, Math.floor(place));
      colour = STOPS[stop].map((c, k) => c + (place - stop) * (STOPS[stop + 1][k] - c));
    }
    colours.set(colour, 3 * i);
  }
  return colours;
}

const choices = [];
for (const set of data.sets) {
  for (const colouring of set.colourings) choices.push({set, colouring});
}
byId("title").textContent = data.title;
for (const note of data.notes) {
  const p = document.createElement("p");
  p.textContent = note;
  byId("notes").appendChild(p);
}
choices.forEach((choice, i) => {
  const several = data.sets.length > 1 ? choice.set.name + ": " : "";
  byId("colouring").add(new Option(several + choice.colouring.name, i));
});
byId("bar").style.background = "linear-gradient(to right, " +
    STOPS.map((c) => `rgb(${c.join(",")})`).join(", ") + ")";

const FOV = 60, canvas = byId("cloud");
let renderer, scene, camera, controls, points = null, shown = null, wanted = false;

function draw() {
  wanted = false;
  renderer.render(scene, camera);
  document.body.dataset.points = renderer.info.render.points;
}
function redraw() {
  if (!wanted) requestAnimationFrame(draw);
  wanted = true;
}
function resize() {
  renderer.setPixelRatio(window.devicePixelRatio);
  renderer.setSize(window.innerWidth, window.innerHeight, false);
  camera.aspect = window.innerWidth / window.innerHeight;
  camera.updateProjectionMatrix();
  redraw();
}
// Pixels of an edge, whatever the distance: three.js leaves the camera's angle out.
function setSize() {
  if (!points) return;
  points.material.size = Math.max(...shown.set.edge) * Number(byId("size").value) /
      Math.tan(FOV * Math.PI / 360);
  redraw();
}

function place(set) {
  const xyz = new Int32Array(bytesOf(set.xyz)), positions = new Float32Array(xyz.length);
  const low = [Infinity, Infinity, Infinity];
  for (let i = 0; i < xyz.length; ++i) low[i % 3] = Math.min(low[i % 3], xyz[i]);
  // From the corner of the set: 32 bits of a float do not hold coordinates far from 0.
  for (let i = 0; i < xyz.length; ++i) positions[i] = xyz[i] - low[i % 3] + 0.5 * set.edge[i % 3];
  if (points) { scene.remove(points); points.geometry.dispose(); points.material.dispose(); }
  const geometry = new THREE.BufferGeometry();
  geometry.setAttribute("position", new THREE.BufferAttribute(positions, 3));
  points = new THREE.Points(geometry, new THREE.PointsMaterial({vertexColors: THREE.VertexColors}));
  scene.add(points);
  return {low, xyz};
}
function look() {
  points.geometry.computeBoundingSphere();
  const {center, radius} = points.geometry.boundingSphere, far = 2.2 * Math.max(radius, 1);
  controls.target.copy(center);
  camera.position.set(center.x - 0.6 * far, center.y - 0.6 * far, center.z + 0.5 * far);
  camera.near = far / 1000;
  camera.far = 20 * far;
  camera.updateProjectionMatrix();
  controls.update();
}

function show(choice) {
  const first = shown === null;
  const old = first || shown.set !== choice.set ? place(choice.set) : shown;
  const values = new Float32Array(bytesOf(choice.colouring.values)), range = rangeOf(values);
  shown = {set: choice.set, name: choice.colouring.name, xyz: old.xyz, low: old.low, values};
  points.geometry.setAttribute("color", new THREE.BufferAttribute(coloursOf(values, range), 3, true));
  byId("low").textContent = (range.cut ? "\u2264 " : "") + Number(range.low.toPrecision(4));
  byId("high").textContent = (range.cut ? "\u2265 " : "") + Number(range.high.toPrecision(4));
  byId("count").textContent = values.length === choice.set.of ? `${values.length} voxels`
      : `${values.length} of ${choice.set.of} voxels, spread evenly`;
  if (first) look();
  setSize();
}

function pick(event) {
  const box = canvas.getBoundingClientRect(), ray = new THREE.Raycaster();
  ray.setFromCamera({x: 2 * (event.clientX - box.left) / box.width - 1,
                     y: 1 - 2 * (event.clientY - box.top) / box.height}, camera);
  ray.params.Points.threshold = 0.6 * Math.max(...shown.set.edge);
  const hits = ray.intersectObject(points);
  if (hits.length === 0) return;
  const row = hits[0].index, xyz = Array.from(shown.xyz.subarray(3 * row, 3 * row + 3));
  byId("picked").textContent = `voxel (${xyz.join(", ")}): ${shown.name} ${shown.values[row]}`;
}

try {
  renderer = new THREE.WebGLRenderer({canvas, antialias: true});
} catch (error) {
  byId("error").textContent = "This browser has no WebGL, which the picture needs.";
}
if (renderer) {
  renderer.setClearColor(0xffffff);
  scene = new THREE.Scene();
  camera = new THREE.PerspectiveCamera(FOV, 1, 0.1, 1000);
  camera.up.set(0, 0, 1);
  controls = new THREE.OrbitControls(camera, canvas);
  controls.addEventListener("change", redraw);
  show(choices[0]);
  resize();
  window.addEventListener("resize", resize);
  byId("size").addEventListener("input", setSize);
  byId("colouring").addEventListener("change", () => show(choices[byId("colouring").value]));
  let down = null;
  canvas.addEventListener("pointerdown", (event) => { down = [event.clientX, event.clientY]; });
  canvas.addEventListener("pointerup", (event) => {
    if (down && Math.hypot(event.clientX - down[0], event.clientY - down[1]) < 4) pick(event);
  });
}
)js";

}  // namespace voxconv::view

#endif  // VOXCONV_VIEW_PAGE_PARTS_H_
