from solution import split_csv

assert split_csv("a,b,c") == ["a", "b", "c"]
assert split_csv("a,,c") == ["a", "", "c"]
assert split_csv('"a, b",c') == ["a, b", "c"]
assert split_csv('"say ""hi""",x') == ['say "hi"', "x"], "a doubled quote stands for one"
assert split_csv("one") == ["one"]
