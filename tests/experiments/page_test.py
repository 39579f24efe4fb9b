# SPDX-License-Identifier: Apache-2.0
"""The report of all quick results: complete, self-contained, and sound in a browser.

    page_test.py VOXCONV RESULTS
"""

import pathlib
import re
import shutil
import sys
import tempfile
import unittest

import support

VOXCONV, RESULTS = sys.argv[1], pathlib.Path(sys.argv[2])
del sys.argv[1:3]

# Sorts the first table by its first column, twice, and tells what it saw in the title.
PROBE = """<script>
window.addEventListener("load", () => {
  const table = document.querySelector("table");
  const first = () => Array.from(table.tBodies[0].rows).map((row) => row.cells[0].textContent);
  const th = table.querySelector("th");
  th.click();
  const up = first();
  th.click();
  const down = first();
  const sorted = [...up].sort((a, b) => a.localeCompare(b));
  const images = Array.from(document.images);
  document.title = JSON.stringify({
    up: JSON.stringify(up) === JSON.stringify(sorted),
    down: JSON.stringify(down) === JSON.stringify([...up].reverse()),
    images: images.length, drawn: images.filter((image) => image.naturalWidth > 0).length,
    fetched: performance.getEntriesByType("resource").filter(
        (entry) => !entry.name.startsWith("data:")).length,
    errors: window.seenErrors});
});
</script>"""
CATCH = """<script>window.seenErrors = 0;
window.addEventListener("error", () => { window.seenErrors += 1; });</script>"""


class PageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.out = pathlib.Path(cls.folder.name)
        notes = cls.out / "results"
        shutil.copytree(RESULTS, notes)
        (notes / "minuet-fig16.notes.md").write_text("The map <fits> in L2.")
        cls.result = support.run(VOXCONV, "report", notes, "--out", cls.out, "--title", "T & T")
        cls.page = (cls.out / "report.html").read_text()
        cls.markdown = (cls.out / "report.md").read_text()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_all_experiments_are_there(self):
        self.assertEqual(self.result.returncode, 0, self.result.stderr)
        for path in RESULTS.glob("*.jsonl"):
            name = support.read_lines(path)[0]["definition"]["name"]
            self.assertIn(f'id="{name}"', self.page)
            self.assertIn(f"## {name}: ", self.markdown)

    def test_quick_results_are_no_verdicts(self):
        self.assertIn("0 reproduced, 0 reproduced in direction, 0 not reproduced",
                      self.result.stdout)

    def test_notes_are_in_both_pages(self):
        self.assertIn("The map &lt;fits&gt; in L2.", self.page)
        self.assertIn("The map <fits> in L2.", self.markdown)

    def test_images_of_the_markdown_exist(self):
        images = re.findall(r"!\[.*?\]\((.*?)\)", self.markdown)
        self.assertGreater(len(images), 10)
        for image in images:
            self.assertTrue((self.out / image).exists(), image)

    def test_nothing_outside_is_asked_for(self):
        for address in re.findall(r'(?:src|href)="([^"]*)"', self.page):
            self.assertRegex(address, "^(data:|#)")
        self.assertNotRegex(self.page, r"@import|url\(")

    def test_in_a_browser(self):
        browser = shutil.which("chromium") or shutil.which("google-chrome")
        if browser is None:
            self.skipTest("no Chromium here")
        probed = self.out / "probed.html"
        probed.write_text(self.page.replace("<head>", "<head>" + CATCH).replace(
            "</body>", PROBE + "</body>"))
        result = support.run(browser, "--headless", "--no-sandbox", "--disable-gpu",
                             "--host-resolver-rules=MAP * ~NOTFOUND",
                             f"--user-data-dir={self.out / 'browser'}",
                             "--virtual-time-budget=5000", "--dump-dom", f"file://{probed}")
        title = re.search(r"<title>(.*?)</title>", result.stdout)
        self.assertIsNotNone(title, result.stderr)
        seen = title.group(1).replace("&quot;", '"')
        self.assertRegex(seen, r'"up":true,"down":true')
        images, drawn = re.search(r'"images":(\d+),"drawn":(\d+)', seen).groups()
        self.assertEqual(images, drawn)
        self.assertGreater(int(images), 10)
        self.assertIn('"fetched":0,"errors":0', seen)


if __name__ == "__main__":
    support.need_matplotlib()
    unittest.main()
