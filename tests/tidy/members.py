"""How many data members each class has, how many lines lie flat in a folder, and which share of
the code is programs."""

import re
from pathlib import PurePosixPath

MAX_MEMBERS = 30
MAX_FOLDER_LINES = 5000
# Of the lines of src and apps; 17 % is the aim. A rule belongs in src, where others find it.
MAX_SHARE_OF_APPS = 0.205

NESTED = re.compile(r"\b(?:class|struct|union)\s+(?:\[\[\w+\]\]\s*)?(\w+)\b(?!\s*::)[^;{}()=]*$")
NOT_DATA = re.compile(r"^(using|friend|typedef|static|enum|template|public|private|protected|"
                      r"class\s+\w+$|struct\s+\w+$|union\s+\w+$)\b")
ACCESS = re.compile(r"^\s*((public|private|protected)\s*:\s*)+")
OPENERS = {"{": "}", "(": ")", "[": "]"}


def without_angles(text):
    """The text without template arguments: they hold commas and parentheses of their own."""
    before = None
    while before != text:
        before = text
        text = re.sub(r"(?<=\w)\s*<[^<>;]*>", "", text)
    return text


def closing(text, at):
    """The place of the bracket that closes the one at `at`."""
    depth, opener = 0, text[at]
    closer = OPENERS[opener]
    for place in range(at, len(text)):
        if text[place] == opener:
            depth += 1
        elif text[place] == closer:
            depth -= 1
            if depth == 0:
                return place
    return len(text) - 1


def declarators(statement):
    """How many data members a statement of a class declares; `statement` has no brackets left."""
    statement = ACCESS.sub("", without_angles(statement)).strip()
    if not statement or NOT_DATA.match(statement) or "(" in statement.split("=")[0]:
        return 0
    if re.search(r"\boperator\b", statement) or statement.startswith("~"):
        return 0
    return statement.count(",") + 1


def count_in(body, prefix, out):
    """Adds to `out` the members of the classes in `body`; returns those of `body` itself."""
    own, statement, at = 0, "", 0
    while at < len(body):
        char = body[at]
        if char == "{":
            end = closing(body, at)
            nested = NESTED.search(statement)
            if nested and "enum" not in statement:
                name = f"{prefix}{nested[1]}"
                out[name] = count_in(body[at + 1:end], name + "::", out)
                statement = "nested "  # what follows names a member of that type
            elif "(" in statement.split("=")[0] and "=" not in statement:
                statement = ""  # a function's body
            at = end
        elif char == "(" or char == "[":
            end = closing(body, at)
            statement += "()" if char == "(" else ""
            at = end
        elif char == ";":
            if statement.strip() != "nested":
                own += declarators(statement)
            statement = ""
        else:
            statement += char
        at += 1
    return own


def members(code):
    """{class: its data members} of a file whose comments and strings are blanked."""
    out = {}
    code = re.sub(r"^[ \t]*#(?:.*\\\n)*.*", "", code, flags=re.MULTILINE)
    # Function types in template arguments look like functions.
    code = re.sub(r"std::function\s*<[^;{}]*?>(?=\s+\w+\s*[;={,])", "Function", code)
    for match in re.finditer(r"\bnamespace\b[^;{]*\{", code):
        code = code[:match.start()] + " " * (match.end() - match.start()) + code[match.end():]
    count_in(code, "", out)
    return out


def read_large(text):
    """{path::class: members} of tests/tidy/members.txt."""
    out = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            name, number = line.split()
            out[name] = int(number)
    return out


def check_members(found, large):
    """(class, what to do) of each class that is too large; found: {path::class: members}."""
    for name, number in sorted(found.items()):
        most = large.get(name, MAX_MEMBERS)
        if number > most:
            yield name, (f"{number} data members, {most} are the most: name what belongs together "
                         "and make it a struct")
    for name, most in sorted(large.items()):
        if name not in found:
            yield name, "the class is gone: take its line out of members.txt"
        elif found[name] < most:
            yield name, (f"it has {found[name]} data members now: say so in members.txt, or take "
                         f"the line out where they are {MAX_MEMBERS} at most")


def is_production(path):
    name = PurePosixPath(path).name
    return (path.startswith(("src/", "apps/")) and path.endswith((".cc", ".h"))
            and not name.endswith("_test.cc") and not name.startswith("test_"))


def check_folders(texts):
    """(folder, what to do) of each folder of src with too many lines of its own."""
    lines = {}
    for path, text in texts.items():
        if is_production(path) and path.startswith("src/"):
            folder = str(PurePosixPath(path).parent)
            lines[folder] = lines.get(folder, 0) + text.count("\n")
    for folder, number in sorted(lines.items()):
        if number > MAX_FOLDER_LINES:
            yield folder, (f"{number} lines lie flat in it, {MAX_FOLDER_LINES} are the most: give "
                           "what belongs together a folder")


def check_share(texts):
    """(folder, what to do) where apps has grown beyond its share."""
    lines = {"src": 0, "apps": 0}
    for path, text in texts.items():
        if is_production(path):
            lines[path.split("/")[0]] += text.count("\n")
    if lines["apps"] > MAX_SHARE_OF_APPS * sum(lines.values()):
        yield "apps", (f"{lines['apps']} of {sum(lines.values())} lines are in programs, "
                       f"{MAX_SHARE_OF_APPS:.1%} are the most: move what others could use to src")
