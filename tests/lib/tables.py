"""Reads tables in Markdown, as the programs of bench/ print and pages have them."""
import re


def table_of(text):
    """{title: columns} of the tables in the text."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")]
    return {row[0]: row[1:] for row in rows if row[0] != "---"}


def number(cell):
    """The number with which a cell begins: "1,234.5 ms"."""
    return float(re.match(r"[\d,]+(\.\d+)?", cell)[0].replace(",", ""))
