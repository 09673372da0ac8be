"""Rows of TSV, CSV and JSONL files: which cells are read, and how bad rows are refused."""

import gzip

import pytest

from transformer.data.tables import Columns, Row, read_rows
from transformer.errors import UserError

SST = Columns(("text", "label"), header=True)
NAMED = Columns.parse(("label=gold", "text=sentence"))


def cells(path: str, columns: Columns) -> list:
    return [row.cells for row in read_rows(path, columns, "data.train")]


def test_columns_are_told_by_order_or_by_name():
    assert Columns.parse(("-", "text", "label"), header=True) == (
        ("-", "text", "label"), (), True, (), False,
    )  # fmt: skip
    assert Columns.parse(("text=a b", "label=c=d")).names == ("a b", "c=d")


def test_quotes_in_a_tsv_are_text(write):
    path = write("a.tsv", '\ufeffsentence\tlabel\r\na "good" one \t1\r\n"bad\t0\r\n')
    assert read_rows(path, SST, "data.train") == [
        Row(f"{path}:2", {"text": 'a "good" one', "label": "1"}),
        Row(f"{path}:3", {"text": '"bad', "label": "0"}),
    ]


def test_a_csv_has_quoted_cells(write):
    """RFC 4180: commas, doubled quotes and line ends in quotes; a row's place is its first line."""
    text = 'sentence,label\r\n"one, two",1\r\n"say ""a""\nb",0\r\nplain \u2028 c,1\r\n'
    path = write("a.csv", text)
    assert read_rows(path, SST, "data.train") == [
        Row(f"{path}:2", {"text": "one, two", "label": "1"}),
        Row(f"{path}:3", {"text": 'say "a"\nb', "label": "0"}),
        Row(f"{path}:5", {"text": "plain \u2028 c", "label": "1"}),
    ]


def test_a_broken_quote_is_named_by_line(write):
    with pytest.raises(UserError, match=r"a.csv:2: no CSV as of RFC 4180"):
        cells(write("a.csv", 'a,1\n"b"c,0\n'), Columns(("text", "label")))


def test_jsonl_is_read_by_keys(write):
    lines = [
        '{"gold": 1, "sentence": "a \\u00e4", "x": null}',
        "",
        '{"sentence": "b", "gold": 2.5}',
    ]
    assert cells(write("a.jsonl", "\n".join(lines)), NAMED) == [
        {"label": "1", "text": "a ä"},
        None,
        {"label": "2.5", "text": "b"},
    ]
    same = Columns(("text", "label", "-"))
    assert cells(write("b.jsonl", '{"text": "a", "label": "yes"}\n'), same) == [
        {"text": "a", "label": "yes"}
    ]


@pytest.mark.parametrize("name", ["a.csv.gz", "a.jsonl.gz", "a.tsv.gz"])
def test_the_form_is_told_below_gz(write, name):
    text = {"a.csv.gz": '"a",1', "a.jsonl.gz": '{"text": "a", "label": "1"}', "a.tsv.gz": "a\t1"}
    path = write(name, gzip.compress(text[name].encode()))
    assert cells(path, Columns(("text", "label"))) == [{"text": "a", "label": "1"}]


def test_names_are_found_in_the_header(write):
    path = write("a.tsv", "id\tsentence\tgold\n7\tfine\t1\n")
    assert cells(path, NAMED) == [{"label": "1", "text": "fine"}]


def test_a_name_that_is_there_twice_is_refused(write):
    path = write("a.tsv", "sentence\tgold\tsentence\nfine\t1\tbad\n")
    message = r"a.tsv:1: expected one column 'sentence' in the header, found 2"
    with pytest.raises(UserError, match=message):
        cells(path, NAMED)
    unread = write("b.tsv", "x\tsentence\tgold\tx\n7\tfine\t1\t8\n")
    assert cells(unread, NAMED) == [{"label": "1", "text": "fine"}]


def test_a_name_that_is_missing_has_a_hint(write):
    with pytest.raises(UserError, match=r"a.tsv:1: no column 'sentence' .* did you mean sentence1"):
        cells(write("a.tsv", "id\tsentence1\tgold\n"), NAMED)
    with pytest.raises(UserError, match=r"a.jsonl:1: no key 'gold'; found sentence, x"):
        cells(write("a.jsonl", '{"sentence": "a", "x": 1}'), NAMED)


def test_an_optional_column_may_be_missing_in_a_whole_file(write):
    optional = NAMED._replace(optional=("label",))
    assert cells(write("a.tsv", "id\tsentence\n7\tfine\n"), optional) == [{"text": "fine"}]
    lines = ['{"sentence": "a"}', '{"sentence": "b", "gold": 1}']
    assert cells(write("a.jsonl", lines[0]), optional) == [{"text": "a"}]
    with pytest.raises(UserError, match=r"b.jsonl:2: no key 'gold'"):
        cells(write("b.jsonl", "\n".join(reversed(lines))), optional)
    with pytest.raises(UserError, match=r"c.jsonl:2: a key 'gold'; expected it in every row or in"):
        cells(write("c.jsonl", "\n".join(lines)), optional)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.tsv", "h\tl\nfine\t1\ntext only\n", r":3: 1 column; expected 2 \(text TAB label, see"),
        ("a.tsv", "h\tl\na\tb\tc\n", ":2: 3 columns; expected 2"),
        ("a.csv", 'h,l\n"a\nb",1\nx\n', ":4: 1 column; expected 2 .text,label, see data.columns"),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"a"\n', ":2: no JSON"),
        ("a.jsonl", '["a", 1]\n', ":1: expected a JSON object, found"),
        ("a.jsonl", '{"text": null, "label": 1}\n', ":1: text is null; expected text or a number"),
        ("a.jsonl", '{"text": "\\ud800", "label": 1}\n', ":1: text: U.D800 at position 0 is no"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(write, name, text, message):
    with pytest.raises(UserError, match=f"{name}{message}"):
        cells(write(name, text), SST)


def test_a_row_shorter_than_its_header(write):
    with pytest.raises(UserError, match=r"a.tsv:3: 2 columns; expected 3, as in its header"):
        cells(write("a.tsv", "id\tsentence\tgold\n7\tfine\t1\n8\tbad\n"), NAMED)


def test_broken_rows_are_left_out_where_that_is_known(write):
    path = write("a.tsv", "sentence\tgold\na\t1\nb\nc\t0\n")
    found = cells(path, NAMED._replace(broken=True))
    assert found == [{"label": "1", "text": "a"}, None, {"label": "0", "text": "c"}]
