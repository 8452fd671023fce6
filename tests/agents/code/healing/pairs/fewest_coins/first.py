def fewest_coins(amount: int, coins: list[int]) -> int | None:
    used = 0
    for coin in sorted(coins, reverse=True):
        used += amount // coin
        amount %= coin
    return used if amount == 0 else None
