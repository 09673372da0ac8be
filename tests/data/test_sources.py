"""Local files, and what is said about bad ones."""

import gzip

import pytest

from transformer.data.sources import Pairs, decode_lines, read, read_files, read_lines
from transformer.errors import UserError


def test_lines_end_at_newline_only(write):
    """CRLF and the byte-order mark go; U+2028, U+0085, a form feed and a lone CR are text."""
    path = write("in.txt", "\ufeffone\r\ntwo\u2028three\x85\x0c\n\nfour\rfive\n")
    assert read_lines(path, "data.train") == ["one", "two\u2028three\x85\x0c", "", "four\rfive"]


@pytest.mark.parametrize(
    ("content", "lines"),
    [("", []), ("\n", [""]), ("a", ["a"]), ("a\n", ["a"]), ("a\n\n", ["a", ""])],
)
def test_a_final_newline_ends_a_line_and_starts_none(write, content, lines):
    assert read_lines(write("in.txt", content), "data.train") == lines


def test_gzip_by_content(write):
    path = write("in.txt", gzip.compress("één\nzwei\n".encode()))
    assert read_lines(path, "data.train") == ["één", "zwei"]


def test_broken_gzip(write):
    whole = gzip.compress(b"some text\n" * 99)
    for content in (whole[:-11], whole[:13] + b"\xff\xff" + whole[15:]):
        with pytest.raises(UserError, match=r"in\.gz: broken gzip file"):
            read_lines(write("in.gz", content), "data.train")


def test_undecodable_bytes_name_file_and_line(write):
    path = write("in.txt", b"fine\nalso fine\ncaf\xe9\n")
    with pytest.raises(UserError, match=r"in\.txt:3: byte 0xe9 is not UTF-8"):
        read_lines(path, "data.train")


def test_lines_from_the_middle_of_a_stream():
    """Only the first line of all can have a byte-order mark; later it is text."""
    mark = "\ufeffa\n".encode()
    assert decode_lines(mark, "stdin") == ["a"]
    assert decode_lines(mark, "stdin", first=9) == ["\ufeffa"]
    with pytest.raises(UserError, match="stdin:10: byte 0xff"):
        decode_lines(mark + b"\xff\n", "stdin", first=9)


def test_a_missing_file_suggests_the_nearest_name(write):
    path = write("train.en.gz", "a\n")
    with pytest.raises(
        UserError, match=r"data\.train .*train\.en: no such file; did you mean train.en.gz"
    ):
        read_lines(path.removesuffix(".gz"), "data.train")
    with pytest.raises(UserError, match=r"nowhere.*no such file$"):
        read_lines("nowhere/x", "data.train")


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(UserError, match="directory"):
        read_lines(tmp_path, "data.train")


def test_parallel_files(write):
    paths = (write("a", "eins\nzwei\n"), write("b", "one\ntwo"))
    assert read_files(paths, "data.train") == Pairs(["eins", "zwei"], [["one"], ["two"]])


def test_unequal_line_counts_name_both(write):
    paths = (write("a.de", "eins\nzwei\n"), write("b.en", "one\ntwo\nthree\n"))
    with pytest.raises(UserError, match=r"a\.de has 2 lines and .*b\.en has 3"):
        read_files(paths, "data.train")


def test_tsv(write):
    path = write("pairs.tsv", "\ufeffeins\tone\r\nzwei\ttwo \n")
    assert read_files((path,), "data.test") == Pairs(["eins", "zwei"], [["one"], ["two "]])


@pytest.mark.parametrize("row", ["no tab", "too\tmany\ttabs"])
def test_a_tsv_row_of_other_columns_names_file_and_line(write, row):
    path = write("pairs.tsv", f"eins\tone\n\n{row}\n")
    with pytest.raises(UserError, match=r"pairs\.tsv:3: \d columns?; expected two"):
        read_files((path,), "data.train")


def test_blank_pairs_leave_together_and_are_counted(write, settings):
    """A blank line once crashed readers, or vanished from one side only and shifted the rest."""
    source = write("a", "eins\n\ndrei\n \nfünf\n")
    target = write("b", "one\ntwo\n\n\t\nfive\n")
    log: list[str] = []
    pairs = read(settings(dataset="files", train=(source, target)), "train", log.append)
    assert pairs == Pairs(["eins", "fünf"], [["one"], ["five"]])
    assert log == ["train: 2 pairs (3 of 5 blank on a side, left out)"]


def test_no_pairs_at_all(write, settings):
    with pytest.raises(UserError, match="no pairs in 2 lines"):
        read(settings(dataset="files", train=(write("a", "\n\n"), write("b", "\n\n"))), "train")


def test_a_split_that_is_not_given_is_none(write, settings):
    assert read(settings(dataset="files", train=(write("a", "x\ty\n"),)), "test") is None


def test_the_dictionary(settings):
    pairs = read(settings(), "validation", log=lambda line: None)
    assert pairs is not None
    assert len(pairs) == 2_670
    assert max(len(answers) for answers in pairs.references) > 1
