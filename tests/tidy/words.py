"""The rule of STYLE.md for sentences, on the lines that have changed since it came."""

import re

# Lines are compared with this commit, the last before the rule.
SINCE = "faf786b9fd0e462730cd92f3fe36051d2e523891"
# The same for check_comments, which came later.
COMMENTS_SINCE = "a6722b197a5edd33edbfac76c58723d8767750ed"

PROSE = (".md",)
CODE = (".h", ".cc", ".c", ".cu", ".ts", ".py", ".sh")
SKIPPED = ("CHANGELOG.md", "STYLE.md", "tests/tidy/", "tests/fixtures/", "web/dist/", "web/ui.html",
           "web/report.html")

INSTEAD = {
    "told": "reported, logged, printed or passed",
    "tells": "reports, logs or shows",
    "asked": "requested, queried or called",
    "believed": "accepted, estimated or assumed",
    "believes": "accepts, estimates or assumes",
    "beside": "on another thread, next to, in addition to",
}
WORD = re.compile(r"\b(" + "|".join(INSTEAD) + r")\b", re.IGNORECASE)
BARE = re.compile(r"^(What|Who|One|Where|Whoever|Whatever)\b")
RIDDLE = re.compile(r"^(What|Who|Where|Whoever|Whatever)\b")
COMMENT_LINE = re.compile(r"\s*(?://+|\*|#(?!include|define|if|el|end|pragma|!))\s(.*)")
COMMENT = re.compile(r"(?:^|\s)(?://+|#(?!include|define|if|el|end|pragma|!)|\*)\s(.*)")
QUOTED = re.compile(r"`[^`]*`|\"[^\"]*\"|“[^”]*”|\([^)]*\.md[^)]*\)")
SENTENCE = re.compile(r"(?<=[.:;!?])\s+")


def added_lines(diff):
    """{path: {line number: text}} of a diff without context, moved lines left out."""
    removed, added, path, number = set(), {}, None, 0
    for line in diff.splitlines():
        if line.startswith("+++ "):
            path = line[6:] if line.startswith("+++ b/") else None
        elif line.startswith("@@"):
            number = int(re.search(r"\+(\d+)", line)[1])
        elif line.startswith("-") and not line.startswith("--- "):
            removed.add(stripped(line[1:]))
        elif line.startswith("+") and path is not None:
            added.setdefault(path, {})[number] = line[1:]
            number += 1
    return {path: {number: text for number, text in lines.items()
                   if stripped(text) not in removed}
            for path, lines in added.items()}


def stripped(line):
    return re.sub(r"^[\s/*#>-]+", "", line).strip()


def prose_of(path, line):
    """The words of the line that a person reads as a sentence; empty: none."""
    if path.endswith(PROSE):
        text = line
    else:
        comment = COMMENT.search(line)
        text = comment[1] if comment else ""
    return QUOTED.sub("", text)


def is_heading(line):
    return line.lstrip().startswith(("#", "|", ">"))


def bare_starts(lines):
    """How many sentences of a paragraph begin with a bare What, Who, One or Where; questions are
    none of them."""
    text = QUOTED.sub("", " ".join(line.strip().lstrip("-*0123456789. ") for line in lines))
    sentences = SENTENCE.split(text)
    return sum(1 for each in sentences if BARE.match(each) and not each.endswith("?"))


def check_words(path, text, changed):
    """(line, what to do) of each changed line that breaks the rule; changed: {line: text}."""
    if path.startswith(SKIPPED) or not path.endswith(PROSE + CODE):
        return
    if path == "ARCHITECTURE.md":  # its index quotes comments, which are read where they stand
        text = text.split("\n## Files\n")[0]
    fenced, lines = False, text.splitlines()
    if not lines:
        return
    in_code_block = []
    for line in lines:
        if line.lstrip().startswith("```"):
            fenced = not fenced
        in_code_block.append(fenced or line.startswith("    ") and path.endswith(PROSE))
    for number, line in sorted(changed.items()):
        if number > len(lines) or in_code_block[number - 1]:
            continue
        for match in WORD.finditer(prose_of(path, line)):
            yield number, f"'{match[0]}': write {INSTEAD[match[0].lower()]}"
    if path.endswith(PROSE):
        yield from check_paragraphs(lines, in_code_block, changed)


def check_paragraphs(lines, in_code_block, changed):
    paragraph = []
    for number, line in enumerate([*lines, ""], 1):
        ends = not line.strip() or is_heading(line) or line.lstrip().startswith(("- ", "* "))
        if ends or in_code_block[min(number, len(lines)) - 1]:
            if any(at in changed for at, _ in paragraph) and \
                    bare_starts([text for _, text in paragraph]) > 1:
                yield paragraph[0][0], ("two sentences of this paragraph begin with a bare What, "
                                        "Who, One or Where: begin with the thing's name")
            paragraph = []
        if line.strip() and not is_heading(line):
            paragraph.append((number, line))


def comment_blocks(lines):
    """Comments over whole lines, each a list of (line number, text)."""
    block = []
    for number, line in enumerate([*lines, ""], 1):
        comment = COMMENT_LINE.match(line)
        if comment:
            block.append((number, comment[1]))
        elif block:
            yield block
            block = []


def check_comments(path, text, changed):
    """(line, what to do) of each comment with a changed line and a sentence that begins with a bare
    What, Who or Where; questions are none of them."""
    if path.startswith(SKIPPED) or not path.endswith(CODE):
        return
    for block in comment_blocks(text.splitlines()):
        if not any(number in changed for number, _ in block):
            continue
        whole = QUOTED.sub("", " ".join(line.strip() for _, line in block))
        for each in SENTENCE.split(whole):
            if RIDDLE.match(each) and not each.endswith("?"):
                yield block[0][0], f"'{each[:40]}': begin with the thing's name"
