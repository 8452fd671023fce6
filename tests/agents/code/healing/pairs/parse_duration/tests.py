import pytest
from solution import parse_duration


def test_units_add_up():
    assert parse_duration("1h30m") == 5400
    assert parse_duration("45s") == 45
    assert parse_duration("2h5s") == 7205


@pytest.mark.parametrize("text", ["", "abc", "10", "5m1h", "1h 30m"])
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError):
        parse_duration(text)
