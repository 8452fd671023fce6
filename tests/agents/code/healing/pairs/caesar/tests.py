from solution import caesar


def test_letters_move():
    assert caesar("abc", 2) == "cde"


def test_they_go_round_the_end():
    assert caesar("xyz", 3) == "abc"
    assert caesar("abc", -1) == "zab"


def test_case_and_all_else_is_kept():
    assert caesar("Hello, World!", 5) == "Mjqqt, Btwqi!"
