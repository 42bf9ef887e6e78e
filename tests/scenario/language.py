"""The scripts' form: lines, blocks by indentation, cases, and the tables that make several cases of
one. It knows no word of what scripts say; that is pieces.py and runner.py."""


class ScriptError(Exception):
    """A script that cannot be read, with its file and line."""


class Line:
    """A line and the block that is indented below it."""

    def __init__(self, number, text):
        self.number = number
        self.text = text
        self.block = []

    def word(self):
        return self.text.split(None, 1)[0]

    def rest(self):
        return self.text.partition(" ")[2].strip()

    def words(self):
        return self.text.split()

    def replaced(self, values):
        text = self.text
        for name, value in values.items():
            text = text.replace(f"<{name}>", value)
        copy = Line(self.number, text.strip())
        # A line of which nothing remains is left out: a cell of a table may be empty.
        copy.block = [line for line in (line.replaced(values) for line in self.block) if line.text]
        return copy


class Case:
    def __init__(self, title, line, statements):
        self.title = title
        self.line = line
        self.statements = statements


class Script:
    def __init__(self, server, cases):
        self.server = server
        self.cases = cases


def read_lines(text, where):
    """Makes a tree of lines. Blank lines and those that begin with # are for people."""
    top = Line(0, "")
    open_blocks = [(-1, top)]
    for number, raw in enumerate(text.split("\n"), 1):
        stripped = raw.strip()
        if not stripped or stripped.startswith("#"):
            continue
        if "\t" in raw:
            raise ScriptError(f"{where}:{number}: a tab; indent with spaces")
        indent = len(raw) - len(raw.lstrip(" "))
        while open_blocks[-1][0] >= indent:
            open_blocks.pop()
        line = Line(number, stripped)
        open_blocks[-1][1].block.append(line)
        open_blocks.append((indent, line))
    return top.block


def split_row(text):
    return [cell.strip() for cell in text.split("|")]


def table_rows(table, where):
    """`each a | b` and its rows → dicts of what stands for <a> and <b>."""
    names = split_row(table.rest())
    for row in table.block:
        cells = split_row(row.text)
        if len(cells) != len(names):
            raise ScriptError(f"{where}:{row.number}: {len(cells)} cells, but the table has"
                              f" {len(names)} columns: {', '.join(names)}")
        yield dict(zip(names, cells))


def read_case(line, where):
    tables = [inner for inner in line.block if inner.word() == "each"]
    statements = [inner for inner in line.block if inner.word() != "each"]
    if not statements:
        raise ScriptError(f"{where}:{line.number}: a case that does nothing")
    rows = [{}]
    for table in tables:
        rows = [{**row, **more} for row in rows for more in table_rows(table, where)]
    for row in rows:
        title = line.replaced(row).rest()
        yield Case(title, line.number, [inner.replaced(row) for inner in statements])


def read_script(text, where):
    script = Script(None, [])
    titles = set()
    for line in read_lines(text, where):
        if line.word() == "server":
            script.server = line
        elif line.word() == "case":
            for case in read_case(line, where):
                if case.title in titles:
                    raise ScriptError(f"{where}:{case.line}: a second case {case.title!r}")
                titles.add(case.title)
                script.cases.append(case)
        else:
            raise ScriptError(f"{where}:{line.number}: expected `server` or `case`,"
                              f" got {line.word()!r}")
    if not script.cases:
        raise ScriptError(f"{where}: no case")
    return script
