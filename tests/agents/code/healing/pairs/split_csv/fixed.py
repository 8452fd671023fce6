import csv


def split_csv(line: str) -> list[str]:
    return next(csv.reader([line]), [""])
