#!/usr/bin/env python3
"""House rules as a test: includes against layers.txt, and what a compiler does not check.

usage: tidy.py [ROOT]     prints FILE:LINE: RULE: what to do; exit 1 when there is anything to do
"""

import re
import stat
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import file_index
import members
import words

HERE = Path(__file__).resolve().parent
CODE_FOLDERS = ("src", "apps", "bench-cuda", "fakenvml", "fakedcgm", "progress", "tests")
MAX_BYTES = 400_000  # of a file; the largest is a report of the lab, 280 kB
MAX_COLUMNS = 100
MAX_FUNCTION_LINES = 70
MAX_TITLE_COLUMNS = 72
COMMITS = 50


def is_test(path):
    """A test, or a header that only tests include."""
    name = path.rsplit("/", 1)[-1]
    return name.endswith("_test.cc") or (name.startswith("test_") and name.endswith(".h"))


class Finding(NamedTuple):
    path: str
    line: int
    rule: str
    todo: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.rule}: {self.todo}"


def data_lines(text):
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


def matches_any(path, globs):
    return any(fnmatch(path, glob) for glob in globs)


# --- text -----------------------------------------------------------------------------------------

TOKEN = re.compile(
    r'''//[^\n]*|/\*.*?\*/'''                            # comments
    r'''|R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"'''         # raw strings
    r'''|"(?:\\.|[^"\\\n])*"'''                          # strings
    r'''|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+\'''',        # characters, not digit separators
    re.DOTALL)


def blank_text(text):
    """The code with comments and strings blanked; lines keep their numbers."""
    def blank(match):
        quote = "" if match[0].startswith("/") else '"'
        return quote + "\n" * match[0].count("\n") + quote
    return TOKEN.sub(blank, text)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^">\n]+)[">]', re.MULTILINE)


def includes(text):
    """(line, "quote" or <angle>, path) of each #include."""
    return [(line_of(text, m.start(1)), m[1], m[2]) for m in INCLUDE.finditer(text)]


# --- layers ---------------------------------------------------------------------------------------

class Layers:
    def __init__(self, text):
        self.may, self.tests_may, self.never, self.fences = {}, {}, {}, {}
        tables = {"layer": self.may, "tests": self.tests_may, "never": self.never,
                  "fence": self.fences}
        for line in data_lines(text):
            kind, rest = line.split(None, 1)
            name, values = rest.split(":", 1)
            tables[kind][name.strip()] = values.split()

    def folder_of(self, path):
        """The most particular folder of the table that `path` lies in, or None."""
        for parent in PurePosixPath(path.removeprefix("src/")).parents:
            if str(parent) in self.may:
                return str(parent)
        return None

    def target_of(self, path, include, exists):
        """What a quoted include means: a path from src/ (or the root), or None when it is a
        neighbour that only apps/, fakenvml/, fakedcgm/ and tests/ may name without its folder."""
        if self.folder_of(include):
            return include
        neighbour = str(PurePosixPath(path).parent / include)
        return neighbour if exists(neighbour) else None

    def check(self, path, text, exists):
        folder = self.folder_of(path)
        if folder is None:
            yield Finding(path, 1, "layers", "give its folder a line in tests/tidy/layers.txt")
            return
        allowed = self.may[folder] + (self.tests_may.get(folder, [])
                                      if is_test(path) else [])
        for line, quote, include in includes(text):
            yield from self.check_fences(path, line, include)
            if quote == "<":
                yield from self.check_angle(path, line, folder, allowed, include, exists)
                continue
            target = self.target_of(path, include, exists)
            if target is None or (path.startswith("src/") and target != include):
                yield Finding(path, line, "layers",
                              f'write "{include}" as its path from src/; <> for a library')
            elif not self.sees(folder, allowed, target):
                yield Finding(path, line, "layers",
                              f"{folder} may not include {self.folder_of(target)} ({include}): "
                              "move the code down, or pass a value (tests/tidy/layers.txt)")

    def check_angle(self, path, line, folder, allowed, include, exists):
        """A header of this project between angle brackets, also by its name alone."""
        if exists("src/" + include):
            yield Finding(path, line, "layers", f'write "{include}": <> is for libraries')
        for target in (f"{each}/{include}" for each in self.may):
            if exists("src/" + target) and not self.sees(folder, allowed, target):
                yield Finding(path, line, "layers", f"{folder} may not include {target}, which "
                              f"<{include}> is (tests/tidy/layers.txt)")

    def sees(self, folder, allowed, target):
        return "*" in allowed or target in allowed or self.folder_of(target) in [folder, *allowed]

    def is_never(self, folder, header):
        return any((self.folder_of(header) + "/").startswith(never + "/")
                   for never in self.never.get(folder, []))

    def check_fences(self, path, line, include):
        for header, globs in self.fences.items():
            fenced = include.startswith(header) if header.endswith("/") else (
                include == header or include.startswith(header + "/"))
            if fenced and not matches_any(path, globs):
                yield Finding(path, line, "fence",
                              f"{include} is for {' '.join(globs)} only: wrap what you need there")

    def check_never(self, files):
        """Follows includes through headers: files is {path: text}."""
        graph = {path: [(line, "src/" + include) for line, quote, include in includes(text)
                        if quote == '"'] for path, text in files.items()}
        for path in sorted(files):
            folder = self.folder_of(path) if path.startswith("src/") else None
            for line, first in graph[path]:
                seen, todo = set(), [first]
                while todo:
                    header = todo.pop()
                    if header in seen:
                        continue
                    seen.add(header)
                    todo += [include for _, include in graph.get(header, [])]
                for header in sorted(seen):
                    if header != first and self.is_never(folder, header):
                        yield Finding(path, line, "layers",
                                      f"{folder} must never see {header}, which comes in by way "
                                      f"of {first}: take the values that you need instead")


