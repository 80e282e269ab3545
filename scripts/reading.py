"""The reading grade of a page: Flesch and Kincaid's years of school, of its prose."""

import re

# docs.py enforces this limit.
GRADE_MAX = 10.0
# Pages with less prose have no meaningful grade.
WORDS_MIN = 100

ITEM = re.compile(r"^([-*]|\d+\.)\s+")


def paragraphs(lines):
    """The paragraphs and list items among lines whose code is blank: no tables, no headings."""
    current = []
    for line in [*lines, ""]:
        text = line.strip()
        is_prose = text and not text.startswith(("|", "#", "<"))
        if current and (not is_prose or ITEM.match(text)):
            yield " ".join(current)
            current = []
        if is_prose:
            current.append(ITEM.sub("", text))


def plain(paragraph):
    """A paragraph without the marks of Markdown; code counts as one short word."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", paragraph)
    text = re.sub(r"`[^`]*`", "it", text)
    return re.sub(r"https?://\S+|\*", "", text)


def syllables(word):
    """An estimate of a word's syllables: its groups of vowels, without silent endings."""
    word = re.sub(r"[^a-z]", "", word.lower())
    if len(word) <= 3:
        return 1
    # "need-ed" and "box-es" keep their ending; "used", "makes" and "use" do not.
    if not re.search(r"(?:[td]ed|(?:[sxz]|[cs]h|[cg])es|le)$", word):
        word = re.sub(r"(?:ed|es|e)$", "", word)
    return max(1, len(re.findall(r"[aeiouy]{1,2}", word)))


def grade(lines):
    """The grade of a page's lines; None if it has too little prose."""
    sentences = words = parts = 0
    for paragraph in paragraphs(lines):
        for sentence in re.split(r"(?<=[.!?])\s+", plain(paragraph)):
            found = re.findall(r"[A-Za-z][A-Za-z'-]*", sentence)
            sentences += bool(found)
            words += len(found)
            parts += sum(syllables(word) for word in found)
    if words < WORDS_MIN:
        return None
    return 0.39 * words / sentences + 11.8 * parts / words - 15.59
