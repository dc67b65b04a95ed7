#!/usr/bin/env python3
"""The index of files at the end of ARCHITECTURE.md: a line a file, with the first sentence of its
comment. `file_index.py --write` writes it; tidy.py compares."""

import re
import sys
from pathlib import Path, PurePosixPath

import words

HEADING = "## Files"
NOTE = ("`tests/tidy/file_index.py --write` copies the first comment of each file to this list. A "
        "`.cc` stands behind the `.h` of its name.")
FOLDERS = ("src/", "apps/", "fakenvml/", "fakedcgm/", "progress/")
COMMENT = re.compile(r"\A\s*(?:((?://[^\n]*\n)+)|/\*(.*?)\*/)", re.S)
SENTENCE_END = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)\s|\n\s*\n")
LONGEST = 200
RIDDLE = re.compile(
    r"(What|Whatever|Who|Whoever|Whose|Where|Whether|Which|When|How|Why|One|That)\b")


def comment_of(text):
    """The comment that a file begins with, line by line; empty: there is none."""
    found = COMMENT.match(text)
    if found is None:
        return ""
    lines = (found[1] or found[2]).splitlines()
    return "\n".join(re.sub(r"^\s*(//+|\*+)?\s?", "", line).strip() for line in lines).strip()


def first_sentence(text):
    return " ".join(SENTENCE_END.split(comment_of(text))[0].split()).rstrip(".")


def is_riddle(sentence):
    """It does not name the thing first, or has a word that STYLE.md replaces."""
    return bool(RIDDLE.match(sentence) or words.WORD.search(sentence))


def later_riddle(text):
    """The first riddle after the comment's first sentence; empty if there is none."""
    later = SENTENCE_END.split(words.QUOTED.sub("", comment_of(text)))[1:]
    return next((each for each in (" ".join(one.split()) for one in later)
                 if words.BARE.match(each) or words.WORD.search(each)), "")


def shortened(sentence):
    if len(sentence) <= LONGEST:
        return sentence
    return sentence[:LONGEST].rsplit(" ", 1)[0].rstrip(",;:") + " ..."


def is_indexed(path):
    name = PurePosixPath(path).name
    return (path.startswith(FOLDERS) and path.endswith((".h", ".cc", ".c"))
            and not re.search(r"_test\.cc$|^test_", name))


def index(texts):
    """The section, of {path: text}."""
    folders = {}
    for path in sorted(filter(is_indexed, texts)):
        at = PurePosixPath(path)
        stems = folders.setdefault(at.parent.as_posix(), {})
        if at.suffix == ".h" or at.with_suffix(".h").as_posix() not in texts:
            stems[at.stem] = shortened(first_sentence(texts[path]))
    out = [HEADING, NOTE]
    for folder, stems in folders.items():
        out += ["", f"**{folder}**", ""]
        out += [f"- `{stem}`" + (f": {words}" if words else "") for stem, words in stems.items()]
    return "\n".join(out) + "\n"


def with_index(page, texts):
    """The page with its index made again; the index is its last section."""
    return page.split(f"\n{HEADING}\n")[0].rstrip("\n") + "\n\n" + index(texts)


def main():
    root = Path(__file__).resolve().parents[2]
    texts = {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8")
             for folder in FOLDERS for path in (root / folder).rglob("*.*")
             if path.suffix in (".h", ".cc", ".c")}
    page = root / "ARCHITECTURE.md"
    made = with_index(page.read_text(encoding="utf-8"), texts)
    if sys.argv[1:] == ["--write"]:
        page.write_text(made, encoding="utf-8")
        return 0
    print(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
