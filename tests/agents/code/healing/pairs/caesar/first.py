def caesar(text: str, shift: int) -> str:
    moved = ""
    for character in text:
        if character.isalpha():
            moved += chr((ord(character.lower()) - ord("a") + shift) % 26 + ord("a"))
        else:
            moved += character
    return moved
