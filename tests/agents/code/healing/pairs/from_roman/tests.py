import pytest
from solution import from_roman


@pytest.mark.parametrize(
    ("text", "number"), [("III", 3), ("VIII", 8), ("IV", 4), ("XL", 40), ("MCMXCIV", 1994)]
)
def test_numerals(text, number):
    assert from_roman(text) == number
