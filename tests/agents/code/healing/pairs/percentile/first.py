def percentile(numbers: list[float], p: float) -> float:
    if not numbers:
        raise ValueError("no numbers")
    ordered = sorted(numbers)
    return ordered[round((len(ordered) - 1) * p / 100)]
