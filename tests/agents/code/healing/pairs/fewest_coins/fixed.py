def fewest_coins(amount: int, coins: list[int]) -> int | None:
    fewest: list[int | None] = [0] + [None] * amount
    for total in range(1, amount + 1):
        ways = [fewest[total - coin] for coin in coins if coin <= total]
        known = [way for way in ways if way is not None]
        fewest[total] = min(known) + 1 if known else None
    return fewest[amount]
