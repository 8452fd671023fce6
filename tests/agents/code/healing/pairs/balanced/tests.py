from solution import balanced


def test_nested_brackets():
    assert balanced("{[()]}()")
    assert balanced("")


def test_crossed_brackets():
    assert not balanced("([)]")


def test_closed_but_never_opened():
    assert not balanced("a)")


def test_opened_but_never_closed():
    assert not balanced("f(x")
