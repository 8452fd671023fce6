def moving_average(numbers: list[float], window: int) -> list[float]:
    if window < 1:
        raise ValueError("the window must be at least 1")
    return [sum(numbers[i : i + window]) / window for i in range(len(numbers) - window)]
