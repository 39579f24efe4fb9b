# SPDX-License-Identifier: Apache-2.0
"""What `voxconv view` writes shows its voxels in a browser that has no network.

    view_test.py VOXCONV
"""

import html
import json
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

import browser
import support

VOXCONV = sys.argv.pop(1)
SCENE = "scene:sphere?n=3000"
THREE = pathlib.Path("/usr/share/javascript/three/three.min.js")

# Draws, reads the picture back, chooses the last colouring and reads it again.
PROBE = """<script>
window.addEventListener("load", () => {
  const gl = canvas.getContext("webgl2") || canvas.getContext("webgl");
  const colours = () => {
    draw();
    const pixels = new Uint8Array(4 * gl.drawingBufferWidth * gl.drawingBufferHeight);
    gl.readPixels(0, 0, gl.drawingBufferWidth, gl.drawingBufferHeight, gl.RGBA, gl.UNSIGNED_BYTE,
                  pixels);
    const seen = new Set();
    for (let i = 0; i < pixels.length; i += 4) {
      seen.add((pixels[i] << 16) | (pixels[i + 1] << 8) | pixels[i + 2]);
    }
    return seen.size;
  };
  const select = byId("colouring"), first = colours();
  select.selectedIndex = select.options.length - 1;
  select.dispatchEvent(new Event("change"));
  const last = colours();
  document.title = JSON.stringify({
    first, last, points: renderer.info.render.points, choices: select.options.length,
    fetched: performance.getEntriesByType("resource").filter(
        (entry) => !entry.name.startsWith("data:")).length,
    count: byId("count").textContent, shown: byId("title").textContent});
});
</script>"""


class ViewTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)

    def view(self, *arguments):
        out = self.path / "view.html"
        result = support.run(VOXCONV, "view", *arguments, "--out", out, "--threads", 1)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout, out.read_text(encoding="utf-8")

    def see(self, page):
        """What the probe saw of the page."""
        probed = self.path / "probed.html"
        probed.write_text(page.replace("</body>", PROBE + "</body>"), encoding="utf-8")
        text, messages = browser.open_page(self, probed)
        self.assertEqual([m for m in messages if "GPU stall due to ReadPixels" not in m], [])
        return json.loads(html.unescape(re.search(r"<title>(.*?)</title>", text)[1]))

    def refused(self, *arguments):
        result = support.run(VOXCONV, "view", *arguments)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertEqual(result.stderr.count("\n"), 1)
        return result.stderr

    def test_a_cloud_with_its_features_and_neighbours(self):
        stdout, page = self.view(SCENE, "--voxel-size", "0.5")
        self.assertRegex(stdout, r"input: (\d+) of \1 voxels, coloured by feature x, .*neighbours")
        for address in re.findall(r'(?:src|href)="([^"]*)"', page[:page.index('id="data"')]):
            self.assertRegex(address, "^data:")
        seen = self.see(page)
        voxels = int(re.search(r"(\d+) voxels", stdout)[1])
        self.assertEqual(seen["points"], voxels)
        self.assertEqual(seen["choices"], 7)
        self.assertEqual(seen["fetched"], 0)
        self.assertEqual(seen["count"], f"{voxels} voxels")
        self.assertGreater(seen["first"], 50)
        self.assertGreater(seen["last"], 2)

    def test_a_sample_says_so(self):
        stdout, page = self.view(SCENE, "--voxel-size", "0.1", "--points", "100")
        self.assertRegex(stdout, r"input: 100 of \d+ voxels, spread evenly \(--points\)")
        seen = self.see(page)
        self.assertEqual(seen["points"], 100)
        self.assertRegex(seen["count"], r"^100 of \d+ voxels, spread evenly$")

    def test_a_layers_output(self):
        stdout, page = self.view(SCENE, "--voxel-size", "0.5", "--network", "minkunet42", "--width",
                                 "0.25", "--layer", "encoder1.down,head", "--channel", "0,3")
        self.assertRegex(stdout, r"minkunet42 encoder1.down: (\d+) of \1 voxels, coloured by norm of "
                                 r"the features, channel with the largest feature, channel 0, channel 3")
        self.assertIn("parameters are random (seed 1)", page)
        self.assertIn('"edge":[2,2,2]', page)
        seen = self.see(page)
        self.assertEqual(seen["choices"], 4 + 4 + 7)
        self.assertGreater(seen["first"], 20)

    def test_names_come_out_as_they_are(self):
        name = self.path / "<img src=x onerror=alert(1)> $x$ & \u2028.xyz"
        name.write_text("0 0 0\n1 0 0\n0 3 0\n")
        stdout, page = self.view(name, "--voxel-size", "0.5")
        self.assertNotIn("<img", page)
        self.assertEqual(self.see(page)["shown"], f"voxconv: {name}")

    def test_a_name_that_is_no_utf_8(self):
        name = bytes(self.path) + b"/caf\xe9.xyz"
        pathlib.Path(name.decode(errors="surrogateescape")).write_text("0 0 0\n1 0 0\n")
        _, page = self.view(pathlib.Path(name.decode(errors="surrogateescape")))
        self.assertIn("caf\ufffd.xyz", page)

    def test_bad_arguments(self):
        out = self.path / "view.html"
        self.assertIn("--out is missing", self.refused(SCENE))
        self.assertIn("--points 0: allowed are 1 ..", self.refused(SCENE, "--out", out, "--points", "0"))
        self.assertIn("--layer: has no meaning without --network",
                      self.refused(SCENE, "--out", out, "--layer", "head"))
        network = (SCENE, "--voxel-size", "0.5", "--out", out, "--network", "minkunet42", "--width",
                   "0.25")
        self.assertIn("layer 'hed': minkunet42 has none", self.refused(*network, "--layer", "hed"))
        self.assertIn("channel 19 of layer 'minkunet42 head': allowed are 0 .. 18",
                      self.refused(*network, "--channel", "19"))
        self.assertIn("--channel 1,x: 'x' is no whole number", self.refused(*network, "--channel", "1,x"))
        self.assertIn("--seed: has no meaning together with --weights",
                      self.refused(*network, "--seed", "2", "--weights", "w.safetensors"))
        self.assertFalse(out.exists())

    def test_a_dash_is_standard_output(self):
        result = support.run(VOXCONV, "view", SCENE, "--out", "-")
        self.assertTrue(result.stdout.startswith("<!DOCTYPE html>"))
        self.assertTrue(result.stdout.endswith("</html>\n"))
        self.assertIn("coloured by", result.stderr)


if __name__ == "__main__":
    if not THREE.exists():
        print("skipped: libjs-three is not installed")
        sys.exit(77)
    if shutil.which("chromium") is None:
        print("no Chromium: the pages are not opened")
    unittest.main()