# --- C++ ------------------------------------------------------------------------------------------

def check_pragma_once(path, text):
    if path.endswith(".h"):
        first = re.search(r"^[ \t]*#.*", blank_text(text), re.MULTILINE)
        if not first or first[0].split() != ["#pragma", "once"]:
            yield Finding(path, 1, "pragma-once", "begin the header with #pragma once")


def check_own_header_first(path, text, exists):
    header = path.removesuffix(".cc") + ".h"
    if not path.endswith(".cc") or not exists(header):
        return
    found = includes(text)
    names = (header.removeprefix("src/"), PurePosixPath(header).name)
    if not found or found[0][2] not in names:
        yield Finding(path, found[0][0] if found else 1, "own-header",
                      f'include "{names[0]}" first: that proves that it stands alone')


ACCESS = re.compile(r"^(\s|(public|protected|private)\s*:)+")
DIRECTIVE = re.compile(r"^[ \t]*#(?:.*\\\n)*.*", re.MULTILINE)


def check_function_length(path, text):
    """Braces after a balanced (...) at file, namespace or class level open a function; those
    inside functions and initialisers are of no interest."""
    code = blank_text(text)
    code = DIRECTIVE.sub(lambda match: "\n" * match[0].count("\n"), code)
    containers, start, head = [], None, 0
    for match in re.finditer(r"[{};]", code):
        at, char = match.start(), match[0]
        if char == "{":
            outer = containers[-1] if containers else "container"
            containers.append(opened_by(code[head:at]) if outer == "container" else "inner")
            if containers[-1] == "function":
                start = at - len(ACCESS.sub("", code[head:at]))
        elif char == "}" and containers:
            kind = containers.pop()
            if kind == "function":
                lines = line_of(code, at) - line_of(code, start) + 1
                if lines > MAX_FUNCTION_LINES:
                    yield Finding(path, line_of(code, start), "function-length",
                                  f"{lines} lines, {MAX_FUNCTION_LINES} are the most: "
                                  "name its parts and make them functions")
            if kind == "initialiser":
                continue  # perhaps a member's: then the function's head goes on
        if not containers or containers[-1] == "container":
            head = at + 1


def opened_by(head):
    """What the { after `head` opens: a container, a function or an initialiser."""
    if re.search(r"\b(namespace|class|struct|union|enum)\b[^()]*$|\bextern\s*\"\"\s*$", head):
        return "container"
    if "(" not in head or head.count("(") != head.count(")") or head[-1:] not in " \n\t":
        return "initialiser"
    return "initialiser" if head.rstrip().endswith(("=", ",", "return")) else "function"


BLOCK = re.compile(r"([);\]}]|\b(else|do|try|const|noexcept|override|mutable))\s*$")


