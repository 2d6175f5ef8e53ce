"""The words of the search index by their stems, each found once: there are many pages with few different words."""

from functools import cache

from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish


class CachedEnglish(SearchEnglish):
    """English, with the stems that are known kept."""

    def __init__(self, options: dict[str, str]) -> None:
        SearchEnglish.__init__(self, options)
        self.stem_once = cache(self.stemmer.stemWord)

    def stem(self, word: str) -> str:
        return self.stem_once(word.lower())


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_search_language(CachedEnglish)
    return {"parallel_read_safe": True}
