"""Pages say what the tools say that made them, and the README what the pages say."""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from checks import ROOT, library, main


def cells_of(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def tables(text):
    """Each table of a Markdown page, as a list of rows by the words of its head."""
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        head, _, *rows = [cells_of(line) for line in block.splitlines()]
        yield [dict(zip(head, row)) for row in rows]


def section(text, title):
    return text.split(f"### {title}\n")[1].split("\n### ")[0]


class GraphsTest(unittest.TestCase):
    def test_the_page_is_what_the_tool_makes(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "graphs.md"
            subprocess.run([sys.executable, "-W", "ignore", ROOT / "tools" / "graphs.py", library(), page], check=True, capture_output=True)
            self.assertEqual(page.read_text(), (ROOT / "docs" / "graphs.md").read_text(), "python tools/graphs.py build/libtailor.so makes it anew")


class ReadmeTest(unittest.TestCase):
    """Its figures are those of the pages that it names."""

    PAGES = {"bf16": ("performance.md",), "fp32": ("performance-float32.md", "performance.md")}
    ARMS = {"eager": "eager", "`torch.compile`": "compile", "Tailor": "tailor", "settled": "settled"}

    def measured(self, dtype, chain, size):
        """The first row of inference that is of these, among the pages."""
        for page in self.PAGES[dtype]:
            for table in tables(section((ROOT / "docs" / page).read_text(), "Inference")):
                for row in table:
                    if (row["dtype"], row["chain"], row["size"]) == (dtype, chain, size):
                        return row
        self.fail(f"no page has {dtype} {chain} {size}")

    def test_ratios(self):
        found = [table for table in tables((ROOT / "README.md").read_text()) if "Tailor" in table[0] and "eager" in table[0]]
        self.assertEqual(len(found), 2, "tables of ratios in the README")
        for dtype, table in zip(self.PAGES, found):
            self.assertGreaterEqual(len(table), 5)
            for row in table:
                chain, size = row[""].removeprefix("linear, ").split("; ")
                theirs = self.measured(dtype, chain.replace(", ", "_").replace(" ", "_"), size)
                linear = float(theirs["linear"].split()[0])
                for arm in row.keys() - {""}:
                    exact = float(theirs[self.ARMS[arm]].split()[0]) / linear
                    self.assertAlmostEqual(float(row[arm]), exact, delta=0.005 + 0.006 * exact, msg=f"{dtype} {row['']}: {arm}")


if __name__ == "__main__":
    main()