def check_try_in_braces(path, text):
    """g++ 12 and clang 14 do not destroy what an initialiser has built when TRY returns from it."""
    code = blank_text(text)
    outer = []  # of each open bracket: what it is, and whether it holds values before this place
    for match in re.finditer(r"[{}(),;\[\]]|\bTRY\(", code):
        token = match[0]
        if token == "TRY(":
            for kind, holds_values in reversed(outer):
                if kind == "block":
                    break
                if kind == "braces" and holds_values:
                    yield Finding(path, line_of(code, match.start()), "try-in-braces",
                                  "give it a variable before the braces: what stands before it "
                                  "would leak")
                    break
        if token == "{":
            before = code[max(0, match.start() - 40):match.start()]
            outer.append(("block" if BLOCK.search(before) else "braces", False))
        elif token[-1] in "([":
            outer.append(("other", False))
        elif token in "})]":
            outer = outer[:-1]
        elif outer and outer[-1][0] == "braces":
            outer[-1] = ("block", False) if token == ";" else ("braces", True)


def check_banned(path, text, banned):
    code = blank_text(text)
    for rule, pattern, instead in banned:
        for match in pattern.finditer(code):
            yield Finding(path, line_of(code, match.start()), rule,
                          f"{match[0].strip()} is not used here: {instead}")


def read_banned(text):
    rows = [line.split("\t") for line in data_lines(text)]
    return [(rule, re.compile(pattern), instead) for rule, pattern, instead in rows]


# --- any text -------------------------------------------------------------------------------------

def check_columns(path, text):
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > MAX_COLUMNS:
            yield Finding(path, number, "columns",
                          f"{len(line)} columns, {MAX_COLUMNS} are the most: break the line")


MARKERS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
PATHS = re.compile(r"(?<![\w.~$}*-])/(home|root|work|Users)/")


def check_words(path, text):
    for number, line in enumerate(text.splitlines(), 1):
        if match := MARKERS.search(line):
            yield Finding(path, number, "markers",
                          f"{match[0]}: do it, or file an issue and say so in plain words")
        if match := PATHS.search(line):
            yield Finding(path, number, "paths",
                          f"{match[0]} is somebody's machine: take the path as a parameter")


def check_weight(path, size):
    """A result of the lab, say, that somebody has added without a look."""
    if size > MAX_BYTES:
        yield Finding(path, 1, "weight", f"{size} bytes, {MAX_BYTES} are the most: what makes it "
                                         "stands here, not what is made")


def check_executable(path, text, mode):
    if text.startswith("#!") and not mode & stat.S_IXUSR:
        yield Finding(path, 1, "executable", "it names its interpreter: chmod +x")


# --- sizes and sentences --------------------------------------------------------------------------

def check_sizes(root, code):
    """Classes with too many data members, folders with too many lines."""
    found = {f"{path}::{name}": number for path, text in code.items()
             if path.startswith(("src/", "apps/", "fakenvml/", "fakedcgm/"))
             and "_test." not in path and "/test_" not in path
             for name, number in members.members(blank_text(text)).items()}
    listed = root / "tests/tidy/members.txt"
    large = members.read_large(listed.read_text()) if listed.exists() else {}
    for name, todo in members.check_members(found, large):
        path, _, _ = name.partition("::")
        yield Finding(path, 1, "members", f"{name.rpartition('/')[2]}: {todo}")
    for folder, todo in members.check_folders(code):
        yield Finding(folder, 1, "folder-lines", todo)
    for folder, todo in members.check_share(code):
        yield Finding(folder, 1, "share", todo)


def check_sentences(root, texts):
    """The rules for sentences, each on lines that differ from the commit that it came with."""
    for since, check in ((words.SINCE, words.check_words),
                         (words.COMMENTS_SINCE, words.check_comments)):
        diff = git(root, "diff", "-M", "--unified=0", "--no-ext-diff", since) \
            if (root / ".git").exists() else None
        for path, changed in words.added_lines(diff or "").items():
            for line, todo in check(path, texts.get(path, ""), changed):
                yield Finding(path, line, "sentences", todo)


# --- commits --------------------------------------------------------------------------------------

TITLE = re.compile(r"[\w./-]+(, [\w./-]+)*: (?P<verb>\S+).*(?<!\.)")
NOT_IMPERATIVE = re.compile(r"(?i)(?!(feed|embed|need|seed|speed|shed|bring|string)$)\w+(ed|ing)$"
                            r"|(adds|fixes|makes|removes|moves|changes|uses|updates|implements)$")


