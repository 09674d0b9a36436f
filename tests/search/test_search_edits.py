import pytest

from search.edits import Edit, apply_edits, find_edits, parse_edit

BASE = """\
SOURCE = r'''
void f(float* y, long n) {
    for (long i = 0; i < n; i++)
        y[i] = 0;
    for (long i = 0; i < n; i++)
        y[i] = 1;
}
'''


class ModelNew:
    pass
"""


def block(search: str, replace: str) -> str:
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n"


def test_an_edit_replaces_the_lines_it_names_and_no_others() -> None:
    answer = "## Performance analysis\nSlow.\n## Code\n" + block("        y[i] = 1;", "        y[i] = 2;")
    parsed = parse_edit(answer, BASE)
    assert parsed.candidate is not None
    assert parsed.candidate.code == BASE.replace("y[i] = 1;", "y[i] = 2;")
    assert parsed.analysis == "Slow."


def test_edits_are_applied_in_turn_each_on_what_the_last_one_left() -> None:
    answer = block("        y[i] = 0;", "        y[i] = 7;") + block("        y[i] = 7;", "        y[i] = 8;")
    parsed = parse_edit(f"```\n{answer}```", BASE)
    assert parsed.candidate is not None
    assert parsed.candidate.code == BASE.replace("y[i] = 0;", "y[i] = 8;")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (block("    for (long i = 0; i < n; i++)", "x"), "found 2 times"),
        (block("no such line", "x"), "found 0 times"),
        (block("", "x"), "SEARCH is empty"),
        ("<<<<<<< SEARCH\na\n=======\nb\n", "does not end"),
        ("<<<<<<< SEARCH\na\n>>>>>>> REPLACE\n", "no line ======="),
        (block("class ModelNew:\n    pass", "class Other:\n    pass"), "no class ModelNew"),
        (block("class ModelNew:", "class ModelNew"), "not Python"),
        (block("        y[i] = 1;", "        y[i] = 1;"), "change nothing"),
        ("I would unroll the loop.", "no edit"),
        (block("        y[i] = 1;", "a") * 51, "more than 50"),
    ],
)
def test_what_cannot_be_applied_says_why_and_leaves_no_candidate(answer: str, reason: str) -> None:
    parsed = parse_edit(answer, BASE)
    assert parsed.candidate is None
    assert reason in parsed.reason
    assert "\n" not in parsed.reason


def test_a_lost_indent_and_blanks_at_line_ends_are_passed_over() -> None:
    code, reason = apply_edits(BASE, [Edit(("y[i] = 1;   ",), ("y[i] = 3;", "n--;"))])
    assert reason == ""
    assert "        y[i] = 3;\n        n--;\n" in code


def test_an_exact_match_is_preferred_to_an_indented_one() -> None:
    code, reason = apply_edits("a\n  a\n", [Edit(("a",), ("b",))])
    assert (code, reason) == ("b\n  a\n", "")


def test_all_edits_or_none() -> None:
    code, reason = apply_edits(BASE, [Edit(("        y[i] = 1;",), ("",)), Edit(("nowhere",), ("",))])
    assert code == BASE
    assert reason.startswith("edit 2")


def test_a_whole_file_is_taken_with_a_note() -> None:
    parsed = parse_edit("```python\nclass ModelNew:\n    x = 1\n```", BASE)
    assert parsed.candidate is not None
    assert parsed.candidate.code == "class ModelNew:\n    x = 1\n"
    assert "a whole file in place of edits" in parsed.notes


def test_edits_inside_thinking_do_not_count() -> None:
    answer = (
        "<think>" + block("        y[i] = 1;", "9") + "</think>\n" + block("        y[i] = 0;", "        y[i] = 5;")
    )
    assert find_edits(answer)[0] == [Edit(("        y[i] = 0;",), ("        y[i] = 5;",))]
