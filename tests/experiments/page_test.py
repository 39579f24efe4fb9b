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

import browser
import support

VOXCONV, RESULTS = sys.argv[1], pathlib.Path(sys.argv[2])
del sys.argv[1:3]

# Sorts the first table by its first column, twice, and tells what it saw in the title.
PROBE = """<script>
window.addEventListener("load", () => {
  const table = Array.from(document.querySelectorAll("table")).find(
      (one) => one.tHead.rows[0].cells[0].textContent === "experiment");
  const first = () => Array.from(table.tBodies[0].rows).map((row) => row.cells[0].textContent);
  const th = table.querySelector("th");
  th.click();
  const up = first();
  th.click();
  const down = first();
  const sorted = [...up].sort((a, b) => a.localeCompare(b));
  const shown = () => Array.from(document.querySelectorAll("section")).filter((s) => !s.hidden).length;
  const search = document.querySelector("input[type=search]");
  const all = shown();
  search.value = "no such words";
  search.dispatchEvent(new Event("input"));
  const none = shown();
  search.value = "MINUET/fig16: segmented";
  search.dispatchEvent(new Event("input"));
  const some = shown();
  search.value = "";
  search.dispatchEvent(new Event("input"));
  const images = Array.from(document.images);
  document.title = JSON.stringify({
    up: JSON.stringify(up) === JSON.stringify(sorted),
    down: JSON.stringify(down) === JSON.stringify([...up].reverse()),
    searched: none === 0 && some === 1 && all > 1 && shown() === all,
    links: Array.from(table.querySelectorAll("td a")).filter(
        (link) => document.getElementById(link.getAttribute("href").slice(1))).length,
    images: images.length, drawn: images.filter((image) => image.naturalWidth > 0).length,
    fetched: performance.getEntriesByType("resource").filter(
        (entry) => !entry.name.startsWith("data:")).length,
    errors: window.seenErrors});
});
</script>"""
CATCH = """<script>window.seenErrors = 0;
window.addEventListener("error", () => { window.seenErrors += 1; });</script>"""


NOTES = """# Cause

The map <fits> in L2, *mostly*: `a < <b>`.

| size | hit |
| --- | --- |
| 1 | 2 |

![away](https://example.org/a.png)
[bad](javascript:alert(1))

```
open <code>
"""


class PageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.out = pathlib.Path(cls.folder.name)
        notes = cls.out / "results"
        shutil.copytree(RESULTS, notes)
        (notes / "minuet-fig16.notes.md").write_text(NOTES)
        (notes / "minuet.notes.md").write_text("The paper's *own* words")
        (notes / "answers.notes.md").write_text("Words of the *answer*")
        cls.result = support.run(VOXCONV, "report", notes, "--out", cls.out, "--title", "T & T")
        cls.page = (cls.out / "report.html").read_text()
        cls.front = (cls.out / "report.md").read_text()
        cls.markdown = support.markdown_of(cls.out)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_all_experiments_are_there(self):
        self.assertEqual(self.result.returncode, 0, self.result.stderr)
        for path in RESULTS.glob("*.jsonl"):
            name = support.read_lines(path)[0]["definition"]["name"]
            self.assertRegex(self.page, f'<h2 id="[A-Za-z0-9_.-]+">{re.escape(name)}: ')
            self.assertIn(f"# {name}: ", self.markdown)

    def test_quick_results_are_no_verdicts(self):
        self.assertIn("0 reproduced, 0 reproduced in direction, 0 not reproduced",
                      self.result.stdout)

    def test_the_summary_links_to_every_experiment(self):
        anchors = re.findall(r'<h2 id="([^"]*)"', self.page)
        self.assertEqual(len(anchors), len(set(anchors)))
        begin = self.page.index("<table><thead><tr><th>experiment</th>")
        overview = self.page[begin:self.page.index("</table>", begin)]
        self.assertEqual(re.findall(r'<td><a href="#([^"]*)">', overview), anchors)
        pages = set(re.findall(r"\]\((experiments/[^)]*)\)", self.front))
        self.assertEqual(pages, {f"experiments/{anchor}.md" for anchor in [*anchors, "rule"]})
        for page in pages:
            self.assertIn("](../report.md)", (self.out / page).read_text())

    def test_the_front_page_can_be_read(self):
        self.assertLessEqual(self.front.count("\n"), 200)
        self.assertIn("\n## Minuet (EuroSys 2024)\n", self.front)
        self.assertIn("\nThe paper's *own* words\n", self.front)  # minuet.notes.md

    def test_the_answer_comes_first(self):
        self.assertTrue(self.front.startswith("# T & T\n\n## Which part carries an engine's gain\n"))
        answer = self.front[:self.front.index("\n## ", self.front.index("\n## ") + 1)]
        self.assertIn("\n| engine | times as fast as the plain engine |", answer)
        self.assertEqual(answer.count("\n| minuet | "), 1)
        self.assertIn("\nWords of the *answer*\n", answer)  # answers.notes.md

    def test_notes_are_rendered(self):
        try:
            import markdown_it  # noqa: F401
        except ImportError:
            self.skipTest("python3-markdown-it is not installed")
        self.assertIn("<h4>Cause</h4>", self.page)
        self.assertIn("The map &lt;fits&gt; in L2, <em>mostly</em>: "
                      "<code>a &lt; &lt;b&gt;</code>.", self.page)
        self.assertIn("<td>1</td>", self.page)
        self.assertNotIn('src="https', self.page)
        self.assertNotIn('href="javascript', self.page)

    def test_notes_cannot_change_the_rest_of_the_markdown(self):
        self.assertIn("The map &lt;fits> in L2, *mostly*: `a < <b>`.", self.markdown)
        self.assertIn("```\nopen <code>\n```\n", self.markdown)

    def test_images_of_the_markdown_exist(self):
        count = 0
        for page in [self.out / "report.md", *self.out.glob("experiments/*.md")]:
            # A note has another.
            for image in re.findall(r"!\[.*?\]\((?!https:)(.*?)\)", page.read_text()):
                self.assertTrue((page.parent / image).exists(), image)
                count += 1
        self.assertGreater(count, 10)

    def test_nothing_outside_is_asked_for(self):
        for address in re.findall(r'src="([^"]*)"', self.page):
            self.assertRegex(address, "^data:")
        for address in re.findall(r'href="([^"]*)"', self.page):
            self.assertRegex(address, "^(data:|#|https://example.org/)")  # links of the notes
        self.assertNotRegex(self.page, r"@import|url\(")

    def test_in_a_browser(self):
        probed = self.out / "probed.html"
        probed.write_text(self.page.replace("<head>", "<head>" + CATCH).replace(
            "</body>", PROBE + "</body>"))
        page, messages = browser.open_page(self, probed)
        self.assertEqual(messages, [])
        title = re.search(r"<title>(.*?)</title>", page)
        self.assertIsNotNone(title, page[:1000])
        seen = title.group(1).replace("&quot;", '"')
        self.assertRegex(seen, r'"up":true,"down":true,"searched":true')
        images, drawn = re.search(r'"images":(\d+),"drawn":(\d+)', seen).groups()
        self.assertEqual(images, drawn)
        self.assertGreater(int(images), 10)
        self.assertIn('"fetched":0,"errors":0', seen)
        self.assertEqual(int(re.search(r'"links":(\d+)', seen)[1]),
                         len(re.findall(r'<h2 id="', self.page)))


if __name__ == "__main__":
    support.need_matplotlib()
    unittest.main()
