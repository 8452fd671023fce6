class RateLimiter:
    def __init__(self, most: int, seconds: float) -> None:
        self.most = most
        self.seconds = seconds
        self.calls: list[float] = []

    def allow(self, now: float) -> bool:
        self.calls = [at for at in self.calls if now - at <= self.seconds]
        if len(self.calls) >= self.most:
            return False
        self.calls.append(now)
        return True
