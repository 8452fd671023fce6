PAIRS = {")": "(", "]": "[", "}": "{"}


def balanced(text: str) -> bool:
    stack: list[str] = []
    for character in text:
        if character in PAIRS.values():
            stack.append(character)
        elif character in PAIRS and (not stack or stack.pop() != PAIRS[character]):
            return False
    return True
