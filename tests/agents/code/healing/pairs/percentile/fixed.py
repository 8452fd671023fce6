def percentile(numbers: list[float], p: float) -> float:
    if not numbers:
        raise ValueError("no numbers")
    ordered = sorted(numbers)
    place = (len(ordered) - 1) * p / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
