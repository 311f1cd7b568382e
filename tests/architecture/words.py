"""Counts words that the project does not use: in identifiers that a package defines, as identifiers of their own, as
first words of docstrings, and in its comments, docstrings and messages.

`python -m tests.architecture.words` records the counts of each package in `words.txt`. `test_words.py` compares them:
a count may fall and never rises.
"""

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source import PACKAGES, ROOT, modules, place, tree

DEPLOYMENT = "deploy"
WORD_FOLDERS = (*PACKAGES, DEPLOYMENT)
"""The folders whose Python is counted. `banned_lines` has the texts of the deployment: chart, compose file, rules."""
DEPLOYMENT_TEXTS = ("*.json", "*.lock", "*.md", "*.toml", "*.tpl", "*.txt", "*.yaml")
RECORD = Path(__file__).with_name("words.txt")
BANNED = {
    "anew",
    "beat",
    "cleaner",
    "figures",
    "housekeep",
    "housekeeper",
    "housekeepers",
    "housekeeping",
    "leveller",
    "levelling",
    "news",
    "nobody",
    "patience",
    "refusal",
    "refusals",
    "refuse",
    "refused",
    "refuses",
    "tell",
    "tells",
    "told",
    "wants",
    "whoever",
}
"""Words of a private dialect. Kafka, Iceberg, etcd and Prometheus have a noun for each thing that they stood for."""
BANNED_IN_CLASSES = {"place"}
BANNED_ALONE = {"found", "told", "wanted"}
"""Participles that are no names: a name says which thing was found."""
NOT_OURS = {"tell"}
"""A method of Python's file protocol that a file-like class has to have."""
FIRST_WORDS = {"And", "As", "Of", "Those", "What"}
"""A docstring that begins with one of them has no subject."""

_BANNED_TEXT = re.compile(
    r"\b(anew|beats|for ever|housekeep\w*|in vain|keeps? house|levell\w+|nobody|patience|tells?|told|who(m|so)?ever)\b",
    re.IGNORECASE,
)
_TEXTS = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def words_of(identifier: str) -> set[str]:
    """The words of a name in snake or camel case, in lower case."""
    return {word.lower() for word in _WORD.findall(identifier)}


def banned_identifiers(package: str) -> Iterator[str]:
    """`path:line name` for each definition in the package of a name that has a banned word."""
    for module in modules(package):
        for node in ast.walk(tree(module)):
            for name in _defined(node):
                banned = BANNED | BANNED_IN_CLASSES if isinstance(node, ast.ClassDef) else BANNED
                if words_of(name) & banned and not (isinstance(node, ast.FunctionDef) and name in NOT_OURS):
                    yield f"{place(module)}:{getattr(node, 'lineno', 0)} {name}"


def participles(package: str) -> Iterator[str]:
    """`path:line name` for each definition in the package of a name that is one of `BANNED_ALONE`."""
    for module in modules(package):
        for node in ast.walk(tree(module)):
            for name in _defined(node):
                if name.strip("_").lower() in BANNED_ALONE:
                    yield f"{place(module)}:{getattr(node, 'lineno', 0)} {name}"


def docstrings_without_subject(package: str) -> Iterator[str]:
    """`path:line first line` for each docstring of the package that begins with one of `FIRST_WORDS`."""
    for module in modules(package):
        for node in ast.walk(tree(module)):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                words = node.value.value.split(maxsplit=1)
                if words and words[0] in FIRST_WORDS:
                    yield f"{place(module, node)} {node.value.value.strip().splitlines()[0]}"


def banned_texts(package: str) -> Iterator[str]:
    """`path:line line` for each line of the package whose comment or string, docstrings too, has a banned word."""
    for module in modules(package):
        lines = module.read_text(encoding="utf-8").splitlines()
        with tokenize.open(module) as source:
            texts = [token for token in tokenize.generate_tokens(source.readline) if token.type in _TEXTS]
        numbers = {
            number
            for token in texts
            for number, line in enumerate(token.string.splitlines(), token.start[0])
            if _BANNED_TEXT.search(line)
        }
        yield from (f"{place(module)}:{number} {lines[number - 1].strip()}" for number in sorted(numbers))


def banned_lines() -> Iterator[str]:
    """`path:line line` for each line of the deployment's files, other than Python, that has a banned word."""
    for pattern in DEPLOYMENT_TEXTS:
        for path in sorted((ROOT / DEPLOYMENT).rglob(pattern)):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if _BANNED_TEXT.search(line):
                    yield f"{place(path)}:{number} {line.strip()}"


KINDS = {
    "identifiers": banned_identifiers,
    "participles": participles,
    "docstrings": docstrings_without_subject,
    "texts": banned_texts,
}


def counts() -> dict[str, int]:
    """The number of findings of each kind in each folder."""
    return {
        f"{folder} {what}": sum(1 for _ in found(folder)) for folder in WORD_FOLDERS for what, found in KINDS.items()
    }


def recorded() -> dict[str, int]:
    """The numbers in the file."""
    lines = RECORD.read_text(encoding="utf-8").splitlines()
    return {what: int(count) for what, _, count in (line.rpartition(" ") for line in lines if not line.startswith("#"))}


def _defined(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.arg(arg=name):
            yield name
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            yield name
        case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            yield name
        case _:
            return


if __name__ == "__main__":
    head = (
        "# Names and lines of text with a banned word, docstrings without a subject (test_words.py): none may rise.\n"
    )
    RECORD.write_text(head + "".join(f"{what} {count}\n" for what, count in counts().items()), encoding="utf-8")
