"""A page in, an error out if it is not well formed or needs something else: what tests of HTML and SVG share."""

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

VOID = {"meta", "br", "hr", "img", "input", "link"}
#: Attributes by which a page could reach for something.
REACHING = {"src", "href", "xlink:href", "data", "action", "srcset", "poster"}


class Reader(HTMLParser):
    """Elements that are closed in the order they were opened, and what they refer to."""

    def __init__(self):
        HTMLParser.__init__(self)
        self.open, self.faults, self.references, self.count = [], [], [], {}

    def handle_starttag(self, tag, attributes):
        self.count[tag] = self.count.get(tag, 0) + 1
        self.references += [value for name, value in attributes if name in REACHING]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> at {self.getpos()}")


def read_page(text):
    """The reader of a page that is well formed, refers to nothing outside, and whose pictures are XML."""
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert text.startswith("<!doctype html>")
    assert (reader.faults, reader.open) == ([], [])
    assert [r for r in reader.references if not r.startswith(("#", "data:"))] == []
    assert not re.search(r"@import|url\((?!#)", text)
    for picture in svgs_in(text):
        read_picture(picture)
    return reader


def svgs_in(text):
    return re.findall(r"<svg.*?</svg>", text, re.DOTALL)


def read_picture(text):
    """The root of an SVG; every number in it is one."""
    root = ET.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    for element in root.iter():
        for name, value in element.attrib.items():
            if name in ("x", "y", "x1", "x2", "y1", "y2", "width", "height", "d", "points", "viewBox", "transform"):
                assert "nan" not in value, (element.tag, name, value)
                assert "inf" not in value, (element.tag, name, value)
    return root