def check_title(commit, title):
    match = TITLE.fullmatch(title)
    if not match:
        yield Finding(commit, 1, "commit-title", f'"{title}": write "component: imperative title"')
    elif NOT_IMPERATIVE.match(match["verb"]):
        yield Finding(commit, 1, "commit-title", f'"{match["verb"]}": say what to do: "add", "fix"')
    if len(title) > MAX_TITLE_COLUMNS:
        yield Finding(commit, 1, "commit-title",
                      f"{len(title)} columns, {MAX_TITLE_COLUMNS} are the most: shorten it")


def check_index(texts):
    page = texts.get("ARCHITECTURE.md")
    if page is not None and file_index.with_index(page, texts) != page:
        yield Finding("ARCHITECTURE.md", 1, "index",
                      "its index of files is not up to date: tests/tidy/file_index.py --write")
    for path in filter(file_index.is_indexed, texts):
        alone = path.endswith(".h") or path[:path.rindex(".")] + ".h" not in texts
        sentence = file_index.first_sentence(texts[path])
        if alone and not sentence:
            yield Finding(path, 1, "index", "begin it with a comment that says what is in it")
        elif alone and file_index.is_riddle(sentence):
            yield Finding(path, 1, "index", "name the thing first: its first sentence begins with "
                          "What, Who, Where, Which, How, One ... or has a word of words.INSTEAD")
        elif alone and (later := file_index.later_riddle(texts[path])):
            yield Finding(path, 1, "index", f"'{later[:40]} ...': begin with the thing's name, "
                          "without a word of words.INSTEAD")


# --- the repository -------------------------------------------------------------------------------

def git(root, *arguments):
    """What git prints, or None without git or outside a repository of its own."""
    try:
        done = subprocess.run(["git", "-c", "safe.directory=*", "-C", str(root), *arguments],
                              capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None


def list_files(root):
    if (root / ".git").exists():
        listed = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        if listed is not None:
            return [p for p in listed.split("\0") if p and (root / p).is_file()]
    skip = {"build", ".git", "node_modules", "__pycache__"}
    paths = [p.relative_to(root) for p in root.rglob("*") if p.is_file()]
    return [p.as_posix() for p in paths if not skip.intersection(p.parts)]


def check_repository(root):
    """All findings, exceptions taken out."""
    layers = Layers((HERE / "layers.txt").read_text())
    banned = read_banned((HERE / "banned.txt").read_text())
    allowed = [line.split(None, 2) for line in data_lines((HERE / "allow.txt").read_text())]

    texts = {}
    for path in sorted(list_files(root)):
        try:
            texts[path] = (root / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            pass  # not text
    code = {path: text for path, text in texts.items()
            if path.endswith((".h", ".cc", ".c", ".cu")) and path.startswith(CODE_FOLDERS)}
    findings = list(layers.check_never(code))
    for path, text in code.items():
        findings += layers.check(path, text, texts.__contains__)
        findings += check_pragma_once(path, text)
        findings += check_own_header_first(path, text, texts.__contains__)
        findings += check_function_length(path, text)
        findings += check_try_in_braces(path, text)
        findings += check_banned(path, text, banned)
    for path, text in texts.items():
        if path in code or path.endswith(".py") or path.startswith(("scripts/", ".ci/")):
            findings += check_columns(path, text)
        if not path.startswith(("web/dist/", "tests/fuzz/corpus/")):
            findings += check_words(path, text)
        findings += check_executable(path, text, (root / path).stat().st_mode)
    for path in list_files(root):
        findings += check_weight(path, (root / path).stat().st_size)
    findings += check_sizes(root, code)
    findings += check_index(texts)
    findings += check_sentences(root, texts)
    findings = [f for f in findings
                if not any(f.rule == rule and fnmatch(f.path, glob) for rule, glob, _ in allowed)]

    log = git(root, "log", f"-{COMMITS}", "--no-merges", "--format=%h %s") \
        if (root / ".git").exists() else None
    for line in (log or "").splitlines():
        commit, _, title = line.partition(" ")
        findings += check_title(commit, title)
    return findings


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parents[1]
    findings = check_repository(root.resolve())
    for finding in findings:
        print(finding)
    print(f"tidy: {len(findings)} to do")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
